"""Bad input about topics, groups, transactions and tables on a real cluster, by every door: SDK, gRPC, REST and pdctl.

Each is refused with its own typed error, soon, and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest
from grpc_status import rpc_status

import rangelog
from rangelog import Cut, KeyRange, TablePut
from rangelog.errors import (
    GroupNotFound,
    InvalidArgument,
    KeyRangeGap,
    KeyRangeOverlap,
    NamespaceNotFound,
    PreconditionFailed,
    ProducerFenced,
    RangelogError,
    RecordTooLarge,
    ShardEnded,
    ShardNotFound,
    TopicKindForbids,
    TopicNotFound,
    TransactionNotFound,
)
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.grpc_options import CHANNEL_OPTIONS
from rangelog_core.net.owner_calls import journal_of
from rangelog_proto.v1 import (
    broker_pb2,
    group_pb2,
    group_service_pb2,
    table_pb2,
    table_service_pb2,
    topic_pb2,
    transaction_pb2,
    transaction_service_pb2,
)
from rangelog_proto.v1.broker_pb2_grpc import BrokersStub
from rangelog_proto.v1.group_service_pb2_grpc import GroupsStub
from rangelog_proto.v1.table_service_pb2_grpc import TablesStub
from rangelog_proto.v1.topic_pb2_grpc import TopicsStub
from rangelog_proto.v1.transaction_service_pb2_grpc import TransactionsStub
from tests.integration.conftest import running
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.openings import everything_opens
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
HALF = 1 << 127
SOON_S = 10.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With one broker, so that it is known who owns what; the tests of this file share it."""
    with running(tmp_path_factory.mktemp("bad"), brokers=1) as made:
        asyncio.run(_fill(made))
        yield made
        asyncio.run(everything_opens(made))


