"""Consumers over HTTP, over a cluster in memory: routes, forms, statuses, and whose a consumer is."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import pytest

from rangelog import Client
from rangelog.errors import RightMissing, ShardLost
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.consume import Consumes
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import Verb
from rangelog_http.app import Application
from rangelog_http.settings import HttpSettings
from rangelog_server_common.http_server import PRINCIPAL
from tests.support.rest_caller import RestCaller
from tests.support.waiting import until

RECORDS = "/v1/topics/default/t/records"
CONSUMERS = "/v1/groups/g/consumers"
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def call(context: DoorContext) -> RestCaller:
    """The application."""
    return RestCaller(Application(context, HttpSettings(listen="127.0.0.1:0")))


async def joined(call: RestCaller, **given: Any) -> str:
    """Join; return the path of the consumer."""
    made = await call("POST", CONSUMERS, {"topics": ["t"]} | given)
    assert made.status == 201 and made.body["group"] == "g"
    return f"{CONSUMERS}/{made.body['consumer']}"


async def test_a_consumers_life(call: RestCaller) -> None:
    """Join, dequeue, commit, dequeue with a commit, lines, end; then it is not there."""
    one = await joined(call, session_s=30)
    assert (await call("POST", RECORDS, raw=[b"1\n2\n3\n"], headers=LINES)).status == 200
    first = await call("POST", f"{one}/dequeue?limit=1&wait_ms=20000")
    assert (first.status, first.body["batch"], first.body["lost"]) == (200, 1, [])
    (record,) = first.body["records"]
    assert record == record | {"topic": "default/t", "shard": 0, "offset": 0, "value": "1"}
    assert (await call("POST", f"{one}/dequeue")).body == first.body, "until it is committed"
    for _ in range(2):
        done = await call("POST", f"{one}/commit?batch=1")
        assert (done.status, done.body) == (200, {"committed": 1})
    second = await call("POST", f"{one}/dequeue?limit=1&wait_ms=20000", headers={"accept": "application/x-ndjson"})
    assert [json.loads(line)["value"] for line in second.body.splitlines()] == ["2"]
    assert (second.headers["x-rangelog-batch"], second.headers["x-rangelog-lost"]) == ("2", "0")
    third = await call("POST", f"{one}/dequeue?commit=2&wait_ms=20000")
    assert (third.body["batch"], [each["value"] for each in third.body["records"]]) == (3, ["3"])
    nothing = await call("POST", f"{one}/dequeue?commit=3")
    assert nothing.body == {"batch": 0, "records": [], "lost": []}
    ended = await call("DELETE", one)
    assert (ended.status, ended.body, "content-length" in ended.headers) == (204, b"", False)
    for method, path in (("POST", f"{one}/dequeue"), ("POST", f"{one}/commit?batch=3"), ("DELETE", one)):
        gone = await call(method, path)
        assert (gone.status, gone.body["code"]) == (404, "MEMBER_NOT_FOUND") and "join here" in gone.body["message"]


async def test_the_next_one_goes_on(call: RestCaller) -> None:
    """Behind what was committed; `start` counts for a group that is new."""
    assert (await call("POST", RECORDS, raw=[b"1\n2\n"], headers=LINES)).status == 200
    one = await joined(call)
    first = (await call("POST", f"{one}/dequeue?limit=1&wait_ms=20000")).body
    assert (await call("POST", f"{one}/commit?batch={first['batch']}")).status == 200
    await call("DELETE", one)
    two = await joined(call, start="latest")
    found = (await call("POST", f"{two}/dequeue?wait_ms=20000")).body
    assert [each["value"] for each in found["records"]] == ["2"]


@pytest.mark.parametrize(
    "body",
    [
        {}, {"topics": "t"}, {"topics": []}, {"topics": [1]}, {"topics": ["t"], "start": 7}, {"topics": ["t"], "start": "x"},
        {"topics": ["t"], "session_s": "1"}, {"topics": ["t"], "session_s": True}, {"topics": ["t"], "session_s": 0},
        {"topics": ["t"], "skip_trimmed": 1}, {"topics": ["t"], "colour": 1}, {"topics": ["a/b/c"]},
    ],
)  # fmt: skip
async def test_a_strange_join(call: RestCaller, context: DoorContext, body: Any) -> None:
    """Refused before there is a member."""
    assert (await call("POST", CONSUMERS, body)).status == 400
    assert context.consumes.consumer_count == 0


async def test_strange_requests(call: RestCaller, context: DoorContext) -> None:
    """Methods, paths, parameters, bodies."""
    one = await joined(call)
    for method, target, status in (
        ("GET", CONSUMERS, 405), ("DELETE", CONSUMERS, 405), ("GET", f"{one}/dequeue", 405), ("PUT", f"{one}/commit", 405),
        ("POST", one, 405), ("POST", f"{CONSUMERS}?x=1", 400), ("POST", f"{one}/dequeue?limit=0", 400),
        ("POST", f"{one}/dequeue?wait_ms=60001", 400), ("POST", f"{one}/dequeue?commit=x", 400),
        ("POST", f"{one}/dequeue?commit=7", 409), ("POST", f"{one}/dequeue?nope=1", 400), ("POST", f"{one}/commit", 400),
        ("POST", f"{one}/commit?batch=0", 400), ("POST", f"{one}/commit?batch=1", 409), ("POST", f"{one}/else", 404),
        ("DELETE", f"{one}?x=1", 400), ("POST", f"{one}/dequeue/", 404), ("POST", "/v1/groups/a b/consumers", 400),
        ("POST", "/v1/groups/h/consumers/x/dequeue", 404), ("GET", "/v1/groups/g", 404),
    ):  # fmt: skip
        refused = await call(method, target, {"topics": ["t"]} if target.endswith("consumers") else None)
        assert (refused.status, bool(refused.body["code"])) == (status, True), (method, target)
    for raw in (b"{", b"[]", b"\xff", b"[" * 10_000):
        assert (await call("POST", CONSUMERS, raw=[raw], headers={})).status == 400
    assert (await call("POST", CONSUMERS, raw=[bytes(70_000)], headers={})).status == 413
    assert (await call("POST", CONSUMERS, {"topics": ["missing"]})).status == 404
    assert context.consumes.consumer_count == 1


async def test_who_asks(context: DoorContext) -> None:
    """The token, a web page, a right that is missing; a consumer is of no use to another principal."""
    open_app = Application(context, HttpSettings(listen="127.0.0.1:0"))
    guarded = RestCaller(Application(context._replace(token="secret"), HttpSettings(listen="127.0.0.1:0")))
    assert (await guarded("POST", CONSUMERS, {"topics": ["t"]})).status == 401
    call = RestCaller(open_app)
    page = {"origin": "http://evil.example", "content-type": "application/json"}
    assert (await call("POST", CONSUMERS, {"topics": ["t"]}, headers=page)).status == 403
    with mock.patch.object(Caller, "require_named", mock.AsyncMock(side_effect=RightMissing("no"))):
        assert (await call("POST", CONSUMERS, {"topics": ["t"]})).status == 403

    def by(name: str) -> RestCaller:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await open_app(scope | {"state": {PRINCIPAL: Principal(Role.CLIENT, name)}}, receive, send)

        return RestCaller(app)

    assert (await call("POST", RECORDS, raw=[b"x"], headers={})).status == 200
    one = await joined(by("ann"))
    first = await by("ann")("POST", f"{one}/dequeue?wait_ms=20000")
    assert first.body["batch"] == 1
    for other in (by("bob"), call):
        for method, path in (("POST", f"{one}/dequeue"), ("POST", f"{one}/commit?batch=1"), ("DELETE", one)):
            assert (await other(method, path)).status == 404
    assert (await by("ann")("POST", f"{one}/dequeue")).body == first.body


async def test_rights_are_asked_for_by_name(call: RestCaller) -> None:
    """To read the group, and each topic."""
    asked: list[tuple[Verb, str]] = []

    async def require(self: Caller, verbs: Verb, kind: int, name: str) -> None:
        asked.append((verbs, name))

    with mock.patch.object(Caller, "require_named", require):
        await joined(call)
    assert asked == [(Verb.READ, "g"), (Verb.READ, "default/t")]


async def test_a_shard_that_others_have_is_a_conflict(call: RestCaller) -> None:
    """At a commit; a dequeue goes on and names it."""
    one = await joined(call)
    with mock.patch.object(Consumes, "commit", mock.AsyncMock(side_effect=ShardLost("default/t/0"))):
        refused = await call("POST", f"{one}/commit?batch=1")
    assert (refused.status, refused.body["code"], refused.body["outcome_unknown"]) == (409, "SHARD_LOST", False)


async def test_a_dequeue_ends_with_its_client(context: DoorContext, client: Client) -> None:
    """And the next one gets the records."""
    application = Application(context, HttpSettings(listen="127.0.0.1:0"))
    call = RestCaller(application)
    one = await joined(call)
    gone = asyncio.Event()
    came = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in came:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "method": "POST", "path": f"{one}/dequeue", "query_string": b"wait_ms=60000", "headers": [],
    }  # fmt: skip
    asked = asyncio.ensure_future(application(scope, receive, mock.AsyncMock()))
    await until(lambda: any(each.waiting for each in context.consumes._consumers.values()), "it waits")
    gone.set()
    async with asyncio.timeout(10):
        await asked
    assert (await call("POST", RECORDS, raw=[b"x"], headers={})).status == 200
    assert len((await call("POST", f"{one}/dequeue?wait_ms=20000")).body["records"]) == 1
