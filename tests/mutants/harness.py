"""Wrong choices about the tests' own judgement: what a second try would hide."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_RAN_OUT = "tests.support.ran_out"
_TEST = "checkers/test_second_try.py"
_HOLDS, _HOLDS_TEST = "rangelog_server_common.metrics.loop_holds", "server_common/test_loop_holds.py"
_OPENINGS, _OPENINGS_TEST = "tests.support.openings", "checkers/test_openings.py"

HARNESS: tuple[Mutant, ...] = (
    rare("retry-of-verdicts", "a lost record is tried again until it is not lost", _RAN_OUT,
         "    return isinstance(error, WAITS)\n", "    return isinstance(error, Exception)\n", _TEST),
    rare("retry-after-a-verdict", "a cleanup that times out hides the assertion before it", _RAN_OUT,
         "    if not _all_may_precede(error.__cause__, error.__context__):\n", "    if False:\n", _TEST),
    rare("retry-of-half-a-group", "one task that waited hides what the other one found", _RAN_OUT,
         "        return all(map(is_wait_that_ran_out, error.exceptions))\n",
         "        return any(map(is_wait_that_ran_out, error.exceptions))\n", _TEST),
    rare("retry-of-a-dead-member", "a member that crashes while it starts is started again", _RAN_OUT,
         "WAITS = (WaitRanOut, RequestTimeout, AppendTimeout)\n", "WAITS = (WaitRanOut, RangelogError)\n", _TEST),
    rare("opened-whatever-is-answered", "a shard counts as opened whatever is answered", _OPENINGS,
         "    except OutOfOrder:\n        return\n", "    except RangelogError:\n        return\n", _OPENINGS_TEST),
    rare("opened-without-a-kill", "the former owner answers that everything opens", "tests.support.whole_broker",
         "        await self.start()\n        return await all_answer", "        return await all_answer", _OPENINGS_TEST),
    rare("opened-but-for-partitions", "the partitions of tables are not asked", _OPENINGS,
         "client.topics.list(include_tables=True)", "client.topics.list()", _OPENINGS_TEST),
    rare("hold-of-a-stall", "a machine that stands still counts as a hold of a loop", _HOLDS,
         "        hold_s = min(late_s, worked_s)\n", "        hold_s = late_s\n", _HOLDS_TEST),
    rare("hold-of-short-work", "a loop that is busy and on time counts as held", _HOLDS,
         "        hold_s = min(late_s, worked_s)\n", "        hold_s = worked_s\n", _HOLDS_TEST),
    rare("hold-for-ever", "a hold is told at each scrape from then on", _HOLDS,
         "longest_s, self._longest_s = self._longest_s, 0.0\n", "longest_s = self._longest_s\n", _HOLDS_TEST),
    rare("hold-unsaid", "a hold has no line in the log", _HOLDS, "        if hold_s >= LOGGED_S:\n", "        if False:\n",
         _HOLDS_TEST),
    rare("hold-unchecked", "clusters of tests may hold their loops", "tests.support.held_loops",
         "        if kind is None:\n", "        if False:\n", _HOLDS_TEST),
    rare("hasty-tests-are-patient", "a hasty test behind Spark's waits half a minute in vain, once in each gate",
         "tests.support.calm", "            patch.delenv(name, raising=False)\n", "            pass\n",
         "checkers/test_calm.py"),
)  # fmt: skip
