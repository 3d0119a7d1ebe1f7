"""One Spark session and one cluster for all Spark tests: both are slow to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rangelog.sync
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.stream_config import StreamConfig
from rangelog_jobs.cluster import ClusterAddress
from tests.support.calm import CALM, set_patience
from tests.support.cluster_findings import registered
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HASTY_SETTINGS = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_DELETE_GRACE_MS": "1000",  # a test waits for objects to be deleted
    "RANGELOG_PD_REPACK_TARGET_BYTES": "0",  # tests count objects, and join them by hand
}
SETTINGS = HASTY_SETTINGS | CALM
WARM = Path(__file__).with_name("warm")
PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""For short jobs: less is compiled; one task after a shuffle."""
START_MS = 1_357_000_000_000
LONG = ("test_spark_kills.py", "test_spark_clusters.py", "test_spark_filters.py")
"""Files that begin first, so that two workers end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session", autouse=True)
def quick(tmp_path_factory: pytest.TempPathFactory, forked_members: None) -> Iterator[None]:
    """What the processes of Spark inherit, those of drivers that tests start as well: they start fast."""
    from tests.support import forked, forked_spark

    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if forked.load_also(forked_spark.LOADED):
            program = str(stack.enter_context(forked_spark.spark_python()))
            for name in PYTHONS:
                patch.setenv(name, program)
        patch.delenv("RANGELOG_PD", raising=False)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(WARM), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RANGELOG_TEST_BYTECODE", str(tmp_path_factory.mktemp("bytecode")))
        patch.setenv("SPARK_SUBMIT_OPTS", FAST_JAVA)
        set_patience(patch, hasty=False)
        yield


def slow_environment() -> dict[str, str]:
    """The environment without what `quick` adds, as a user's is."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in (*PYTHONS, "RANGELOG_TEST_BYTECODE", "SPARK_SUBMIT_OPTS")
    }
    kept["PYTHONPATH"] = kept["PYTHONPATH"].removeprefix(str(WARM) + os.pathsep)
    return kept


@pytest.fixture(scope="session")
def spark(quick: None) -> Iterator[SparkSession]:
    """A session as `rangelog.spark` makes it, with settings for short jobs."""
    from rangelog.spark import create_session

    session = create_session("rangelog-tests", **{name.replace(".", "_"): value for name, value in QUICK.items()})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One placement driver, three range servers and two brokers, with a tier in a directory."""
    directory = tmp_path_factory.mktemp("spark")
    with Cluster.open(directory, pds=1, range_servers=3, brokers=2, env=SETTINGS) as running, registered(running):
        wait_healthy(running)
        yield running


@pytest.fixture(scope="session")
def client(spark: SparkSession, cluster: Cluster) -> Iterator[rangelog.sync.Client]:
    """A blocking client of that cluster. Spark's process is there before it: gRPC does not bear a fork once it has called."""
    with rangelog.sync.connect(cluster.connect_string) as connected:
        yield connected


Row = tuple[int, int, bytes | None, bytes, dict[str, bytes]]
"""Offset, ms, key, value, headers."""


@dataclass(frozen=True)
class Filled:
    """A stream and what is in it, as Spark should show it."""

    name: str
    rows: list[Row]


def row(number: int) -> Row:
    """Record `number`: offset, ms, key, value, headers; some without key, value or headers."""
    key = None if number % 5 == 0 else b"key-%d" % (number % 7)
    value = b"" if number % 11 == 0 else b"%06d" % number * (number % 4 + 1)
    headers = {"number": b"%d" % number, "empty": b""} if number % 3 == 0 else {}
    return number, START_MS + number * 1_001, key, value, headers


class Streams:
    """Makes streams and knows where their ranges are."""

    def __init__(self, client: rangelog.sync.Client) -> None:
        self.client = client

    def fill(
        self, name: str, count: int, *, writers: int = 1, tail: int = 0, flushed_every: int = 100, **config: object
    ) -> Filled:
        """Make a stream of `count` records, by so many writers one after the other: each begins a range.

        `tail`: one more writer appends the last records, so many: the open range has some. `flushed_every`: no batch has more
        records than this, however slow the machine is.

        All of it runs on the loop of the client: a record that another thread submits costs two changes of threads.
        """
        self.client.create_stream(name, StreamConfig(**config))  # type: ignore[arg-type]
        rows = [row(number) for number in range(count)]
        parts = [
            rows[part * (count - tail) // writers : (part + 1) * (count - tail) // writers] for part in range(writers)
        ]
        for each in (*parts, *([rows[-tail:]] if tail else ())):
            self.client.run(self._append(name, each, flushed_every))
        return Filled(name, rows)

    async def _append(self, name: str, rows: list[Row], flushed_every: int) -> None:
        async with self.client.asynchronous.writer(name) as writer:
            for number, stamp, key, value, headers in rows:
                writer.append_nowait(value, key=key, headers=headers, timestamp=stamp)
                if not (number + 1) % flushed_every:
                    await writer.flush()
            await writer.flush()

    def hot_dropped(self, name: str) -> list[bool]:
        """For each range, whether its hot copies are gone."""
        _, ranges = self.client.run(self.client.asynchronous.metadata.ranges(name, 0))
        return [each.hot_dropped for each in ranges]

    def wait_for_drops(self, name: str, count: int) -> None:
        """Until the hot copies of `count` ranges are gone."""
        eventually(lambda: sum(self.hot_dropped(name)) >= count, f"the hot copies of {name} stay")


@pytest.fixture(scope="session")
def streams(client: rangelog.sync.Client) -> Streams:
    """Streams of that cluster."""
    return Streams(client)


@pytest.fixture(scope="session")
def address(cluster: Cluster) -> ClusterAddress:
    """The cluster, as jobs are told of it."""
    return ClusterAddress(cluster.connect_string)
