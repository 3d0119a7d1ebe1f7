"""Bad input of the source and the sink: a cluster that is away at any step, objects that are damaged, a query that runs twice.

Each is one typed sentence that says what to do, in bounded time; once the cluster is back the same query, by its plan,
checkpoint or name, goes on with each record exactly once.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import rangelog.spark.sink
import rangelog.sync
from rangelog._sink.decision import mark_extension
from rangelog._sink.staging import Output
from rangelog.spark.sink import StreamSink, TaskOutput, sink_of
from rangelog.spark.sink_options import parse_sink_options
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.batch import encode_batch
from rangelog_core.errors import (
    Corruption,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    RangelogError,
    RequestTimeout,
    Unavailable,
)
from tests.spark import impatient
from tests.spark.conftest import HASTY_SETTINGS, Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

COUNT = 1_200
TASKS = 6
"""Of one read: more than run at once."""
ENDS_S = 120
COLUMNS = "key binary, value binary"
AWAY = (Unavailable, OutcomeUnknown)  # a killed process may take a call before it is gone


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module's own, to be paused and killed."""
    with Cluster.open(
        tmp_path_factory.mktemp("faulty"), pds=1, range_servers=3, brokers=1, env=HASTY_SETTINGS
    ) as running:
        wait_healthy(running)
        yield running


@pytest.fixture(scope="module")
def near(spark: SparkSession, faulty: Cluster) -> Iterator[rangelog.sync.Client]:
    """A client of that cluster."""
    impatient.register(spark)
    with rangelog.sync.connect(faulty.connect_string) as connected:
        yield connected


@pytest.fixture(scope="module")
def source(near: rangelog.sync.Client) -> list[tuple[bytes | None, bytes]]:
    """The stream "source" of that cluster: keys and values, in order."""
    filled = Streams(near).fill("source", COUNT)
    return [(key, value) for _, _, key, value, _ in filled.rows]


class Queries:
    """Reads and writes of the test's cluster, by one of both formats."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path, form: str = "rangelog") -> None:
        self.spark, self.cluster, self.folder, self.form = spark, cluster, folder, form

    def batch(self, **options: Any) -> DataFrame:
        """The stream "source", in several tasks."""
        reader = self.spark.read.format(self.form).option("pd", self.cluster.connect_string)
        return reader.options(**{"stream": "source", "records_per_partition": COUNT // TASKS, **options}).load()

    def stream(self, **options: Any) -> DataFrame:
        """The same as a streaming data frame."""
        reader = self.spark.readStream.format(self.form).option("pd", self.cluster.connect_string)
        reader = reader.options(**{"stream": "source", "startingOffsets": "earliest", **options})
        return reader.load().select("key", "value")

    def save(self, frame: DataFrame, **options: Any) -> None:
        """A batch write."""
        writer = frame.write.format(self.form).option("pd", self.cluster.connect_string)
        writer.options(**options).mode("append").save()

    def start(self, frame: DataFrame, checkpoint: str = "checkpoint", **options: Any) -> StreamingQuery:
        """A streaming query into a stream or topic, to what is acked now."""
        writer = frame.writeStream.format(self.form).option("pd", self.cluster.connect_string).options(**options)
        return writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True).start()

    def run(self, frame: DataFrame, checkpoint: str = "checkpoint", **options: Any) -> None:
        """The same, to its end."""
        assert self.start(frame, checkpoint, **options).awaitTermination(ENDS_S), "the query does not end"


@pytest.fixture
def queries(spark: SparkSession, near: rangelog.sync.Client, faulty: Cluster, tmp_path: Path) -> Queries:
    """By the format itself."""
    return Queries(spark, faulty, tmp_path)


@pytest.fixture
def quick_queries(spark: SparkSession, near: rangelog.sync.Client, faulty: Cluster, tmp_path: Path) -> Queries:
    """By the format whose tasks and commits soon give up."""
    return Queries(spark, faulty, tmp_path, "impatient")


def failure(work: Callable[[], object], *kinds: type[RangelogError]) -> str:
    """Do what fails in Spark; return what the user is told: one line, without the steps of the source."""
    with pytest.raises(Exception) as caught:  # Spark wraps it in its own
        work()
    said = str(caught.value)
    starts = tuple(f"rangelog_core.errors.{kind.__name__}: " for kind in kinds)
    lines = [line for line in said.splitlines() if line.startswith(starts)]
    assert len(lines) == 1, said
    assert said.count("/rangelog/") <= 2, said
    return lines[0]


def pairs(rows: Iterable[Any]) -> list[tuple[bytes | None, bytes]]:
    """Keys and values of rows."""
    return [(None if row["key"] is None else bytes(row["key"]), bytes(row["value"])) for row in rows]


def back(cluster: Cluster) -> None:
    """Start what was killed."""
    for process in cluster.members.values():
        process.kill()  # it is dead already: this waits for its end
    cluster.start()
    wait_healthy(cluster)


def killing(cluster: Cluster, once: Path, *, first: bool) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: rows as they are; the first task that has its first rows, or all, kills the cluster."""
    once.touch()
    path, pids = str(once), [process.pid for process in cluster.members.values()]

    def kill() -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if first:
                kill()
            yield batch
        kill()

    return work


