"""Tokens at the door: expired, revoked, of another topic, in an address. By requests, by tails, and by WebSockets."""

from __future__ import annotations

import base64
import socket
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from rangelog import Client
from rangelog_broker.door import DoorContext
from rangelog_core.net.principals import Port
from rangelog_core.rights import EVERY_CLIENT, Verb, wire_verbs
from rangelog_core.tokens import CLOCK_SKEW_S
from rangelog_http.app import application
from rangelog_http.handlers import tails
from rangelog_http.server import BoundedHead
from rangelog_http.settings import HttpSettings
from rangelog_proto.v1 import rights_pb2
from rangelog_server_common.http_server import NEEDS_TOKEN, HttpServer
from rangelog_server_common.rights.grants import Grant
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.verifier import TokenTrust
from tests.support.rest_caller import RestCaller
from tests.support.socket_client import SocketClient
from tests.support.waiting import until
from tests.unit.server_common.test_token_verifier import TOPIC, Verifying

TAIL, RECORDS = "/v1/topics/default/t/tail", "/v1/topics/default/t/records"


@pytest.fixture
def at() -> Verifying:
    """The tokens of a cluster."""
    return Verifying()


@pytest.fixture
async def served(context: DoorContext, at: Verifying) -> AsyncIterator[tuple[HttpServer, RestCaller]]:
    """The door, which wants a token of everybody, as with TLS: over a socket and in process."""
    app = application(context._replace(verifier=at.verifier), HttpSettings(listen="127.0.0.1:0"))

    async def needing(scope, receive, send):  # type: ignore[no-untyped-def]
        scope["state"] = {NEEDS_TOKEN: True}
        await app(scope, receive, send)

    server = HttpServer(needing, port=Port.BROKER_HTTP, protocol=BoundedHead, grace_s=0.1)
    bound = socket.create_server(("127.0.0.1", 0))
    server.address = bound.getsockname()  # type: ignore[attr-defined]
    await server.start(bound)
    yield server, RestCaller(needing)
    await server.close()


async def statuses(served: tuple[HttpServer, RestCaller], token: str, query: str = "") -> list[int]:
    """Return those of a send, a read, a tail that is refused or begins, and a WebSocket by its header and its subprotocol."""
    server, call = served
    good = {"authorization": f"Bearer {token}"} if token else {}
    sent = await call("POST", RECORDS + query, raw=[b"x"], headers=good)
    read = await call("GET", RECORDS + query, headers=good)
    sockets = [
        await SocketClient.open(server.address, TAIL + query, **each)  # type: ignore[attr-defined]
        for each in ({"Authorization": f"Bearer {token}"} if token else {}, protocols(token))
    ]
    for each in sockets:
        await each.close()
    return [sent.status, read.status, *(each.status for each in sockets)]


def protocols(token: str) -> dict[str, str]:
    """Return the headers of a page that has a token."""
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return {"Sec_WebSocket_Protocol": f"rangelog.v1, rangelog.bearer.{encoded}"}


async def test_tokens_by_their_time(served: tuple[HttpServer, RestCaller], at: Verifying) -> None:
    """Good ones, none, expired ones, and one in an address, where logs and histories keep it."""
    token = at.text(lifetime_s=60)
    assert await statuses(served, token) == [200, 200, 101, 101]
    assert await statuses(served, "") == [401] * 4
    assert await statuses(served, "", f"?token={token}") == [401] * 4
    assert await statuses(served, token, f"?token={token}") == [400] * 4
    at.now_s += 60 + CLOCK_SKEW_S
    assert await statuses(served, token) == [401] * 4


@pytest.mark.parametrize("how", ["expired", "revoked"])
async def test_a_token_that_ends_ends_what_follows(
    served: tuple[HttpServer, RestCaller],
    at: Verifying,
    context: DoorContext,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """A connection outlives no token, whichever way it was shown."""
    monkeypatch.setattr(tails, "BEAT_S", 0.01)
    server, _ = served
    token = at.text(lifetime_s=60)
    sockets = [
        await SocketClient.open(server.address, TAIL, **each)  # type: ignore[attr-defined]
        for each in ({"Authorization": f"Bearer {token}"}, protocols(token))
    ]
    await until(lambda: all(each.pings > 1 for each in sockets), "they are served")
    if how == "expired":
        at.now_s += 60 + CLOCK_SKEW_S
    else:
        at.trust = TokenTrust(at.trust.cluster_id, 2, at.trust.keys, frozenset({"0123456789abcdef"}))
    for each in sockets:
        await each.reading
        assert (each.code, each.messages[-1]["error"]["code"]) == (1008, "UNAUTHORIZED")
    await until(lambda: context.reads.follow_count == 0, "no reader is left")


async def test_a_token_of_another_topic(
    served: tuple[HttpServer, RestCaller], at: Verifying, client: Client, context: DoorContext
) -> None:
    """Its client may do everything, and the token reads one topic."""
    await client.topics.create("other")
    rule = rights_pb2.AccessRule(
        principal=EVERY_CLIENT, kind=TOPIC, name="default/other", verbs=wire_verbs(Verb.READ)  # type: ignore[arg-type]
    )  # fmt: skip
    token = at.text(only=[rule])
    everything = Verb.READ | Verb.APPEND
    with mock.patch.object(RightsGuard, "find", lambda _self, key: Grant(everything, key[1], key[2])):
        context.rights.heard(1)
        assert await statuses(served, token) == [403] * 4
        good = {"authorization": f"Bearer {token}"}
        assert (await served[1]("GET", "/v1/topics/default/other/records", headers=good)).status == 200
        assert (await served[1]("POST", "/v1/topics/default/other/records", raw=[b"x"], headers=good)).status == 403
