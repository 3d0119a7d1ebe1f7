"""R26: the routes of streams, one test a route, with each of its status codes, over a cluster in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest

from rangelog import Client, ProducerAck
from rangelog.errors import AppendTimeout, Overloaded, RightMissing, TopicStateForbids, WriterClosed
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.consume import Consumes
from rangelog_broker.verbs.send import Sends
from rangelog_core.net.principals import Principal, Role
from rangelog_http.app import Application
from rangelog_http.handlers import cdap, cdap_dequeue, cdap_events
from rangelog_http.settings import HttpSettings
from rangelog_http.wire.cdap import TTL_FOR_EVER
from rangelog_server_common.http_server import PRINCIPAL
from tests.support.rest_caller import Answer, RestCaller
from tests.support.waiting import until

V2, V3 = "/v2/streams", "/v3/namespaces/default/streams"
ID = "x-continuuity-consumerid"
TEXT = {"content-type": "text/plain"}


@pytest.fixture
async def call(context: DoorContext) -> AsyncIterator[RestCaller]:
    """The application, with a stream "who"."""
    made = RestCaller(Application(context, HttpSettings(listen="127.0.0.1:0")))
    assert (await made("PUT", f"{V2}/who")).status == 200
    yield made


async def event(call: RestCaller, body: bytes, stream: str = f"{V2}/who", **headers: str) -> Answer:
    """Send an event."""
    return await call("POST", stream, raw=[body], headers=headers)


async def consumer(call: RestCaller, query: str = "") -> dict[str, str]:
    """A consumer's header."""
    made = await call("POST", f"{V2}/who/consumer-id{query}")
    assert made.status == 200 and made.headers[ID] == made.body.decode()
    return {ID: made.headers[ID]}


