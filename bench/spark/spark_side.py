"""What the Spark benchmark reads and writes: a rangelog cluster here, Kafka in kafka_side.py, both on loopback.

What holds: both sides have the same records. Values are random bytes, so nothing compresses; none is there twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rangelog.sync
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster, wait_until
from rangelog_core.limits import MIB
from rangelog_core.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

HOT, TIERED = "hot", "tiered"
TIERED_S_MAX = 600.0
_APPENDER = Path(__file__).with_name("appender.py")
_APPEND_S_MAX = 600.0
_FOREVER = float("inf")
_CHUNK_BYTES = 8 * MIB


def random_values(size: int, count: int) -> Iterator[list[bytes]]:
    """Yield so many values in lists of about 8 MiB."""
    while count:
        now = min(count, max(1, _CHUNK_BYTES // size))
        noise = os.urandom(now * size)
        yield [noise[at : at + size] for at in range(0, len(noise), size)]
        count -= now


class Side(ABC):
    """A log that Spark reads and writes."""

    name: str
    setting: str
    kinds: tuple[str, ...]
    """Where a batch read finds the records."""
    sinks: tuple[str, ...]

    @abstractmethod
    def batch(self, size: int, kind: str) -> DataFrame:
        """All records of a size."""

    @abstractmethod
    def follow(self, size: int, per_batch: int) -> DataFrame:
        """The same as a stream, in micro-batches of so many records."""

    @abstractmethod
    def tail(self) -> DataFrame:
        """A new, empty log as a stream; `append` appends to it."""

    @abstractmethod
    def append(self, size: int, rate_per_s: int, count: int) -> None:
        """Append so many stamped records, each when it is due, and wait for their acks."""

    @abstractmethod
    def sink(self, frame: DataFrame, kind: str) -> tuple[DataStreamWriter, Callable[[], int]]:
        """Return what writes a stream to a new log, and what counts the records that arrived."""

    @abstractmethod
    def pids(self) -> Mapping[str, int]:
        """Of the servers."""


class RangelogSide(Side):
    """Three range servers, a placement driver and a broker as processes; a directory as tier."""

    name, setting = "rangelog", "flushed on 2 of 3"
    kinds = (HOT, TIERED)
    sinks = ("stream", "topic")

    def __init__(self, spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client) -> None:
        self._spark = spark
        self._cluster = cluster
        self._client = client
        self._made = 0
        self._tail = ""

    @staticmethod
    def open_cluster(directory: Path) -> Cluster:
        """A cluster that is not started yet."""
        return Cluster.open(directory, pds=1, range_servers=3, brokers=1, env={})

    def wait(self) -> None:
        """Until the cluster can take streams."""
        wait_healthy(self._cluster)

    def fill(self, size: int, count: int) -> None:
        """Make the streams of a size: one on the range servers, one in the object store alone."""
        configs = {
            HOT: StreamConfig(tiered=False),
            TIERED: StreamConfig(range_size_bytes_max=64 * MIB, hot_retention_seconds=0),
        }
        for kind, config in configs.items():
            name = f"{kind}-{size}"
            self._client.create_stream(name, config)
            with self._client.writer(name) as writer:
                for values in random_values(size, count):
                    writer.append_batch(values)
        self._client.seal_stream(f"{TIERED}-{size}")
        wait_until(lambda: self._is_cold(f"{TIERED}-{size}"), TIERED_S_MAX, "hot copies stay")

    def _is_cold(self, name: str) -> bool:
        _, ranges = self._client.run(self._client.asynchronous.metadata.ranges(name, 0))
        return all(each.hot_dropped for each in ranges)

    def _options(self, **more: Any) -> dict[str, str]:
        return {"pd": self._cluster.connect_string} | {name: str(value) for name, value in more.items()}

    def batch(self, size: int, kind: str) -> DataFrame:
        """See Side."""
        return self._spark.read.format("rangelog").options(**self._options(stream=f"{kind}-{size}")).load()

    def follow(self, size: int, per_batch: int) -> DataFrame:
        """See Side: two partitions for each micro-batch, as Kafka's topic has."""
        options = self._options(
            stream=f"{HOT}-{size}", startingOffsets="earliest", maxRecordsPerTrigger=per_batch,
            records_per_partition=-(-per_batch // 2),
        )  # fmt: skip
        return self._spark.readStream.format("rangelog").options(**options).load()

    def tail(self) -> DataFrame:
        """See Side."""
        self._tail = self._new("tail")
        self._client.create_stream(self._tail, StreamConfig(tiered=False))
        options = self._options(stream=self._tail, startingOffsets="earliest")
        return self._spark.readStream.format("rangelog").options(**options).load()

    def append(self, size: int, rate_per_s: int, count: int) -> None:
        """See Side."""
        arguments = [self._cluster.connect_string, self._tail, *map(str, (size, rate_per_s, count))]
        subprocess.run([sys.executable, str(_APPENDER), *arguments], check=True, timeout=_APPEND_S_MAX)

    def sink(self, frame: DataFrame, kind: str) -> tuple[DataStreamWriter, Callable[[], int]]:
        """See Side."""
        name = self._new(f"sink-{kind}")
        if kind == "topic":
            self._client.topics.create(name, shards=2)
        else:
            self._client.create_stream(name, StreamConfig(tiered=False))
        writer = frame.writeStream.format("rangelog").options(**self._options(**{kind: name}))
        read = self._spark.read.format("rangelog").option("payload", "false").options(**self._options(**{kind: name}))
        return writer, lambda: read.load().count()

    def _new(self, what: str) -> str:
        self._made += 1
        return f"{what}-{self._made}"

    def pids(self) -> Mapping[str, int]:
        """See Side."""
        return {name: member.pid for name, member in self._cluster.members.items()}
