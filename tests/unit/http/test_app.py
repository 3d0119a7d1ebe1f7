"""The application over a cluster in memory: routes, forms, statuses, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rangelog import Client, ProducerAck
from rangelog.errors import AppendTimeout, Overloaded, RangelogError, RightMissing
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs import read as reading
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.send import BYTES_MAX, Sends
from rangelog_http import app
from rangelog_http.answers import status_of
from rangelog_http.app import Application, bare_app, route_of
from rangelog_http.settings import HttpSettings
from rangelog_http.wire.records_in import RECORDS_TYPE
from rangelog_server_common.http_app import description_of
from rangelog_server_common.quotas.guard import QuotaGuard
from tests.support.rest_caller import RestCaller
from tests.support.waiting import until

COMMITTED = Path(__file__).resolve().parents[3] / "docs" / "api" / "http.openapi.json"
RECORDS = "/v1/topics/default/t/records"
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def call(context: DoorContext) -> RestCaller:
    """The application."""
    return RestCaller(Application(context, HttpSettings(
        listen="127.0.0.1:0", keep_headers=["User-Agent"], key_pointers={"u": "/user/id"}
    )))  # fmt: skip


async def test_a_topics_life(call: RestCaller) -> None:
    """PUT makes it once, GET describes it, DELETE takes it away."""
    topic = "/v1/topics/default/news"
    made = await call("PUT", topic, {"shards": 2, "retention_seconds": 60, "tags": {"team": "ops"}})
    assert (made.status, made.body["shards"], made.body["retention_seconds"]) == (201, 2, 60)
    again = await call("PUT", topic)
    assert (again.status, again.body) == (200, made.body)
    assert (await call("GET", topic)).body == made.body
    assert (await call("DELETE", topic)).status == 409
    assert (await call("DELETE", f"{topic}?force=true")).status == 204
    for method, target, status in (
        ("GET", "/v1/topics/nospace/news", 404), ("PUT", "/v1/topics/nospace/news", 404),
        ("PUT", "/v1/topics/default/a b", 400),
        ("GET", "/v1/topics/default/..", 400), ("POST", topic, 405), ("GET", "/v1/nothing", 404), ("GET", "/", 404),
    ):  # fmt: skip
        refused = await call(method, target)
        assert (refused.status, bool(refused.body["code"])) == (status, True), target
    assert (await call("PUT", topic, {"shards": "many"})).status == 400
    assert (await call("PUT", topic, {"colour": 1})).status == 400


async def test_records_in_and_out(call: RestCaller, client: Client) -> None:
    """One, lines, a list; keys by header, query and pointer; headers that are kept; a position that goes on."""
    one = await call("POST", RECORDS, raw=[b"one"], headers={
        "x-rangelog-key": "k", "x-rangelog-timestamp-ms": "7", "x-rangelog-header-Trace": "t1",
        "user-agent": "curl", "x-other": "no",
    })  # fmt: skip
    assert (one.status, one.body) == (200, {"shard": 0, "offset": 0})
    lines = await call(
        "POST", f"{RECORDS}?key_pointer=/user/id", raw=[b'{"user": {"id": 7}}\n{"us', b'er": {}}\n'], headers=LINES
    )
    assert (lines.status, lines.body["failed"]) == (200, 0)
    assert lines.body["outcomes"] == [{"shard": 0, "offset": 1}, {"shard": 0, "offset": 2}]
    listed = json.dumps({"records": [{"value": "x", "key": "y"}, {"value": "z"}]}).encode()
    packed = {"content-type": RECORDS_TYPE, "content-encoding": "gzip"}
    assert (await call("POST", f"{RECORDS}?key=q", raw=[gzip.compress(listed)], headers=packed)).status == 200
    assert (await call("POST", f"{RECORDS}?ack=none", raw=[b"last"], headers={})).status == 202
    first = await call("GET", f"{RECORDS}?limit=3")
    records = first.body["records"]
    assert records[0] == {
        "shard": 0, "offset": 0, "timestamp_ms": 7, "value": "one", "key": "k",
        "headers": {"trace": "t1", "user-agent": "curl"},
    }  # fmt: skip
    assert [each.get("key") for each in records] == ["k", "7", None]
    rest = await call(
        "GET", f"{RECORDS}?wait_ms=1000&from={first.body['next']}", headers={"accept": "application/x-ndjson"}
    )
    assert [json.loads(line).get("key") for line in rest.body.splitlines()] == ["y", "q", None]
    assert (await call("GET", f"{RECORDS}?from={rest.headers['x-rangelog-next']}")).body["records"] == []


async def test_a_request_with_a_name_is_there_once(call: RestCaller) -> None:
    """The same answer again; other records are refused, as is what cannot be once."""
    named = {"idempotency-key": "n1"}
    one = await call("POST", f"{RECORDS}?key=k", raw=[b"one"], headers=named)
    assert (one.status, one.body) == (200, {"shard": 0, "offset": 0})
    assert (await call("POST", f"{RECORDS}?key=k", raw=[b"one"], headers=named)).body == one.body
    for target, body in ((f"{RECORDS}?key=k", b"two"), (f"{RECORDS}?key=q", b"one"), (RECORDS, b"one")):
        refused = await call("POST", target, raw=[body], headers=named)
        assert (refused.status, refused.body["code"], refused.body["outcome_unknown"]) == (
            409, "PRECONDITION_FAILED", False,
        )  # fmt: skip
    lines = [
        await call("POST", RECORDS, raw=[b"1\n2\n3"], headers={**LINES, "idempotency-key": "n2"}) for _ in range(2)
    ]
    assert lines[0].body == lines[1].body and lines[0].body["failed"] == 0
    assert (await call("POST", RECORDS, raw=[b"1\n2"], headers={**LINES, "idempotency-key": "n2"})).status == 409
    for query in ("ack=none", "shard=0"):
        assert (await call("POST", f"{RECORDS}?{query}", raw=[b"x"], headers=named)).status == 400
    for name in ("", "x" * 256):  # two names in one request: test_http_door
        assert (await call("POST", RECORDS, raw=[b"x"], headers={"idempotency-key": name})).status == 400
    assert [each["value"] for each in (await call("GET", RECORDS)).body["records"]] == ["one", "1", "2", "3"]


@pytest.mark.parametrize(
    "target",
    [
        "ack=all", "shard=x", "shard=-1", "limit=0", "nope=1", "key=a&key=b", "key_pointer=x",
        "&".join(f"a{i}=1" for i in range(40)),
    ],
)  # fmt: skip
async def test_a_strange_query_of_a_post(call: RestCaller, target: str) -> None:
    """Refused, and nothing is sent."""
    assert (await call("POST", f"{RECORDS}?{target}", raw=[b"x"], headers={})).status == 400
    assert (await call("GET", RECORDS)).body["records"] == []


@pytest.mark.parametrize(
    "target",
    ["from=x", "limit=0", "limit=10001", "limit=1e3", "wait_ms=60001", "wait_ms=", "nope=1", "limit=1&limit=2"],
)
async def test_a_strange_query_of_a_get(call: RestCaller, target: str) -> None:
    """With one sentence of what there is."""
    assert (await call("GET", f"{RECORDS}?{target}")).status == 400


async def test_every_byte_of_a_key_is_kept(call: RestCaller, client: Client) -> None:
    """Of UTF-8 or not; the SDK reads the same. Elsewhere in a query a text is UTF-8."""
    for key in ("%ff", "%fe", "%C3%A9", "a%00b", "a+b", ""):
        assert (await call("POST", f"{RECORDS}?key={key}", raw=[b"x"], headers={})).status == 200
    keys = [b"\xff", b"\xfe", "é".encode(), b"a\0b", b"a b", b""]
    assert [record.key async for record in client.topic_reader("t")] == keys
    assert [base64.b64decode(each["key_base64"]) for each in (await call("GET", RECORDS)).body["records"][:2]] == keys[
        :2
    ]
    for target in ("ack=%ff", "%ff=1", "key_pointer=%ff", "shard=%ff"):
        refused = await call("POST", f"{RECORDS}?{target}", raw=[b"{}"], headers={})
        assert refused.status == 400 and refused.body["message"].isprintable(), target
    assert (await call("GET", f"{RECORDS}?from=%ff")).status == 400
    odd = await call("POST", f"{RECORDS}?key_pointer=/%ff", raw=[b'{"a": 1}\n'], headers=LINES)
    assert odd.status == 200


async def test_bodies_that_are_refused(call: RestCaller) -> None:
    """By their length, unread; once decoded; in the middle of their lines. Nothing of them is in."""
    stated = {"content-length": str(BYTES_MAX + 1)}
    assert (await call("POST", RECORDS, raw=[b""], headers=stated)).status == 413
    assert (await call("POST", RECORDS, raw=[bytes(BYTES_MAX), b"x"], headers={})).status == 413
    bomb = gzip.compress(bytes(BYTES_MAX + 1))
    assert (await call("POST", RECORDS, raw=[bomb], headers={"content-encoding": "gzip"})).status == 413
    assert (await call("POST", RECORDS, raw=[b"x"], headers={"content-encoding": "gzip"})).status == 400
    broken = await call("POST", RECORDS, raw=[b"1\n{\n3\n"], headers=LINES)
    assert broken.status == 400 and "line 2" in broken.body["message"]
    assert (await call("POST", RECORDS, raw=[bytes(1024 * 1024 + 1)], headers={})).status == 413
    assert (await call("PATCH", RECORDS, raw=[b"x"], headers={})).status == 405
    assert (await call("GET", RECORDS)).body["records"] == []


async def test_each_record_of_a_batch_has_its_outcome(call: RestCaller, context: DoorContext) -> None:
    """Some are in: 207; none is: the status of the first error."""
    big = b'"' + b"x" * (1024 * 1024) + b'"'
    mixed = await call("POST", RECORDS, raw=[b"1\n" + big + b"\n2\n"], headers=LINES)
    assert (mixed.status, mixed.body["failed"]) == (207, 1)
    assert [each.get("error", {}).get("code") for each in mixed.body["outcomes"]] == [None, "RECORD_TOO_LARGE", None]
    none = await call("POST", RECORDS, raw=[big], headers=LINES)
    assert (none.status, none.body["failed"]) == (413, 1)
    unknown: list[ProducerAck | RangelogError] = [AppendTimeout("no ack", outcome_unknown=True)]
    with mock.patch.object(Sends, "send", mock.AsyncMock(return_value=unknown)):
        lost = await call("POST", RECORDS, raw=[b"x"], headers={})
    assert (lost.status, lost.body["outcome_unknown"]) == (504, True)
    with mock.patch.object(Sends, "send", mock.AsyncMock(return_value=[Overloaded("busy"), *unknown])):
        assert (await call("POST", RECORDS, raw=[b"1\n2\n"], headers=LINES)).status == 504


def test_every_error_has_a_status() -> None:
    """500 is for what no client can mend."""
    left, defects = [RangelogError], set()
    while left:
        kind = left.pop()
        left += [each for each in kind.__subclasses__() if each.__module__ == RangelogError.__module__]
        if kind is not RangelogError and status_of(kind("x")) == 500:
            defects.add(kind.__name__)
    assert defects == {
        "AppendConflict", "Corruption", "EncryptionKeyMissing", "InternalError", "MissingExtra", "OutOfOrder",
        "ProtocolViolation", "WrongServer",
    }  # fmt: skip


async def test_who_asks(context: DoorContext) -> None:
    """The cluster's token, a page of the web, a right that is missing."""
    settings = HttpSettings(listen="127.0.0.1:0")
    call = RestCaller(Application(context._replace(token="secret"), settings))
    assert (await call("POST", RECORDS, raw=[b"x"], headers={})).status == 401
    assert (await call("GET", RECORDS, headers={"authorization": "Bearer wrong"})).status == 401
    assert (await call("GET", f"{RECORDS}?token=secret", headers={})).status == 401
    good = {"authorization": "Bearer secret"}
    assert (await call("GET", RECORDS, headers=good)).status == 200
    assert (await call("POST", RECORDS, raw=[b"x"], headers=good | {"origin": "http://evil.example"})).status == 403
    with mock.patch.object(Caller, "require_named", mock.AsyncMock(side_effect=RightMissing("no"))):
        for method in ("GET", "POST"):
            assert (await call(method, RECORDS, raw=[b"x"], headers=good)).status == 403
    assert len((await call("GET", RECORDS, headers=good)).body["records"]) == 0


