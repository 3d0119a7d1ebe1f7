"""The gRPC handlers of both servers: real servers on loopback, called with bytes that are no messages and messages that lie.

What holds: an answer is OK or one of our errors with a code of its own, never UNKNOWN or INTERNAL; the placement driver's
state stays whole; its reconcilers can work with whatever servers reported; the server goes on answering.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2
from grpc_status import rpc_status

from rangelog_core.errors import InternalError, RangelogError
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.grpc_options import CHANNEL_OPTIONS
from rangelog_pd.broker_probe import BrokerProbes
from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.service import add_services
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import broker_pb2, common_pb2, inspection_pb2, pd_pb2, pd_state_pb2, range_server_pb2, topic_pb2
from rangelog_server.control import SERVICE, ControlPlane
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import DataPlane
from rangelog_server.settings import RangeServerSettings
from rangelog_server.wal.log import Wal
from rangelog_server_common.grpc_server import GrpcServer
from tests.fakes.faces import LogDisk
from tests.fuzz import fuzz_loop
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed, message_changed
from tests.fuzz.fuzz_targets_data_plane import IDENTITY, SEGMENT_BYTES
from tests.fuzz.fuzz_targets_log import append
from tests.fuzz.fuzz_targets_state import KNOWN, SERVERS, command, framed, history, unframed

TIMEOUT_S = 10.0
LATEST = pd_state_pb2.SetClusterVersion(version=FEATURE_LEVEL)
UNTIL_TOPICS = len(history()) - 2
"""Entries up to one topic that is sealed and one that is active."""
_servers: list[Any] = []
"""A server that nobody holds stops."""


class KeptDefects(logging.Handler):
    """Keeps the exceptions that a server logs instead of telling its caller."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.defect: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if record.exc_info and record.exc_info[1] is not None:
            self.defect = self.defect or record.exc_info[1]

    def take(self) -> BaseException | None:
        """The first one since the last call."""
        defect, self.defect = self.defect, None
        return defect


@cache
def defects() -> KeptDefects:
    """Of this process."""
    handler = KeptDefects()
    for name in ("rangelog.grpc", "grpc", "grpc._cython.cygrpc", "grpc.aio"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).propagate = False
    return handler


def methods(pb: Any, service: str) -> list[tuple[str, type[Message]]]:
    """(path, request class) of each call."""
    described = pb.DESCRIPTOR.services_by_name[service]
    return [(f"/{described.full_name}/{each.name}", getattr(pb, each.input_type.name)) for each in described.methods]


PD_METHODS = [
    *methods(pd_pb2, "PlacementDriver"),
    *methods(topic_pb2, "Topics"),
    *methods(broker_pb2, "Brokers"),
    *methods(inspection_pb2, "Inspection"),
]
SERVER_METHODS = methods(range_server_pb2, "RangeServer")
Call = Callable[[bytes], Awaitable[bytes]]


async def call_all(calls: list[Call], data: bytes) -> int:
    """Make the calls of an input; each part is a call's number and its request. Returns how many were answered with OK."""
    answered = 0
    for part in unframed(data)[:16]:
        if not part:
            continue
        try:
            await calls[part[0] % len(calls)](part[1:])
            answered += 1
        except grpc.aio.AioRpcError as error:
            defect = defects().take()
            if defect is not None:
                raise defect from None
            status = rpc_status.from_call(error)
            assert error.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), (
                f"{error.code()} {error.details()}"
            )
            assert status is not None, f"an untyped status: {error.code()} {error.details()}"
            assert status.code in code_pb2.Code.values()
            ours = from_rpc_error(error, "the server")
            assert isinstance(ours, RangelogError)
            assert not isinstance(ours, InternalError)
            assert "Traceback" not in (error.details() or "")
    return answered


# ---- the placement driver


class NoProbes(BrokerProbes):
    """Connects to nothing: addresses are what the input says."""

    async def accepts(self, address: str) -> bool:
        """See BrokerProbes."""
        return len(address) % 2 == 0


class TestedDriver(Driver):
    """A driver that can be put back to a cluster that has lived a little."""

    def __init__(self) -> None:
        members = {"pd1": MemberSettings(raft_address="pd1:1", api_address="pd1:2")}
        settings = PdSettings(name="pd1", data_dir=Path("unused"), members=members, tier_url="file:///nowhere")
        machine = Machine()
        super().__init__(settings, LocalConsensus(machine, name="pd1"), machine)
        self.broker_probes = NoProbes()

    def reset(self, lived: int) -> None:
        """Start again after so many entries."""
        self._machine = Machine()
        self.consensus = LocalConsensus(self._machine, name="pd1")
        for index, each in enumerate([*history()[:lived], command(set_cluster_version=LATEST)], 1):
            self._machine.apply(index, each)
        self.view.start_leading(self.now_ms())
        self.tasks.clear()
        self._leading_term = None

    def check(self) -> None:
        """The state is whole."""
        self._machine.state.validate()


@cache
def placement_driver() -> tuple[TestedDriver, list[Call]]:
    """One that serves, and its calls."""
    driver = TestedDriver()

    async def start() -> list[Call]:
        server = GrpcServer()
        port = await server.start("127.0.0.1:0", add_services(driver, server.server))
        _servers.append(server)
        return calls_of(port, PD_METHODS)

    defects()
    return driver, fuzz_loop.run(start())


def calls_of(port: int, known: list[tuple[str, type[Message]]]) -> list[Call]:
    """Stubs that send bytes as they are."""
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", CHANNEL_OPTIONS)
    return [_caller(channel.unary_unary(path)) for path, _ in known]


