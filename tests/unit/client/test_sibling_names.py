"""A name that nothing has, or no longer, is told in the same words by every path: SDK, Spark, REST.

The placement driver and the broker are the production code.

What holds: an error names what was asked for by the name and the kind that the program gave, never by an id, and its cure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from rangelog import Client, errors
from rangelog.spark.filters import Selection
from rangelog.spark.options import parse_options
from rangelog.spark.planning import plan
from rangelog.spark.topic_planning import take_snapshot
from rangelog.testing import FakeCluster
from rangelog_broker.rest.app import make_app
from rangelog_core.errors import error_from_code
from tests.support.rest_caller import RestCaller
from tests.support.waiting import until_arrived

Path = Callable[[Client], Awaitable[Any]]
TOPICS = "/v1/namespaces/default/topics"


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """With a topic and no more."""
    with FakeCluster(brokers=1) as made:
        with made.sync_client() as client:
            client.topics.create("t")
        yield made


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


def rest(method: str, path: str, body: Any = None) -> Path:
    """A request by REST; its answer as the error that it tells."""

    async def ask(client: Client) -> None:
        answer = await RestCaller(make_app(client, token=None))(method, path, body)
        raise error_from_code(answer.body["code"], answer.body["message"])

    return ask


async def read(records: Any) -> None:
    """All of a reader."""
    async for _ in records:
        pass


async def send(client: Client, topic: str, **options: Any) -> None:
    """As a producer."""
    async with client.producer(topic) as producer:
        await producer.send(b"x", **options)


async def send_in_transaction(client: Client, topic: str) -> None:
    """As a program with transactions."""
    async with client.transactional("program") as program, program.transaction() as transaction:
        await transaction.send(topic, b"x")


async def consume(client: Client, topic: str) -> None:
    """As a member of a group."""
    async with client.group("g", topic) as member:
        await read(member)


STREAM: dict[str, Path] = {
    "describe": lambda client: client.describe_stream("nope"),
    "read": lambda client: read(client.reader("nope")),
    "write": lambda client: client.writer("nope").open(),
    "seal": lambda client: client.seal_stream("nope"),
    "spark": lambda client: plan(client, parse_options({"pd": "x:1", "stream": "nope"}), Selection()),
    "rest": rest("GET", "/v1/streams/nope"),
}
TOPIC: dict[str, Path] = {
    "describe": lambda client: client.topics.describe("nope"),
    "scale": lambda client: client.topics.scale("nope", [0], 2),
    "read": lambda client: read(client.topic_reader("nope")),
    "send": lambda client: send(client, "nope"),
    "transaction": lambda client: send_in_transaction(client, "nope"),
    "group": lambda client: consume(client, "nope"),
    "spark": lambda client: take_snapshot(client, parse_options({"pd": "x:1", "topic": "nope"})),
    "rest": rest("GET", f"{TOPICS}/nope"),
}
TABLE: dict[str, Path] = {
    "describe": lambda client: client.tables.describe("nope"),
    "get": lambda client: client.table("nope").get(b"k"),
    "put": lambda client: client.table("nope").put(b"k", b"v"),
    "delete": lambda client: client.tables.delete("nope"),
    "rest": rest("GET", "/v1/namespaces/default/tables/nope"),
}
NAMESPACE: dict[str, Path] = {
    "topic": lambda client: client.topics.create("nope/t"),
    "table": lambda client: client.tables.create("nope/t"),
    "rest": rest("POST", "/v1/namespaces/nope/topics", {"name": "t"}),
}
SHARD: dict[str, Path] = {
    "send": lambda client: send(client, "t", shard=9),
    "scale": lambda client: client.topics.scale("t", [9], 2),
    "rest": rest("POST", f"{TOPICS}/t/scaling/split", {"shard_id": 9}),
}
KINDS = [
    (errors.StreamNotFound, "no stream 'nope': `pdctl stream list` shows what there is", STREAM),
    (errors.TopicNotFound, "no topic 'default/nope': `pdctl topic list` shows what there is", TOPIC),
    (errors.TopicNotFound, "no table 'default/nope': `pdctl table list` shows what there is", TABLE),
    (errors.NamespaceNotFound, "no namespace 'nope': `pdctl namespace list` shows what there is", NAMESPACE),
    (
        errors.ShardNotFound,
        "topic 'default/t' has no shard 9: `pdctl shard list default/t --all` shows what there is",
        SHARD,
    ),
]


@pytest.mark.parametrize(
    ("kind", "words", "path"),
    [pytest.param(*row[:2], path, id=f"{row[0].__name__}-{name}") for row in KINDS for name, path in row[2].items()],
)
async def test_a_name_that_nothing_has(
    client: Client, kind: type[errors.RangelogError], words: str, path: Path
) -> None:
    """With the command that lists what there is."""
    with pytest.raises(errors.RangelogError) as caught:
        await path(client)
    assert (type(caught.value), caught.value.message) == (kind, words)


async def test_a_topic_that_was_deleted_under_its_producer(client: Client) -> None:
    """As its readers are told (test_siblings)."""
    await client.topics.create("brief")
    async with client.producer("brief") as producer:
        await producer.send(b"x")
        await client.topics.delete("brief", force=True)
        with pytest.raises(errors.TopicNotFound) as caught:
            await producer.send(b"y")
    assert caught.value.message == "topic 'default/brief' was deleted"


async def test_a_topic_that_is_sealed(client: Client) -> None:
    """Of a producer that had it open, of a new one, and of a transaction."""

    async def state() -> str:
        return (await client.topics.describe("done")).state

    await client.topics.create("done")
    async with client.producer("done") as producer:
        await producer.send(b"x")
        await client.topics.seal("done")
        await until_arrived(state, "sealed", "the topic is not sealed")
        for path in (
            lambda: producer.send(b"y"),
            lambda: send(client, "done"),
            lambda: send_in_transaction(client, "done"),
        ):
            with pytest.raises(errors.TopicStateForbids) as caught:
                await path()
            assert caught.value.message == "topic 'default/done' is sealed: it takes no records any more"