async def test_a_client_over_its_quota_waits_or_is_refused(call: RestCaller, context: DoorContext) -> None:
    """Calls count before anything is done; the answer says when it may be possible."""
    held = mock.AsyncMock(side_effect=Overloaded("over its quota"))
    with mock.patch.object(QuotaGuard, "hold", held):
        refused = await call("POST", RECORDS, raw=[b"x"], headers={})
    assert (refused.status, refused.body["code"], refused.headers["retry-after"]) == (429, "OVERLOADED", "1")
    assert (await call("GET", RECORDS)).body["records"] == []


async def test_a_configured_pointer(call: RestCaller, client: Client) -> None:
    """It names the keys of a topic where requests do not; a body without JSON has none."""
    await client.topics.create("u")
    records = "/v1/topics/default/u/records"
    assert (await call("POST", records, raw=[b'{"user": {"id": "x"}}'], headers={})).status == 200
    assert (await call("POST", records, raw=[b"plain"], headers={})).status == 400
    assert (await call("POST", records, raw=[b"plain"], headers={"x-rangelog-key": "y"})).status == 200
    assert [each["key"] for each in (await call("GET", records)).body["records"]] == ["x", "y"]


async def test_a_client_that_goes_away_costs_nothing(call: RestCaller, context: DoorContext) -> None:
    """Its long poll ends, and the others are answered."""
    waiting = asyncio.ensure_future(call("GET", f"{RECORDS}?wait_ms=30000"))
    await until(lambda: context.reads.waiting_count == 1, "the poll waits")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await call("POST", RECORDS, raw=[b"x"], headers={})).status == 200


