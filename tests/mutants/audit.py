"""Wrong choices about the audit log: what is recorded, when, and what a check proves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_CHAIN, _CHAINED = "rangelog_core.audit", "core/test_audit_chain.py"
_STATE, _STATED = "rangelog_pd.state.audit", "pd/state/test_pd_audit.py"
_TABLE = "rangelog_pd.state.audit_table"
_TRAIL, _TRAILED = "rangelog_pd.reconcile.audit_trail", "pd/reconcile/test_pd_audit_trail.py"
_CALLS, _CALLED = "rangelog_pd.handlers.audited", "pd/handlers/test_pd_audited.py"

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
    rare("audit-afterwards", "a change is made, and recorded after it", _CALLS,
         "        note.of_sequence = await _begin(driver, begun)\n", "        note.of_sequence = 1\n", _CALLED),
    rare("audit-secret", "the secret in a tier's URL is in the log", _CALLS,
         "    if call in _SECRET:\n", "    if False:\n", _CALLED),
    rare("audit-new-leader-does-not-know", "a new leader changes things before it knows that the log is on",
         "rangelog_pd.driver",
         "        await self.catch_up()\n        return self._machine.state.audit.enabled\n",
         "        return self._machine.state.audit.enabled\n", _CALLED),
    rare("audit-refusals-fill-it", "who is refused again and again fills the log", _TRAIL,
         "            if now_ms < each.due_ms:\n", "            if False:\n", _TRAILED),
    rare("audit-drops-in-silence", "refusals that are too many leave no trace", _TRAIL,
         "            self._dropped_count += 1\n", "            pass\n", _TRAILED),
    rare("audit-outcome-lost", "an outcome is lost when its command fails", _TRAIL,
         "        self._outcomes.extendleft(reversed(notes))\n", "        pass\n", _TRAILED),
)  # fmt: skip
