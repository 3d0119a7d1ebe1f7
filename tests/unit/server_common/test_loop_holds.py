"""What counts as a hold of an event loop, what is logged of it, and that the clusters of tests are checked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from rangelog_cli.local.processes import Cluster
from rangelog_server_common.metrics.loop_holds import INTERVAL_S, LOGGED, LOGGED_S, LoopHolds
from tests.support.held_loops import HOLD_S_MAX, check_holds, checked, long_holds


class Clocks:
    """The wall clock of a virtual loop, with time that passes while the loop is held; the thread's processor time."""

    def __init__(self) -> None:
        self.passed_s = self.worked_s = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.passed_s

    def worked(self) -> float:
        return self.worked_s


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("passed_s", "worked_s", "expected_s"),
    [(3.0, 3.0, 3.0), (3.0, 0.05, 0.05), (0.0, INTERVAL_S, 0.0), (1.5, 3.0, 1.5)],
)
async def test_a_hold_is_late_work(passed_s: float, worked_s: float, expected_s: float) -> None:
    """A stall of the machine is none, nor is a loop that works and is on time; once it is taken it is forgotten."""
    clocks = Clocks()
    holds = LoopHolds(clocks.now, clocks.worked)
    holds.begin()
    await asyncio.sleep(2.5 * INTERVAL_S)
    clocks.passed_s += passed_s
    clocks.worked_s += worked_s
    await asyncio.sleep(2 * INTERVAL_S)
    assert holds.take_longest_s() == pytest.approx(expected_s)
    await asyncio.sleep(2 * INTERVAL_S)
    assert holds.take_longest_s() == pytest.approx(0.0)


def test_long_holds_are_logged() -> None:
    """From LOGGED_S on; the longest one counts, not the last."""
    holds = LoopHolds()
    with structlog.testing.capture_logs() as lines:
        for hold_s in (LOGGED_S - 0.01, LOGGED_S + 0.5, 0.1):
            holds.observe(hold_s, hold_s)
    assert [(each["event"], each["seconds"]) for each in lines] == [(LOGGED, LOGGED_S + 0.5)]
    assert holds.take_longest_s() == LOGGED_S + 0.5


HELD = """
import asyncio, time
from rangelog_server_common.logging import log_to_stderr
from rangelog_server_common.metrics.loop_holds import HOLDS, INTERVAL_S

async def main():
    HOLDS.begin()
    await asyncio.sleep(2 * INTERVAL_S)
    end_s = time.thread_time() + {seconds}
    while time.thread_time() < end_s:
        pass
    await asyncio.sleep(2 * INTERVAL_S)

log_to_stderr("broker", "broker1")
asyncio.run(main())
"""


def _log_of(directory: Path, seconds: float) -> None:
    (directory / "logs").mkdir(parents=True, exist_ok=True)
    with (directory / "logs" / "broker1.log").open("wb") as log:
        subprocess.run([sys.executable, "-c", HELD.format(seconds=seconds)], stderr=log, check=True, timeout=60)


def test_a_process_that_holds_its_loop_is_found(tmp_path: Path) -> None:
    """By its log, where its cluster's block ends; not in place of the error that ends it."""
    _log_of(tmp_path, HOLD_S_MAX + 3 * INTERVAL_S)
    assert len(long_holds(tmp_path / "logs")) == 1
    cluster = Cluster.__new__(Cluster)
    cluster.directory = tmp_path
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "__exit__", lambda *_: None)
        with checked():
            with pytest.raises(AssertionError, match=f"(?s)held for 2 s or longer.*{LOGGED}"):
                Cluster.__exit__(cluster, None, None, None)
            Cluster.__exit__(cluster, ValueError, ValueError("of the test"), None)


def test_a_shorter_hold_is_no_finding(tmp_path: Path) -> None:
    """It has its line, and that is all."""
    _log_of(tmp_path, LOGGED_S + 3 * INTERVAL_S)
    assert LOGGED in (tmp_path / "logs" / "broker1.log").read_text()
    check_holds(tmp_path / "logs")
