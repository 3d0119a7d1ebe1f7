"""The calls on the watermarks of topics. A repeat of any of them is harmless: notes have numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from rangelog._topics.cut import Cut
from rangelog._topics.values import Watermark
from rangelog_core.net.owner_calls import OwnedKey, journal_of_topic
from rangelog_core.net.pages import goes_on
from rangelog_proto.v1 import watermark_pb2
from rangelog_proto.v1 import watermark_service_pb2 as pb
from rangelog_proto.v1.watermark_service_pb2_grpc import WatermarksStub

_Response = TypeVar("_Response")


class JournalCaller(Protocol):
    """The one method of OwnerCalls that is used here."""

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[_Response]]],
        request: object,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> _Response:
        """Call the owner of a shard or journal."""


class WatermarkCalls:
    """Typed calls. All raise Unavailable and RequestTimeout."""

    def __init__(self, calls: JournalCaller) -> None:
        self._calls = calls

    async def note(self, topic_id: int, note: watermark_pb2.TimeNote, timeout_s: float) -> None:
        """Take a producer's promise. Raises TopicNotFound, Overloaded, ShardNotFound, OffsetOutOfRange."""
        request = pb.NoteTimeRequest(topic_id=topic_id, note=note)
        await self._call(topic_id, lambda stub: stub.NoteTime, request, timeout_s)

    async def end(self, topic_id: int, end: watermark_pb2.TimeNoteEnd, timeout_s: float) -> None:
        """Forget a producer that is closed."""
        request = pb.EndTimeNotesRequest(topic_id=topic_id, end=end)
        await self._call(topic_id, lambda stub: stub.EndTimeNotes, request, timeout_s)

    async def list(self, topic_id: int, after: int, from_ms: int | None, timeout_s: float) -> list[Watermark]:
        """Return the watermarks with numbers above `after`, in order."""
        found: list[Watermark] = []
        request = pb.ListWatermarksRequest(topic_id=topic_id, after_number=after, from_ms=from_ms)
        while True:
            page = await self._call(topic_id, lambda stub: stub.ListWatermarks, request, timeout_s)
            for each in page.watermarks:
                cut = Cut(topic_id, {position.shard_id: position.offset for position in each.cut})
                found.append(Watermark(each.number, each.lower_ms, each.upper_ms, cut))
            if not goes_on(page.more, page.watermarks):
                return found
            request.after_number = found[-1].number
            request.ClearField("from_ms")

    async def _call(self, topic_id: int, method: Any, request: object, timeout_s: float) -> Any:
        key = journal_of_topic(topic_id)
        return await self._calls.call(key, WatermarksStub, method, request, timeout_s=timeout_s, repeatable=True)


def noted_positions(offsets: Mapping[int, int]) -> list[watermark_pb2.NotedPosition]:
    """Return positions as the protocol's messages."""
    return [watermark_pb2.NotedPosition(shard_id=shard_id, offset=offset) for shard_id, offset in offsets.items()]
