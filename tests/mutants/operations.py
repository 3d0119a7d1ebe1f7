"""Wrong choices about cordons, drains, removals, impacts and gray failures: each is caught by a named test."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_PLACEMENT = "rangelog_pd.placement"
_DIRECTIVES = "rangelog_pd.reconcile.directives"
_MOVES = "rangelog_pd.reconcile.moves"
_DRAINING = "rangelog_pd.reconcile.draining"
_IMPACT = "rangelog_pd.reconcile.impact"
_COMPLAINTS = "rangelog_pd.reconcile.complaints"
_MODES = "rangelog_pd.state.server_modes"
_DRAIN_TEST = "pd/reconcile/test_pd_draining.py"
_CALLS_TEST = "pd/handlers/test_pd_operations.py"
_MODES_TEST = "pd/state/test_pd_server_modes.py"
_IMPACT_TEST = "pd/reconcile/test_pd_impact.py"
_ROOM_TEST = "client/protocol/test_appender_room.py"
_FULL_TEST = "broker/shards/test_full_servers.py"
_PRODUCER_ROOM_TEST = "client/produce/test_producer_room.py"
_COMPLAINTS_TEST = "pd/reconcile/test_pd_complaints.py"

OPERATIONS: tuple[Mutant, ...] = (
    rare("no-room-before-others-are-asked", "appends fail while other servers have room", "rangelog.protocol.room",
         "        if self.without or len(self._here) <= spare or not (refused or self._here <= self._before):\n",
         "        if self.without or len(self._here) <= spare:\n", _ROOM_TEST),
    rare("no-room-at-one-server", "appends fail since one server of three is full", "rangelog.protocol.room",
         "        if self.without or len(self._here) <= spare or not (refused or self._here <= self._before):\n",
         "        if self.without or not self._here or not (refused or self._here <= self._before):\n", _ROOM_TEST),
    rare("no-room-for-ever", "a writer refuses appends although there is room again", "rangelog.protocol.room",
         "            self.without = ()\n", "", _ROOM_TEST),
    rare("full-disks-are-waited-for", "an append waits its whole time, and its error guesses", "rangelog._append.runner",
         "            end_waits(self.waits)\n", "", "client/append/test_append_outcomes.py"),
    rare("full-shard-keeps-its-producers", "what waits at a shard's owner is not told of full disks",
         "rangelog_broker.shards.shard",
         "                reply.refused(request_id, error)\n\n    def _append(\n",
         "                pass\n\n    def _append(\n", _FULL_TEST),
    rare("full-shard-forgets-what-it-took", "a batch in flight is dropped as full disks are told, and ends the owner",
         "rangelog_broker.shards.shard",
         "            self._waiting[offset] = []\n            for reply, request_id in replies:\n",
         "            del self._waiting[offset]\n            for reply, request_id in replies:\n", _FULL_TEST),
    rare("full-shard-takes-more", "an owner takes batches that cannot be acked", "rangelog_broker.shards.shard",
         "            if self._owner.is_new(producer):\n                raise\n", "            pass\n", _FULL_TEST),
    rare("full-shard-refuses-what-is-there", "a batch that is acked is refused since disks are full",
         "rangelog_broker.shards.shard", "            if self._owner.is_new(producer):\n                raise\n",
         "            raise\n", _FULL_TEST),
    rare("full-staging-answers-what-is-in-flight", "a batch counts as staged before it is",
         "rangelog_broker.shards.transactional",
         "            self._waiting[producer] = []\n            for reply",
         "            self._waiting = {}\n            for reply",
         _FULL_TEST),
    rare("full-journal-is-certain", "a command in flight is told as not applied", "rangelog_broker.journal.journal",
         "            _fail(future, error.with_outcome(unknown=outcome_unknown))\n",
         "            _fail(future, error.with_outcome(unknown=False))\n", _FULL_TEST),
    rare("full-journal-takes-more", "a journal takes commands that cannot be acked", "rangelog_broker.journal.journal",
         "        if self._owner.is_new(session, sequence):\n            self._writer.check_room()\n", "", _FULL_TEST),
    rare("full-owner-is-asked-on", "a call is repeated until its time is over, and the owner reported",
         "rangelog_core.net.owner_calls", "                    if isinstance(last, StorageFull):",
         "                    if False:",
         "core/net/test_owner_calls.py"),
    rare("full-shard-stops-the-others", "records of shards with room are refused", "rangelog._produce.runner",
         "            if shards and all(each in full for each in shards):\n", "            if shards:\n", _PRODUCER_ROOM_TEST),
    rare("full-shard-fails-all-waits", "who waits for another shard is told", "rangelog._produce.runner",
         "                if bisect_left(at_shard, orders.start) < bisect_left(at_shard, orders.stop) and not future.done():\n",
         "                if not future.done():\n", _PRODUCER_ROOM_TEST),
    rare("full-shard-gets-keyless-records", "records without a key go to the shard without room", "rangelog._produce.runner",
         "(self._links[shard_id].attachment is None or isinstance(problem, StorageFull))",
         "self._links[shard_id].attachment is None", _PRODUCER_ROOM_TEST),
    rare("full-shard-ends-the-producer", "a producer ends since disks are full for a while", "rangelog._produce.shard_link",
         "        elif ends_producer(error):\n", "        elif ends_producer(error) or isinstance(error, StorageFull):\n",
         _PRODUCER_ROOM_TEST),
    rare("full-transaction-is-given-up", "a transaction ends since a record has no room for a while",
         "rangelog._transact.transaction", "            except (AppendTimeout, StorageFull):\n",
         "            except AppendTimeout:\n",
         "client/testing/test_full_servers_told_alike.py"),
    rare("full-disks-get-more", "each refused append is taken all the same, and appended later", "rangelog._append.runner",
         "            raise self.not_acked(0.0, outcome_unknown=False)\n", "            pass\n",
         "client/append/test_append_outcomes.py"),
    rare("import-drops-a-byte", "an import takes a byte off each value that ends with a carriage return",
         "pdctl.lines", "        self._before_end = b\"\\r\" if crlf else b\"\"\n", "        self._before_end = b\"\\r\"\n",
         "pdctl/test_pdctl_reading.py"),
    # ---- cordon
    rare("cordon-ignored", "a cordoned server gets new ranges and repairs", "rangelog_pd.reconcile.fleet",
         "            state.modes.bars(name),\n", "            False,\n", _DRAIN_TEST),
    rare("cordon-ignored-by-placement", "placement takes a cordoned server when there is too little choice", _PLACEMENT,
         "        return not candidate.barred and self.labels", "        return self.labels", _DRAIN_TEST),
    rare("mode-forgotten-at-a-start", "a server that restarts is active again", "rangelog_pd.state.servers",
         "retired=retired, mode=mode)", "retired=retired)", _MODES_TEST),
    # ---- drain
    rare("drain-drops-before-the-copy", "a drained copy is dropped as soon as enough others are whole", _DIRECTIVES,
         "        needed = len(found.replicas) if moves else found.acks\n", "        needed = found.acks\n", _DRAIN_TEST),
    rare("drain-called-off-drops-early", "a drain that is called off half way drops copies early", _DIRECTIVES,
         " or key in self.view.upkeep.moves.under_way\n", "\n", _DRAIN_TEST),
    rare("drain-of-all-at-once", "all ranges of a drained server lack a whole member at the same time", _MOVES,
         "            if len(self.under_way) >= MOVES_MAX:\n                return\n            del", "            del",
         _DRAIN_TEST),
    rare("drain-forgotten-by-a-new-leader", "a drain ends half way when the leader changes", _MOVES,
         "        for name in (*state.draining, *self._view.complaints.left):\n", "        for name in ():\n", _DRAIN_TEST),
    rare("drain-misses-what-is-sealed-later", "ranges that were open when the drain began stay", _MOVES,
         "        if self._leaving(state, of) is not None:\n", "        if False:\n", _DRAIN_TEST),
    rare("drain-gives-up-what-is-blocked", "a range without a candidate never leaves, also when there is one later", _MOVES,
         "        self.queue.update(dict.fromkeys(self.blocked))\n", "", _DRAIN_TEST),
    rare("drain-without-end", "a drain is begun although too few servers would remain", _DRAINING,
         "            if len(found.replicas) > len(remaining):\n", "            if not remaining:\n", _CALLS_TEST),
    rare("drained-before-the-copies", "a server counts as drained while others still copy from it", _DRAINING,
         "(self.open_count or self.sealed_count or self.copying)", "(self.open_count or self.sealed_count)", _CALLS_TEST),
    # ---- remove
    rare("remove-of-a-last-copy", "a dead server is removed although nobody else has some of its ranges", _DRAINING,
         "        if found.lost_count:\n", "        if False:\n", _CALLS_TEST),
    rare("remove-of-a-last-member", "the state gives up the last registered member of a range", _MODES,
         "        if not _is_elsewhere(state,", "        if False and not _is_elsewhere(state,", _MODES_TEST),
    rare("remove-of-a-living-server", "a server that is alive and not drained is removed", _MODES,
         "    if not request.dead and (known", "    if False and (known", _MODES_TEST),
    rare("removed-comes-back", "a removed data directory registers again", _MODES,
         "    gone.retired.extend(kept)\n", "", _MODES_TEST),
    # ---- impact
    rare("impact-counts-the-unreported", "a server that has not reported counts as having all of its ranges", _IMPACT,
         "    if report is None or report.state != pd_pb2.REPLICA_STATE_SEALED:\n        return False\n",
         "    if report is not None and report.state != pd_pb2.REPLICA_STATE_SEALED:\n        return False\n", _IMPACT_TEST),
    rare("impact-of-half-a-tier", "a range of which the tier has a part counts as safe", _IMPACT,
         "found.tiered_end_offset >= found.end_offset", "found.tiered_end_offset > found.start_offset", _IMPACT_TEST),
    rare("impact-forgets-the-replaced", "a copy that is being replaced is not counted as the last one", _IMPACT,
         "        for keys in (hosted.open, hosted.sealed, reported):\n", "        for keys in (hosted.open, hosted.sealed):\n",
         _IMPACT_TEST),
    # ---- gray failures
    rare("complaint-of-one-counts", "one writer can have a server avoided", _COMPLAINTS,
         "        entry.reporters.pop(reporter, None)\n", "        reporter += f\" {now_ms}\"\n", _COMPLAINTS_TEST),
    rare("complaints-without-end", "complaints of a whole day add up", _COMPLAINTS,
         "            if now_ms - self.reporters[first] < COMPLAINT_MS:\n                break\n", "            break\n",
         _COMPLAINTS_TEST),
    rare("restart-is-a-gray-failure", "a server that was started again is avoided for the time it was away", _COMPLAINTS,
         "        if entry.is_dead or now_ms < entry.deaf_until_ms:\n", "        if False:\n", _COMPLAINTS_TEST),
    rare("everybody-is-avoided", "a trouble of the network has all servers avoided", _COMPLAINTS,
         "sorted(ill)[: (len(usable) - 1) // AVOIDED_SHARE]", "sorted(ill)", _COMPLAINTS_TEST),
    rare("flapping-undamped", "a server that comes and goes is trusted after the same time for ever", _COMPLAINTS,
         "self.bouts + 1 if now_ms - self.ended_ms < RELAPSE_MS else 1", "1", _COMPLAINTS_TEST),
    rare("gray-for-ever-kept", "a server in trouble for hours keeps its replicas", _COMPLAINTS,
         "now_ms - entry.began_ms >= LEAVE_AFTER_MS", "False", _COMPLAINTS_TEST),
    rare("full-log-is-healthy", "a cluster that takes no append says that it is healthy", "rangelog_pd.handlers.servers",
         "        if view.log_error:\n", "        if False:\n", "pd/handlers/test_pd_tier_calls.py"),
    rare("alive-and-full-is-fine", "what is wrong with a server that is heard of is no reason", "rangelog_pd.reconcile.health",
         "each.health != common_pb2.SERVER_HEALTH_ALIVE or each.health_reason:",
         "each.health != common_pb2.SERVER_HEALTH_ALIVE:", "pd/handlers/test_pd_tier_calls.py"),
    rare("late-append-guesses", "an append that servers refused blames those that do not answer", "rangelog._append.runner",
         "{**self._refusals, **found}", "found", "client/append/test_append_outcomes.py"),
)  # fmt: skip