async def _fill(cluster: Cluster) -> None:
    """A topic of a split shard and another one, a table, a group, and an open transaction."""
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.topics.create_namespace("bad")
        await client.topics.create("bad/t", shards=2)
        await client.topics.scale("bad/t", [0], 2)
        await client.tables.create("bad/table", partitions=2)
        async with client.producer("bad/t") as producer:
            await producer.send(b"only", key=b"k")
        async with client.group("bad-group", "bad/t"):
            pass
        await client.table("bad/table").put(b"k", b"v")


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client; after the test all is as it was."""
    async with await rangelog.connect(cluster.connect_string) as made:
        before = await _state(made)
        yield made
        assert await _state(made) == before, "bad input has changed something"


async def _state(client: rangelog.Client) -> list[Any]:
    """All that bad input could change."""
    topics = [topic async for topic in client.topics.list(namespace="bad")]
    shards = await client.topics.shards("bad/t", include_ended=True)
    records = [record async for record in client.topic_reader("bad/t")]
    rows = [row async for row in client.table("bad/table").scan()]
    group = await client.groups.describe("bad-group")
    names = [each.name async for each in client.groups.list()]
    positions = [(each.topic, each.shard_id, each.offset) for each in group.shards]
    return [topics, shards, records, rows, positions, group.topics, names]


async def refused(error: type[RangelogError], work: Awaitable[Any]) -> RangelogError:
    """Soon, with this error and no other, and with a known outcome."""
    async with asyncio.timeout(SOON_S):
        with pytest.raises(RangelogError) as caught:
            await work
    assert type(caught.value) is error, repr(caught.value)
    assert not caught.value.outcome_unknown
    return caught.value


async def entered(made: Any) -> None:
    """Enter an asynchronous context."""
    async with made:
        pass


# ---- SDK


async def test_what_is_not_there(client: rangelog.Client) -> None:
    """Topic, namespace, shard, group, checkpoint, transaction and table, each by every call that names one."""
    nowhere = "bad/nowhere"
    for work in (
        client.topics.describe(nowhere),
        client.topics.seal(nowhere),
        client.topics.delete(nowhere),
        client.topics.scale(nowhere, [0], 2),
        client.topics.cancel_scale(nowhere),
        client.topics.cut(nowhere, "tail"),
        client.topics.shards(nowhere),
        client.tables.describe(nowhere),
        client.tables.delete(nowhere),
        client.table(nowhere).get(b"k"),
        client.table(nowhere).put(b"k", b"v"),
        entered(client.producer(nowhere)),
        entered(client.group("g", nowhere)),
        anext(client.topic_reader(nowhere).chunks()),
    ):
        await refused(TopicNotFound, work)
    await refused(NamespaceNotFound, client.topics.create("gone/t"))
    await refused(ShardNotFound, client.topics.scale("bad/t", [99], 2))
    for work in (
        client.groups.describe("nobody"),
        client.groups.reset("nobody", "earliest"),
        client.groups.delete("nobody"),
        client.groups.lag("nobody"),
        client.groups.checkpoint("nobody", "c", timeout_s=5),
    ):
        await refused(GroupNotFound, work)
    await refused(TransactionNotFound, client.transactions.describe("nobody"))
    await refused(TransactionNotFound, client.transactions.abort("nobody"))
    async with client.producer("bad/t") as producer:
        await refused(ShardNotFound, producer.send(b"x", shard=99))
        await refused(ShardEnded, producer.send(b"x", shard=0))


async def test_names_kinds_and_sizes(client: rangelog.Client) -> None:
    """Refused before anything is sent, or by who knows: none of it leaves a trace."""
    for name in ("", "_x", "a/b/c", "bad/_x", "bad/x y", "x" * 300, "é", "bad/\0"):
        await refused(InvalidArgument, client.topics.create(name))
    await refused(InvalidArgument, client.topics.create_namespace("a/b"))
    for bad in ("", "x" * 300, "a b"):
        with pytest.raises(InvalidArgument):
            client.transactional(bad)
        with pytest.raises(InvalidArgument):
            client.group(bad, "bad/t")
    await refused(TopicKindForbids, entered(client.producer("bad/table")))
    await refused(TopicKindForbids, client.topics.scale("bad/table", [0], 2))
    await refused(TopicKindForbids, client.table("bad/t").get(b"k"))
    large = bytes((1 << 20) + 1)
    async with client.producer("bad/t") as producer:
        await refused(RecordTooLarge, producer.send(large))
    for key, value in ((b"k", large), (bytes(5_000), b"v")):
        with pytest.raises(InvalidArgument):
            await client.table("bad/table").update([TablePut(key, value)])
    async with client.group("bad-group", "bad/t") as member:
        await refused(InvalidArgument, member.commit(metadata=bytes(65)))
    async with client.transactional("large") as program, program.transaction() as transaction:
        await refused(RecordTooLarge, transaction.send("bad/t", large))
        await transaction.abort()


async def test_scales_and_cuts_that_cannot_be(client: rangelog.Client) -> None:
    """Gaps, overlaps, shards that have ended or are no neighbours; cuts that do not cover the keys."""
    current = await client.topics.shards("bad/t")
    low, high = current[0].key_range
    await refused(KeyRangeGap, client.topics.scale("bad/t", [current[0].shard_id], [KeyRange(low, high - 1)]))
    overlap = [KeyRange(low, high - 5), KeyRange(low + 5, high)]
    await refused(KeyRangeOverlap, client.topics.scale("bad/t", [current[0].shard_id], overlap))
    await refused(KeyRangeOverlap, client.topics.scale("bad/t", [current[0].shard_id], [KeyRange(low, high + 1)]))
    await refused(ShardEnded, client.topics.scale("bad/t", [0], 2))
    await refused(KeyRangeGap, client.topics.create("bad/gap", shards=[KeyRange(0, HALF)]))
    topic_id = (await client.topics.describe("bad/t")).topic_id
    await refused(KeyRangeGap, client.topics.truncate("bad/t", Cut(topic_id, {1: 0})))
    await refused(ShardNotFound, client.topics.truncate("bad/t", Cut(topic_id, {1: 0, 77: 0})))


async def test_producers_members_and_programs_of_the_past(client: rangelog.Client) -> None:
    """An older epoch of a producer, of a transactional id; what is ended stays ended; a time-out is a decision."""
    await client.topics.create("past", shards=1)
    async with client.producer("past", producer_id=5, producer_epoch=2) as later:
        await later.send(b"later")
        async with client.producer("past", producer_id=5, producer_epoch=1) as earlier:
            with pytest.raises(ProducerFenced):
                await earlier.send(b"earlier")
    async with client.transactional("past", timeout_s=0.3) as program:
        aborted = program.transaction()
        await aborted.begin()
        await aborted.send("past", b"aborted")
        await aborted.abort()
        await refused(PreconditionFailed, aborted.commit())
        expired = program.transaction()
        await expired.begin()
        await expired.send("past", b"expired")
        assert expired._ping is not None
        expired._ping.cancel()  # a program that stands still

        async def is_over() -> bool:
            return (await client.transactions.describe("past")).state != "open"

        await until(is_over, "the transaction does not expire")
        await refused(PreconditionFailed, expired.commit())
        open_one = program.transaction()
        await open_one.begin()
        await entered(client.transactional("past"))  # a later instance
        await refused(ProducerFenced, open_one.commit())
    assert [record.value async for record in client.topic_reader("past")] == [b"later"]
    await client.topics.delete("past", force=True)


# ---- gRPC


PRECONDITION, NOT_FOUND = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def _control(cluster: Cluster) -> str:
    found: str = json.loads((cluster.directory / "broker1" / "endpoint.json").read_text())["control_address"]
    return found


async def test_calls_of_the_placement_driver(cluster: Cluster, client: rangelog.Client) -> None:
    """A stale map, an ended shard, key ranges that do not tile, and brokers that claim a name or an end that is not theirs."""
    pd = cluster.pd_addresses
    reference = topic_pb2.TopicReference(namespace="bad", name="t")
    topic_id = (await client.topics.describe("bad/t")).topic_id
    whole = [topic_pb2.KeyRange(low=bytes(16), high=b"\x80" + bytes(15))]
    given = {"topic": reference, "map_version": 2, "parents": [1], "key_ranges": whole}

    def scale(**fields: Any) -> topic_pb2.StartScaleRequest:
        return topic_pb2.StartScaleRequest(**({"request_id": uuid.uuid4().hex} | given | fields))

    await refused_by(pd, TopicsStub, "DescribeTopic", topic_pb2.DescribeTopicRequest(), "TOPIC_NOT_FOUND", NOT_FOUND)
    await refused_by(pd, TopicsStub, "StartScale", scale(map_version=1), "STALE_MAP_VERSION", PRECONDITION)
    await refused_by(pd, TopicsStub, "StartScale", scale(parents=[0]), "SHARD_ENDED", PRECONDITION)
    await refused_by(pd, TopicsStub, "StartScale", scale(key_ranges=[]), None, INVALID)
    await refused_by(pd, TopicsStub, "StartScale", scale(key_ranges=whole * 2), None, INVALID)
    await refused_by(pd, TopicsStub, "StartScale", scale(request_id=""), "INVALID_ARGUMENT", INVALID)
    made = topic_pb2.CreateTopicRequest(request_id="c", namespace="bad", name="_internal", shard_count=1)
    await refused_by(pd, TopicsStub, "CreateTopic", made, "INVALID_ARGUMENT", INVALID)
    end = topic_pb2.ShardEnd(shard_id=1, stream_id=1, epoch=99, end_offset=0)
    ending = topic_pb2.EndShardRequest(request_id="e", topic_id=topic_id, end=end)
    await refused_by(pd, TopicsStub, "EndShard", ending, "TOPIC_STATE_FORBIDS", PRECONDITION)
    mine = broker_pb2.RegisterBrokerRequest(request_id="r", name="broker1", incarnation=9, address="127.0.0.1:1")
    await refused_by(pd, BrokersStub, "RegisterBroker", mine, "PRECONDITION_FAILED", PRECONDITION)


async def test_calls_on_groups(cluster: Cluster, client: rangelog.Client) -> None:
    """Sessions and members that nobody knows, pages and commits that are too large."""
    control, group = [_control(cluster)], journal_of("bad-group")[1]
    session = await _session(control[0], group)

    def commit(positions: int, **proposal: int) -> group_service_pb2.CommitPositionsRequest:
        what = group_pb2.GroupCommit(member="nobody", positions=[group_pb2.GroupPosition()] * positions)
        return group_service_pb2.CommitPositionsRequest(
            group="bad-group", commit=what, proposal=group_service_pb2.GroupProposal(**proposal)
        )

    for journal, size in ((group, 1_001), (99, 0)):
        listing = group_service_pb2.ListGroupsRequest(journal=journal, page_size=size)
        await refused_by(control, GroupsStub, "ListGroups", listing, "INVALID_ARGUMENT", INVALID)
    aborted = grpc.StatusCode.ABORTED
    await refused_by(control, GroupsStub, "CommitPositions", commit(0, session=1 << 40), "SESSION_EXPIRED", aborted)
    unknown = commit(0, session=session)
    await refused_by(control, GroupsStub, "CommitPositions", unknown, "MEMBER_NOT_FOUND", NOT_FOUND)
    await refused_by(control, GroupsStub, "CommitPositions", commit(1_001, session=session, sequence=1), None, None)
    assert await client.groups.describe("bad-group")


async def test_calls_on_transactions_and_tables(cluster: Cluster, client: rangelog.Client) -> None:
    """An unknown id, a command that is too large, and a partition that the broker does not own."""
    control = [_control(cluster)]
    name = transaction_pb2.TransactionName(transactional_id="nobody", producer_id=1, epoch=1, number=1)
    table_id = (await client.tables.describe("bad/table")).table_id
    for method, request in (
        ("CommitTransaction", transaction_service_pb2.CommitTransactionRequest(name=name)),
        ("AbortTransaction", transaction_service_pb2.AbortTransactionRequest(name=name)),
        ("BeginTransaction", transaction_service_pb2.BeginTransactionRequest(name=name)),
    ):
        await refused_by(control, TransactionsStub, method, request, "TRANSACTION_NOT_FOUND", NOT_FOUND)
    write = table_pb2.TableWrite(key=b"k", value=bytes(2 << 20))
    huge = table_service_pb2.NumberedTableCommand(sequence=1, command=table_pb2.TableCommand(writes=[write]))
    many = table_service_pb2.ApplyTableRequest(topic_id=table_id, shard_id=0, session=1, commands=[huge])
    await refused_by(control, TablesStub, "Apply", many, "INVALID_ARGUMENT", INVALID)
    elsewhere = table_service_pb2.GetRowsRequest(topic_id=1 << 40, shard_id=7, keys=[b"k"])
    await refused_by(control, TablesStub, "Get", elsewhere, "NOT_OWNER", grpc.StatusCode.UNAVAILABLE)


async def _session(control: str, journal: int) -> int:
    async with grpc.aio.insecure_channel(control, options=CHANNEL_OPTIONS) as channel:
        request = group_service_pb2.OpenGroupSessionRequest(journal=journal)
        opened = await GroupsStub(channel).OpenGroupSession(request, timeout=SOON_S)  # type: ignore[no-untyped-call]
    return int(opened.session)


async def refused_by(
    addresses: list[str], stub: Any, method: str, request: Any, code: str | None, status: grpc.StatusCode | None
) -> None:
    """One of the addresses, the leader where it matters, refuses a call with a code and a status; None: any of ours."""
    for address in addresses:
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await getattr(stub(channel), method)(request, timeout=SOON_S)
        error = caught.value
        found = from_rpc_error(error, address)
        if found.code == "NOT_LEADER":
            continue
        untyped = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
        assert rpc_status.from_call(error) is not None and error.code() not in untyped, f"{method}: {error.details()}"
        assert code in (None, found.code), f"{method}: {found.code} {found}"
        assert status in (None, error.code()), f"{method}: {error.code()}"
        return
    raise AssertionError("nobody leads")


# ---- REST


async def test_requests(cluster: Cluster, client: rangelog.Client) -> None:
    """The status fits the code; the form of the error is the documented one."""
    base = "http://" + json.loads((cluster.directory / "broker1" / "endpoint.json").read_text())["rest_address"]
    topic = "/v1/namespaces/bad/topics/t"
    for method, path, body, status, code in (
        ("GET", "/v1/namespaces/bad/topics/nowhere", None, 404, "TOPIC_NOT_FOUND"),
        ("POST", "/v1/namespaces/gone/topics", {"name": "t"}, 404, "NAMESPACE_NOT_FOUND"),
        ("POST", "/v1/namespaces/bad/topics", {"name": "_x"}, 400, "INVALID_ARGUMENT"),
        ("POST", "/v1/namespaces/bad/topics", {"name": "t"}, 409, "TOPIC_EXISTS"),
        ("POST", topic + "/scaling/split", {"shard_id": 99}, 404, "SHARD_NOT_FOUND"),
        ("POST", topic + "/scaling/split", {"shard_id": 0}, 409, "SHARD_ENDED"),
        ("POST", topic + "/scaling/merge", {"shard_ids": [1, 1]}, 400, "INVALID_ARGUMENT"),
        ("POST", topic + "/truncate", {"topic_id": 1 << 40, "offsets": {"1": 0}}, 400, "INVALID_ARGUMENT"),
        ("POST", topic + "/seal?expected_version=77", None, 409, "PRECONDITION_FAILED"),
        ("GET", "/v1/namespaces/bad/tables/nowhere", None, 404, "TOPIC_NOT_FOUND"),
        ("GET", "/v1/namespaces/bad/tables/t", None, 409, "TOPIC_KIND_FORBIDS"),
        ("GET", "/v1/groups/nobody", None, 404, "GROUP_NOT_FOUND"),
        ("POST", "/v1/groups/nobody/reset", {"to": "earliest"}, 404, "GROUP_NOT_FOUND"),
        ("POST", "/v1/groups/bad-group/reset", {"to": "yesterday"}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/transactions/nobody", None, 404, "TRANSACTION_NOT_FOUND"),
        ("POST", "/v1/transactions/nobody/abort", None, 404, "TRANSACTION_NOT_FOUND"),
        ("POST", "/v1/namespaces", {"name": "x" * (1 << 20)}, 413, "INVALID_ARGUMENT"),
        ("PUT", topic, None, 405, "INVALID_ARGUMENT"),
    ):
        found_status, found = await asyncio.to_thread(_ask, base + path, method, body)
        assert (found_status, found["code"]) == (status, code), (method, path, found)
        assert set(found) == {"code", "message", "retriable", "outcome_unknown"} and not found["outcome_unknown"]
    assert await client.groups.describe("bad-group")


def _ask(url: str, method: str, body: Any) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"content-type": "application/json"}, method=method)
    with pytest.raises(HTTPError) as caught:
        urlopen(request, timeout=SOON_S)
    return caught.value.code, json.loads(caught.value.read())


# ---- pdctl


@pytest.mark.long
async def test_commands(cluster: Cluster, client: rangelog.Client) -> None:
    """One line and the exit code of the kind of error: 2 usage, 3 not found, 5 refused by the state."""
    pdctl = Pdctl(cluster)
    for code, command in (
        (3, "topic show bad/nowhere"),
        (3, "topic produce bad/nowhere x"),
        (3, "topic consume bad/nowhere"),
        (3, "topic create gone/t"),
        (2, "topic create bad/_x"),
        (3, "shard split bad/t 99"),
        (3, "shard split bad/t 0"),
        (3, "topic produce bad/t x --shard 99"),
        (5, "topic produce bad/table x"),
        (3, "group show nobody"),
        (3, "group lag nobody"),
        (3, "group reset nobody --to earliest --yes"),
        (3, "group delete nobody --yes"),
        (3, "transaction show nobody"),
        (3, "transaction abort nobody --yes"),
        (3, "table get bad/nowhere k"),
        (3, "table put bad/nowhere k v"),
        (5, "table put bad/table k v --if-absent"),
        (5, "table get bad/t k"),
    ):
        await asyncio.to_thread(pdctl.fails, code, *command.split())
    assert await client.groups.describe("bad-group")
