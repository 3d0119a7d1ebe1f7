"""A stream's ranges as the placement driver listed them, and where its acked records end."""

from __future__ import annotations

from collections.abc import Sequence

from rangelog._metadata import Metadata, backoff
from rangelog._read.hot import HotRange
from rangelog._read.proof import ProvedEnd, proved_end
from rangelog.protocol.reading import Located, locate
from rangelog_core.errors import RangeNotFound, Unavailable
from rangelog_core.net.data_connection import DataConnections
from rangelog_proto.v1 import common_pb2

_PLANS_MAX = 6


class StreamView:
    """A stream's ranges by the placement driver's last reply. The first reply resolves the stream's name."""

    def __init__(
        self, metadata: Metadata, stream: str, *, stream_id: int = 0, connections: DataConnections | None = None
    ) -> None:
        """`stream_id`: the stream's id, where the name was resolved before. `connections` learn the replicas' addresses."""
        self.name = stream
        self._metadata = metadata
        self._connections = connections
        self.stream = common_pb2.Stream(stream_id=stream_id)
        self.ranges: Sequence[common_pb2.Range] = ()
        self._sealed: list[bool] = []
        self._asked_count = 0
        self._answered = 0  # the latest request whose reply is held

    def clock_ms(self) -> int:
        """The wall clock of the client."""
        return self._metadata.clock_ms()

    async def refresh(self, from_offset: int) -> None:
        """Ask the placement driver. Raises StreamNotFound (the stream was deleted, even if its name is reused), Unavailable."""
        stream_id = self.stream.stream_id
        self._asked_count += 1
        asked = self._asked_count
        stream, ranges = await self._metadata.ranges(self.name, from_offset, stream_id=stream_id)
        if asked < self._answered:
            return  # the reply to a later request came first
        self._answered = asked
        self._hold(stream, ranges)

    def adopt(self, stream: common_pb2.Stream, ranges: Sequence[common_pb2.Range]) -> None:
        """Take a stream and ranges that another reply had: they need not be asked for while they cover what is read."""
        self._hold(stream, ranges)

    async def reach(self, position: int) -> None:
        """Ask the placement driver, unless the known ranges begin at or before `position`. Raises as `refresh`."""
        if not self.ranges or self.ranges[0].start_offset > position:
            await self.refresh(position)

    async def last_range(self) -> common_pb2.Range | None:
        """Ask the placement driver for the last range alone; `ranges` stays as it is. Raises as `refresh`."""
        self.stream, ranges = await self._metadata.ranges(self.name, 0, stream_id=self.stream.stream_id, last_only=True)
        self._learn(ranges)
        return ranges[-1] if ranges else None

    def locate(self, position: int) -> Located | None:
        """Return the range that covers `position`, as `protocol.reading.locate` does."""
        return locate(self.ranges, self._sealed, position, self.stream.trim_offset)

    async def proved_end(self, connections: DataConnections, source: common_pb2.Range) -> ProvedEnd:
        """Return the proved end of an open range; `rangelog._read.proof` has the rules."""
        hot = HotRange(connections, source)
        return await proved_end(hot, self._metadata)

    def _hold(self, stream: common_pb2.Stream, ranges: Sequence[common_pb2.Range]) -> None:
        self.stream, self.ranges = stream, ranges
        self._sealed = [each.state == common_pb2.RANGE_STATE_SEALED for each in ranges]
        self._learn(ranges)

    def _learn(self, ranges: Sequence[common_pb2.Range]) -> None:
        if self._connections is not None:
            for each in ranges:
                self._connections.learn(each)


async def confirmed_end(view: StreamView, connections: DataConnections) -> ProvedEnd:
    """Return the end of the acked records; if it is exact, every ack before this call lies below it.

    In an open range it is proved (see `rangelog._read.proof`). With a silent replica, or without placement driver and
    writer, it is the highest confirm offset that the replicas know, and not exact. The stream of `view` is as it is now, its
    ranges are those of its last refresh. Raises StreamNotFound, Unavailable.
    """
    for attempt in range(_PLANS_MAX):
        last = await view.last_range()
        if last is None:
            return ProvedEnd(view.stream.next_offset, exact=True)
        if last.state == common_pb2.RANGE_STATE_SEALED:
            return ProvedEnd(last.end_offset, exact=True)
        try:
            return await view.proved_end(connections, last)
        except RangeNotFound:  # it was sealed since, and its replicas were dropped
            await backoff(attempt)
    raise Unavailable(f"the ranges of {view.name!r} change faster than they can be read: try again")
