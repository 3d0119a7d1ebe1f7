"""A placement driver's core in memory, on a clock that the test moves: state machine, view and reconcilers, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message

from rangelog_pd.reconcile.directives import Planner
from rangelog_pd.reconcile.proposals import proposals
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.machine import COMMAND_VERSION, Machine, response_of
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

DIGEST = "sha256:" + "ab" * 32
_T = TypeVar("_T", bound=Message)


class Pd:
    """One leader. `wall_ms` and `now_ms` move together."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.wall_ms = 1_700_000_000_000
        self.now_ms = 50_000.0
        self.view = ClusterView(suspect_ms=1_500, dead_ms=5_000)
        self.view.start_leading(self.now_ms)
        self.applied = 0

    @property
    def state(self) -> State:
        return self.machine.state

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.now_ms += ms

    def apply(self, command: pd_state_pb2.Command) -> bytes:
        command.version = COMMAND_VERSION
        command.now_ms = self.wall_ms
        self.applied += 1
        result = self.machine.apply(self.applied, command.SerializeToString())
        self.state.validate()
        return result

    def do(self, response: type[_T], request_id: str = "", **action: Any) -> _T:
        """Apply one command; return its response or raise its error."""
        return response.FromString(response_of(self.apply(pd_state_pb2.Command(request_id=request_id, **action))))

    # ---- what clients ask

    def create_stream(self, name: str = "s", request_id: str = "", **config: Any) -> common_pb2.Stream:
        request = pd_pb2.CreateStreamRequest(name=name, config=common_pb2.StreamConfig(**config))
        return self.do(pd_pb2.CreateStreamResponse, request_id, create_stream=request).stream

    def open_writer(self, name: str = "s", request_id: str = "") -> pd_pb2.OpenWriterResponse:
        return self.do(
            pd_pb2.OpenWriterResponse,
            request_id,
            open_writer=pd_pb2.OpenWriterRequest(name=name),
        )

    def members(self, *names: str) -> list[common_pb2.Replica]:
        return [
            common_pb2.Replica(server=name, incarnation=self.state.servers[name].server.incarnation) for name in names
        ]

    def create_range(
        self, stream_id: int, epoch: int, start: int, *names: str, request_id: str = ""
    ) -> common_pb2.Range:
        request = pd_pb2.CreateRangeRequest(stream_id=stream_id, epoch=epoch, start_offset=start)
        placed = pd_state_pb2.PlacedCreateRange(request=request, replicas=self.members(*names))
        return self.do(pd_pb2.CreateRangeResponse, request_id, create_range=placed).range

    def seal(
        self,
        stream_id: int,
        index: int,
        epoch: int,
        end: int,
        *next_on: str,
        request_id: str = "",
        create: bool = False,
    ) -> pd_pb2.SealRangeResponse:
        """Seal; with `next_on` (or `create`) also create the next range."""
        request = pd_pb2.SealRangeRequest(
            stream_id=stream_id,
            range_index=index,
            epoch=epoch,
            end_offset=end,
            create_next=bool(next_on) or create,
        )
        placed = pd_state_pb2.PlacedSealRange(request=request, replicas=self.members(*next_on))
        return self.do(pd_pb2.SealRangeResponse, request_id, seal_range=placed)

    def trim(self, offset: int, name: str = "s") -> common_pb2.Stream:
        request = pd_pb2.TrimStreamRequest(name=name, trim_offset=offset)
        return self.do(pd_pb2.TrimStreamResponse, trim_stream=request).stream

    def delete_stream(self, name: str = "s", request_id: str = "") -> None:
        self.do(
            pd_pb2.DeleteStreamResponse,
            request_id,
            delete_stream=pd_pb2.DeleteStreamRequest(name=name),
        )

    # ---- what servers do

    def register(
        self,
        name: str,
        *,
        incarnation: int = 0,
        boot: int = 1,
        log_end: int = 0,
        zone: str = "",
    ) -> None:
        request = pd_pb2.RegisterServerRequest(
            server=name,
            incarnation=incarnation or 100 + sum(map(ord, name)),
            boot=boot,
            data_address=f"{name}:1",
            zone=zone,
            log_end=log_end,
        )
        self.do(pd_pb2.RegisterServerResponse, register_server=request)
        self.view.registered(name, request.incarnation, self.now_ms)

    def beat(
        self,
        name: str,
        *reports: pd_pb2.ReplicaReport,
        complete: bool = True,
        log_end: int = 0,
        sequence: int | None = None,
        tasks: Mapping[str, bool] | None = None,
    ) -> bool:
        """One heartbeat, the next by its number unless that is given; returns whether the whole report is wanted.

        `tasks`: the directives at hand, and whether they are done.
        """
        view = self.view.servers.get(name)
        request = pd_pb2.HeartbeatRequest(
            server=name,
            incarnation=self.state.servers[name].server.incarnation,
            sequence=(view.sequence if view is not None else 0) + 1 if sequence is None else sequence,
            replicas=reports,
            complete=complete,
            tasks=[pd_pb2.TaskReport(task_id=name, done=done) for name, done in (tasks or {}).items()],
            log_end=log_end,
        )
        return self.view.heartbeat(request, self.now_ms, self.wall_ms)

    def prepare(
        self,
        stream_id: int,
        index: int,
        start: int,
        end: int,
        server: str,
        ttl: int = 60_000,
        spoiled_object_id: int = 0,
    ) -> Any:
        request = pd_pb2.PrepareObjectRequest(
            stream_id=stream_id,
            range_index=index,
            start_offset=start,
            end_offset=end,
            server=server,
            incarnation=self.state.servers[server].server.incarnation,
            spoiled_object_id=spoiled_object_id,
        )
        timed = pd_state_pb2.TimedPrepareObject(request=request, deadline_ms=self.wall_ms + ttl)
        return self.do(pd_pb2.PrepareObjectResponse, prepare_object=timed).object

    def commit(self, found: common_pb2.Object, **changes: Any) -> common_pb2.Object:
        fields: dict[str, Any] = {
            "object_id": found.object_id,
            "server": found.server,
            "incarnation": found.incarnation,
            "size_bytes": 1_000,
            "digest": DIGEST,
            "epoch": found.epoch,
        }
        request = pd_pb2.CommitObjectRequest(**(fields | changes))
        return self.do(pd_pb2.CommitObjectResponse, commit_object=request).object

    def replace(self, stream_id: int, index: int, lost: str, replacement: str) -> None:
        """Give a member's place to another server."""
        command = pd_state_pb2.ReplaceReplica(
            stream_id=stream_id,
            range_index=index,
            lost=self.members(lost)[0],
            replacement=self.members(replacement)[0],
        )
        response_of(self.apply(pd_state_pb2.Command(replace_replica=command)))

    def tier(self, stream_id: int, index: int, server: str) -> None:
        """Upload a sealed range whole."""
        of = self.state.ranges[stream_id][index]
        self.commit(self.prepare(stream_id, index, of.start_offset, of.end_offset, server))

    # ---- what the leader does

    def directives(self, server: str, *, tier: bool = True) -> dict[str, pd_pb2.Directive]:
        """What the server is told now, by kind; fails when one kind comes twice."""
        planner = Planner(self.state, self.view, tier, self.now_ms, self.wall_ms)
        found = planner.directives(server, self.state.servers[server].server.incarnation)
        kinds = [each.WhichOneof("action") or "" for each in found]
        assert len(set(kinds)) == len(kinds), kinds
        return dict(zip(kinds, found, strict=True))

    def proposals(self) -> list[pd_state_pb2.Command]:
        return proposals(self.state, self.view, self.now_ms, self.wall_ms)

    def reconcile(self) -> list[str]:
        """One round: propose and apply; returns the kinds."""
        kinds = []
        for command in self.proposals():
            kinds.append(command.WhichOneof("action") or "")
            response_of(self.apply(command))
        return kinds


def report(stream_id: int, index: int, state: str, *, end: int = 0, size: int = 0) -> pd_pb2.ReplicaReport:
    """What a server says of one replica; `state` as in REPLICA_STATE_…"""
    return pd_pb2.ReplicaReport(
        stream_id=stream_id,
        range_index=index,
        state=f"REPLICA_STATE_{state}",
        durable_offset=end,
        size_bytes=size,
    )


@pytest.fixture
def pd() -> Pd:
    """A leader with four servers, all just heard of."""
    made = Pd()
    for number in range(1, 5):
        made.register(f"rs{number}", zone=f"z{number}")
        made.beat(f"rs{number}")
    return made


@pytest.fixture
def make_report() -> Any:
    """`make_report(stream_id, index, "SEALED")`."""
    return report