def test_placement_drivers_are_away(
    queries: Queries, near: rangelog.sync.Client, source: list[tuple[bytes | None, bytes]], faulty: Cluster
) -> None:
    """At planning, of a batch and of a query; at the opening of a sink; in tasks of a plan that was made before."""
    near.create_stream("opened")
    frame, planned = queries.batch(), queries.batch().select("key", "value").rdd
    one = queries.spark.range(1).selectExpr("'a' AS value")
    followed: list[tuple[bytes | None, bytes]] = []

    def follow() -> StreamingQuery:
        writer = queries.stream().writeStream.foreachBatch(lambda batch, _: followed.extend(pairs(batch.collect())))
        writer = writer.option("checkpointLocation", str(queries.folder / "followed"))
        return writer.trigger(availableNow=True).start()

    assert planned.getNumPartitions() == TASKS
    faulty.pause("pd1")
    try:
        with ThreadPoolExecutor(3) as threads:  # each takes 15 s
            works: list[Callable[[], object]] = [frame.collect, planned.collect, follow().awaitTermination]
            failing = [threads.submit(failure, work, Unavailable, RequestTimeout) for work in works]
            said = [failure(lambda: queries.save(one, stream="opened"), Unavailable, RequestTimeout)]
            said += [each.result() for each in failing]
    finally:
        faulty.resume("pd1")
    for line in said:
        assert "are a majority of them running?" in line
        assert faulty.connect_string in line
    assert pairs(queries.batch().collect()) == pairs(planned.collect()) == source  # Spark keeps what a plan raised
    assert not followed
    follow().awaitTermination(ENDS_S)
    assert followed == source
    queries.save(one, stream="opened")
    assert [each.value for each in near.reader("opened")] == [b"a"]


def test_range_servers_are_away(
    quick_queries: Queries, source: list[tuple[bytes | None, bytes]], faulty: Cluster
) -> None:
    """At planning, which asks them for the end; in tasks of a plan that was made before, which goes on afterwards."""
    frame, planned = quick_queries.batch(), quick_queries.batch().select("key", "value").rdd
    assert planned.getNumPartitions() == TASKS
    for name in faulty.range_servers:
        faulty.kill(name)
    try:
        for work in (frame.collect, planned.collect):
            assert "cannot be reached); see `pdctl server list`" in failure(work, Unavailable)
    finally:
        back(faulty)
    assert pairs(quick_queries.batch().collect()) == pairs(planned.collect()) == source


