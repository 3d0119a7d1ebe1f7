"""Real clusters for the tests: real processes on free ports of loopback, in the test's own directory, none left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.plan import read_plan
from rangelog_cli.local.processes import Cluster, Process
from tests.support.calm import CALM, set_patience
from tests.support.cluster_findings import registered
from tests.support.cluster_starts import count
from tests.support.held_loops import check_holds
from tests.support.waiting import eventually

HASTY_SETTINGS = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024)}
"""Small segments, so that their change is exercised and a test's directory stays small."""

TEST_SETTINGS = HASTY_SETTINGS | CALM

LONGEST = (
    "test_docs_examples.py", "test_audit.py", "test_pdctl.py", "test_brokers.py", "test_docs_recipes.py", "test_pd_group.py",
    "test_local.py", "test_planted_faults.py", "test_cursors.py", "test_page_browser.py", "test_upgrade_from_previous.py",
    "test_packages.py", "test_image_stages.py",
)  # fmt: skip
"""Files that begin first, the longest one at the head, so that two workers end together; before them: Spark"""

ClusterFactory = Callable[..., Cluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put those files before the others, whose order stays."""
    first = {name: place for place, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: -1 if item.nodeid.startswith("tests/spark/") else first.get(item.path.name, len(LONGEST))
    )


@pytest.fixture(scope="session", autouse=True)
def _forked(forked_members: None) -> None:
    """All clusters of these tests."""


@pytest.fixture
def cluster_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterFactory]:
    """Makes running, healthy clusters: `cluster_factory(pds=1, range_servers=4, tier_url=…, env={…})`."""
    settings = HASTY_SETTINGS if is_hasty(request.node) else TEST_SETTINGS
    with ExitStack() as stack:

        def make(name: str = "cluster", *, env: dict[str, str] | None = None, **options: object) -> Cluster:
            cluster = Cluster.open(tmp_path / name, env=settings | (env or {}), **options)  # type: ignore[arg-type]
            stack.callback(cluster.kill_all)
            stack.enter_context(cluster)
            stack.enter_context(registered(cluster))
            wait_healthy(cluster)
            return cluster

        yield make


def is_hasty(node: pytest.Item) -> bool:
    """Whether the test wants production's time-outs."""
    return node.get_closest_marker("hasty") is not None


@pytest.fixture(autouse=True)
def patient_writers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers of this process and of its commands leave no range because a replica stands still for a moment."""
    set_patience(monkeypatch, hasty=is_hasty(request.node))


@pytest.fixture
def cluster(cluster_factory: ClusterFactory) -> Cluster:
    """Three placement drivers and three range servers, fresh and healthy.

    `cluster.connect_string` is for rangelog.connect; `kill`, `start_member`, `restart`, `pause`, `resume` take pd1 … rs3.
    """
    return cluster_factory()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same, started once for all tests of a worker: each has names of its own, and leaves every member running."""
    with running(tmp_path_factory.mktemp("shared")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def broker_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same with two brokers: what `rangelog local` starts."""
    with running(tmp_path_factory.mktemp("brokers"), brokers=2, doors=("http",)) as cluster:
        yield cluster


@contextmanager
def running(directory: Path, *, env: dict[str, str] | None = None, **options: object) -> Iterator[Cluster]:
    """A calm cluster in that directory, healthy, until the end of the block."""
    with Cluster.open(directory, env=TEST_SETTINGS | (env or {}), **options) as cluster, registered(cluster):  # type: ignore[arg-type]
        wait_healthy(cluster)
        yield cluster


class Local:
    """A `rangelog local` process of its own, as a user would start it, and what it prints."""

    def __init__(self, data_dir: Path, output: Path, *options: str, from_scratch: bool = False) -> None:
        self.data_dir = data_dir
        self.output = output
        arguments = ["-m", "rangelog_cli", "local", "--data-dir", str(data_dir), *options]
        self.config_home = output.parent / "config"
        env = {"XDG_CONFIG_HOME": str(self.config_home)}  # the user's own pdctl context stays as it is
        if from_scratch:
            env["PYTHONHASHSEED"] = "0"  # no fork has it
        self.process = Process("local", arguments, log_path=output, env=env)
        self._shown = output.stat().st_size if output.exists() else 0
        count()
        self.process.start()

    def printed(self) -> str:
        """Everything it printed since this start."""
        return self.output.read_bytes()[self._shown :].decode()

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        """Until it has printed `text`; fails with its last words when it ends before."""

        def shown() -> bool:
            if text in self.printed():
                return True
            assert self.process.running, f"rangelog local ended: {self.printed()}"
            return False

        eventually(shown, f"rangelog local did not print {text!r}: {self.printed()}", timeout_s)

    @property
    def connect_string(self) -> str:
        """What rangelog.connect takes."""
        plan = read_plan(self.data_dir)
        assert plan is not None
        return ",".join(plan.pd_addresses)

    def pids(self) -> dict[str, int]:
        """name → pid of every member that listens."""
        found: dict[str, int] = {}
        for file in sorted(self.data_dir.glob("*/endpoint.json")):
            with suppress(FileNotFoundError):  # a member that stops takes its file along
                found[file.parent.name] = int(json.loads(file.read_text())["pid"])
        return found

    def kill_everything(self) -> None:
        """`kill -9` to the supervisor and each of its children, and wait until they are gone."""
        pids = list(self.pids().values())
        for pid in [self.process.pid, *pids]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        eventually(lambda: not any(is_alive(pid) for pid in pids), f"some of {pids} are left", 10.0)


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second: it went between opening and reading
        return False


LocalFactory = Callable[..., Local]


@pytest.fixture
def start_local(tmp_path: Path) -> Iterator[LocalFactory]:
    """Starts `rangelog local` on free ports in one directory; `start_local("--range-servers", "4")`.

    `from_scratch`: as a user's shell does, by no fork.
    """
    started: list[Local] = []

    def start(*options: str, port: str = "0", from_scratch: bool = False) -> Local:
        options = ("--port", port, *options)
        local = Local(tmp_path / "data", tmp_path / "local.out", *options, from_scratch=from_scratch)
        started.append(local)
        return local

    yield start
    for local in started:
        if local.process.running:
            local.process.request_stop()
            local.process.finish(time.monotonic() + 20)
        check_holds(local.data_dir / "logs")
