"""The gRPC service for watermarks, on the port of a broker's services. Errors are mapped by the server's interceptor.

What holds: a note counts once, however often it comes: it has a number. An answer follows the ack of its entry. A broker that
has lost the journal answers NOT_OWNER, or OUTCOME_UNKNOWN where a command may have been acked.
"""

from __future__ import annotations

from typing import Any, Protocol

from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owners import JournalOwners
from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_broker.watermarks.shard_ends import FindEnd
from rangelog_broker.watermarks.snapshots import watermark_message
from rangelog_broker.watermarks.watermark_owner import WatermarkOwner
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import KIB, TOPIC_SHARDS_MAX
from rangelog_core.net.owner_calls import journal_of_topic
from rangelog_core.net.routes import PdCalls
from rangelog_proto.v1 import watermark_service_pb2 as pb
from rangelog_proto.v1.watermark_service_pb2_grpc import WatermarksServicer

PAGE_SIZE_MAX = 1_000
PAGE_BYTES = 512 * KIB
"""Of the watermarks of one answer; it has at least one."""


class WatermarkJournals(Protocol):
    """The coordinator journals that this broker owns."""

    def find(self, number: int) -> Journal[WatermarkCoordinator]:
        """Return the journal of a number, open. Raises NotOwner."""


class WatermarksService(WatermarksServicer):
    """All calls on watermarks. `close` it before the journals."""

    def __init__(
        self,
        journals: WatermarkJournals,
        topics: PdCalls,
        find_end: FindEnd,
        *,
        interval_s: float = 10.0,
        expiry_s: float = 60.0,
    ) -> None:
        """`interval_s`: between two computations of a topic. `expiry_s`: a producer that is silent for so long is forgotten."""
        self._owners = JournalOwners(
            journals.find,
            lambda journal: WatermarkOwner(journal, topics, find_end, interval_s=interval_s, expiry_s=expiry_s),
        )

    def close(self) -> None:
        """End all timers. Idempotent."""
        self._owners.close()

    def owner_of(self, number: int) -> WatermarkOwner:
        """Return the owner's side of a journal. Raises NotOwner, InvalidArgument."""
        return self._owners.of(number)

    async def NoteTime(self, request: pb.NoteTimeRequest, context: Any) -> pb.NoteTimeResponse:
        """Take a producer's promise."""
        if not request.topic_id or not request.note.number:
            raise InvalidArgument("a note of a time without a topic or a number")
        if len(request.note.positions) > TOPIC_SHARDS_MAX:
            raise InvalidArgument(f"a note of {len(request.note.positions)} positions; the limit is {TOPIC_SHARDS_MAX}")
        await self._owner(request.topic_id).note(request.topic_id, request.note)
        return pb.NoteTimeResponse()

    async def EndTimeNotes(self, request: pb.EndTimeNotesRequest, context: Any) -> pb.EndTimeNotesResponse:
        """Forget a producer that is closed."""
        if not request.topic_id or not request.end.number:
            raise InvalidArgument("an end of notes without a topic or a number")
        await self._owner(request.topic_id).end(request.topic_id, request.end)
        return pb.EndTimeNotesResponse()

    async def ListWatermarks(self, request: pb.ListWatermarksRequest, context: Any) -> pb.ListWatermarksResponse:
        """List watermarks by number."""
        size = request.page_size or PAGE_SIZE_MAX
        if size > PAGE_SIZE_MAX:
            raise InvalidArgument(f"a page of {size} watermarks; the limit is {PAGE_SIZE_MAX}")
        from_ms = request.from_ms if request.HasField("from_ms") else None
        found = await self._owner(request.topic_id).watermarks(request.topic_id, request.after_number, from_ms)
        response, bytes_left = pb.ListWatermarksResponse(), PAGE_BYTES
        for each in found:
            if len(response.watermarks) >= size or bytes_left <= 0:
                response.more = True
                break
            message = watermark_message(each)
            bytes_left -= message.ByteSize()
            response.watermarks.append(message)
        return response

    def _owner(self, topic_id: int) -> WatermarkOwner:
        return self.owner_of(journal_of_topic(topic_id)[1])
