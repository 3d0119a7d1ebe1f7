"""Groups, checkpoints, transactions, tables and brokers by REST, over a client that notes what it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog import Cut, GroupInfo, GroupMemberInfo, GroupShardInfo, GroupSummary, ShardLag, ShardOfTopic
from rangelog.errors import GroupNotFound, InvalidArgument, PreconditionFailed, RequestTimeout, TransactionNotFound
from rangelog_broker.rest.app import make_app
from tests.support.owner_cluster import owner_cluster
from tests.support.rest_caller import RestCaller

pytestmark = pytest.mark.virtual

GROUP = GroupInfo(
    name="g",
    generation=3,
    topics=("air/t",),
    members=(GroupMemberInfo("m", 2, 10.0, 0.5, (ShardOfTopic("air/t", 0),)),),
    shards=(GroupShardInfo("air/t", 0, 5, b"\xff", "m", 3, False, None, False),),
    checkpoints=("c",),
    pending_checkpoint="",
)


class FakeGroups:
    """`client.groups`, of one group."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error: Exception | None = None

    async def list(self, prefix: str, *, after: str) -> AsyncIterator[GroupSummary]:
        for name in ("a", "g", "h"):
            if name.startswith(prefix) and name > after:
                yield GroupSummary(name, 1, 0)

    async def describe(self, group: str) -> GroupInfo:
        if group != "g":
            raise GroupNotFound(f"no group {group!r}")
        return GROUP

    async def lag(self, group: str) -> list[ShardLag]:
        return [ShardLag("air/t", 0, 5, 9, 4, 1.5), ShardLag("air/t", 1, 0, 1, 1, 0.5)]

    async def reset(self, *arguments: Any, **options: Any) -> None:
        self.asked.append((arguments, options["topics"]))

    async def unsubscribe(self, *arguments: Any, **_: Any) -> None:
        self.asked.append(arguments)

    async def retain(self, group: str, *, retains: bool, timeout_s: float) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append((group, retains))

    async def delete(self, group: str, **_: Any) -> None:
        if self.error is not None:
            raise self.error

    async def checkpoint(self, group: str, name: str, *, timeout_s: float) -> dict[ShardOfTopic, int]:
        if self.error is not None:
            raise self.error
        return {ShardOfTopic("air/t", 1): 7, ShardOfTopic("air/t", 0): 5}

    async def delete_checkpoint(self, *arguments: Any, **_: Any) -> None:
        self.asked.append(arguments)


@dataclass
class Info:
    """A transactional id."""

    transactional_id: str
    producer_id: int = 1
    epoch: int = 2
    number: int = 3
    state: str = "open"
    used: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class FakeTransactions:
    """`client.transactions`, of three ids."""

    async def list(self, prefix: str, *, state: str | None) -> AsyncIterator[Info]:
        for name in ("a", "b", "c"):
            yield Info(name, state=state or "open")

    async def describe(self, transactional_id: str) -> Info:
        if transactional_id != "a":
            raise TransactionNotFound("there is no such id")
        return Info("a")

    async def abort(self, transactional_id: str) -> Info:
        await self.describe(transactional_id)
        return Info("a", state="aborted")


@pytest.fixture
def groups() -> FakeGroups:
    """The groups of the client."""
    return FakeGroups()


@pytest.fixture
def call(groups: FakeGroups) -> RestCaller:
    """The application over the fake client."""
    client: Any = SimpleNamespace(groups=groups, transactions=FakeTransactions())
    return RestCaller(make_app(client, token=None))


async def test_a_group_is_listed_described_and_deleted(call: RestCaller, groups: FakeGroups) -> None:
    """Positions and members are shown; what cannot be deleted is a conflict."""
    page = (await call("GET", "/v1/groups?page_size=2")).body
    assert [each["name"] for each in page["groups"]] == ["a", "g"] and page["next_page_token"] == "g"
    last = (await call("GET", "/v1/groups?page_size=2&page_token=g")).body
    assert [each["name"] for each in last["groups"]] == ["h"] and last["next_page_token"] == ""
    shown = (await call("GET", "/v1/groups/g")).body
    assert shown["members"][0]["shards"] == [{"topic": "air/t", "shard_id": 0}]
    assert (shown["shards"][0]["offset"], shown["shards"][0]["metadata"]) == (5, "/w==")
    assert (await call("GET", "/v1/groups/x")).body["code"] == "GROUP_NOT_FOUND"
    assert (await call("GET", "/v1/groups/g/lag")).body["records"] == 5
    assert (await call("DELETE", "/v1/groups/g")).status == 204
    groups.error = PreconditionFailed("it has members")
    assert (await call("DELETE", "/v1/groups/g")).status == 409