async def dequeued(call: RestCaller, one: dict[str, str]) -> list[bytes]:
    """Everything up to 204."""
    found = []
    while (answer := await call("POST", f"{V2}/who/dequeue", headers=one)).status == 200:
        found.append(answer.body)
    assert answer.status == 204 and not answer.body
    return found


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_create(call: RestCaller, client: Client, base: str) -> None:
    """PUT: 200, and again 200; 400 for a bad name, ttl or property; 404 for a namespace that is not there; 409 a table."""
    for _ in range(2):
        made = await call("PUT", f"{base}/new")
        assert (made.status, made.body) == (200, b"")
    assert (await client.topics.describe("new")).shard_count == 1
    assert (await call("PUT", f"{base}/short", {"ttl": 60})).status == 200
    assert (await client.topics.describe("short")).config.retention.age_seconds == 60
    for path, body in (
        (f"{base}/a b", None),
        (f"{base}/x", {"ttl": -1}),
        (f"{base}/x", {"colour": 1}),
        (f"{base}/..", None),
    ):
        assert (await call("PUT", path, body)).status == 400
    assert (await call("PUT", "/v3/namespaces/missing/streams/x")).status == 404
    await client.tables.create("rows")
    assert (await call("PUT", f"{base}/rows")).status >= 400
    assert (await call("PATCH", f"{base}/new")).status == 405


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_event(call: RestCaller, client: Client, base: str) -> None:
    """POST: 200 once it is acked, with the body as it is and the headers of the stream; 404; 504 where it may be in."""
    sent = await event(call, b"\0\xffbody", f"{base}/who", **{"Who.Color": "red", "other.x": "1"})
    assert (sent.status, sent.body) == (200, b"")
    (record,) = [each async for each in client.topic_reader("who")]
    assert (record.value, record.key, dict(record.headers)) == (b"\0\xffbody", None, {"color": b"red"})
    assert (await event(call, b"x", f"{base}/missing")).status == 404
    assert (await event(call, b"x", "/v3/namespaces/missing/streams/who")).status == 404
    assert (await event(call, bytes(1024 * 1024 + 1), f"{base}/who")).status == 413
    assert (await call("POST", f"{base}/who?x=1", raw=[b"x"], headers={})).status == 400
    unknown = mock.AsyncMock(return_value=[AppendTimeout("no ack", outcome_unknown=True)])
    with mock.patch.object(Sends, "send", unknown):
        assert (await event(call, b"x", f"{base}/who")).status == 504


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_async(call: RestCaller, client: Client, base: str) -> None:
    """POST /async: 202 before it is acked; 404."""
    assert (await event(call, b"later", f"{base}/who/async", **{"who.a": "1"})).status == 202
    async with asyncio.timeout(30):
        async for record in client.topic_reader("who", follow=True):
            assert (record.value, dict(record.headers)) == (b"later", {"a": b"1"})
            break
    assert (await event(call, b"x", f"{base}/missing/async")).status == 404
    assert (await call("GET", f"{base}/who/async")).status == 405


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_batch(call: RestCaller, client: Client, base: str) -> None:
    """POST /batch: 200, an event a line; 400 without a type; 404; 406 for one that is not taken; 504 where some are in."""
    batch = await event(call, b"1,a\n2,b\n", f"{base}/who/batch", **{"content-type": "text/csv", "who.h": "v"})
    assert batch.status == 200
    records = [each async for each in client.topic_reader("who")]
    assert [(each.value, dict(each.headers)) for each in records] == [(b"1,a", {"h": b"v"}), (b"2,b", {"h": b"v"})]
    assert (await event(call, b"x", f"{base}/who/batch")).status == 400
    assert (await event(call, b"x", f"{base}/who/batch", **{"content-type": "avro/binary"})).status == 406
    assert (await event(call, b"x", f"{base}/missing/batch", **TEXT)).status == 404
    mixed = mock.AsyncMock(return_value=[ProducerAck(0, 0), Overloaded("busy")])
    with mock.patch.object(Sends, "send", mixed):
        part = await event(call, b"1\n2\n", f"{base}/who/batch", **TEXT)
    assert (part.status, part.body["outcome_unknown"]) == (504, True) and "1 of 2" in part.body["message"]
    with mock.patch.object(Sends, "send", mock.AsyncMock(return_value=[Overloaded("busy")] * 2)):
        assert (await event(call, b"1\n2\n", f"{base}/who/batch", **TEXT)).status == 429


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_consumer_id(call: RestCaller, client: Client, base: str) -> None:
    """POST /consumer-id: 200 with the id in header and body, each time another one; 400 for a bad mode; 404."""
    made = [await call("POST", f"{base}/who/consumer-id") for _ in range(2)]
    assert [each.status for each in made] == [200, 200] and made[0].body != made[1].body
    assert all(each.headers[ID] == each.body.decode() for each in made)
    assert (await call("POST", f"{base}/missing/consumer-id")).status == 404
    for query in ("mode=x", "size=2", "x=1"):
        assert (await call("POST", f"{base}/who/consumer-id?{query}")).status == 400
    assert not (await client.groups.describe(made[0].body.decode())).members, "any broker may be asked first"


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_dequeue(call: RestCaller, base: str) -> None:
    """POST /dequeue: 200 with the next event and its headers, in order; 204 at the end; 400 without an id; 404."""
    one = await consumer(call)
    dequeue = f"{base}/who/dequeue"
    assert (await call("POST", dequeue, headers=one)).status == 204
    for number in range(3):
        await event(call, b"event %d" % number, **{"who.n": str(number)})
    for number in range(3):
        found = await call("POST", dequeue, headers=one)
        assert (found.status, found.body, found.headers["who.n"]) == (200, b"event %d" % number, str(number))
    end = await call("POST", dequeue, headers=one)
    assert (end.status, end.body, "content-length" in end.headers) == (204, b"", False)
    await event(call, b"later")
    assert await dequeued(call, one) == [b"later"]
    assert await dequeued(call, await consumer(call)) == [b"event 0", b"event 1", b"event 2", b"later"]
    for headers in ({}, {ID: "7"}):
        assert (await call("POST", dequeue, headers=headers)).status == 400
    other = {ID: one[ID][:-1] + ("0" if one[ID][-1] != "0" else "1")}
    assert (await call("POST", dequeue, headers=other)).status == 404
    assert (await call("POST", f"{base}/missing/dequeue", headers=one)).status == 404
    assert (await call("GET", dequeue, headers=one)).status == 405


