"""What holds for every test: no process that the tests started outlives them, and no property fails for its time.

Two workers take the tests file by file; those of Spark are one piece of work, so that one worker has one JVM for all of them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.support.second_try"]

MARK = "RANGELOG_TEST_SESSION"
GRACE_S = 10.0
ENDS_WITH_US = ("org.apache.spark", "pyspark.daemon", "multiprocessing.resource_tracker")
"""Spark's Java and its workers, and Python's own helper, end when the process of the tests does."""

COUNTS_FILE = os.environ.pop("PYTEST_COUNTS_FILE", None)
"""tools/run_stages.py adds up what is written there; a pytest that a test starts does not count."""

SPARK = "tests/spark/"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what it puts into the background that way
    signal.signal(signal.SIGINT, signal.default_int_handler)


def marked(mark: str) -> dict[int, str]:
    """Pid → command line of every other process that has this mark in its environment, zombies aside."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        with suppress(OSError):  # ended meanwhile, or another user's
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if command and not any(name in command for name in ENDS_WITH_US):
                    found[int(folder.name)] = command[:200]
    return found


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """Fails the run when a process is left, and ends it. Children inherit the mark, wherever they are re-parented."""
    value = f"{os.getpid()}-{secrets.token_hex(8)}"
    os.environ[MARK] = value
    yield
    deadline = time.monotonic() + GRACE_S
    while (left := marked(f"{MARK}={value}")) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"tests left these processes running: {left}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Leave the counts of the closing line to tools/run_stages.py."""
    if COUNTS_FILE is not None:
        ended = {name: len(reports) for name, reports in terminalreporter.stats.items()}
        failed = ended.get("failed", 0) + ended.get("error", 0)
        counts = {"passed": ended.get("passed", 0), "failed": failed, "skipped": ended.get("skipped", 0)}
        with open(COUNTS_FILE, "a") as file:
            file.write(json.dumps(counts) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of CI: it runs some of the scenes beside the gate's processes."""
    parser.addoption(
        "--scenes", default="", help="files whose tests of `make long` have the marker `scene`, but for those alone"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the scenes, before they are chosen by markers."""
    files = config.getoption("--scenes").split()
    for item in items:
        if item.nodeid.partition("::")[0] in files and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.scene)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """With `--dist loadfile`: the lanes above."""
    return _Lanes(config, log) if config.getvalue("dist") == "loadfile" else None


class _Lanes(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)


@pytest.fixture(scope="session")
def forked_members(_nothing_is_left_running: None) -> Iterator[None]:
    """Members of clusters begin by a fork, as tests/support/forked.py says."""
    from rangelog_cli.local import process
    from tests.support import forked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "spawn", forked.spawn)
        yield
    forked.stop()
