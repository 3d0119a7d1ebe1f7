"""Wrong choices about the audit log: what is recorded, when, and what a check proves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_CHAIN, _CHAINED = "rangelog_core.audit", "core/test_audit_chain.py"
_STATE, _STATED = "rangelog_pd.state.audit", "pd/state/test_pd_audit.py"
_TABLE = "rangelog_pd.state.audit_table"
_TRAIL, _TRAILED = "rangelog_pd.reconcile.audit_trail", "pd/reconcile/test_pd_audit_trail.py"
_CALLS, _CALLED = "rangelog_pd.handlers.audited", "pd/handlers/test_pd_audited.py"
_ACTING, _ACTED = "rangelog_core.net.acting", "core/net/test_acting.py"
_GRPC, _BEHIND = "rangelog_server_common.grpc_server", "pd/handlers/test_pd_acting.py"

AUDIT: tuple[Mutant, ...] = (
    rare("audit-chain-unchecked", "a changed line is intact", _CHAIN,
         "        if fields[\"previous\"] != self.hash.hex():\n", "        if False:\n", _CHAINED),
    rare("audit-last-line-unchecked", "the last line may be changed", _CHAIN,
         "        if self.hash != last_hash:\n", "        if False:\n", _CHAINED),
    rare("audit-cut-unseen", "a log that was cut is intact", _CHAIN,
         "        if self.sequence < last_sequence:\n", "        if False:\n", _CHAINED)
    .and_also(_CHAIN, "        if self.hash != last_hash:\n",
              "        if self.sequence == last_sequence and self.hash != last_hash:\n"),
    rare("audit-gap-unseen", "a missing entry is intact if the chain was made anew", _CHAIN,
         "        if sequence > self.sequence + 1:\n", "        if False:\n", _CHAINED),
    rare("audit-begins-when-full", "the waiting entries grow without end", _STATE,
         "    if begins and len(audit.pending) >= PENDING_MAX:\n", "    if False:\n", _STATED),
    rare("audit-outcome-refused-when-full", "what has begun gets no outcome", _STATE,
         "    if begins and len(", "    if len(", _STATED),
    rare("audit-forgets-the-head", "after a restart the chain begins anew", _TABLE,
         "        self.last_hash = row.last_hash or FIRST_PREVIOUS\n", "", _STATED),
    rare("audit-forgets-what-waits", "entries that wait are lost with a snapshot", _TABLE,
         "            self.pending.put(each.sequence, each)\n", "            pass\n", _STATED),
    rare("audit-stream-is-a-stream", "an administrator deletes the audit log", "rangelog_pd.state.streams",
         "        if stream.name == AUDIT_STREAM_NAME:\n            raise",
         "        if stream.name == AUDIT_STREAM_NAME:\n            return\n            raise", _STATED),
    rare("audit-trimmed-by-id", "whoever knows the id of the audit log's stream trims it", "rangelog_pd.state.streams",
         " or stream.name == AUDIT_STREAM_NAME or ", " or ", _STATED),
    rare("acting-for-of-anybody", "whoever can call a placement driver does so as another", _ACTING,
         "    if caller is None or caller.role is not Role.BROKER or port is not Port.PD_API:\n",
         "    if caller is None:\n", _ACTED),
    rare("acting-for-inherited", "a lookup that requests share is for the first of them, and so is what outlives it", _ACTING,
         "    if acting is None or acting[1] is not asyncio.current_task():\n", "    if acting is None:\n", _ACTED),
    rare("acting-for-without-tls", "a broker is refused by placement drivers that cannot know it",
         "rangelog_core.net.pd_client", "with_principal(metadata) if tls is not None else metadata",
         "with_principal(metadata)", _ACTED),
    rare("acting-for-nobody", "a change over REST is in no audit log", "rangelog_server_common.http_callers",
         "with acting_for(caller, bounds_of(caller)):",
         "with acting_for(None):", _BEHIND),
    rare("acting-for-without-bounds", "a token that is bound to one stream opens all of its client's over REST",
         "rangelog_server_common.http_callers", "with acting_for(caller, bounds_of(caller)):", "with acting_for(caller):",
         _BEHIND),
    rare("acting-for-with-the-brokers-rights", "the placement driver checks and records the broker", _GRPC,
         "                _CALLER.set((asker,))\n", "                _CALLER.set((principal,))\n", _BEHIND),
    rare("acting-for-without-a-quota", "what is asked over REST counts for nobody", _GRPC,
         "await self.hold(asker, ", "await self.hold(principal, ", _BEHIND),
    rare("acting-for-counts-at-one-server", "a request over REST is free at the broker", "rangelog_server_common.http_callers",
         "        await quotas.hold(who, Measure.CALLS, 1, self._request_timeout_s)\n", "", _BEHIND),
    rare("acting-for-counts-twice", "a request over REST counts twice at the broker", "rangelog_server_common.http_callers",
         "        await quotas.hold(who, Measure.CALLS, 1, self._request_timeout_s)\n",
         "        for _ in range(2):\n            await quotas.hold(who, Measure.CALLS, 1, self._request_timeout_s)\n",
         _BEHIND),
    rare("acting-for-with-the-brokers-calls", "a client has a broker call what is for brokers alone", _GRPC,
         "        self._rules.check(asker, details.method)\n", "", _BEHIND),
    rare("audit-names-the-broker-early", "members of two versions make two chains", "rangelog_pd.driver",
         "if isinstance(principal, Represented) and self.knows_level(LEVEL_BROKERS):", "if isinstance(principal, Represented):",
         _BEHIND),
    rare("audit-refusal-without-its-broker", "a refusal over REST names no broker", _TRAIL,
         ", through=key.through,", ",", _BEHIND),
    rare("audit-afterwards", "a change is made, and recorded after it", _CALLS,
         "        note.of_sequence = await _begin(driver, begun)\n", "        note.of_sequence = 1\n", _CALLED),
    rare("audit-secret", "the secret in a tier's URL is in the log", _CALLS,
         "    if call.secret:\n", "    if False:\n", _CALLED),
    rare("audit-new-leader-does-not-know", "a new leader changes things before it knows that the log is on",
         "rangelog_pd.driver",
         "        await self.catch_up()\n        return self.machine.state.audit.enabled\n",
         "        return self.machine.state.audit.enabled\n", _CALLED),
    rare("audit-refusals-fill-it", "who is refused again and again fills the log", _TRAIL,
         "            if now_ms < each.due_ms:\n", "            if False:\n", _TRAILED),
    rare("audit-drops-in-silence", "refusals that are too many leave no trace", _TRAIL,
         "            self._dropped_count += 1\n", "            pass\n", _TRAILED),
    rare("audit-outcome-lost", "an outcome is lost when its command fails", _TRAIL,
         "        self._outcomes.extendleft(reversed(notes))\n", "        pass\n", _TRAILED),
)  # fmt: skip
