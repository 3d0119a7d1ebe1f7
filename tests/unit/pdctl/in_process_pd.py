"""A placement driver with the real handlers and state machine behind real gRPC, consensus of one in memory; and pdctl on it.

The server side is the threaded gRPC server, so that the only event loop that owns gRPC is the command's own.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
from click.testing import CliRunner, Result
from google.protobuf import message_factory, symbol_database
from google.protobuf.message import Message
from grpc_status import rpc_status

from pdctl.main import main
from rangelog_core.errors import RangelogError
from rangelog_core.net.grpc_errors import to_status
from rangelog_core.net.grpc_options import SERVER_OPTIONS
from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import service
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import broker_pb2, common_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import true_end

_T = TypeVar("_T", bound=Message)


class InProcessPd:
    """One member. `do` calls a handler as a client would."""

    def __init__(self, directory: Path) -> None:
        self.requests: list[tuple[str, Any]] = []
        self._ids = 0
        self.beats = 0
        self.before: Callable[[str], object] = lambda name: None  # what happens before a client's call is carried out
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = grpc.server(ThreadPoolExecutor(4), options=SERVER_OPTIONS)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        machine = Machine()
        self.consensus = LocalConsensus(machine, name="pd1")
        settings = PdSettings(
            name="pd1",
            data_dir=directory,
            members={"pd1": MemberSettings(raft_address="127.0.0.1:1", api_address=self.address)},
            tier_url="file:///nowhere",
            server_dead_ms=3_600_000,
            server_suspect_ms=1_800_000,
        )
        self.driver = Driver(settings, self.consensus, machine)
        for each in service.SERVICES:
            service_name = each.full_name
            handlers = {name: self._rpc(service_name, name) for name in (call.name for call in each.calls)}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service_name, handlers),))
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def do(self, name: str, request: Message, kind: type[_T]) -> _T:
        """Run a handler; a command gets a request id."""
        if "request_id" in request.DESCRIPTOR.fields_by_name:
            self._ids += 1
            request.request_id = f"test-{self._ids}"  # type: ignore[attr-defined]
        answer = self._run(name, request)
        assert isinstance(answer, kind)
        return answer

    # ---- a cluster with something in it

    def register(self, name: str, *, incarnation: int = 0xABC, alive: bool = True, **fields: Any) -> None:
        """A range server registers, and reports unless it is not to be alive."""
        request = pd_pb2.RegisterServerRequest(
            server=name,
            incarnation=incarnation,
            boot=1,
            data_address=f"{name}:1",
            control_address=f"{name}:2",
            **fields,
        )
        self.do("RegisterServer", request, pd_pb2.RegisterServerResponse)
        if alive:
            self.heartbeat(name, incarnation=incarnation)

    def heartbeat(self, name: str, *, incarnation: int = 0xABC, **fields: Any) -> pd_pb2.HeartbeatResponse:
        self.beats += 1
        fields = {"sequence": (1 << 32) + self.beats} | fields
        request = pd_pb2.HeartbeatRequest(server=name, incarnation=incarnation, complete=True, **fields)
        return self.do("Heartbeat", request, pd_pb2.HeartbeatResponse)

    def stream(self, name: str, **config: Any) -> common_pb2.Stream:
        request = pd_pb2.CreateStreamRequest(name=name, config=common_pb2.StreamConfig(**config))
        return self.do("CreateStream", request, pd_pb2.CreateStreamResponse).stream

    def ranges(self, stream: str, count: int, records: int = 10, *, open_end: bool = True) -> common_pb2.Stream:
        """Give a stream `count` sealed ranges of `records` records each, and, unless told otherwise, an open one."""
        opened = self.do("OpenWriter", pd_pb2.OpenWriterRequest(name=stream), pd_pb2.OpenWriterResponse).stream
        stream_id, epoch = opened.stream_id, opened.epoch
        create = pd_pb2.CreateRangeRequest(stream_id=stream_id, epoch=epoch, start_offset=opened.next_offset)
        made = self.do("CreateRange", create, pd_pb2.CreateRangeResponse).range
        for number in range(count):
            seal = pd_pb2.SealRangeRequest(
                stream_id=stream_id,
                range_index=made.index,
                epoch=epoch,
                end_offset=made.start_offset + records,
                create_next=open_end or number + 1 < count,
            )
            made = self.do("SealRange", seal, pd_pb2.SealRangeResponse).next_range
        return opened

    def collect(self, object_ids: list[int]) -> None:
        """Forget objects that were removed from the store."""
        command = pd_state_pb2.CollectObjects(object_ids=object_ids)
        work = self.driver.propose(pd_pb2.ListTasksResponse, "", collect_objects=command)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    # ---- topics

    def reconcile(self) -> None:
        """One round of the leader: the first one makes the cluster know topics."""
        asyncio.run_coroutine_threadsafe(self.driver.reconcile(), self._loop).result(10)

    def cover(self) -> None:
        """Brokers report the snapshots that are asked of them; truncations go on."""
        with self.driver.state() as state:
            work = {topic_id: list(each.to_trim) for topic_id, each in state.topics.work.items()}
        self.reconcile()
        self.driver.topics.coverage.reported(
            broker_pb2.ShardCover(topic_id=topic_id, shard_id=each.shard_id, offset=each.offset)
            for topic_id, left in work.items()
            for each in left
        )
        self.reconcile()

    def broker(self, name: str, *, incarnation: int = 0xB0) -> None:
        """A broker registers; owners are chosen."""
        request = broker_pb2.RegisterBrokerRequest(name=name, incarnation=incarnation, address="127.0.0.1:9", zone="a")
        self.do("RegisterBroker", request, broker_pb2.RegisterBrokerResponse)

    def shard_end(self, topic_id: int, shard_id: int) -> topic_pb2.ShardEnd:
        """Return how a shard's stream ends by now, as its owner would report it."""
        with self.driver.state() as state:
            return topic_pb2.ShardEnd(**true_end(state, state.topics.shards[topic_id, shard_id]))

    def commit_scale(self, topic_id: int) -> topic_pb2.Topic:
        """Commit the plan of a topic, as the owners of its parents would."""
        with self.driver.state() as state:
            plan = state.topics.work_of(topic_id).scale
        ends = [self.shard_end(topic_id, each) for each in plan.parents]
        request = topic_pb2.CommitScaleRequest(topic_id=topic_id, scale_id=plan.scale_id, ends=ends)
        return self.do("CommitScale", request, topic_pb2.CommitScaleResponse).topic

    # ---- inside

    def _run(self, name: str, request: Any) -> Any:
        work = service.CALLS[name].handler(self.driver, request)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _rpc(self, service_name: str, name: str) -> grpc.RpcMethodHandler:
        described = symbol_database.Default().pool.FindServiceByName(service_name)
        request_type = message_factory.GetMessageClass(described.methods_by_name[name].input_type)

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            self.requests.append((name, request))
            try:
                self.before(name)
                return self._run(name, request)
            except RangelogError as error:
                context.abort_with_status(rpc_status.to_status(to_status(error)))

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=request_type.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )


