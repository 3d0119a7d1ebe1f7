"""Wrong choices about repairs, open ranges whose writer is gone, and losses."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_COMMANDS = "rangelog_pd.reconcile.commands"
_ORPHANS = "rangelog_pd.reconcile.orphans"
_LOSSES = "rangelog_pd.state.losses"
_CALLS = "rangelog_pd.handlers.repairs"
_READING = "rangelog.protocol.reading"
_UPKEEP = "rangelog_pd.reconcile.upkeep"
_STREAMS = "rangelog_pd.state.streams"


def _disaster(name: str, harm: str, old: str, new: str, module: str = _LOSSES) -> Mutant:
    """Caught by the seeds that end with the loss of two disks (virtual_disaster.py)."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=4, every=6)


_GROWTH_TEST = "pd/reconcile/test_pd_growth.py"

REPAIRS: tuple[Mutant, ...] = (
    rare("orphan-of-the-present-epoch", "a writer that has just opened a stream is fenced for the dead one before it",
         "rangelog_pd.reconcile.directives", "epoch=orphan.epoch, reason", "epoch=stream.epoch, reason",
         "pd/reconcile/test_pd_orphans.py"),
    rare("grow-by-refusal", "a server refuses the appends to a range that lacks members", "rangelog_pd.reconcile.directives",
         "    directive.leave_range.only_asks = True\n", "    directive.leave_range.only_asks = False\n", _GROWTH_TEST),
    rare("grow-for-nothing", "a writer is asked to leave though there are no servers for more",
         "rangelog_pd.reconcile.growth",
         "        return self._members(stream.config) > len(of.replicas)\n", "        return True\n", _GROWTH_TEST),
    rare("grow-unseen", "servers that come later change nothing for a range that lacks members",
         "rangelog_pd.reconcile.growth", "            self._member_counts.clear()\n        return changed\n",
         "        return changed\n", _GROWTH_TEST),
    rare("grow-without-a-writer", "a range that lacks members waits for a writer that is gone",
         "rangelog_pd.reconcile.directives", "            self.view.upkeep.orphans.suspect(key)\n", "", _GROWTH_TEST),
    rare("leave-shuns-the-asker", "a writer that is asked to leave leaves a server out", "rangelog.protocol.appender",
         "            self._leave_wanted = True\n            self._want_roll(now_ms)\n",
         "            self._leave_wanted = True\n            self._window.give_up(next(iter(self._window.replicas.values())))\n"
         "            self._want_roll(now_ms)\n", "client/protocol/test_appender_leave.py"),
    rare("loss-gives-offsets-again", "a record gets the offset of one that was acked and lost", _LOSSES,
         "    after = max(end, found.floor_offset) + OFFSETS_GIVEN_UP\n",
         "    after = max(end, found.floor_offset) + 1\n",
         "pd/state/test_pd_losses.py"),
    _disaster("loss-of-an-open-range-is-not-shown", "a stream is stuck, and nobody is told what to do",
              "            if reason and lost:\n", "            if False:\n", _ORPHANS),
    rare("loss-forgets-the-last-copy", "what one member has of an open range is given up with the rest", _LOSSES,
         "    kept = _sealed_at(state, found, end) if end > start else None\n", "    kept, end = None, start\n",
         "pd/state/test_pd_losses.py"),
    rare("loss-without-an-epoch", "a writer that is still there goes on in a range that was given up", _LOSSES,
         "    stream.epoch += 1\n", "", "pd/state/test_pd_losses.py"),
    rare("loss-while-two-can-say", "an open range is given up that its members could seal", _LOSSES,
         "    return left <= len(found.replicas) - found.acks\n",
         "    return left < len(found.replicas)\n", "pd/state/test_pd_losses.py"),
    rare("loss-below-what-was-shown", "an offset that readers saw is given again", _LOSSES,
         "    after = max(end, found.floor_offset) + OFFSETS_GIVEN_UP\n", "    after = end + OFFSETS_GIVEN_UP\n",
         "pd/state/test_pd_losses.py"),
    rare("repair-without-a-copy", "members are replaced with no copy at hand: who had the range is forgotten", _COMMANDS,
         "    if found.start_offset < found.end_offset and not view.holders(state, found, now_ms):\n", "    if False:\n",
         "pd/reconcile/test_pd_repairs.py"),
    rare("repair-in-any-order", "ranges with one copy left wait behind those with two", "rangelog_pd.reconcile.repair_queue",
         "            rank = copies_of(key)\n", "            rank = 0\n", "pd/reconcile/test_pd_repairs.py"),
    Mutant("orphan-left-open", "what a gone writer left stays open for ever",
           (Edit(_ORPHANS, "                if seen is not None and now_ms - seen.since_ms >= self._quiet_ms:\n",
                 "                if False:\n"),),
           first_seed=2, every=4),
    rare("orphan-at-once", "a range is sealed although it still grows", _ORPHANS,
         "(before.end_offset, before.epoch) == (end_offset, epoch)\n", "before.epoch == epoch\n",
         "pd/reconcile/test_pd_orphans.py"),
    rare("orphan-of-any-epoch", "who has just opened a stream has no time to seal the range of the dead writer", _ORPHANS,
         "(before.end_offset, before.epoch) == (end_offset, epoch)\n", "before.end_offset == end_offset\n",
         "pd/reconcile/test_pd_orphans.py"),
    rare("orphan-when-empty", "a writer that has not appended yet is fenced", _UPKEEP,
         "        if is_empty:\n", "        if False:\n", "pd/reconcile/test_pd_orphans.py"),
    rare("drained-but-for-the-empty", "a drain waits for good for a writer that died before its first append", _UPKEEP,
         "            leaving = [each.server for each in of.replicas if self.is_left(state, each.server)]\n",
         "            leaving = []\n", "pd/reconcile/test_pd_orphans.py"),
    rare("drained-by-one-leader", "the next leader does not send writers away", _UPKEEP,
         "            if self.is_left(state, name):\n                self._leave_open(state, name)\n", "",
         "pd/reconcile/test_pd_orphans.py"),
    rare("writer-unknown-until-it-appends", "an idle writer is taken for gone", "rangelog_server.ranges.store",
         "                if each.HasField(\"start_offset\"):\n", "                if False:\n",
         "range_server/serving/test_idle_writers.py"),
    rare("writer-forgotten-with-its-connection", "an idle writer whose connection broke is taken for gone",
         "rangelog_server.ranges.store",
         "            if each.HasField(\"start_offset\") and each.epoch == hosted.core.epoch:\n", "            if False:\n",
         "range_server/serving/test_idle_writers.py"),
    rare("orphan-whatever-the-epoch", "a writer that came meanwhile is fenced", _STREAMS,
         "    if request.expected_epoch not in (0, stream.epoch):\n", "    if False:\n", "pd/state/test_pd_losses.py"),
    rare("loss-of-what-may-return", "a loss is accepted while a server may bring the range back", _LOSSES,
         "    if left:\n", "    if False:\n", "pd/state/test_pd_losses.py"),
    rare("loss-trusts-quarantined", "records of a quarantined copy are kept as if they were sound", _CALLS,
         " if each is not None and each.state != pd_pb2.REPLICA_STATE_QUARANTINED", " if each is not None",
         "pd/handlers/test_pd_repair_calls.py"),
    rare("loss-counts-quarantined-as-sound", "a range whose copies are damaged can neither be sealed nor given up", _LOSSES,
         "    left = sum(member.server not in given_up for member in left_of(state, found))\n",
         "    left = len(left_of(state, found))\n", "pd/handlers/test_pd_repair_calls.py"),
    rare("loss-gives-up-unasked", "a quarantined copy is given up without a word", _CALLS,
         "    if quarantined and not request.give_up_quarantined:\n", "    if False:\n", "pd/handlers/test_pd_repair_calls.py"),
    rare("orphan-damaged-unseen", "an open range with a damaged copy and no writer stays as it is", _UPKEEP,
         "    return report is not None and bool(report.problem)\n", "    return False\n", "pd/reconcile/test_pd_orphans.py"),
    rare("loss-is-skipped", "a reader is told to wait where nothing will ever come", _READING,
         "    if source.lost and source.tiered_end_offset <= position:\n", "    if False:\n",
         "tests/scenarios/test_scenarios.py"),
    rare("lost-while-it-may-answer", "a range is given up while a server that has it is away", "rangelog_pd.reconcile.view",
         "            if not answers or silent_ms > self.dead_ms or sealed", "            if sealed",
         "pd/reconcile/test_pd_repairs.py"),
    rare("lost-by-a-report-before-the-seal", "a range just sealed is given up, since the last heartbeats do not show it yet",
         "rangelog_pd.reconcile.view", " or sealed_for_ms - silent_ms < self.dead_ms:\n", ":\n",
         "pd/reconcile/test_pd_repairs.py"),
    rare("lost-soon-after-the-seal-is-not-shown", "a loss within seconds of a seal is never examined again",
         _COMMANDS, "            if lost or time_ms - found.sealed_ms > 2 * view.dead_ms:\n", "            if True:\n",
         "pd/reconcile/test_pd_repairs.py"),
    rare("lost-with-all-of-it", "a range is given up of which a member has all, and was not told so yet",
         "rangelog_pd.reconcile.view", "(report.state in _WITH_COPY or report.durable_offset >= of.end_offset)",
         "report.state in _WITH_COPY", "pd/reconcile/test_pd_repairs.py"),
    rare("lost-by-what-a-caller-says", "an operator's request names who has no copy, and the leader believes it",
         "rangelog_pd.handlers.repairs", "    request.ClearField(\"lacking_servers\")\n", "",
         "pd/handlers/test_pd_repair_calls.py"),
    rare("lost-but-for-an-empty-server", "a range without a copy is blocked for ever by a server that has nothing of it",
         "rangelog_pd.state.losses", "    return all(member.server in lacking for member in left_of(state, found))\n",
         "    return not left_of(state, found)\n", "pd/reconcile/test_pd_repairs.py"),
)  # fmt: skip
