"""Real clusters for the tests: real processes on free ports of loopback, in the test's own directory, none left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rangelog_cli.health import wait_healthy
from rangelog_cli.processes import Cluster

TEST_SETTINGS = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(8 * 1024 * 1024)}
"""Small segments, so that their change is exercised and a test's directory stays small."""

ClusterFactory = Callable[..., Cluster]


@pytest.fixture
def cluster_factory(tmp_path: Path) -> Iterator[ClusterFactory]:
    """Makes running, healthy clusters: `cluster_factory(pds=1, range_servers=4, tier_url=…, env={…})`."""
    with ExitStack() as stack:

        def make(name: str = "cluster", *, env: dict[str, str] | None = None, **options: object) -> Cluster:
            cluster = Cluster.open(tmp_path / name, env=TEST_SETTINGS | (env or {}), **options)  # type: ignore[arg-type]
            stack.callback(cluster.kill_all)
            stack.enter_context(cluster)
            wait_healthy(cluster)
            return cluster

        yield make


@pytest.fixture
def cluster(cluster_factory: ClusterFactory) -> Cluster:
    """Three placement drivers and three range servers, fresh and healthy.

    `cluster.connect_string` is for rangelog.connect; `kill`, `start_member`, `restart`, `pause`, `resume` take pd1 … rs3.
    """
    return cluster_factory()


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same, started once for all tests of a file. They must leave every member running."""
    with Cluster.open(tmp_path_factory.mktemp("shared"), env=TEST_SETTINGS) as cluster:
        wait_healthy(cluster)
        yield cluster
