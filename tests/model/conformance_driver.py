"""The placement driver's state machine, asked as clients ask it: commands in, results or errors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import RangeNotFound
from rangelog_core.ids import ReplicaId
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

_T = TypeVar("_T", bound=Message)


class Driver:
    """One stream with one open range of epoch 1, on these servers."""

    def __init__(
        self, servers: Sequence[ReplicaId], acks: int, *, size: int = 0, placed: int = 0, tiered: bool = False
    ) -> None:
        """`size` replicas are wanted, and the first `placed` servers have them (0: all)."""
        self.machine = Machine()
        self.wall_ms = 1_000_000
        self._applied = 0
        for replica in servers:
            self.register(replica.server, replica.incarnation)
        wanted = common_pb2.StreamConfig(replicas=size or len(servers), acks=acks, tiered=tiered)
        self.do(pd_pb2.CreateStreamResponse, create_stream=pd_pb2.CreateStreamRequest(name="s", config=wanted))
        self.open_writer()
        self.members = [
            common_pb2.Replica(server=replica.server, incarnation=replica.incarnation)
            for replica in servers[: placed or len(servers)]
        ]
        create = pd_pb2.CreateRangeRequest(stream_id=1, epoch=1, start_offset=0)
        command = pd_state_pb2.PlacedCreateRange(request=create, replicas=self.members)
        self.do(pd_pb2.CreateRangeResponse, create_range=command)

    def do(self, response: type[_T], **action: Any) -> _T:
        """Apply one command; return its response or raise its error."""
        command = pd_state_pb2.Command(version=FEATURE_LEVEL, now_ms=self.wall_ms, **action)
        self._applied += 1
        result = self.machine.apply(self._applied, command.SerializeToString())
        self.machine.state.validate()
        return response.FromString(response_of(result))

    def register(self, server: str, incarnation: int) -> None:
        """A range server registers."""
        request = pd_pb2.RegisterServerRequest(server=server, incarnation=incarnation, boot=1, data_address="a:1")
        self.do(pd_pb2.RegisterServerResponse, register_server=request)

    @property
    def epoch(self) -> int:
        """The stream's."""
        return int(self.machine.state.streams[1].epoch)

    @property
    def end_offset(self) -> int | None:
        """Its end, once it is committed. An empty range at the trim offset is forgotten once another one follows."""
        ranges = self.machine.state.ranges.of(1)
        if 0 not in ranges:
            return int(ranges[1].start_offset)
        found = ranges[0]
        return int(found.end_offset) if found.state == common_pb2.RANGE_STATE_SEALED else None

    @property
    def floor_offset(self) -> int:
        """Where no seal can end the range below."""
        found = self.machine.state.ranges.of(1).get(0)
        return int(found.floor_offset) if found is not None else 0

    def members_now(self) -> list[common_pb2.Replica]:
        """Who holds range 0, by the state."""
        found = self.machine.state.ranges.of(1).get(0)
        return list(found.replicas) if found is not None else []

    def replace(self, replacement: common_pb2.Replica, lost: common_pb2.Replica | None) -> None:
        """Give a lost member's place, or a free one, to another server. Raises PreconditionFailed."""
        command = pd_state_pb2.ReplaceReplica(stream_id=1, range_index=0, lost=lost, replacement=replacement)
        self.do(pd_pb2.ListTasksResponse, replace_replica=command)

    def open_writer(self) -> int:
        """Open the stream; return the epoch."""
        opened = self.do(pd_pb2.OpenWriterResponse, open_writer=pd_pb2.OpenWriterRequest(name="s"))
        return int(opened.stream.epoch)

    def seal(self, epoch: int, end_offset: int, *, create_next: bool = False, place: bool = True) -> int:
        """Commit an end; return the one in force. Raises WriterFenced, SealBelowFloor, NoPlacement (without `place`)."""
        request = pd_pb2.SealRangeRequest(
            stream_id=1, range_index=0, epoch=epoch, end_offset=end_offset, create_next=create_next
        )
        placed = pd_state_pb2.PlacedSealRange(request=request, replicas=self.members if create_next and place else [])
        return int(self.do(pd_pb2.SealRangeResponse, seal_range=placed).range.end_offset)

    def prove_end(self, end_offset: int, holders: Sequence[ReplicaId]) -> int:
        """Arbitrate a reader's proof; return the end it may believe. Raises PreconditionFailed: these holders prove nothing."""
        named = [common_pb2.Replica(server=each.server, incarnation=each.incarnation) for each in holders]
        request = pd_pb2.ProveEndRequest(stream_id=1, range_index=0, end_offset=end_offset, holders=named)
        try:
            found = self.do(pd_pb2.ProveEndResponse, prove_end=request).range
        except RangeNotFound:
            assert self.end_offset is not None
            return self.end_offset
        return int(found.end_offset if found.state == common_pb2.RANGE_STATE_SEALED else found.floor_offset)
