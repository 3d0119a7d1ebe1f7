"""Requests that are refused, each with a typed error in JSON: form, size, token, time, number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog.errors import Unavailable
from rangelog_broker.rest.app import make_app
from rangelog_core import errors
from rangelog_server_common.http_answers import status_of
from tests.support.rest_caller import JSON, RestCaller

pytestmark = pytest.mark.virtual


class FakeClient:
    """Its only call waits, or fails, as a test wants."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def describe_stream(self, name: str, **_: Any) -> Any:
        self.entered.set()
        await self.go.wait()
        raise self.error or Unavailable("no placement driver")

    async def create_stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is to be created")


def caller(client: Any = None, *, token: str | None = None, **limits: Any) -> RestCaller:
    """The application with limits of a test's own."""
    return RestCaller(make_app(client or FakeClient(), token=token, **limits))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"x"',
        b"1" * 5_000,
        b"[" * 100_000,
        b'{"name": 5}',
        b'{"name": "s", "name": ["x"]}',
        b'{"name": "s", "bogus": 1}',
        b'{"name": "s", "config": {"replicas": "3"}}',
        b'{"name": "s", "config": {"replicas": NaN}}',
        b'{"name": "s", "config": {"retention_seconds": Infinity}}',
        b'{"name": "s", "config": {"retention_seconds": -1}}',
        b'{"name": "s", "config": {"compression": "lz4"}}',
        b'{"name": "s", "config": {"replicas": 99999999999999999999999}}',
        b'{"name": "s", "config": {"replicas": 4294967296}}',
        b'{"name": "s", "two\\nlines": 1}',
        b'{"name": "s", "' + b"long" * 1_000 + b'": 1}',
    ],
)
async def test_garbage_in_a_body(raw: bytes) -> None:
    """Nothing is done, and the message is one line."""
    refused = await caller()("POST", "/v1/streams", raw=[raw], headers=JSON)
    assert (refused.status, refused.body["code"]) == (400, "INVALID_ARGUMENT")
    assert refused.body["message"] and "\n" not in refused.body["message"]
    assert len(refused.body["message"]) < 500, "a caller's text is not sent back at any length"


async def test_a_body_of_another_type() -> None:
    """Also JSON, sent as a form or as plain text, as a web page could."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        refused = await caller()("POST", "/v1/streams", raw=[b'{"name": "s"}'], headers={"content-type": kind})
        assert refused.status == 400


async def test_an_oversize_body() -> None:
    """Refused by its stated length, or at the limit; the rest is read and not kept, so that the client finds its answer."""
    call = caller(body_bytes_max=100)
    stated = await call("POST", "/v1/streams", raw=[b""], headers=JSON | {"content-length": "101"})
    assert (stated.status, stated.body["code"]) == (413, "INVALID_ARGUMENT")
    sent = await call("POST", "/v1/streams", raw=[b"[" * 60, b"[" * 60, b"]"], headers=JSON)
    assert sent.status == 413
    endless = await call("POST", "/v1/streams", raw=[b""], headers=JSON | {"content-length": "9" * 30})
    assert endless.status == 413


async def test_a_body_that_does_not_arrive() -> None:
    """The request ends after its time, and says so."""
    app = make_app(FakeClient(), token=None, body_timeout_s=0.01)  # type: ignore[arg-type]
    came: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        came.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/streams", "headers": [(b"content-length", b"5")]}
    await app(scope, receive, send)
    assert came[0]["status"] == 408


def _held_back(call: RestCaller) -> tuple[asyncio.Task[None], list[Any]]:
    """A request whose body does not come, and what it is answered."""
    came: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        came.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/streams", "headers": [(b"content-length", b"5")]}
    return asyncio.create_task(call.app(scope, receive, send)), came


async def test_bodies_that_are_held_back_close_nothing_to_others() -> None:
    """They are no requests that run; where there are too many, the one that has waited longest goes."""
    call = caller(requests_max=2, bodies_max=2, body_timeout_s=10.0)
    held = [_held_back(call) for _ in range(2)]
    await asyncio.sleep(0)
    began_s = asyncio.get_running_loop().time()
    assert (await call("GET", "/v1/streams/s")).body["code"] == "UNAVAILABLE", "it was let in"
    assert (await call("POST", "/v1/streams", raw=[b"{", b"}"], headers=JSON)).status == 400, "its body was read"
    await held[0][0]
    assert (held[0][1][0]["status"], asyncio.get_running_loop().time()) == (408, began_s)
    assert not held[1][0].done()
    await held[1][0]
    assert (held[1][1][0]["status"], asyncio.get_running_loop().time()) == (408, began_s + 10.0)
    assert not call.app._bodies._limits


@pytest.mark.parametrize("name", ["_topic-1-shard-0", "a%20b", "a%00b", "n" * 300, "%C3%A9"])
async def test_names_against_the_rules(name: str) -> None:
    """The client's own check, for every kind of name."""
    from tests.support.owner_cluster import owner_cluster

    async with owner_cluster() as cluster:
        call = caller(cluster.client())
        for path in ("streams/{}", "namespaces/{}/topics/t", "namespaces/n/topics/{}/shards", "namespaces/n/tables/{}"):
            refused = await call("GET", "/v1/" + path.format(name))
            assert (refused.status, refused.body["code"]) == (400, "INVALID_ARGUMENT"), path
        created = await call("POST", "/v1/namespaces", {"name": "a/b"})
        assert (created.status, created.body["code"]) == (400, "INVALID_ARGUMENT")