def _caller(stub: Any) -> Call:
    async def call(data: bytes) -> bytes:
        answer: bytes = await stub(data, timeout=TIMEOUT_S)
        return answer

    return call


def pd_seeds() -> list[bytes]:
    """One call of each kind with a plausible request; and what servers report."""
    random = Random(7)
    seeds = []
    for number, (_, kind) in enumerate(PD_METHODS):
        request = kind()
        for _ in range(6):
            message_changed(request, random, known=KNOWN)
        if "request_id" in kind.DESCRIPTOR.fields_by_name:
            request.request_id = "c9"  # type: ignore[attr-defined]
        seeds.append(framed([bytes((number,)) + request.SerializeToString()]))
    return [*seeds, framed(heartbeats()), framed(many_groups())]


def heartbeats() -> list[bytes]:
    """Servers that report replicas in every state, and how tasks went."""
    names = [path.rsplit("/", 1)[1] for path, _ in PD_METHODS]
    calls = []
    for server, incarnation in SERVERS.items():
        reports = [
            pd_pb2.ReplicaReport(stream_id=stream_id, range_index=index, state=state, durable_offset=10)
            for stream_id, index, state in (
                (1, 0, "REPLICA_STATE_SEALED"),
                (1, 1, "REPLICA_STATE_OPEN"),
                (9, 9, "REPLICA_STATE_SEALED"),
            )
        ]
        beat = pd_pb2.HeartbeatRequest(
            server=server, incarnation=incarnation, sequence=1, replicas=reports, complete=True, capacity_bytes=1 << 40,
            tasks=[pd_pb2.TaskReport(task_id="upload-1/0-0@rs1", error="no")],
        )  # fmt: skip
        calls.append(bytes((names.index("Heartbeat"),)) + beat.SerializeToString())
    return [*calls, *calls]


def many_groups() -> list[bytes]:
    """A commit with more row groups than are kept, as large as they can be."""
    number = [path.rsplit("/", 1)[1] for path, _ in PD_METHODS].index("CommitObject")
    count = (1 << 32) - 1
    groups = [common_pb2.RowGroup(start_offset=at * count, count=count) for at in range(1_100)]
    request = pd_pb2.CommitObjectRequest(object_id=1, row_groups=groups)
    return [bytes((number,)) + request.SerializeToString()]


def change_calls(data: bytes, random: Random, known: list[tuple[str, type[Message]]] = PD_METHODS) -> bytes:
    """Other requests: one changed, repeated or left out, or a call of another kind made of nothing."""
    parts = unframed(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(parts) + 1)
        kind = random.randrange(5)
        if kind <= 2 and at < len(parts) and parts[at]:
            number = parts[at][0] % len(known)
            parts[at] = bytes((number,)) + encoded_changed(parts[at][1:], known[number][1], random, KNOWN)
        elif kind == 3 and len(parts) > 1 and at < len(parts):
            del parts[at]
        else:
            number = random.randrange(len(known))
            request = known[number][1]()
            for _ in range(random.choice((0, 3, 8))):
                message_changed(request, random, known=KNOWN)
            parts.insert(at, bytes((number,)) + request.SerializeToString())
    return framed(parts[:16])


def run_pd_calls(data: bytes) -> bool:
    """See the module."""
    driver, calls = placement_driver()
    driver.reset((8, 12, UNTIL_TOPICS)[len(data) % 3])
    defects().take()

    async def work() -> int:
        answered = await call_all(calls, data)
        await driver.reconcile()
        await calls[[path for path, _ in PD_METHODS].index("/rangelog.v1.PlacementDriver/DescribeCluster")](b"")
        return answered

    answered = fuzz_loop.run(work())
    driver.check()
    return answered > 0


# ---- the range server's control plane


@cache
def range_server() -> list[Call]:
    """One that serves."""
    wal = Wal(Path("/log"), IDENTITY.salt, io=LogDisk(), segment_bytes=SEGMENT_BYTES)
    store = Store(wal)
    store.open()
    for stream_id in range(1, 30):
        append(store, (stream_id, 0), 0)
    settings = RangeServerSettings(name="rs1", data_dir=Path("unused"), control_listen="127.0.0.1:0")

    async def start() -> list[Call]:
        plane = DataPlane(store, IDENTITY, None, fuzz_loop.loop(), fuzz_loop.Inline())  # type: ignore[arg-type]
        control = ControlPlane(settings, IDENTITY, store, plane, "127.0.0.1:1")
        _servers.append(control)
        return calls_of(await control.start(), SERVER_METHODS)

    assert SERVICE in SERVER_METHODS[0][0]
    defects()
    return fuzz_loop.run(start())


def server_seeds() -> list[bytes]:
    """Status, and pages of replicas."""
    listing = range_server_pb2.ListReplicasRequest(page_size=3, page_token="2/0", stream_id=0)
    return [framed([b"\0"]), framed([b"\1" + listing.SerializeToString(), b"\1"])]


def run_server_calls(data: bytes) -> bool:
    """See the module."""
    defects().take()
    return fuzz_loop.run(call_all(range_server(), data)) > 0


TARGETS = (
    Target("pd-grpc", pd_seeds, run_pd_calls, None, (change_calls,), plain_share=0.1, ci_inputs=30, peak_bytes_max=24 * MIB),
    Target(
        "range-server-grpc", server_seeds, run_server_calls, None,
        (lambda data, random: change_calls(data, random, SERVER_METHODS),), plain_share=0.1, ci_inputs=30,
        peak_bytes_max=24 * MIB,
    ),
)  # fmt: skip
