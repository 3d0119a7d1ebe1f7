"""The metadata of a FakeCluster: streams, ranges and epochs, under the rules of the placement driver.

What holds: a range is created where the last one ended; the first end that is committed for a range is its end for good, and
no end is below what readers were shown (its floor); a call of an epoch that is not the stream's current one is fenced. Every
call is carried out once, at once, and its answer shares no message with the state. Not thread-safe: the cluster's lock is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rangelog.testing.cursors import FakeCursors
from rangelog.testing.range_server import FakeRangeServer
from rangelog_core.errors import (
    InvalidArgument,
    OffsetOutOfRange,
    PreconditionFailed,
    RangelogError,
    RangeNotFound,
    SealBelowFloor,
    StreamExists,
    StreamNotFound,
    Unavailable,
    WriterFenced,
)
from rangelog_core.ids import check_name
from rangelog_core.name_errors import no_stream
from rangelog_core.stream_defaults import set_field, with_defaults
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class FakePlacementDriver:
    """One method for each call that the client makes, by the name of the RPC."""

    def __init__(self, server: FakeRangeServer, now_ms: Callable[[], int]) -> None:
        """`server`: holds every range. `now_ms`: the wall clock, in ms since 1970."""
        self._server = server
        self._now_ms = now_ms
        self._streams: dict[int, common_pb2.Stream] = {}
        self._ids: dict[str, int] = {}
        self._ranges: dict[int, dict[int, common_pb2.Range]] = {}
        self._next_stream_id = 1
        self.cursors = FakeCursors(self._stream_by_id, self._last_range, now_ms)

    # ---- streams

    def CreateStream(self, request: pb.CreateStreamRequest) -> pb.CreateStreamResponse:
        """Raises StreamExists, InvalidArgument."""
        check_name("stream", request.name)
        config = with_defaults(request.config)
        if request.name in self._ids:
            raise StreamExists(f"stream {request.name!r} exists already")
        stream = common_pb2.Stream(
            stream_id=self._next_stream_id, name=request.name, config=config, created_ms=self._now_ms(), version=1
        )
        self._next_stream_id += 1
        self._streams[stream.stream_id] = stream
        self._ids[stream.name] = stream.stream_id
        self._ranges[stream.stream_id] = {}
        return pb.CreateStreamResponse(stream=stream)

    def DescribeStream(self, request: pb.DescribeStreamRequest) -> pb.DescribeStreamResponse:
        """Raises StreamNotFound."""
        return pb.DescribeStreamResponse(stream=self._shown(self._stream(request.name)))

    def ListStreams(self, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
        """By name, all on one page."""
        names = sorted(name for name in self._ids if name.startswith(request.prefix) and name > request.page_token)
        return pb.ListStreamsResponse(streams=[self._shown(self._stream(name)) for name in names])

    def UpdateStream(self, request: pb.UpdateStreamRequest) -> pb.UpdateStreamResponse:
        """Raises StreamNotFound, InvalidArgument."""
        stream = self._stream(request.name)
        if not request.fields:
            raise InvalidArgument("nothing to update: name the fields to change")
        config = common_pb2.StreamConfig()
        config.CopyFrom(stream.config)
        for name in request.fields:
            set_field(config, name, request.config)
        stream.config.CopyFrom(with_defaults(config))
        stream.version += 1
        return pb.UpdateStreamResponse(stream=self._shown(stream))

    def DeleteStream(self, request: pb.DeleteStreamRequest) -> pb.DeleteStreamResponse:
        """The name is free again, the id is not. Raises StreamNotFound."""
        stream = self._stream(request.name)
        last = self._last_range(stream)
        is_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
        response = pb.DeleteStreamResponse(stream=stream, open_range=last if is_open else None)
        for index in list(self._ranges[stream.stream_id]):
            self._remove_range(stream, index)
        self.cursors.forget(stream.stream_id)
        del self._ids[stream.name], self._streams[stream.stream_id], self._ranges[stream.stream_id]
        return response

    def TrimStream(self, request: pb.TrimStreamRequest) -> pb.TrimStreamResponse:
        """Raises StreamNotFound, OffsetOutOfRange."""
        stream = self._stream_by_id(request.stream_id) if request.stream_id else self._stream(request.name)
        if request.trim_offset > stream.next_offset:
            raise OffsetOutOfRange(
                f"cannot trim to {request.trim_offset}: sealed ranges end at {stream.next_offset}",
                offset=stream.next_offset,
            )
        if request.trim_offset > stream.trim_offset:
            stream.trim_offset = request.trim_offset
            stream.version += 1
        self._forget_trimmed(stream)
        return pb.TrimStreamResponse(stream=self._shown(stream))

    # ---- writers and ranges

    def OpenWriter(self, request: pb.OpenWriterRequest) -> pb.OpenWriterResponse:
        """Raise the epoch: whoever wrote before is fenced from here on. Raises StreamNotFound."""
        stream = self._stream(request.name)
        stream.epoch += 1
        stream.version += 1
        return pb.OpenWriterResponse(stream=stream, last_range=self._last_range(stream))

    def OpenWriters(self, request: pb.OpenWritersRequest) -> pb.OpenWritersResponse:
        """Many at once, an answer or an error for each."""
        response = pb.OpenWritersResponse()
        for each in request.writers:
            opened, error = _answer(self.OpenWriter, each)
            response.results.append(pb.OpenWriterResult(response=opened, error=error))
        return response

    def CreateRange(self, request: pb.CreateRangeRequest) -> pb.CreateRangeResponse:
        """Raises StreamNotFound, WriterFenced, PreconditionFailed (not where the last range ended)."""
        stream = self._stream_by_id(request.stream_id)
        self._check_epoch(stream, request.epoch)
        last = self._last_range(stream)
        if last is not None and last.state == common_pb2.RANGE_STATE_OPEN:
            raise PreconditionFailed(f"range {last.index} is still open: seal it first")
        if request.start_offset != stream.next_offset:
            raise PreconditionFailed(f"the next range starts at {stream.next_offset}, not {request.start_offset}")
        return pb.CreateRangeResponse(range=self._append_range(stream))

    def SealRange(self, request: pb.SealRangeRequest) -> pb.SealRangeResponse:
        """Seal, and create the next range if asked; a range that is sealed already is answered as it is.

        Raises StreamNotFound, RangeNotFound, WriterFenced, InvalidArgument, SealBelowFloor.
        """
        stream = self._stream_by_id(request.stream_id)
        self._check_epoch(stream, request.epoch)
        sealed = self._range(request.stream_id, request.range_index)
        follower = self._ranges[stream.stream_id].get(request.range_index + 1)
        if sealed.state == common_pb2.RANGE_STATE_SEALED:
            if request.create_next and follower is None and request.end_offset == sealed.end_offset:
                follower = self._append_range(stream)
            own = follower is not None and follower.epoch == request.epoch
            return pb.SealRangeResponse(range=sealed, next_range=follower if own else None)
        if request.end_offset < sealed.start_offset:
            raise InvalidArgument(f"an end of {request.end_offset} for a range that starts at {sealed.start_offset}")
        if request.end_offset < sealed.floor_offset:
            raise SealBelowFloor(
                f"range {sealed.index} cannot end at {request.end_offset}: readers were shown up to {sealed.floor_offset}",
                offset=sealed.floor_offset,
            )
        sealed.state = common_pb2.RANGE_STATE_SEALED
        sealed.end_offset = request.end_offset
        sealed.sealed_ms = self._now_ms()
        stream.next_offset = request.end_offset
        stream.version += 1
        self._server.commit_end(stream.stream_id, sealed.index, sealed.start_offset, sealed.end_offset)
        follower = self._append_range(stream) if request.create_next else None
        return pb.SealRangeResponse(range=sealed, next_range=follower)

    def SealRanges(self, request: pb.SealRangesRequest) -> pb.SealRangesResponse:
        """Many at once, an answer or an error for each."""
        response = pb.SealRangesResponse()
        for each in request.seals:
            sealed, error = _answer(self.SealRange, each)
            response.results.append(pb.SealRangeResult(response=sealed, error=error))
        return response

    def ProveEnd(self, request: pb.ProveEndRequest) -> pb.ProveEndResponse:
        """Put a floor under an open range. Raises StreamNotFound, RangeNotFound."""
        found = self._range(request.stream_id, request.range_index)
        if found.state == common_pb2.RANGE_STATE_OPEN:
            found.floor_offset = max(found.floor_offset, request.end_offset)
        return pb.ProveEndResponse(range=found)

    def ListRanges(self, request: pb.ListRangesRequest) -> pb.ListRangesResponse:
        """In order, all on one page. Raises StreamNotFound."""
        stream = self._stream(request.name) if request.name else self._stream_by_id(request.stream_id)
        found = [
            each
            for index, each in sorted(self._ranges[stream.stream_id].items())
            if index >= request.from_index
            and (each.state == common_pb2.RANGE_STATE_OPEN or each.end_offset > request.from_offset)
        ]
        return pb.ListRangesResponse(ranges=found[-1:] if request.last_only else found, stream=stream)

    def Watch(self, request: pb.WatchRequest) -> pb.WatchResponse:
        """Nothing is watched: readers look by themselves. Raises Unavailable."""
        raise Unavailable("a fake cluster has no watch")

    # ---- the cluster

    def ListObjects(self, request: pb.ListObjectsRequest) -> pb.ListObjectsResponse:
        """There is no tier, so there are none."""
        return pb.ListObjectsResponse()

    def ListServers(self, request: pb.ListServersRequest) -> pb.ListServersResponse:
        """The one there is."""
        replica = self._server.replica
        server = common_pb2.Server(
            name=replica.server,
            incarnation=replica.incarnation,
            data_address=replica.data_address,
            health=common_pb2.SERVER_HEALTH_SUSPECT if self._server.holds_appends else replica.health,
        )
        return pb.ListServersResponse(servers=[server])

    def DescribeCluster(self, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
        """No tier is named."""
        return pb.DescribeClusterResponse()

    # ---- inside

    def _stream(self, name: str) -> common_pb2.Stream:
        if name not in self._ids:
            raise no_stream(name)
        return self._streams[self._ids[name]]

    def _stream_by_id(self, stream_id: int) -> common_pb2.Stream:
        if stream_id not in self._streams:
            raise StreamNotFound(f"no stream with id {stream_id}: it was deleted")
        return self._streams[stream_id]

    def _range(self, stream_id: int, index: int) -> common_pb2.Range:
        self._stream_by_id(stream_id)
        found = self._ranges[stream_id].get(index)
        if found is None:
            raise RangeNotFound(f"stream {stream_id} has no range {index}: it was trimmed, or never was")
        return found

    def _shown(self, stream: common_pb2.Stream) -> common_pb2.Stream:
        """For an answer: with the number of the ranges that it has; in the row that is the next index."""
        found = common_pb2.Stream()
        found.CopyFrom(stream)
        found.range_count = len(self._ranges[stream.stream_id])
        return found

    def _last_range(self, stream: common_pb2.Stream) -> common_pb2.Range | None:
        return self._ranges[stream.stream_id].get(stream.range_count - 1)

    def _check_epoch(self, stream: common_pb2.Stream, epoch: int) -> None:
        if epoch != stream.epoch:
            raise WriterFenced(
                f"epoch {epoch} is not the current one of stream {stream.name!r}, which is {stream.epoch}",
                epoch=stream.epoch,
            )

    def _append_range(self, stream: common_pb2.Stream) -> common_pb2.Range:
        added = common_pb2.Range(
            stream_id=stream.stream_id,
            index=stream.range_count,
            epoch=stream.epoch,
            start_offset=stream.next_offset,
            state=common_pb2.RANGE_STATE_OPEN,
            replicas=[self._server.replica],
            acks=1,
            durability=stream.config.durability,
            tiered_end_offset=stream.next_offset,
            created_ms=self._now_ms(),
        )
        stream.range_count += 1
        stream.version += 1
        self._ranges[stream.stream_id][added.index] = added
        self._forget_trimmed(stream)
        return added

    def _forget_trimmed(self, stream: common_pb2.Stream) -> None:
        """Forget the ranges that lie wholly below the trim offset, but never the last one."""
        for index, each in sorted(self._ranges[stream.stream_id].items()):
            sealed = each.state == common_pb2.RANGE_STATE_SEALED
            if not sealed or each.end_offset > stream.trim_offset or index == stream.range_count - 1:
                return
            self._remove_range(stream, index)

    def _remove_range(self, stream: common_pb2.Stream, index: int) -> None:
        del self._ranges[stream.stream_id][index]
        self._server.drop(stream.stream_id, index)


def _answer(call: Callable[[_Item], _Answer], item: _Item) -> tuple[_Answer | None, pb.CallError | None]:
    try:
        return call(item), None
    except RangelogError as error:
        told = pb.CallError(code=error.code, message=error.message, epoch=error.epoch or 0)
        if error.offset is not None:
            told.offset, told.has_offset = error.offset, True
        return None, told