@pytest.mark.parametrize(
    ("body", "place", "topics"),
    [
        ({"to": "earliest"}, "earliest", None),
        ({"to": "checkpoint:c"}, "checkpoint:c", None),
        ({"to": "latest", "topics": ["air/t"]}, "latest", ["air/t"]),
        ({"to": "2026-01-01T00:00:00+00:00"}, datetime(2026, 1, 1, tzinfo=UTC), None),
        ({"to": "2026-01-01T00:00:00Z"}, datetime(2026, 1, 1, tzinfo=UTC), None),
        ({"cuts": [{"topic_id": 7, "offsets": {"1": 5}}]}, [Cut(7, {1: 5})], None),
    ],
)
async def test_resets(call: RestCaller, groups: FakeGroups, body: Any, place: Any, topics: Any) -> None:
    """Each form of a place reaches the client as its own."""
    assert (await call("POST", "/v1/groups/g/reset", body)).status == 200
    assert groups.asked == [(("g", place), topics)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"to": "nowhere"},
        {"to": "2026-01-01T00:00:00"},
        {"to": 5},
        {"to": "latest", "cuts": [{"topic_id": 7, "offsets": {"1": 5}}]},
        {"cuts": [{"topic_id": 7, "offsets": {"x": 5}}]},
        {"cuts": [{"topic_id": 7, "offsets": {"1": -5}}]},
        {"cuts": [{"topic_id": 0, "offsets": {"1": 5}}]},
        {"cuts": [{"topic_id": 7, "offsets": {}}]},
        {"to": "latest", "bogus": 1},
    ],
)
async def test_bad_resets(call: RestCaller, groups: FakeGroups, body: Any) -> None:
    """Nothing reaches the group."""
    refused = await call("POST", "/v1/groups/g/reset", body)
    assert (refused.status, refused.body["code"]) == (400, "INVALID_ARGUMENT")
    assert not groups.asked


async def test_checkpoints(call: RestCaller, groups: FakeGroups) -> None:
    """Taken with its positions, listed, deleted; one that is not met in time is no success."""
    taken = await call("POST", "/v1/groups/g/checkpoints", {"name": "c"})
    assert taken.status == 201
    assert [each["offset"] for each in taken.body["positions"]] == [5, 7]
    assert (await call("GET", "/v1/groups/g/checkpoints")).body == {"checkpoints": ["c"], "pending_checkpoint": ""}
    assert (await call("DELETE", "/v1/groups/g/checkpoints/c")).status == 204
    assert (await call("POST", "/v1/groups/g/unsubscribe", {"topics": ["air/t"]})).status == 200
    assert groups.asked == [("g", "c"), ("g", ["air/t"])]
    groups.error = RequestTimeout("not met")
    late = await call("POST", "/v1/groups/g/checkpoints", {"name": "d"})
    assert (late.status, late.body["outcome_unknown"]) == (504, True)


async def test_a_group_retains_or_does_not_any_more(call: RestCaller, groups: FakeGroups) -> None:
    """What the client refuses is said, and nothing is taken for a yes."""
    answer = await call("POST", "/v1/groups/g/retain", {})
    assert (answer.status, answer.body["retains"]) == (200, False)  # as the fake describes it
    assert (await call("POST", "/v1/groups/g/retain", {"retains": False})).status == 200
    assert groups.asked == [("g", True), ("g", False)]
    assert (await call("POST", "/v1/groups/g/retain", {"retains": "maybe"})).status == 400
    groups.error = InvalidArgument("101 groups would retain topic air/t; the limit is 100")
    assert (await call("POST", "/v1/groups/g/retain", {})).status == 400
    assert len(groups.asked) == 2


async def test_transactions(call: RestCaller) -> None:
    """Listed by page, described, aborted; an unknown one is not found."""
    page = (await call("GET", "/v1/transactions?page_size=2&state=open")).body
    assert [each["transactional_id"] for each in page["transactions"]] == ["a", "b"]
    assert page["transactions"][0]["used"] == "2026-01-01T00:00:00Z"
    rest = (await call("GET", f"/v1/transactions?page_size=2&page_token={page['next_page_token']}")).body
    assert [each["transactional_id"] for each in rest["transactions"]] == ["c"] and rest["next_page_token"] == ""
    assert (await call("GET", "/v1/transactions/a")).body["number"] == 3
    assert (await call("POST", "/v1/transactions/a/abort")).body["state"] == "aborted"
    assert (await call("POST", "/v1/transactions/x/abort")).body["code"] == "TRANSACTION_NOT_FOUND"
    assert (await call("GET", "/v1/transactions?state=bogus")).status == 400


async def test_tables_and_brokers() -> None:
    """Over the placement driver: a table is no topic of records, and is listed as a table."""
    async with owner_cluster() as cluster:
        call = RestCaller(make_app(cluster.client(), token=None))
        body = {"name": "counts", "partitions": 2, "tags": {"a": "b"}}
        made = await call("POST", "/v1/namespaces/default/tables", body)
        assert (made.status, made.body["partition_count"], made.body["tags"]) == (201, 2, {"a": "b"})
        assert (await call("GET", "/v1/namespaces/default/tables/counts")).body == made.body
        assert (await call("GET", "/v1/tables")).body["tables"] == [made.body]
        again = await call("POST", "/v1/namespaces/default/tables", body)
        assert (again.status, again.body["code"]) == (409, "TOPIC_EXISTS")
        assert (await call("POST", "/v1/namespaces/no/tables", body)).body["code"] == "NAMESPACE_NOT_FOUND"
        assert (await call("DELETE", "/v1/namespaces/default/tables/counts")).status == 204
        gone = await call("GET", "/v1/namespaces/default/tables/counts")
        assert (gone.status, gone.body["code"]) == (404, "TOPIC_NOT_FOUND")
        assert (await call("GET", "/v1/brokers")).body == {"brokers": []}
