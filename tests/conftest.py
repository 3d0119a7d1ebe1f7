"""What holds for every test: no process that the tests started outlives them, and no property fails for its time.

Two workers take the tests file by file; those of Spark are one piece of work, so that one worker has one JVM for all of them.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.support.cluster_starts", "tests.support.left_running", "tests.support.second_try"]

COUNTS_FILE = os.environ.pop("PYTEST_COUNTS_FILE", None)
"""tools/run_stages.py adds up what is written there; a pytest that a test starts does not count."""

SPARK = "tests/spark/"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what it puts into the background that way
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    parser.addoption("--scenes", default="", help="files, or tests, of `make long` that have the marker `scene`")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the scenes, before they are chosen by markers."""
    scenes = set(config.getoption("--scenes").split())
    for item in items:
        names = {item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]}
        if names & scenes and item.get_closest_marker("long"):
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
    """Members of clusters, and range servers without one, begin by a fork, as tests/support/forked.py says."""
    from rangelog_cli.local import process
    from rangelog_server import testing
    from tests.support import cluster_starts, forked, held_loops

    with cluster_starts.counted(), held_loops.checked(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "spawn", forked.spawn)
        patch.setattr(testing, "popen", forked.spawn)
        yield
