"""A placement driver in memory, on clocks that the test moves: its core, and the API's handlers on a consensus of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message

from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import ranges, servers, streams
from rangelog_pd.reconcile.commands import commands
from rangelog_pd.reconcile.directives import DELETE_GRACE_MS_DEFAULT, Planner
from rangelog_pd.reconcile.topic_upkeep import TopicUpkeep
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb

DIGEST = "sha256:" + "ab" * 32
WALL_MS = 1_700_000_000_000
_T = TypeVar("_T", bound=Message)


class Pd:
    """One leader. `wall_ms` and `now_ms` move together."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.wall_ms = 1_700_000_000_000
        self.now_ms = 50_000.0
        self.view = ClusterView(suspect_ms=1_500, dead_ms=5_000)
        self.view.start_leading(self.now_ms)
        self.topics = TopicUpkeep(retention_interval_ms=1_000)
        self.applied = 0
        self.provisional = False
        self.has_tier = False
        self.delete_grace_ms = DELETE_GRACE_MS_DEFAULT

    @property
    def state(self) -> State:
        return self.machine.state

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.now_ms += ms

    def apply(self, command: pd_state_pb2.Command) -> bytes:
        command.version = FEATURE_LEVEL
        command.now_ms = self.wall_ms
        command.time_is_provisional = self.provisional
        self.applied += 1
        result = self.machine.apply(self.applied, command.SerializeToString())
        self.state.validate()
        self.state.validate_indexes()
        return result

    def reload(self) -> None:
        """Go through a snapshot, as a restart does."""
        self.machine.restore(self.machine.snapshot())

    def do(self, response: type[_T], request_id: str = "", **action: Any) -> _T:
        """Apply one command; return its response or raise its error."""
        return response.FromString(response_of(self.apply(pd_state_pb2.Command(request_id=request_id, **action))))

    def apply_nothing(self) -> None:
        """A command without an effect of its own: rows are dated."""
        self.apply(pd_state_pb2.Command(mark_log_ends=pd_state_pb2.MarkLogEnds()))

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
        rack: str = "",
        host: str = "",
        labels: Sequence[str] = (),
        formats: Sequence[common_pb2.FormatVersions] = (),
    ) -> None:
        request = pd_pb2.RegisterServerRequest(
            server=name,
            incarnation=incarnation or 100 + sum(map(ord, name)),
            boot=boot,
            data_address=f"{name}:1",
            zone=zone,
            log_end=log_end,
            rack=rack,
            host=host,
            labels=labels,
            formats=formats,
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
        of = self.state.ranges.of(stream_id)[index]
        self.commit(self.prepare(stream_id, index, of.start_offset, of.end_offset, server))

    def beat_all(self) -> None:
        """Everybody is heard of, with nothing new."""
        for name in self.state.servers:
            self.beat(name, complete=False)

    # ---- what the leader does

    def directives(self, server: str, *, tier: bool = True) -> dict[str, pd_pb2.Directive]:
        """What the server is told now, by kind; fails when one kind comes twice."""
        found = self.planned(server, tier=tier)
        kinds = [each.WhichOneof("action") or "" for each in found]
        assert len(set(kinds)) == len(kinds), kinds
        return dict(zip(kinds, found, strict=True))

    def planned(self, server: str, *, tier: bool = True) -> list[pd_pb2.Directive]:
        """All that the server is told now."""
        planner = Planner(self.state, self.view, tier, self.now_ms, self.wall_ms, self.delete_grace_ms)
        return planner.directives(server, self.state.servers[server].server.incarnation)

    def proposals(self) -> list[pd_state_pb2.Command]:
        found = commands(self.state, self.view, self.now_ms, self.wall_ms, has_tier=self.has_tier)
        return found + self.topics.commands(self.state, self.view.upkeep.sizes.get, self.now_ms, self.wall_ms)

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


def _leader() -> Pd:
    made = Pd()
    for number in range(1, 5):
        made.register(f"rs{number}", zone=f"z{number}")
        made.beat(f"rs{number}")
    return made


@pytest.fixture
def pd() -> Pd:
    """A leader with four servers, all just heard of."""
    return _leader()


@pytest.fixture
def make_pd() -> Callable[[], Pd]:
    """Makes such a leader: for a test of many cases, as each command validates all that the leader has."""
    return _leader


@pytest.fixture
def make_report() -> Any:
    """`make_report(stream_id, index, "SEALED")`."""
    return report


@pytest.fixture
def stream(pd: Any) -> int:
    """A tiered stream `s` at epoch 1 with an open range 0 on rs1 to rs3; its id."""
    made = pd.create_stream(tiered=True)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1", "rs2", "rs3")
    return int(made.stream_id)


@pytest.fixture
def whole(pd: Any, stream: int, make_report: Any) -> int:
    """The same with range 0 sealed at 10 and reported whole by all three."""
    pd.seal(stream, 0, 1, 10)
    for name in ("rs1", "rs2", "rs3"):
        pd.beat(name, make_report(stream, 0, "SEALED", end=10, size=1_000))
    return stream


class Member(Driver):
    """A driver with clocks that the test moves."""

    clock_ms = 1_000_000.0
    skew_ms = 0

    def now_ms(self) -> float:  # type: ignore[override]
        return self.clock_ms

    def wall_ms(self) -> int:  # type: ignore[override]
        return WALL_MS + int(self.clock_ms) + self.skew_ms


class Api:
    """One member named pd1 of a group of two, leading."""

    def __init__(self, tmp_path: Path, tier_url: str = "file:///nowhere") -> None:
        members = {
            name: MemberSettings(raft_address=f"{name}:1", api_address=f"{name}:2") for name in ("pd1", "pd2", "pd3")
        }
        settings = PdSettings(
            name="pd1", data_dir=tmp_path, members=members, raft_secret="not so secret", tier_url=tier_url
        )
        self.machine = Machine()
        self.consensus = LocalConsensus(self.machine, name="pd1")
        self.driver = Member(settings, self.consensus, self.machine)
        self.beats: dict[str, int] = {}
        self.wiped: dict[str, int] = {}

    async def create(self, name: str = "s", request_id: str = "c", **config: Any) -> common_pb2.Stream:
        request = pb.CreateStreamRequest(request_id=request_id, name=name, config=common_pb2.StreamConfig(**config))
        return (await streams.create_stream(self.driver, request)).stream

    async def open(self, request_id: str = "o", name: str = "s") -> pb.OpenWriterResponse:
        return await ranges.open_writer(self.driver, pb.OpenWriterRequest(request_id=request_id, name=name))

    async def make_range(
        self, start: int = 0, epoch: int = 1, request_id: str = "r", exclude: tuple[str, ...] = ()
    ) -> common_pb2.Range:
        request = pb.CreateRangeRequest(
            request_id=request_id, stream_id=1, epoch=epoch, start_offset=start, exclude_servers=exclude
        )
        return (await ranges.create_range(self.driver, request)).range

    async def seal(self, end: int, request_id: str = "z", **more: Any) -> pb.SealRangeResponse:
        fields = {"stream_id": 1, "range_index": 0, "epoch": 1} | more
        return await ranges.seal_range(
            self.driver, pb.SealRangeRequest(request_id=request_id, end_offset=end, **fields)
        )

    async def register(self, *names: str) -> None:
        for number, name in enumerate(names):
            request = pb.RegisterServerRequest(
                request_id=f"reg-{name}-{self.incarnation(name)}",
                server=name,
                incarnation=self.incarnation(name),
                boot=1,
                data_address=f"{name}:7",
                zone=f"z{number}",
            )
            await servers.register_server(self.driver, request)

    def incarnation(self, name: str) -> int:
        return self.wiped.get(name, sum(map(ord, name)))

    async def beat(self, name: str, *reports: pb.ReplicaReport, **more: Any) -> pb.HeartbeatResponse:
        self.beats[name] = self.beats.get(name, 0) + 1
        sequence = (1 << 32) + self.beats[name]
        right_ms = WALL_MS + int(self.driver.clock_ms)
        usual = {"incarnation": self.incarnation(name), "complete": True, "sequence": sequence, "wall_ms": right_ms}
        fields = usual | more
        request = pb.HeartbeatRequest(server=name, replicas=reports, **fields)
        return await servers.heartbeat(self.driver, request)

    async def beat_all(self) -> None:
        for name in ("rs1", "rs2", "rs3", "rs4"):
            await self.beat(name)

    def change_leader(self) -> None:
        """Another term begins: what the leader had in memory is gone."""
        status = replace(self.consensus.status(), term=self.consensus.status().term + 1)
        self.consensus.status = lambda: status  # type: ignore[method-assign]

    def silence(self, ms: float) -> None:
        self.driver.clock_ms += ms


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """A leading member without servers."""
    return Api(tmp_path)


@pytest.fixture
async def ready(api: Api) -> Api:
    """Four servers, stream `s` at epoch 1, range 0 open."""
    await api.register("rs1", "rs2", "rs3", "rs4")
    await api.create()
    await api.open()
    await api.make_range()
    return api


@pytest.fixture
def make_api(tmp_path: Path) -> Any:
    """`make_api(tier_url="")`."""
    return lambda **more: Api(tmp_path, **more)
