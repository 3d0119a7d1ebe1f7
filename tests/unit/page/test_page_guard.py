"""What passes before the page is looked at: Host, method, token, limits; and the headers of every answer."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from rangelog_core.errors import HandshakeFailed, RoleForbids
from rangelog_page.failures import Failure
from rangelog_page.guard import SECURITY_HEADERS, PageGuard, is_own_host, shown_token
from rangelog_server_common.http_server import REFUSAL
from tests.support.rest_caller import RestCaller

HOST = {"host": "127.0.0.1:7250"}


async def inside(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"secret"})


def guarded(app: Any = inside, *, token: str | None = None, hosts: Any = (), **limits: Any) -> RestCaller:
    def refuse(failure: Failure) -> bytes:
        return f"{failure.code}: {failure.message}".encode()

    return RestCaller(PageGuard(app, refuse=refuse, token=token, hosts=hosts, **limits), **HOST)


@pytest.mark.parametrize(
    ("header", "own"),
    [
        ("localhost", True), ("localhost:7250", True), ("LOCALHOST.:7250", True), ("127.0.0.1:7250", True), ("10.1.2.3", True),
        ("[::1]:7250", True), ("[::1]", True), ("pd1.example.org", True), ("PD1.example.org.:80", True),
        ("evil.example", False), ("evil.example:7250", False), ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False), ("::1", False), ("[127.0.0.1]", False), ("127.0.0.1:x", False), ("127.0.0.1:7250:1", False),
        ("evil.example@127.0.0.1", False), ("127.1", False), ("2130706433", False), ("[::1", False), ("local\x00host", False),
        ("127.0.0.1:٧", False),
    ],
)  # fmt: skip
def test_names_of_this_server(header: str, own: bool) -> None:
    """Addresses, localhost and the configured names; whoever owns another name may have it point here."""
    assert is_own_host(header, {"pd1.example.org"}) is own


async def test_a_foreign_host_is_refused() -> None:
    """As a page of another site sends it, whose name was made to point to loopback; it learns nothing."""
    for headers in ({"host": "evil.example:7250"}, {"host": ""}):
        answer = await guarded()("GET", "/", headers=headers)
        assert answer.status == 421 and b"secret" not in answer.body and b"page_hosts" in answer.body
    assert (
        await guarded(hosts=None)("GET", "/", headers={"host": "any.name"})
    ).status == 200  # TLS has checked the name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
async def test_nothing_but_get(method: str) -> None:
    """The page changes nothing."""
    answer = await guarded()(method, "/")
    assert answer.status == 405 and answer.headers["allow"] == "GET"


async def test_every_answer_has_the_headers() -> None:
    """Also refusals: no scripts of others, no frames, no guessing of types, no cache."""
    for headers in (HOST, {"host": "evil"}):
        answer = await guarded()("GET", "/", headers=headers)
        for name, value in SECURITY_HEADERS:
            assert answer.headers[name.decode()] == value.decode()
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy


def basic(password: str, user: str = "") -> dict[str, str]:
    return HOST | {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def test_the_token() -> None:
    """As the password of any user, as browsers can, or as a bearer; otherwise a browser asks for it, and sees nothing."""
    caller = guarded(token="s3cret:é")
    for headers in (basic("s3cret:é"), basic("s3cret:é", "anna"), HOST | {"authorization": "bearer s3cret:é"}):
        raw = {
            key: value.encode().decode("latin-1") if key == "authorization" else value for key, value in headers.items()
        }
        assert shown_token(raw["authorization"].encode("latin-1")) == "s3cret:é", headers
    assert (await caller("GET", "/", headers=basic("s3cret:é"))).status == 200
    bad: list[Mapping[str, str]] = [
        HOST, basic("wrong"), basic(""), HOST | {"authorization": "Basic !"}, HOST | {"authorization": "Basic "},
        HOST | {"authorization": "Bearer wrong"}, HOST | {"authorization": "s3cret:e"},
    ]  # fmt: skip
    for headers in bad:
        answer = await caller("GET", "/", headers=headers)
        assert (
            answer.status == 401
            and answer.headers["www-authenticate"].startswith("Basic ")
            and b"secret" not in answer.body
        )


async def test_other_sites_cannot_embed_it() -> None:
    """A request that another site's page makes is refused; a link from there is a navigation, and works."""
    cross = HOST | {"sec-fetch-site": "cross-site"}
    assert (await guarded()("GET", "/", headers=cross | {"sec-fetch-mode": "no-cors"})).status == 403
    assert (await guarded()("GET", "/", headers=cross | {"sec-fetch-mode": "navigate"})).status == 200


@pytest.mark.parametrize("refused", [RoleForbids("pd:pd1 may not use the page"), HandshakeFailed("names nobody")])
async def test_a_certificate_that_is_not_for_it(refused: Exception) -> None:
    """The connection is refused with the reason, whatever is asked for."""
    caller = guarded()

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await caller.app(scope | {"state": {REFUSAL: refused}}, receive, send)

    answer = await RestCaller(with_state, **HOST)("GET", "/")
    assert answer.status == 403 and str(refused).encode() in answer.body


async def test_limits() -> None:
    """No more requests than the limit at once, and none for longer than its time; then there is room again."""
    gate = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        await inside(scope, receive, send)

    caller = guarded(waits, requests_max=1)
    first = asyncio.create_task(caller("GET", "/"))
    await asyncio.sleep(0)
    assert (await caller("GET", "/")).status == 503
    gate.set()
    assert (await first).status == 200 and (await caller("GET", "/")).status == 200
    gate.clear()
    slow = guarded(waits, request_timeout_s=0.01)
    assert (await slow("GET", "/")).status == 504


async def test_a_defect_is_not_shown() -> None:
    """What a defect says stays in the log."""

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("the password is 1234")

    answer = await guarded(breaks)("GET", "/")
    assert answer.status == 500 and b"1234" not in answer.body