@pytest.mark.parametrize(("at", "target"), [("in the tasks", "stream"), ("at the commit", "topic")])
def test_the_cluster_dies_in_a_micro_batch(
    quick_queries: Queries,
    near: rangelog.sync.Client,
    source: list[tuple[bytes | None, bytes]],
    faulty: Cluster,
    at: str,
    target: str,
) -> None:
    """While tasks read, or once they have written: by the same checkpoint each record is appended once."""
    name = f"copied-{at.replace(' ', '-')}"
    found = make(near, target, name)
    tasks = {"records_per_partition": COUNT // TASKS} if at == "in the tasks" else {}
    kill = killing(faulty, quick_queries.folder / "once", first=at == "in the tasks")
    frame = quick_queries.stream(**tasks)
    try:
        line = failure(lambda: quick_queries.run(frame.mapInArrow(kill, COLUMNS), **{target: name}), *AWAY)
        assert "are a majority of them running?" in line or "see `pdctl server list`" in line
    finally:
        back(faulty)
    quick_queries.run(frame.mapInArrow(kill, COLUMNS), **{target: name})
    assert found() == (source if target == "stream" else sorted(source, key=repr))


@pytest.mark.parametrize("write_id", ["", "named"])
def test_the_cluster_dies_before_the_commit_of_a_write(
    quick_queries: Queries, near: rangelog.sync.Client, faulty: Cluster, write_id: str
) -> None:
    """Nothing is appended; the same write, of the same name, then appends each row once, however often it is run."""
    name = f"written-{write_id}"
    found = make(near, "stream", name)
    frame = quick_queries.spark.range(0, 100, 1, 1).selectExpr("BINARY(STRING(id)) AS key", "BINARY('v') AS value")
    frame = frame.mapInArrow(killing(faulty, quick_queries.folder / "once", first=False), COLUMNS)
    options = {"stream": name} | ({"write_id": write_id} if write_id else {})
    try:
        line = failure(lambda: quick_queries.save(frame, **options), *AWAY)
        assert "are a majority of them running?" in line
    finally:
        back(faulty)
    assert found() == []
    for _ in range(2 if write_id else 1):
        quick_queries.save(frame, **options)
    assert found() == [(b"%d" % number, b"v") for number in range(100)]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_an_object_is_damaged_or_missing_under_a_task(
    queries: Queries, near: rangelog.sync.Client, faulty: Cluster, harm: str
) -> None:
    """One sentence with the object's key; a whole copy in its place, and the same plan returns each row."""
    streams = Streams(near)
    filled = streams.fill(harm, COUNT, hot_retention_seconds=0)
    near.seal_stream(harm)
    streams.wait_for_drops(harm, 1)
    planned = queries.batch(stream=harm).select("key", "value").rdd
    assert planned.getNumPartitions() == TASKS
    tier = faulty.directory / "tier"
    (path,) = (tier / "streams" / str(near.describe_stream(harm).stream_id)).rglob("*.parquet")
    whole = path.read_bytes()
    if harm == "damaged":
        path.write_bytes(bytes(each ^ 0x10 for each in whole))
    else:
        path.unlink()
    assert str(path.relative_to(tier)) in failure(planned.collect, Corruption, ObjectNotFound)
    path.write_bytes(whole)
    assert pairs(planned.collect()) == [(key, value) for _, _, key, value, _ in filled.rows]


class Driver:
    """The commits of a query in a driver of its own: other drivers in this process share nothing with it."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
        schema = StructType([StructField("value", BinaryType())])
        options = parse_sink_options({"pd": cluster.connect_string, "stream": target}, streaming=True)
        self.sink = StreamSink(sink_of(options, schema, overwrite=False))
        self.patch, self.committers = monkeypatch, dict[Any, Any]()

    def commit(self, number: int) -> None:
        """Commit micro-batch `number`: one record, the number."""
        self.patch.setattr(rangelog.spark.sink, "_committers", self.committers)
        attempt = secrets.randbits(64)
        data = encode_batch(
            stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[1], values=[b"%d" % number],
            extension=mark_extension(attempt, 0),
        )  # fmt: skip
        self.sink.commit([TaskOutput("one query", Output(attempt, 1, (data,)))], number)


def test_two_drivers_with_one_checkpoint_append_each_micro_batch_once(
    near: rangelog.sync.Client, faulty: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both have the same offsets for a number, whoever is first appends it; the other one goes on behind it."""
    near.create_stream("twice")
    one, other = (Driver(faulty, monkeypatch, "twice") for _ in range(2))
    for driver, number in ((one, 0), (other, 0), (other, 1), (one, 1), (one, 2), (other, 2), (other, 3), (one, 3)):
        driver.commit(number)
    assert [each.value for each in near.reader("twice")] == [b"0", b"1", b"2", b"3"]


def test_a_query_that_goes_on_from_an_old_copy_of_its_checkpoint(queries: Queries, near: rangelog.sync.Client) -> None:
    """Its micro-batches have numbers that were appended with other records: a typed error, and no record is left out.

    Unless that is accepted: the query may return other rows each time.
    """
    for name in ("ahead", "behind"):
        near.create_stream(name)
    appended = [b"%d" % number for number in range(8)]

    def run(checkpoint: str, *values: bytes, **options: str) -> None:
        if values:
            with near.writer("ahead") as writer:
                writer.append_batch(list(values))
        queries.run(queries.stream(stream="ahead"), checkpoint, stream="behind", **options)

    run("own", *appended[:2])
    shutil.copytree(queries.folder / "own", queries.folder / "copy")
    run("own", *appended[2:4])  # micro-batch 1: records 2 and 3
    with pytest.raises(Exception, match=rf"{PreconditionFailed.__name__}.* with 2 rows, not 4: .* check_repeats=false"):
        run("copy", *appended[4:6])  # micro-batch 1: records 2 to 5
    run("own", *appended[6:])  # micro-batch 2: records 4 to 7
    assert [each.value for each in near.reader("behind")] == appended
    with pytest.raises(Exception, match=rf"{PreconditionFailed.__name__}.* and 2 after it: "):
        run("copy")
    run("copy", check_repeats="false")
    assert [each.value for each in near.reader("behind")] == appended


def make(client: rangelog.sync.Client, kind: str, name: str) -> Callable[[], list[tuple[bytes | None, bytes]]]:
    """Make a stream or topic; return what reads it, a stream in its order."""
    if kind == "stream":
        client.create_stream(name)
        return lambda: [(each.key, each.value) for each in client.reader(name)]
    client.topics.create(name, shards=2)
    return lambda: sorted(((each.key, each.value) for each in client.topic_reader(name)), key=repr)
