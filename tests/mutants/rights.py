"""Wrong choices about rights: what a rule matches, who decides, and what is remembered of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_GROUPS = "rangelog_broker.groups.kind"
_RULES = "rangelog_core.rights"
_STATE = "rangelog_pd.state.rights"
_TABLE = "rangelog_pd.state.rights_table"
_RESOURCES = "rangelog_pd.state.resources"
_SNAPSHOT = "rangelog_pd.state.snapshot"
_CALLS = "rangelog_pd.handlers.client_rights"
_NEEDS = "rangelog_pd.handlers.needs"
_DRIVER = "rangelog_pd.driver"
_GRANTS = "rangelog_server_common.rights.grants"
_GUARD = "rangelog_server_common.rights.guard"
_GATE = "rangelog_server_common.rights.frame_gate"
_PD, _API, _GUARDED = (
    "pd/state/test_pd_rights.py",
    "pd/handlers/test_pd_client_rights.py",
    "server_common/test_rights.py",
)

RIGHTS: tuple[Mutant, ...] = (
    rare("rights-prefix-short-by-one", "a rule for orders-* gives orders as well", _RULES,
         "            if length <= len(known):\n", "            if length <= len(known) + 1:\n", _PD)
    .and_also(_RULES, "self.verbs.get((kind, known[:length] + PREFIX_END), NONE)",
              "next((got for (of, start), got in self.verbs.items() if of == kind and start.startswith(known[:length])"
              " and len(start) - 1 == length), NONE)"),
    rare("rights-principal-ignored", "a rule for one client is one for all", _RULES,
         "        for each in (principal, EVERY_CLIENT):\n", "        for each in self._of:\n", _PD),
    rare("rights-kind-ignored", "a rule for a namespace's name is one for the group of that name", _RULES,
         "        verbs = self.verbs.get((kind, name), NONE)\n",
         "        verbs = next((got for (_, of), got in self.verbs.items() if of == name), NONE)\n", _PD),
    rare("rights-of-journals", "a rule for all streams opens the journals of groups and transactions", _RESOURCES,
         "    if kind == pb.RESOURCE_KIND_STREAM and is_internal_name(name):\n", "    if False:\n", _PD),
    rare("rights-shards-appended-to", "a producer's right lets it write past the owner of the shard", _RESOURCES,
         "    return given & Verb.READ, ", "    return given, ", _PD),
    rare("rights-revoke-keeps", "what was revoked stays", _STATE, "& ~verbs_of(rule.verbs)", "& ANY", _PD)
    .and_also(_STATE, "from rangelog_core.rights import NONE,", "from rangelog_core.rights import ANY, NONE,"),
    rare("rights-version-stays", "servers do not hear that a right was taken", _STATE,
         "        rights.version += 1\n        if verbs:\n", "        if verbs:\n", _PD),
    rare("rights-forgotten-by-snapshots", "a restarted placement driver lets everybody in", _SNAPSHOT,
         "        rights_enforced=state.rights.enforced,\n", "", _PD),
    rare("rights-rules-forgotten-by-snapshots", "a restarted placement driver lets nobody in", _SNAPSHOT,
         '"access_rules": lambda state: state.rights.rules.freeze()', '"access_rules": lambda state: []', _PD),
    rare("rights-off-is-a-version", "servers refuse everybody though rights are not enforced", _TABLE,
         "        return self.version if self.enforced else 0\n", "        return self.version\n", _PD),
    rare("rights-verb-ignored", "a reader trims", _CALLS, "        if not given & verbs:\n", "        if not given:\n", _API),
    rare("rights-batch-whole", "one allowed item lets the whole batch through", _CALLS,
         "    if not refused:\n", "    if len(refused) < len(items):\n", _API),
    rare("rights-lists-all", "a list tells the names of all streams", _CALLS,
         "for row in rows if _shown(", "for row in rows if True or _shown(", _API),
    rare("rights-name-or-id", "the id of one's own stream beside the name of another's opens that", _NEEDS,
         "        if name or not stream_id:\n", "        if not stream_id:\n", _API),
    rare("rights-stale-leader", "a new leader does not know yet what the one before was told", _DRIVER,
         "        if self._leading_term != self.consensus.status().term:\n", "        if False:\n", _API),
    rare("rights-grant-for-ever", "a grant outlives an outage of the placement drivers without an end", _GRANTS,
         "        if kept is None or now_s - kept[2] >= GRANT_LIFETIME_S:\n", "        if kept is None:\n", _GUARDED),
    rare("rights-grants-outlive-revocation", "what was revoked is served until the grant ends by itself", _GRANTS,
         "            self._kept.clear()\n", "", _GUARDED),
    rare("rights-late-answer-believed", "an answer from before a revocation counts after it", _GRANTS,
         "        if version < self.version:\n            return False\n", "", _GUARDED),
    rare("rights-any-verb", "whoever may read may append", _GUARD,
         "        if not grant.verbs & verbs:\n", "        if not grant.verbs:\n", _GUARDED),
    rare("rights-open-in-outages", "without a placement driver everybody may do everything", _GUARD,
         "            if now_s < failed[0]:\n", "            if now_s < failed[0]:\n"
         "                return Grant(verbs_of([1, 2, 3, 4, 5]), key[1], key[2])\n            if False:\n", _GUARDED),
    rare("rights-stream-ignored", "the right on one stream opens all those of the connection", _GATE,
         "else (self._principal, kind, \"\", which)\n", "else (self._principal, kind, \"\", 1)\n", _GUARDED),
    rare("rights-open-before-they-are-known", "a broker that has just started serves everybody", _GUARD,
         "        self.grants.heard(UNKNOWN)\n", "        pass\n", _GUARDED),
    rare("rights-known-for-ever", "a stream that a connection has written to stays its own after a revocation", _GATE,
         " and known[1] == version and", " and", _GUARDED),
    rare("rights-known-for-any-verb", "a connection that has read a stream may append to it", _GATE,
         "known is not None and known[0] & verbs and", "known is not None and", _GUARDED),
    rare("rights-frames-overtake", "a frame overtakes those that wait, and batches are out of order", _GATE,
         "        if waiting is not None:\n            self._hold(frame, waiting)\n            return False\n", "", _GUARDED),
    rare("rights-gate-in-a-circle", "each connection leaves its buffers behind, and the server grows",
         "rangelog_server_common.rights.frame_gate",
         "        self._again = _forgotten\n", "", "server_common/test_rights.py"),
    rare("rights-stage-for-anybody", "who may append to a topic takes any transactional id away from its program",
         "rangelog_broker.verbs.produce",
         "        if not caller.passes(self, _APPEND, (_TRANSACTION, self.transactional_id)):\n            return\n", "",
         "broker/serving/test_producer_connection.py"),
    rare("rights-join-any-topic", "a group holds up the retention of a topic on which its client has no right",
         _GROUPS, "KindCall(_joining)", "_READS", "broker/test_broker_needs.py"),
    rare("rights-watch-of-a-guessed-session", "whoever can count reads along with another client's watch, and ends it",
         "rangelog_pd.reconcile.watches", "session is None or session.caller != caller or ", "session is None or ",
         "pd/handlers/test_pd_watch.py"),
    rare("rights-watch-session-of-nobody", "sessions are opened without a word on whose they are",
         "rangelog_pd.handlers.watch", 'str(current_caller(None, tls=False) or "")', '""', "pd/handlers/test_pd_watch.py"),
    rare("rights-stage-positions-for-anybody", "positions are staged in a transaction on which the client has no right",
         _GROUPS, "KindCall(_staging_positions)", "_READS", "broker/test_broker_needs.py"),
    rare("rights-reset-in-any-topic", "a group holds up the retention of a topic on which its administrator has no right",
         _GROUPS, "KindCall(_resetting)", "_ADMINISTERS", "broker/test_broker_needs.py"),
    rare("rights-commit-in-any-topic", "a commit has the owner of any shard work for a client without a right on it",
         "rangelog_broker.transactions.service", "            await self._rights.require(context, Verb.APPEND, topics)\n", "",
         "broker/transactions/test_transactions_service.py"),
    rare("rights-commit-in-any-group", "a commit has the owner of any group work for a client without a right on it",
         "rangelog_broker.transactions.service",
         "            await self._rights.require_groups(context, Verb.READ, groups)\n", "",
         "broker/transactions/test_transactions_service.py"),
    rare("rights-group-tells-of-any-topic", "who may read a group learns how far topics are on which it has no right",
         "rangelog_broker.groups.service",
         "        await self._check_topics(topics | {each.shard.topic_id for each in found.state.shards}, context)\n", "",
         "broker/groups/test_group_rights.py"),
    rare("rights-checkpoint-tells-of-any-topic", "a checkpoint tells positions in topics on which its reader has no right",
         "rangelog_broker.groups.service",
         "        await self._check_topics({each.topic_id for each in places}, context)\n", "",
         "broker/groups/test_group_rights.py"),
    rare("rights-group-of-a-deleted-topic", "a group with a deleted topic is hidden from all clients",
         "rangelog_broker.topic_rights", "            except TopicNotFound:\n                return\n",
         "            except TopicNotFound:\n                pass\n", "broker/groups/test_group_rights.py"),
    rare("rights-lag-of-any-topic", "the lag over REST tells of topics on which the caller has no right",
         "rangelog._consume.groups",
         "        names = await self._names_of(each.shard.topic_id for each in response.state.shards)\n",
         "        names = {each.shard.topic_id: \"\" for each in response.state.shards}\n", "pd/handlers/test_pd_acting.py"),
    rare("rights-names-once-told", "what an administrator has asked a broker for is told to every client",
         "rangelog._consume.group_shards",
         "        try:\n"
         "            topic = (await self._topics.call(request, topic_pb2.DescribeTopicResponse, "
         "timeout_s=CALL_TIMEOUT_S)).topic\n        exc",
         "        if topic_id in self._names:\n            return self._names[topic_id]\n        try:\n"
         "            topic = (await self._topics.call(request, topic_pb2.DescribeTopicResponse, "
         "timeout_s=CALL_TIMEOUT_S)).topic\n        exc",
         "pd/handlers/test_pd_acting.py"),
    rare("rights-session-for-anybody", "a client without a right uses up the sessions of a journal",
         _GROUPS, "[(ANY, pb.RESOURCE_KIND_GROUP, request.group or \"*\", 0)]", "[]", "broker/test_broker_needs.py"),
    rare("rights-session-of-a-number", "a right on one group opens sessions of all journals",
         "rangelog_broker.groups.service", "self._owner(request.group) if request.group else self.owner_of(request.journal)",
         "self.owner_of(request.journal)", "broker/groups/test_groups_service.py"),
    rare("rights-own-id-unseen", "a program may not look at its own transactions",
         "rangelog_broker.transactions.kind", "KindCall(_all_or_one(ANY))",
         "KindCall(lambda _request: [(ANY, pb.RESOURCE_KIND_TRANSACTION, \"*\", 0)])",
         "client/transact/test_transactions.py"),
    rare("rights-own-id-and-others", "a right on one transactional id shows what others have come to",
         "rangelog_broker.transactions.service",
         "[only] if only else sorted(machine.ids())", "sorted(machine.ids())",
         "broker/transactions/test_transactions_service.py"),
    rare("rights-stage-under-any-epoch", "who may append to one transactional id fences the program of another",
         "rangelog_broker.shards.transactional", "        if self.verify is not None and instance not in self._given:\n",
         "        if False:\n", "broker/shards/test_staging_instances.py"),
    rare("rights-stage-by-a-known-producer", "what is known of one transactional id counts for another",
         "rangelog_broker.shards.transactional", "        instance = (name, producer.producer_id, producer.epoch)\n",
         "        instance = (\"\", producer.producer_id, producer.epoch)\n", "broker/shards/test_staging_instances.py"),
    rare("rights-stage-of-a-later-epoch", "an epoch that was never given fences the program that has the id",
         "rangelog_broker.transactions.inquiries", "        if result.epoch != producer.epoch:\n",
         "        if result.epoch > producer.epoch:\n", "broker/shards/test_staging_instances.py"),
)  # fmt: skip
