"""Wrong choices about quotas: how long to hold off, whom, and what that is taken for."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_CORE = "rangelog_core.quotas"
_STATE = "rangelog_pd.state.quotas"
_SNAPSHOT = "rangelog_pd.state.snapshot"
_DRIVER = "rangelog_pd.driver"
_GUARD = "rangelog_server_common.quotas.guard"
_CONNECTION = "rangelog_server.serving.connection"
_APPEND = "rangelog_server.serving.handlers.append"
_FETCH = "rangelog_server.serving.handlers.fetch"
_APPENDER = "rangelog.protocol.appender"
_LINKS = "rangelog._append.replica_links"
_PRODUCER = "rangelog._produce.core"
_BUCKETS, _PD, _CALLS, _PLANE, _WRITER, _SIM, _GUARDED, _PRODUCES = (
    "core/test_quotas.py",
    "pd/state/test_pd_quotas.py",
    "pd/handlers/test_pd_quota_calls.py",
    "range_server/serving/test_quotas.py",
    "client/protocol/test_appender_quotas.py",
    "tests/simulation/test_quotas_simulation.py",
    "server_common/test_quota_guard.py",
    "client/produce/test_producer_quotas.py",
)

QUOTAS: tuple[Mutant, ...] = (
    rare("quotas-sum", "a name under two quotas waits for both one after the other", _CORE,
         "    return max([each.charge(now_us, units) for each in buckets], default=0)\n",
         "    return sum([each.charge(now_us, units) for each in buckets])\n", _BUCKETS),
    rare("quotas-idle-is-saved", "after a quiet night a client floods the servers for hours", _CORE,
         "        if self._free_us is None or self._free_us < earliest_us:\n", "        if self._free_us is None:\n", _BUCKETS),
    rare("quotas-endless-debt", "one program that does not wait closes its name for a day", _CORE,
         "min(self._free_us + took_us, now_us + DEBT_MS_MAX * 1000)", "self._free_us + took_us", _BUCKETS),
    rare("quotas-clock-backwards", "a clock that is set back holds everybody off until it has caught up", _CORE,
         "        self._now_us = now_us = max(now_us, self._now_us)\n        return max", "        return max", _BUCKETS),
    rare("quotas-fractions-lost", "small appends are counted as less than they are", _CORE,
         "divmod(units * _US + self._rest, self.rate)", "(units * _US // self.rate, 0)", _BUCKETS),
    rare("quotas-kept-after-remove", "a quota that was removed holds off until a restart", _CORE,
         "            if self._rate(*key) != bucket.rate:\n", "            if False:\n", _BUCKETS),
    rare("quotas-default-shared", "all clients together have what each should have", _CORE,
         "        key = (is_prefix, of, measure)\n",
         "        key = (is_prefix, of if of in self._principals or is_prefix else EVERY_CLIENT, measure)\n", _BUCKETS),
    rare("quotas-buckets-unbounded", "each new name of a client costs memory for ever", _CORE,
         "        while len(self._buckets) >= BUCKETS_MAX:\n", "        while False:\n", _BUCKETS),
    rare("quotas-version-stays", "servers do not hear of a removal", _STATE,
         "    table.quotas.remove(key)\n    table.version += 1\n", "    table.quotas.remove(key)\n", _PD),
    rare("quotas-forgotten-by-snapshots", "a restarted placement driver has no quotas", _SNAPSHOT,
         '"quotas": lambda state: state.quotas.quotas.freeze()', '"quotas": lambda state: []', _PD),
    rare("quotas-stale-on-the-driver", "a placement driver holds calls by the quotas of its start", _DRIVER,
         "        self.quotas.refresh = self._load_quotas\n", "", _CALLS),
    rare("quotas-administrators-held", "who wants to lift a quota is held off by it", _GUARD,
         "    return str(principal) if principal.role is Role.CLIENT else None\n", "    return str(principal)\n", _GUARDED),
    rare("quotas-error", "an append over the quota is refused", _APPEND,
         "        batches = check_payload(message, payload)\n",
         "        if connection._held_off:\n            raise ProtocolViolation(\"over quota\")\n"
         "        batches = check_payload(message, payload)\n", _PLANE),
    rare("quotas-delay-from-the-ack", "the time of the flush is waited for a second time", _GUARD,
         "        owed_us = self.owed_us(buckets) if buckets else 0\n",
         "        owed_us = self.owed_us(buckets) + 200_000 if buckets else 0\n", _PLANE),
    rare("quotas-unread-for-long", "a client that does not wait is not read for longer than its requests live", _CONNECTION,
         "min(over_s, UNREAD_S_MAX)", "over_s", _PLANE),
    rare("quotas-unread-ends-early", "settled bytes let a client go on that has not waited",
         "rangelog_server_common.frames.connection",
         "self._closed or self._held_off or self._slow_deadline", "self._closed or self._slow_deadline", _PLANE),
    rare("quotas-reader-never-held", "readers have no quota", _FETCH,
         "        if self._connection.book.any and self._holds():\n", "        if False:\n", _PLANE),
    rare("quotas-questions-held", "who asks for an end counts the replica as silent", _FETCH,
         "if not message.bytes_max or message", "if message", _PLANE),
    rare("quotas-reader-served-in-time", "who has waited for as long as a reader waits is served, whatever is owed", _FETCH,
         "            self._guarded(self._tell_held)\n            return True\n", "            return False\n", _PLANE),
    rare("quotas-read-counted-when-sent", "all readers that wait pass at the same moment", _FETCH,
         "        self._count(batch.length for batch in reading.plan.wanted)\n", "", _PLANE),
    rare("quotas-writer-adds-up", "three replicas hold a writer to a third of its quota", _APPENDER,
         "            until_ms = now_ms + min(hold_ms, HOLD_MS_MAX)\n",
         "            until_ms = max(now_ms, self._held_until_ms) + min(hold_ms, HOLD_MS_MAX)\n", _WRITER),
    rare("quotas-held-is-slow", "a range is sealed since its writer is over a quota", _APPENDER,
         "            progress.held_until_ms = max(progress.held_until_ms, until_ms)\n", "", _WRITER),
    rare("quotas-held-hides-the-dead", "a dead replica keeps its place while others hold the writer off", _APPENDER,
         "            progress.held_until_ms = max(progress.held_until_ms, until_ms)\n",
         "            for each in self._window.replicas.values():\n                each.held_until_ms = until_ms\n", _WRITER),
    rare("quotas-all-at-once", "what waited goes out together, and the next wait is as long as all of it", _APPENDER,
         "range(len(self._waiting) if calm else 1)", "range(len(self._waiting))", _WRITER),
    rare("quotas-paced-for-ever", "a writer stays slow after its quota was removed", _APPENDER,
         "range(len(self._waiting) if calm else 1)", "range(1)", _WRITER),
    rare("quotas-not-told", "a writer does not wait, and is not read", _LINKS,
         "        if reply.throttle_ms:", "        if False:", _SIM),
    rare("quotas-servers-held", "brokers and range servers wait for the quota of the nameless", _GUARD,
         "        return None if said.startswith(SERVER_NAMES) else NAMELESS\n", "        return NAMELESS\n", _GUARDED),
    rare("quotas-calls-of-servers-held", "without TLS the servers' own calls count for the nameless",
         "rangelog_server_common.grpc_server", " and Role.CLIENT in self._rules.roles_of(method):", ":",
         "server_common/test_grpc_server.py"),
    rare("quotas-past-the-deadline", "a held call ends with its caller's time-out", _GUARD,
         "min(CALL_HOLD_S_MAX, max(0.0, remaining_s) / 2)", "CALL_HOLD_S_MAX", _GUARDED),
    rare("quotas-short-deadline", "who gives calls little time makes as many as it likes", _GUARD,
         "        if before_us > limit_us:\n            raise", "        if False:\n            raise", _GUARDED),
    rare("quotas-refused-counted", "calls that were refused keep others out", _GUARD,
         "        if before_us <= limit_us:\n            charge(", "        if True:\n            charge(", _GUARDED),
    rare("quotas-rows-free", "tables take and give any number of bytes", _GUARD,
         "        counts = self.byte_calls.get(method)\n", "        counts = None\n", _GUARDED),
    rare("quotas-queue-unbounded", "held calls pile up in memory", _GUARD,
         "self._held_of.get(who, 0) >= CALLS_OF_PRINCIPAL_HELD_MAX", "False", _GUARDED),
    rare("quotas-producer-ignores", "a producer sends on though its broker holds it off", _PRODUCER,
         "not lane.queue or lane.held or self.error", "not lane.queue or self.error", _PRODUCES),
)  # fmt: skip
