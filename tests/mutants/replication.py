"""Wrong choices about the replication policy: its answers, and where the cores of writer and recovery ask for them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_POLICY = "rangelog.protocol.replication"
_APPENDER = "rangelog.protocol.appender"
_TEST = "client/protocol/test_replication.py"

REPLICATION: tuple[Mutant, ...] = (
    rare("replication-forgets-who-lags", "a replica that lags is sent nothing of what others confirmed", _POLICY,
         "            if member.durable_offset < confirm_offset and not member.failed:\n", "            if False:\n", _TEST),
    rare("replication-keeps-for-the-excluded", "batches are kept for ever for a replica that left the range", _POLICY,
         " and not member.failed:", ":", _TEST),
    rare("replication-counts-the-slow", "a range goes on with a replica that holds batches back", _POLICY,
         "each.live and not each.slow and", "each.live and", _TEST),
    rare("replication-counts-the-lost", "a replica is excluded though acks need it", _POLICY,
         " and each is not without for", " for", _TEST),
    rare("replication-push-passes-by", "a batch goes to every replica, whatever the policy is", _APPENDER,
         "        for progress in window.receivers:\n", "        for progress in window.members:\n", _TEST),
    rare("replication-break-passes-by", "what was not acked goes again to a replica that is no receiver", _APPENDER,
         "        if progress in self._window.receivers:\n", "        if True:\n", _TEST),
    rare("replication-refusal-passes-by", "after a seal that was refused, batches go to every replica", _APPENDER,
         "        for progress in self._window.receivers:\n", "        for progress in self._window.members:\n", _TEST),
    rare("replication-holders-are-acks", "a seal waits for as many copies as acks, whatever the policy is",
         "rangelog.protocol.recovery", "Star(self.acks).holders", "self.acks", _TEST),
)  # fmt: skip