async def test_r26_dequeue_round_robin_and_hash(call: RestCaller) -> None:
    """Instances share the events; each is one's, and a header's value stays with one."""
    for number in range(20):
        await event(call, b"%d" % number, **{"who.user": f"u{number % 5}"})
    shares = [
        [
            int(each)
            for each in await dequeued(call, await consumer(call, f"?mode=round_robin&size=3&instance={instance}"))
        ]
        for instance in range(3)
    ]
    assert shares == [list(range(first, 20, 3)) for first in range(3)]
    hashed = [
        [
            int(each)
            for each in await dequeued(call, await consumer(call, f"?mode=hash&size=2&instance={each}&header=User"))
        ]
        for each in range(2)
    ]
    assert sorted(hashed[0] + hashed[1]) == list(range(20))
    assert not {each % 5 for each in hashed[0]} & {each % 5 for each in hashed[1]}


async def test_r26_dequeue_shared_by_clients(call: RestCaller) -> None:
    """FIFO with several clients of one id: each event is handed to one of them."""
    for number in range(12):
        await event(call, b"%d" % number)
    one = await consumer(call)
    found = await asyncio.gather(*(dequeued(call, one) for _ in range(3)))
    assert sorted(int(each) for part in found for each in part) == list(range(12))
    assert all([int(each) for each in part] == sorted(int(each) for each in part) for part in found)


async def test_r26_dequeue_goes_on_at_another_broker(call: RestCaller, context: DoorContext, client: Client) -> None:
    """By the same id, without a gap or a repeat, once the first one's session is over."""
    for number in range(4):
        await event(call, b"%d" % number)
    one = await consumer(call)
    first = [(await call("POST", f"{V2}/who/dequeue", headers=one)).body for _ in range(2)]
    consumes = Consumes(client, context.quotas, "b2")
    other = RestCaller(Application(context._replace(consumes=consumes), HttpSettings(listen="127.0.0.1:0")))
    async with asyncio.timeout(30):
        assert first + await dequeued(other, one) == [b"%d" % number for number in range(4)]
    await consumes.close()