async def test_a_read_ends_with_its_client(context: DoorContext) -> None:
    """As the server says that it has gone: it keeps no place among those that wait."""
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "method": "GET", "path": RECORDS, "query_string": b"wait_ms=60000", "headers": [],
    }  # fmt: skip
    application = Application(context, HttpSettings(listen="127.0.0.1:0"))
    asked = asyncio.ensure_future(application(scope, receive, mock.AsyncMock()))
    await until(lambda: context.reads.waiting_count == 1, "the poll waits")
    gone.set()
    async with asyncio.timeout(10):
        await asked
    assert context.reads.waiting_count == 0


async def test_large_bodies_do_not_hold_up_the_loop(call: RestCaller) -> None:
    """They are decoded, parsed and encoded on a thread, one at a time; what is small is not."""
    running: list[str] = []

    async def noted(work: Any) -> Any:
        assert not running, "one at a time"
        running.append("")
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            running.pop()

    large = b'"' + b"x" * 40_000 + b'"\n'
    packed = LINES | {"content-encoding": "gzip"}
    with mock.patch("asyncio.to_thread", side_effect=noted) as aside:
        assert (await call("POST", RECORDS, raw=[b"1\n"], headers=LINES)).status == 200
        assert (await call("GET", RECORDS)).status == 200 and not aside.called
        sent = await asyncio.gather(
            *(call("POST", RECORDS, raw=[gzip.compress(large)], headers=packed) for _ in range(3))
        )
        assert [each.status for each in sent] == [200] * 3
        bomb = await call("POST", RECORDS, raw=[gzip.compress(bytes(1 << 24))], headers=packed)
        assert (bomb.status, aside.call_count) == (413, 4)
        read = await call("GET", RECORDS)
        assert [len(each["value"]) for each in read.body["records"]] == [1] + [40_002] * 3
        lines = await call("GET", RECORDS, headers={"accept": "application/x-ndjson"})
        assert len(lines.body.splitlines()) == 4 and aside.call_count == 6


