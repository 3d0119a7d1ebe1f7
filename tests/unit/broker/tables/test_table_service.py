"""The calls on a partition's owner over real gRPC: what is refused and how, pages, watches, owners that change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from rangelog import Client
from rangelog.errors import (
    InvalidArgument,
    NotOwner,
    OffsetTrimmed,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    Unauthorized,
)
from rangelog.testing import FakeCluster
from rangelog_broker.journal.journal import Journal
from rangelog_broker.tables import machine, service
from rangelog_broker.tables.kind import TABLES
from rangelog_broker.tables.machine import TablePartition
from rangelog_broker.tables.service import TablesService
from rangelog_core.limits import TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.grpc_options import CHANNEL_OPTIONS
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb
from rangelog_proto.v1.table_service_pb2_grpc import TablesStub, add_TablesServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer

TOKEN = "a token"
KEY = {"topic_id": 7, "shard_id": 3}


class Broker:
    """One broker's port for tables, with one partition."""

    def __init__(self, client: Client, journal: Journal[TablePartition]) -> None:
        self.client = client
        self.journal = journal
        self.service = TablesService(self)
        self.server = GrpcServer(token=TOKEN)
        self.stub: Any = None
        self.port = 0

    def find(self, topic_id: int, shard_id: int) -> Journal[TablePartition]:
        if (topic_id, shard_id) != (7, 3):
            raise NotOwner(f"this broker does not own shard {shard_id} of topic {topic_id}")
        return self.journal

    async def call(self, name: str, request: Any, *, token: str = TOKEN) -> Any:
        try:
            metadata = (("authorization", f"Bearer {token}"),)
            return await getattr(self.stub, name)(request, timeout=10, metadata=metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the broker") from error

    async def put(self, session: int, sequence: int, *writes: table_pb2.TableWrite, settled: int = 0) -> Any:
        request = pb.ApplyTableRequest(session=session, settled=settled, **KEY)
        request.commands.add(sequence=sequence, command=table_pb2.TableCommand(writes=writes))
        (outcome,) = (await self.call("Apply", request)).outcomes
        return outcome

    async def session(self) -> int:
        return int((await self.call("OpenSession", pb.OpenTableSessionRequest(**KEY))).session)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with FakeCluster().client() as client:
        await client.create_stream("t")
        made = Broker(client, await Journal.open(client, "t", TablePartition))
        add_TablesServicer_to_server(made.service, made.server.server)  # type: ignore[no-untyped-call]
        made.port = await made.server.start("127.0.0.1:0", (TABLES.service,))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{made.port}", options=CHANNEL_OPTIONS) as channel:
            made.stub = TablesStub(channel)
            yield made
        await made.server.stop(0)
        await made.journal.close()


def write(key: bytes, value: bytes) -> table_pb2.TableWrite:
    return table_pb2.TableWrite(key=key, value=value)


async def test_a_command_has_one_result_however_often_it_comes(broker: Broker) -> None:
    """Also the refusal of one; a settled one is refused."""
    session = await broker.session()
    condition = table_pb2.TableCondition(absent=True)
    first = await broker.put(session, 0, table_pb2.TableWrite(key=b"k", value=b"v", condition=condition))
    again = await broker.put(session, 0, table_pb2.TableWrite(key=b"k", value=b"v", condition=condition))
    assert first == again == pb.TableOutcome(version=1, changed=True)
    refused = await broker.put(session, 1, table_pb2.TableWrite(key=b"k", value=b"w", condition=condition))
    assert refused.error_code == "PRECONDITION_FAILED"
    await broker.put(session, 2, write(b"k", b"x"), settled=2)
    assert (await broker.put(session, 1, write(b"k", b"y"))).error_code == "PRECONDITION_FAILED"
    rows = (await broker.call("Get", pb.GetRowsRequest(keys=[b"k", b"none"], **KEY))).rows
    assert rows == [table_pb2.TableRow(value=b"x", version=2), table_pb2.TableRow()]
    assert (await broker.put(999, 0, write(b"k", b"y"))).error_code == "SESSION_EXPIRED"


def applied(*writes: table_pb2.TableWrite, sequence: int = 0, settled: int = 0, count: int = 1) -> Any:
    command = pb.NumberedTableCommand(sequence=sequence, command=table_pb2.TableCommand(writes=writes))
    return "Apply", pb.ApplyTableRequest(settled=settled, commands=[command] * count, **KEY)


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("Get", pb.GetRowsRequest(**KEY)),
        ("Get", pb.GetRowsRequest(keys=[b"k"] * 1_001, **KEY)),
        ("Get", pb.GetRowsRequest(keys=[b""], **KEY)),
        ("Get", pb.GetRowsRequest(keys=[bytes(TABLE_KEY_BYTES_MAX + 1)], **KEY)),
        ("Scan", pb.ScanTableRequest(limit=1_001, **KEY)),
        ("Watch", pb.WatchTableRequest(limit=1_001, **KEY)),
        ("Watch", pb.WatchTableRequest(wait_ms=3_001, **KEY)),
        ("Apply", pb.ApplyTableRequest(**KEY)),
        applied(),
        applied(write(b"k", b"v"), count=1_001),
        applied(write(b"k", b"v"), write(b"k", b"w")),
        applied(write(b"k", bytes(TABLE_VALUE_BYTES_MAX + 1))),
        applied(write(b"k", bytes(600_000)), write(b"l", bytes(600_000))),
        applied(write(b"k", bytes(900_000)), count=5),
        applied(table_pb2.TableWrite(key=b"k")),
        applied(write(b"k", b"v"), sequence=3, settled=4),
    ],
)
async def test_bad_requests_are_refused_and_nothing_is_proposed(broker: Broker, name: str, request_: Any) -> None:
    """Each as InvalidArgument."""
    with pytest.raises(InvalidArgument):
        await broker.call(name, request_)
    assert broker.journal._owner.next_offset == 0