async def test_r26_dequeue_repeats_what_was_not_committed(call: RestCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker fails between answer and commit: the event comes again, and none is passed over."""
    await event(call, b"a")
    await event(call, b"b")
    one = await consumer(call)
    with mock.patch.object(Consumes, "commit", mock.AsyncMock(side_effect=WriterClosed("the broker dies"))):
        assert (await call("POST", f"{V2}/who/dequeue", headers=one)).body == b"a"
    assert await dequeued(call, one) == [b"a", b"b"]
    monkeypatch.setattr(cdap_dequeue, "FIND_S", 0.3)
    monkeypatch.setattr(cdap_dequeue, "WAIT_S", 0.1)
    with mock.patch.object(Consumes, "is_at_end", mock.AsyncMock(return_value=False)):
        late = await call("POST", f"{V2}/who/dequeue", headers=one)
    assert (late.status, late.headers["retry-after"]) == (503, "1"), "204 is for the end alone"


async def test_r26_a_consumer_is_its_principals(context: DoorContext) -> None:
    """Of another one it is not there."""
    application = Application(context, HttpSettings(listen="127.0.0.1:0"))

    def by(name: str) -> RestCaller:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await application(scope | {"state": {PRINCIPAL: Principal(Role.CLIENT, name)}}, receive, send)

        return RestCaller(app)

    ann, bob = by("ann"), by("bob")
    assert (await ann("PUT", f"{V2}/who")).status == 200
    await event(ann, b"x")
    one = await consumer(ann)
    assert (await bob("POST", f"{V2}/who/dequeue", headers=one)).status == 404
    with mock.patch.object(Caller, "require_named", mock.AsyncMock(side_effect=RightMissing("no"))):
        for target in ("dequeue", "consumer-id", "async", "truncate"):
            assert (await ann("POST", f"{V2}/who/{target}", headers=one)).status == 403, target
        assert (await ann("GET", f"{V2}/who/events")).status == 403
        assert (await event(ann, b"y")).status == 403
    assert await dequeued(ann, one) == [b"x"]


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_truncate(call: RestCaller, client: Client, base: str) -> None:
    """POST /truncate: 200, and no event before is left; later ones are read, also by consumers of before; 404."""
    for number in range(3):
        await event(call, b"old %d" % number)
    one = await consumer(call)
    assert (await call("POST", f"{V2}/who/dequeue", headers=one)).body == b"old 0"
    done = await call("POST", f"{base}/who/truncate")
    assert (done.status, done.body) == (200, b"")
    assert [each async for each in client.topic_reader("who")] == []
    await event(call, b"new")
    assert [each.value async for each in client.topic_reader("who")] == [b"new"]
    assert await dequeued(call, await consumer(call)) == [b"new"]
    ahead = await dequeued(call, one)
    assert ahead in ([b"old 1", b"old 2", b"new"], [b"new"]), "its broker may have read ahead"
    assert (await call("POST", f"{base}/missing/truncate")).status == 404


async def test_r26_truncate_by_two_and_in_vain(
    call: RestCaller, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are done in turn; a sealed stream is emptied, too; what takes too long may still happen: 504."""
    await event(call, b"old")
    assert [each.status for each in await asyncio.gather(*(call("POST", f"{V2}/who/truncate") for _ in range(2)))] == [
        200, 200,
    ]  # fmt: skip
    assert [each async for each in client.topic_reader("who")] == []
    await event(call, b"last")
    await client.topics.seal("who")

    async def is_sealed() -> bool:
        return (await client.topics.describe("who")).state == "sealed"

    await until(is_sealed, "it is sealed")
    assert (await call("POST", f"{V2}/who/truncate")).status == 200
    assert [each async for each in client.topic_reader("who")] == []
    assert (await event(call, b"x")).status == 409
    monkeypatch.setattr(cdap, "TRUNCATE_TIMEOUT_S", 0.3)
    with mock.patch.object(type(client.topics), "truncate", mock.AsyncMock(side_effect=TopicStateForbids("scaling"))):
        late = await call("POST", f"{V2}/who/truncate")
    assert (late.status, late.body["outcome_unknown"]) == (504, True)


@pytest.mark.parametrize("path", [f"{V2}/who/config", f"{V3}/who/properties"])
async def test_r26_config(call: RestCaller, client: Client, path: str) -> None:
    """PUT /config and /properties: 200, and it is the retention; 400 for what is no number of seconds; 404."""
    done = await call("PUT", path, {"ttl": 86_400})
    assert (done.status, done.body) == (200, b"")
    assert (await client.topics.describe("who")).config.retention.age_seconds == 86_400
    assert (await call("PUT", path, {})).status == 200
    for body in ({"ttl": -1}, {"ttl": 1.5}, {"ttl": "1"}, {"ttl": True}, {"ttl": None}, {"format": {"name": "text"}}):
        assert (await call("PUT", path, body)).status == 400, body
    assert (await call("PUT", path, raw=[b"{"], headers={})).status == 400
    assert (await client.topics.describe("who")).config.retention.age_seconds == 86_400
    assert (await call("PUT", path, {"ttl": TTL_FOR_EVER})).status == 200
    assert (await client.topics.describe("who")).config.retention.age_seconds == 0
    assert (await call("PUT", path.replace("who", "missing"), {"ttl": 1})).status == 404
    assert (await call("POST", path, {"ttl": 1})).status == 405


@pytest.mark.parametrize("path", [f"{V2}/who/info", f"{V3}/who"])
async def test_r26_info(call: RestCaller, path: str) -> None:
    """GET /info, and the stream itself: 200 with name and ttl; 404."""
    assert (await call("GET", path)).body == {"name": "who", "ttl": TTL_FOR_EVER}
    assert (await call("PUT", f"{V2}/who/config", {"ttl": 60})).status == 200
    assert (await call("GET", path)).body == {"name": "who", "ttl": 60}
    assert (await call("GET", path.replace("who", "missing"))).status == 404


async def test_r26_delete(call: RestCaller) -> None:
    """DELETE: 200; 404."""
    assert (await call("DELETE", f"{V3}/who")).status == 200
    assert (await call("DELETE", f"{V3}/missing")).status == 404


async def send_at(client: Client, *times_ms: int) -> None:
    """Events with times."""
    async with client.producer("who") as producer:
        for ms in times_ms:
            await producer.send(b"at %d\n" % ms, timestamp=ms, headers={"h": b"\xff"})


@pytest.mark.parametrize("base", [V2, V3])
async def test_r26_events(call: RestCaller, client: Client, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """GET /events: 200 with the events of [start, end), up to the limit; 204 without one; 400; 404."""
    path = f"{base}/who/events"
    assert (await call("GET", path)).status == 204
    await send_at(client, 1_000, 3_000, 2_000, 4_000)
    found = await call("GET", path)
    assert found.status == 200 and found.body[0] == {
        "timestamp": 1_000,
        "headers": {"h": "\\xff"},
        "body": "at 1000\\x0A",
    }

    async def times(query: str) -> list[int]:
        answer = await call("GET", f"{path}?{query}")
        return [each["timestamp"] for each in answer.body] if answer.status == 200 else [answer.status]

    monkeypatch.setattr(cdap_events, "AT_A_TIME", 2)
    assert await times("") == [1_000, 3_000, 2_000, 4_000]
    assert await times("start=2000") == [3_000, 2_000, 4_000]
    assert await times("start=2000&end=4000") == [3_000, 2_000]
    assert await times("limit=3") == [1_000, 3_000, 2_000]
    assert await times("end=1000") == await times("start=5000") == await times("start=9223372036854775806") == [204]
    for query in ("start=-1", "end=-1", "start=2&end=2", "start=3&end=2", "limit=0", "limit=-1", "start=x", "nope=1"):
        assert await times(query) == [400], query
    assert (await call("GET", f"{base}/missing/events")).status == 404
    assert (await call("POST", path)).status == 405


async def test_r26_events_end_while_others_come(call: RestCaller, client: Client) -> None:
    """What is acked behind the request does not keep it."""
    await send_at(client, *range(1, 6))
    reads = type(call.app._tails._reads)
    inner = reads.read

    async def read(self: Any, caller: Any, topic: str, start: Any, *, records_max: int, wait_s: float = 0.0) -> Any:
        found = await inner(self, caller, topic, start, records_max=2, wait_s=wait_s)
        await send_at(client, 7, 8, 9)
        return found

    with mock.patch.object(reads, "read", read):
        async with asyncio.timeout(30):
            answer = await call("GET", f"{V2}/who/events")
    assert [each["timestamp"] for each in json.loads(json.dumps(answer.body))][:5] == [1, 2, 3, 4, 5]


async def test_r26_other_paths(call: RestCaller) -> None:
    """They are not there."""
    for path in (
        f"{V2}/who/nothing",
        "/v2/streams",
        f"{V2}/who/events/x",
        "/v4/streams/who",
        "/v3/namespaces/x/flows/who",
    ):
        assert (await call("GET", path)).status == 404, path