async def test_a_name_of_any_length_is_not_sent_back() -> None:
    """A message that shows a part of the request is cut, and stays one line."""
    for name in ("n" * 100_000, "a\nb", "a\u2028b"):
        refused = await caller()("POST", "/v1/streams", {"name": name, "config": {"compression": name}})
        assert refused.status == 400
        assert len(refused.body["message"]) < 500 and refused.body["message"].isprintable()


async def test_half_a_character() -> None:
    """JSON can escape it; no message to the placement driver can hold it."""
    from tests.support.owner_cluster import owner_cluster

    async with owner_cluster() as cluster:
        call = caller(cluster.client())
        assert (await call("POST", "/v1/namespaces/default/topics", {"name": "t"})).status == 201
        for path in ("/v1/namespaces/default/topics", "/v1/namespaces/default/tables", "/v1/streams"):
            body = b'{"name": "\\ud800"}'
            assert (await call("POST", path, raw=[body], headers=JSON)).status == 400
        for change in (b'{"set_tags": {"a": "\\ud800"}}', b'{"remove_tags": ["\\ud800"]}'):
            refused = await call("PATCH", "/v1/namespaces/default/topics/t", raw=[change], headers=JSON)
            assert (refused.status, refused.body["code"]) == (400, "INVALID_ARGUMENT")


async def test_unknown_paths_and_methods() -> None:
    """404 and 405 have the same form as all errors."""
    call = caller()
    for path in ("/", "/v1", "/v2/streams", "/v1/streams/", "/docs", "/v1/streams/a/b/c"):
        assert (await call("GET", path)).status == 404, path
    wrong = await call("PUT", "/v1/streams")
    assert (wrong.status, wrong.body["code"], "allow" in wrong.headers) == (405, "INVALID_ARGUMENT", True)


async def test_the_token() -> None:
    """Missing and wrong ones are refused; the description needs none."""
    client = FakeClient()
    call = caller(client, token="secret")
    for headers in ({}, {"authorization": "Bearer secre"}, {"authorization": "secret"}, {"authorization": "Bearer é"}):
        refused = await call("GET", "/v1/streams/s", headers=headers)
        assert (refused.status, refused.body["code"]) == (401, "UNAUTHORIZED")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert not client.entered.is_set()
    assert (await call("GET", "/v1/streams/s", headers={"authorization": "Bearer secret"})).status == 503
    assert (await call("GET", "/openapi.json")).status == 200


async def test_web_pages_are_refused() -> None:
    """A browser names the origin of the page that sends a request."""
    refused = await caller()("POST", "/v1/namespaces/a/topics/t/seal", headers={"origin": "http://127.0.0.1:7192"})
    assert (refused.status, refused.body["code"]) == (403, "UNAUTHORIZED")


async def test_no_more_requests_than_the_limit_and_none_too_long() -> None:
    """Beyond the limit a caller is sent away; who takes too long gets an answer, and room is made."""
    client = FakeClient()
    client.go.clear()
    call = caller(client, requests_max=1)
    first = asyncio.create_task(call("GET", "/v1/streams/s"))
    await client.entered.wait()
    refused = await call("GET", "/v1/streams/s")
    assert (refused.status, refused.body["code"], refused.body["retriable"]) == (503, "OVERLOADED", True)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    call = caller(client, requests_max=1, request_timeout_s=0.01)
    late = await call("GET", "/v1/streams/s")
    assert (late.status, late.body["code"], late.body["outcome_unknown"]) == (504, "REQUEST_TIMEOUT", True)
    again = await call("GET", "/v1/streams/s")
    assert again.body["code"] == "REQUEST_TIMEOUT", "the former one has made room"


async def test_a_defect_is_an_error_without_details(caplog: pytest.LogCaptureFixture) -> None:
    """The text of the exception is in the log only."""
    client = FakeClient()
    client.error = ZeroDivisionError("secret text")
    failed = await caller(client)("GET", "/v1/streams/s")
    assert (failed.status, failed.body["code"]) == (500, "INTERNAL")
    assert "secret" not in failed.body["message"] and "secret text" in caplog.text


def test_every_error_has_a_status() -> None:
    """Only defects of the cluster, and what no request here can cause, are 500."""
    kinds = errors._BY_CODE.values()
    inner = {kind.code for kind in kinds if status_of(kind("x")) == 500}
    assert inner == {
        "INTERNAL",
        "CORRUPTION",
        "ENCRYPTION_KEY_MISSING",
        "MISSING_EXTRA",
        "PROTOCOL_VIOLATION",
        "OUT_OF_ORDER",
        "APPEND_CONFLICT",
        "WRONG_SERVER",
        "SESSION_EXPIRED",
        "WRITER_CLOSED",
    }