@pytest.mark.parametrize(
    ("name", "request_type"),
    [
        ("OpenSession", pb.OpenTableSessionRequest),
        ("Get", pb.GetRowsRequest),
        ("Scan", pb.ScanTableRequest),
        ("Watch", pb.WatchTableRequest),
        ("Apply", pb.ApplyTableRequest),
    ],
)
async def test_who_does_not_own_a_partition_says_so(broker: Broker, name: str, request_type: Any) -> None:
    """Never owned, or lost just now; and a token is needed."""
    request = request_type(topic_id=7, shard_id=4)
    if name == "Get":
        request.keys.append(b"k")
    elif name == "Apply":
        request.commands.add().command.writes.add(key=b"k", value=b"v")
    with pytest.raises(NotOwner):
        await broker.call(name, request)
    with pytest.raises(Unauthorized):
        await broker.call(name, request, token="another")
    request.shard_id = 3
    successor = await Journal.open(broker.client, "t", TablePartition)
    if name == "Watch":
        await broker.journal.close()  # a watch asks for no proof, so it ends with the journal
    with pytest.raises(NotOwner):
        await broker.call(name, request)
    await successor.close()


async def test_what_does_not_decode_is_refused(broker: Broker) -> None:
    """With a typed error."""
    session = await broker.session()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{broker.port}") as raw:
        call = raw.unary_unary(f"/{TABLES.service}/Apply")
        with pytest.raises(grpc.RpcError) as caught:
            await call(b"\xff\xff\xff", timeout=5, metadata=(("authorization", f"Bearer {TOKEN}"),))
    assert isinstance(from_rpc_error(caught.value, "the broker"), ProtocolViolation)
    assert (await broker.put(session, 0, write(b"k", b"v"))).version == 1


async def test_pages_are_bounded(broker: Broker) -> None:
    """By rows, and by bytes: the rest is asked for again."""
    session = await broker.session()
    for number in range(4):
        await broker.put(session, number, write(b"%d" % number, bytes(900_000)))
    got = await broker.call("Get", pb.GetRowsRequest(keys=[b"%d" % number for number in range(4)], **KEY))
    assert (len(got.rows), got.version) == (2, 4)
    page = await broker.call("Scan", pb.ScanTableRequest(start=b"1", **KEY))
    assert ([row.key for row in page.rows], page.next_key, page.version) == ([b"1"], b"2", 4)
    page = await broker.call("Scan", pb.ScanTableRequest(start=b"3", end=b"4", stale=True, **KEY))
    assert ([row.key for row in page.rows], page.next_key) == ([b"3"], b"")
    changes = await broker.call("Watch", pb.WatchTableRequest(since_version=1, **KEY))
    assert ([each.version for each in changes.changes], changes.version) == ([2], 2)


async def test_a_watch_ends_by_its_time_or_with_a_change(broker: Broker) -> None:
    """Changes outside of its bounds only raise the version that it reached."""
    session = await broker.session()
    empty = await broker.call("Watch", pb.WatchTableRequest(wait_ms=10, **KEY))
    assert (len(empty.changes), empty.version) == (0, 0)
    request = pb.WatchTableRequest(start=b"k", end=b"l", wait_ms=3_000, **KEY)
    waiting = asyncio.create_task(broker.call("Watch", request))
    await broker.put(session, 0, write(b"a", b"v"))
    await broker.put(session, 1, write(b"k", b"v"))
    async with asyncio.timeout(2.5):
        response = await waiting
    assert [(each.key, each.value, each.version) for each in response.changes] == [(b"k", b"v", 2)]
    removal = table_pb2.TableWrite(key=b"k", remove=True)
    await broker.put(session, 2, removal)
    (gone,) = (await broker.call("Watch", pb.WatchTableRequest(since_version=2, **KEY))).changes
    assert not gone.HasField("value")
    ahead = await broker.call("Watch", pb.WatchTableRequest(since_version=9, wait_ms=1, **KEY))
    assert (len(ahead.changes), ahead.version) == (0, 9)


async def test_a_watch_ends_with_the_journal(broker: Broker) -> None:
    """At once, so that the watcher goes on at the next owner."""
    request = pb.WatchTableRequest(wait_ms=3_000, **KEY)
    waiting = asyncio.create_task(broker.call("Watch", request))
    while not broker.service._calls:
        await asyncio.sleep(0.001)
    async with asyncio.timeout(2.5):
        await broker.journal.close()
        with pytest.raises(NotOwner):
            await waiting


async def test_old_changes_are_an_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the version from which on they are known."""
    monkeypatch.setattr(machine, "CHANGES_MAX", 2)
    session = await broker.session()
    for number in range(5):
        await broker.put(session, number, write(b"k", b"%d" % number))
    with pytest.raises(OffsetTrimmed) as caught:
        await broker.call("Watch", pb.WatchTableRequest(since_version=1, **KEY))
    assert caught.value.offset == 3


async def test_calls_that_wait_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a call is refused; when others have ended, it is taken."""
    monkeypatch.setattr(service, "CALLS_MAX", 2)
    request = pb.WatchTableRequest(wait_ms=300, **KEY)
    results = await asyncio.gather(*(broker.call("Watch", request) for _ in range(5)), return_exceptions=True)
    refused = [each for each in results if isinstance(each, RangelogError)]
    assert len(refused) == 3 and all(isinstance(each, Overloaded) for each in refused)
    assert broker.service._calls == 0
    await broker.session()