class PdctlOverGrpc:
    """Runs pdctl as a user would; `run("stream", "list")`, or `run.json("stream", "list")` for its value."""

    def __init__(self, address: str) -> None:
        self.environment = {"RANGELOG_PD": address, "RANGELOG_TOKEN": None, "RANGELOG_DEBUG": None}

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env=self.environment, prog_name="pdctl")

    def json(self, *arguments: str) -> Any:
        """Run with -o json, which must succeed."""
        result = self(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def fails(self, code: int, *arguments: str) -> str:
        """Run; it must fail with `code`, print nothing, and say one line on stderr, which is returned."""
        result = self(*arguments)
        assert result.exit_code == code, (result.exit_code, result.output)
        assert result.stdout == ""
        assert result.stderr.startswith("pdctl: ") and result.stderr.count("\n") == 1, result.stderr
        return result.stderr.removeprefix("pdctl: ").rstrip("\n")


END = f"0x1{'0' * 32}"
"""The end of the key space, as JSON has it."""


def digits(leading: str) -> str:
    """A key as JSON has it."""
    return "0x" + leading.ljust(32, "0")


def key_ranges(shown: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The ends of each shard's key range."""
    return [(each["key_range"]["low"], each["key_range"]["high"]) for each in shown]


def lose(topics: InProcessPd, name: str) -> None:
    """Report that a broker accepts no connection, which holds: nobody listens at its address."""
    request = broker_pb2.ReportBrokerLostRequest(name=name, incarnation=0xB0)
    assert topics.do("ReportBrokerLost", request, broker_pb2.ReportBrokerLostResponse).lost
