"""The part of the job `report` that reads no records: retention, where a stream's bytes are, and the lag of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rangelog import Client
from rangelog.ranges import HotRange, StreamInfo, StreamView, confirmed_end, stream_info
from rangelog.spark.dividing import SAMPLES_MAX, Limits, divide
from rangelog.spark.options import RECORDS_PER_PARTITION_DEFAULT
from rangelog.spark.where import parse_where
from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    import rangelog.sync

OBJECTS_PER_CALL = 500


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as it was when the report began.

    Attributes:
        info: Name, trim offset, retention.
        end: One past the last acked record.
        hot_bytes: Bytes of one replica of the ranges on range servers, by samples; None: no replica answers.
        tiered_bytes: Size of the live objects.
        object_count: Their number.
        spans: Parts [start, end) of what is readable.
    """

    info: StreamInfo
    end: int
    hot_bytes: int | None
    tiered_bytes: int
    object_count: int
    spans: list[tuple[int, int]]

    def work(self) -> list[dict[str, Any]]:
        """Return the parts as plain values."""
        return [
            {"stream": self.info.name, "stream_id": self.info.stream_id, "start": start, "end": end}
            for start, end in self.spans
        ]


async def look_at(client: Client, name: str) -> StreamState:
    """Return the state of a stream. Raises StreamNotFound, Unavailable."""
    view = StreamView(client.metadata, name, connections=client.connections)
    end = (await confirmed_end(view, client.connections)).offset
    first = min(view.stream.trim_offset, end)
    await view.refresh(first)
    objects = await client.metadata.all_objects(view.stream.stream_id, first)
    tiered_bytes, object_count = sum(each.size_bytes for each in objects), len(objects)
    spans = await divide(
        client, view, first, end, parse_where("", of_topic=False), Limits(RECORDS_PER_PARTITION_DEFAULT)
    )
    hot = await _hot_bytes(client, view, first, end)
    return StreamState(stream_info(view.stream), end, hot, tiered_bytes, object_count, spans)


async def _hot_bytes(client: Client, view: StreamView, first: int, end: int) -> int | None:
    """Estimate the bytes on range servers, per replica, from a batch of a few ranges."""
    counts: list[tuple[common_pb2.Range, int, int]] = []
    for each in view.ranges:
        low = max(first, each.start_offset)
        high = each.end_offset if each.state == common_pb2.RANGE_STATE_SEALED else end
        if not each.hot_dropped and low < high:
            counts.append((each, low, high))
    measured: list[float] = []
    for source, low, high in counts[:: max(1, len(counts) // SAMPLES_MAX)][:SAMPLES_MAX]:
        size = await HotRange(client.connections, source).record_bytes(low, high)
        measured += [size] if size else []
    if counts and not measured:
        return None
    mean = sum(measured) / len(measured) if measured else 0.0
    return int(mean * sum(high - low for _, low, high in counts))


def group_lags(client: rangelog.sync.Client) -> tuple[list[dict[str, Any]], str]:
    """Return how far each consumer group is behind, by topic; and why that is not known, or ""."""
    found: list[dict[str, Any]] = []
    try:
        if not any(True for _ in client.topics.list()):
            return [], ""
        for group in client.groups.list():
            by_topic: dict[str, dict[str, Any]] = {}
            for lag in client.groups.lag(group.name):
                one = by_topic.setdefault(
                    lag.topic, {"group": group.name, "topic": lag.topic, "members": group.member_count, "records": 0,
                                "seconds": 0.0, "shards": 0}
                )  # fmt: skip
                one["records"] += lag.records
                one["seconds"] = max(one["seconds"], lag.seconds)
                one["shards"] += 1
            found += by_topic.values()
    except RangelogError as error:
        return found, f"the lag of groups is not known: {error.message or error}"
    return found, ""