async def test_all_bodies_together_are_bounded(context: DoorContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what they become; the one that is received for longest goes, or else the last one."""
    monkeypatch.setattr(app, "BODIES_BYTES_MAX", 1_000)
    application = Application(context, HttpSettings(listen="127.0.0.1:0"))
    call = RestCaller(application)
    for raw, more in (
        (bytes(1_001), {}),
        (gzip.compress(bytes(990)), {"content-encoding": "gzip"}),
        (b"1\n" * 300, LINES),
    ):
        refused = await call("POST", RECORDS, raw=[raw], headers=more)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    ended = asyncio.Event()
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        if ended.is_set():
            await asyncio.Event().wait()
        ended.set()
        return {"type": "http.request", "body": bytes(900), "more_body": True}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": RECORDS, "query_string": b"", "headers": []}
    slow = asyncio.ensure_future(application(scope, receive, send))
    await ended.wait()
    assert (await call("POST", RECORDS, raw=[b"x" * 200], headers={})).status == 200
    await slow
    assert answers[0]["status"] == 408
    assert (await call("POST", RECORDS, raw=[b"y" * 1_000], headers={})).status == 200
    assert [len(each["value"]) for each in (await call("GET", RECORDS)).body["records"]] == [200, 1_000]


async def test_all_answers_together_are_bounded(
    context: DoorContext, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they are written: a client that does not read keeps its share."""
    monkeypatch.setattr(app, "ANSWERS_BYTES_MAX", 1_000)
    monkeypatch.setattr(app, "PART_BYTES", 100)
    async with client.producer("t") as producer:
        await producer.send(bytes(80))
    application = Application(context, HttpSettings(listen="127.0.0.1:0"))
    call = RestCaller(application)
    reads = asyncio.Event()
    parts: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        parts.append(message)
        await reads.wait()

    scope = {"type": "http", "method": "GET", "path": RECORDS, "query_string": b"", "headers": []}
    unread = asyncio.ensure_future(application(scope, receive, send))
    await until(lambda: bool(parts), "it is written")
    assert (await call("GET", RECORDS)).status == 429
    sent = await call("POST", f"{RECORDS}?key=k", raw=[b"1\n" * 60], headers=LINES)
    assert (sent.status, sent.body["failed"]) == (200, 0)
    reads.set()
    await unread
    found = json.loads(b"".join(each["body"] for each in parts[1:]))
    assert len(parts) > 5 and found == (await call("GET", f"{RECORDS}?limit=1")).body


def test_paths() -> None:
    """Records of a topic, and nothing that only looks so."""
    assert route_of("/v1/topics/a/b/records") == ("a/b", "records")
    assert route_of("/v1/topics/a/b/tail") == ("a/b", "tail")
    for other in (
        "/v1/topics/a/records",
        "/v1/topics/a/b/records/",
        "/v2/topics/a/b/records",
        "v1/topics/a/b/records",
        "/v1/topics/a/b/c/records",
    ):
        assert route_of(other) == ("", "")


def test_the_description_is_in_step() -> None:
    """Each operation has a summary and its errors."""
    made = description_of(bare_app())
    assert made == COMMITTED.read_bytes(), "run `python tools/write_openapi.py`"
    paths = json.loads(made)["paths"]
    operations = [each for path in paths.values() for each in path.values()]
    for path, methods in paths.items():
        for each in methods.values():
            named = {one["name"] for one in each.get("parameters", ()) if one["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path)), path
    assert len(operations) == 10 + 2 * 13 and all(each["summary"] and "401" in each["responses"] for each in operations)


async def test_what_a_reader_wants(call: RestCaller, client: Client) -> None:
    """By key, header and time, in the query; the position is behind what was left out, and an early end is said."""
    async with client.producer("t") as producer:
        for number in range(6):
            headers = {"source": b"web" if number % 2 else b"app"}
            await producer.send(
                b"%d" % number, key=b"\xff" if number < 4 else b"k", headers=headers, timestamp=1_000 + number
            )

    async def read(query: str, **headers: str) -> Any:
        return await call("GET", f"{RECORDS}?{query}", headers=headers)

    assert [each["value"] for each in (await read("key=%ff")).body["records"]] == ["0", "1", "2", "3"]
    assert [each["value"] for each in (await read("key=k&header.source=web")).body["records"]] == ["5"]
    late = await read("until=1970-01-01T00:00:01.002Z")
    assert [each["value"] for each in late.body["records"]] == ["0", "1"] and "more" not in late.body
    assert (await read(f"from={late.body['next']}")).body["records"] == []
    with mock.patch.object(reading, "SCAN_RECORDS_MAX", 2):
        first = await read("key=k")
        assert first.body["records"] == [] and first.body["more"] is True
        assert (await read(f"key=k&from={first.body['next']}")).headers["x-rangelog-more"] == "true"
        lines = await read("key=k", accept="application/x-ndjson")
        assert (lines.body, lines.headers["x-rangelog-more"]) == (b"", "true")
    for bad in ("until=x", "header=1", "headers.a=1", "until=2026-01-01", "key=a&key=b"):
        assert (await read(bad)).status == 400
