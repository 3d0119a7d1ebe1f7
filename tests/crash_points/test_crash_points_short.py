"""The range server's log and the placement driver's Raft files, cut at every call: the short form of `make crash-points`."""

from __future__ import annotations

import pytest

from tests.crash_points.crash_points import figures, last_line, short_form
from tests.crash_points.crash_tally import Tally
from tests.support.figures import publish


@pytest.mark.timeout(300)
def test_nothing_promised_is_lost_at_any_crash_point(capsys: pytest.CaptureFixture[str]) -> None:
    """At every write, flush, rename, removal and flush of a directory: what was acked, fenced, voted is there after it."""
    runs: dict[str, Tally] = {name: run() for name, run in short_form()}
    counted = figures(runs)
    publish("crash_points", counted)
    with capsys.disabled():
        print(f"\n{last_line(counted)}")
    problems = [problem for tally in runs.values() for problem in tally.problems]
    assert not problems, "\n".join(problems)
    kinds = counted["cuts_by_kind"]
    for kind in ("create", "write", "flush", "rename", "unlink", "truncate", "flush of the directory"):
        assert kinds.get(kind), f"no cut at any {kind}"
    assert counted["torn_tails_in_doubt"]
