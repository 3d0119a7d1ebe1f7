"""A task whose range moves or goes while it is read: the same rows from the other tier, or a typed error, never a hole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

import rangelog._read.object_fetcher
import rangelog._read.pushed_fetch
import rangelog.spark.reading
import rangelog_tier.object_reader
from rangelog.spark.filters import Selection
from rangelog.spark.options import Options, parse_options
from rangelog.spark.planning import plan_spans
from rangelog.spark.reading import read_span
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import Corruption, OffsetTrimmed, StreamNotFound
from rangelog_core.stream_config import StreamConfig, StreamConfigChange
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNT = 8_000


@pytest.fixture
def options(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`options(stream, …)`: as Spark would pass them; reads go in small steps so that a move falls between two."""
    monkeypatch.setattr(rangelog._read.pushed_fetch, "REPLY_BYTES", 4_096)
    monkeypatch.setattr(rangelog._read.pushed_fetch, "CREDIT_BYTES", 8_192)
    monkeypatch.setattr(rangelog.spark.reading, "EMIT_ROWS", 1)
    monkeypatch.setattr(rangelog_tier.object_reader, "BATCH_ROWS", 100)
    monkeypatch.setattr(rangelog._read.object_fetcher, "BYTES_MAX", 1)  # objects are fetched one after the other
    return lambda stream, **more: parse_options({"pd": cluster.connect_string, "stream": stream, **more})


def one_span(options: Options) -> tuple[int, int, int]:
    """The whole stream as one task."""
    stream_id, spans = plan_spans(options, Selection())
    return stream_id, spans[0][0], spans[-1][1]


def values(tables: Iterator[pa.RecordBatch]) -> list[bytes]:
    """All values."""
    return list(chain.from_iterable(table.column("value").to_pylist() for table in tables))


@pytest.mark.parametrize("preference", ["hot_first", "cold_first"])
def test_hot_copies_go_while_they_are_read(options: Any, streams: Any, preference: str) -> None:
    """A task that has begun on hot copies ends on objects, with every row once."""
    name = f"leaving-{preference}"
    filled = streams.fill(name, COUNT, tiered=False, range_size_bytes_max=64 * 1024)
    streams.client.seal_stream(name)
    asked = options(name, read_preference=preference)
    tables = read_span(asked, Selection(), *one_span(asked))
    first = next(tables)
    assert first.num_rows < COUNT / 4
    streams.client.update_stream(name, StreamConfigChange(tiered=True, hot_retention_seconds=0))
    streams.wait_for_drops(name, len(streams.hot_dropped(name)))
    found = first.column("value").to_pylist() + values(tables)
    assert found == [value for *_, value, _ in filled.rows]


def test_the_open_range_is_sealed_and_goes_while_it_is_read(options: Any, streams: Any) -> None:
    """A task on the open range goes on where that range has gone."""
    filled = streams.fill("closing", COUNT, hot_retention_seconds=0)
    asked = options("closing")
    tables = read_span(asked, Selection(), *one_span(asked))
    first = next(tables)
    streams.client.seal_stream("closing")
    streams.wait_for_drops("closing", 1)
    assert first.column("value").to_pylist() + values(tables) == [value for *_, value, _ in filled.rows]


def test_objects_are_trimmed_while_they_are_read(options: Any, streams: Any, cluster: Cluster) -> None:
    """What is trimmed under a task before it came is said to be trimmed, with where the stream starts now, not damaged."""
    streams.client.create_stream("trimmed-cold", StreamConfig(hot_retention_seconds=0))
    for _ in range(8):  # as many objects: more than a task fetches ahead here
        with streams.client.writer("trimmed-cold") as writer:
            writer.append_batch([bytes(20)] * (COUNT // 8))
        streams.client.seal_stream("trimmed-cold")
    streams.wait_for_drops("trimmed-cold", len(streams.hot_dropped("trimmed-cold")))
    asked = options("trimmed-cold")
    tables = read_span(asked, Selection(), *one_span(asked))
    next(tables)
    streams.client.trim_stream("trimmed-cold", COUNT)
    objects = cluster.directory / "tier" / "streams" / str(stream_id(streams, "trimmed-cold"))
    # The last range stays: offsets go on from it. Its object goes.
    eventually(lambda: not list(objects.rglob("*.parquet")), f"{objects} stays")
    with pytest.raises(OffsetTrimmed) as caught:
        values(tables)
    assert caught.value.offset == COUNT


def test_hot_ranges_are_trimmed_while_they_are_read(options: Any, streams: Any) -> None:
    """A task may end on copies that are still there, or is told of the trim: it never leaves out rows."""
    filled = streams.fill("trimmed-hot", COUNT, tiered=False, range_size_bytes_max=64 * 1024)
    streams.client.seal_stream("trimmed-hot")
    asked = options("trimmed-hot")
    tables = read_span(asked, Selection(), *one_span(asked))
    found = next(tables).column("value").to_pylist()
    streams.client.trim_stream("trimmed-hot", COUNT)
    try:
        found += values(tables)
    except OffsetTrimmed as error:
        assert error.offset == COUNT
    else:
        assert found == [value for *_, value, _ in filled.rows]


def test_deleted_while_it_is_read(options: Any, streams: Any, cluster: Cluster) -> None:
    """A stream that is deleted under a task is said to be gone."""
    streams.fill("deleted", COUNT, writers=6, hot_retention_seconds=0, range_size_bytes_max=64 * 1024)
    streams.client.seal_stream("deleted")
    streams.wait_for_drops("deleted", len(streams.hot_dropped("deleted")))
    objects = cluster.directory / "tier" / "streams" / str(stream_id(streams, "deleted"))
    asked = options("deleted")
    tables = read_span(asked, Selection(), *one_span(asked))
    next(tables)
    streams.client.delete_stream("deleted")
    eventually(lambda: not any(objects.rglob("*.parquet")), f"{objects} stays")
    with pytest.raises(StreamNotFound):
        values(tables)


def test_a_damaged_object_is_never_served(options: Any, streams: Any, cluster: Cluster) -> None:
    """While there are hot copies they serve instead of a damaged object; without them it is Corruption that names it."""
    filled = streams.fill("damaged", COUNT, hot_retention_seconds=float("inf"))
    streams.client.seal_stream("damaged")
    objects = cluster.directory / "tier" / "streams" / str(stream_id(streams, "damaged"))
    eventually(lambda: is_tiered(streams, "damaged"), "nothing is uploaded")
    (path,) = objects.rglob("*.parquet")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 0x10
    path.write_bytes(damaged)
    asked = options("damaged", read_preference="cold_first")
    assert values(read_span(asked, Selection(), *one_span(asked))) == [value for *_, value, _ in filled.rows]
    asked = options("damaged", read_preference="cold_only")
    with pytest.raises(Corruption, match=path.name):
        values(read_span(asked, Selection(), *one_span(asked)))


def is_tiered(streams: Any, name: str) -> bool:
    """Whether objects cover the stream's first range."""
    _, ranges = streams.client.run(streams.client.asynchronous.metadata.ranges(name, 0))
    return bool(ranges[0].tiered_end_offset == ranges[0].end_offset > 0)


def stream_id(streams: Any, name: str) -> int:
    """The stream's number, which object keys hold."""
    stream, _ = streams.client.run(streams.client.asynchronous.metadata.ranges(name, 0))
    return int(stream.stream_id)
