"""The application: records as bare ASGI, at the lowest cost per request, and everything else by FastAPI.

What holds: who asks is known before a body is read; a body is bounded before it is kept, and so are all bodies and all unread
answers together. A read whose client is gone ends. Rights and quotas are the verbs'.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Body, FastAPI, Header, Query
from pydantic import BaseModel, Field

from rangelog.errors import InvalidArgument, Overloaded, RangelogError
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs import send
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.read import TOPIC
from rangelog_core.limits import MIB
from rangelog_core.net.acting import acting_for
from rangelog_core.net.principals import Port, Principal
from rangelog_core.quotas import Measure
from rangelog_core.rights import Verb
from rangelog_core.tracing import served
from rangelog_http.answers import RETRY_AFTER_S, status_of
from rangelog_http.cycle import HALF_CLOSED
from rangelog_http.handlers import described, described_streams, topics
from rangelog_http.handlers.aside import Aside
from rangelog_http.handlers.asked import Asked, Route
from rangelog_http.handlers.cdap import CdapRoutes
from rangelog_http.handlers.cdap_dequeue import CdapDequeues
from rangelog_http.handlers.cdap_events import CdapEvents
from rangelog_http.handlers.consumers import ConsumerRoutes
from rangelog_http.handlers.records import NAME_HEADER, RecordHandlers, RecordsAnswer, query_of
from rangelog_http.handlers.sockets import SocketTails
from rangelog_http.handlers.tails import Tails
from rangelog_http.origins import PageOrigins
from rangelog_http.settings import HttpSettings
from rangelog_http.upgrades import UPGRADE, VERSION, Upgrade, check_handshake
from rangelog_http.wire.subprotocols import take_token
from rangelog_server_common.http_answers import error_response, possible
from rangelog_server_common.http_app import json_app
from rangelog_server_common.http_callers import PATH_LENGTH_MAX, CallerGuard
from rangelog_server_common.http_guard import (
    BODY_NOW,
    App,
    Bodies,
    KeptBytes,
    KeptShare,
    Message,
    Receive,
    Refusal,
    Send,
)
from rangelog_server_common.quotas.guard import QuotaGuard, client_of
from rangelog_server_common.tokens.bounds import bounds_of

REQUESTS_MAX = 4_000
"""That run at once: the most connections, each with one."""
BODIES_MAX = 1_000
BODY_TIMEOUT_S = 30.0
BODIES_BYTES_MAX = 256 * MIB
"""Of all requests that are received or run, with what they become once decoded."""
ANSWERS_BYTES_MAX = 256 * MIB
"""Of all answers that are not written yet."""
ANSWER_TIMEOUT_S = 120.0
PART_BYTES = 64 * 1024
"""Of an answer at a time: what follows waits here until the client has read."""
_ABOUT = (
    "Records in and out of topics with any HTTP client: any broker serves it. Where the cluster has a token, send it as "
    "`Authorization: Bearer TOKEN`."
)


class SendAnswer(BaseModel):
    """Where a record is."""

    shard: int = Field(examples=[0])
    offset: int = Field(examples=[250])


class ReadAnswer(BaseModel):
    """Records, and where the next read goes on."""

    records: list[dict[str, Any]] = Field(
        description="shard, offset, timestamp_ms, value; key and headers where there are any. Bytes that are no UTF-8 are "
        "base64 in value_base64, key_base64, headers_base64.",
        examples=[[{"shard": 0, "offset": 250, "timestamp_ms": 1790000000000, "value": "first", "key": "UA"}]],
    )
    next: str = Field(description="`from` of the next read.", examples=["eyJjdXQiOjF9"])
    more: bool = Field(
        default=False, description="Whether so many records were left out that the answer ends early.", examples=[False]
    )


_Key = Annotated[str | None, Query(description="Records of this key alone.")]
_Until = Annotated[str | None, Query(description="Records before this time alone: a time with a zone.")]
_described = APIRouter(prefix="/v1/topics/{namespace}/{name}/records", tags=["records"])
"""Descriptions alone: `Application` answers these paths itself."""


@_described.post(
    "",
    summary="Send records",
    responses=possible(404, 409, 413)
    | {202: {"description": "With ack=none: sent, and not acked."}, 207: {"description": "Some of a batch are in."}},
)
async def send_records(
    namespace: topics.Namespace,
    name: topics.Name,
    body: Annotated[
        bytes,
        Body(
            media_type="application/octet-stream",
            description="One record; with application/x-ndjson a record per line; with "
            "application/vnd.rangelog.records+json a list of them. Content-Encoding: gzip, deflate or zstd.",
            examples=["first"],
        ),
    ],
    key: Annotated[str, Query(description="Key of all records.")] = "",
    key_pointer: Annotated[str, Query(description="JSON pointer to the key in each value.")] = "",
    idempotency_key: Annotated[
        str,
        Header(
            description="A name of this request, up to 255 bytes: sent again within ten minutes, it has the first one's "
            "answer. 409: the name was given to another body."
        ),
    ] = "",
    ack: Annotated[
        str, Query(description="durable: answered once two servers have flushed; none: at once, may be lost.")
    ] = "durable",
    shard: Annotated[int | None, Query(description="The shard, whatever the key.")] = None,
    x_rangelog_key: Annotated[str, Header(description="Key of all records, where the query has none.")] = "",
    x_rangelog_timestamp_ms: Annotated[int | None, Header(description="Time of the event.")] = None,
) -> SendAnswer:
    """Send records. The answer to a batch lists each record's place or error, in order, and how many failed."""
    _not_called()


@_described.get("", summary="Read records", responses=possible(404, 409))
async def read_records(
    namespace: topics.Namespace,
    name: topics.Name,
    from_: Annotated[
        str, Query(alias="from", description="earliest, latest, a time with a zone, or `next`.")
    ] = "earliest",
    limit: Annotated[int, Query(description="Records at most.")] = 1_000,
    wait_ms: Annotated[int, Query(description="How long to wait for the first one.")] = 0,
    key: _Key = None,
    until: _Until = None,
) -> ReadAnswer:
    """Return records up to the end that is acked now, as JSON, or with Accept: application/x-ndjson as lines.

    A parameter `header.NAME` names a header's value: records without it are left out.
    """
    _not_called()


_tail = APIRouter(prefix="/v1/topics/{namespace}/{name}/tail", tags=["records"])


@_tail.get(
    "",
    summary="Follow a topic",
    responses=possible(404, 409) | {101: {"description": "The connection is a WebSocket."}},
)
async def follow_topic(
    namespace: topics.Namespace,
    name: topics.Name,
    from_: Annotated[
        str, Query(alias="from", description="earliest, latest, a time with a zone, or `next`.")
    ] = "latest",
    last_event_id: Annotated[str, Header(description="The id of the last event, in place of `from`.")] = "",
    key: _Key = None,
    until: _Until = None,
) -> str:
    """Send records as they come, as server-sent events: `data` is a record, `id` the position behind it.

    With an upgrade to a WebSocket: as messages with `record` and `next`, as many as the client gives `credits` for.
    A parameter `header.NAME` names a header's value: records without it are left out.
    """
    _not_called()


def _not_called() -> NoReturn:
    raise AssertionError("the application answers this path before FastAPI")


def bare_app() -> FastAPI:
    """Return the part that FastAPI answers, and the description of everything."""
    return json_app(
        (topics.router, _described, _tail, described.router, *described_streams.ROUTERS), title="rangelog", about=_ABOUT
    )


class Application(CallerGuard):
    """See the module. The ASGI application of the door."""

    def __init__(self, context: DoorContext, settings: HttpSettings) -> None:
        app = bare_app()
        app.state.client = context.client
        super().__init__(
            app, name="HTTP", port=Port.BROKER_HTTP, token=context.token, requests_max=REQUESTS_MAX,
            bodies=Bodies(bytes_max=1024 * 1024, timeout_s=BODY_TIMEOUT_S, count_max=BODIES_MAX),
            verifier=context.verifier, quotas=context.quotas, origins=settings.allow_origins,
        )  # fmt: skip
        self._batches = Bodies(bytes_max=send.BYTES_MAX, timeout_s=BODY_TIMEOUT_S, count_max=BODIES_MAX)
        self._bodies_kept, self._answers_kept = KeptBytes(BODIES_BYTES_MAX), KeptBytes(ANSWERS_BYTES_MAX)
        aside = Aside()
        self._records = RecordHandlers(context.sends, context.reads, settings, aside)
        dequeues = CdapDequeues(context.client, context.consumes)
        streams = CdapRoutes(context.client, context.sends, dequeues, CdapEvents(context.client, context.reads, aside))
        self._further = (ConsumerRoutes(context.consumes, aside), streams)
        self._tails, self._sockets = Tails(context.reads), SocketTails(context.reads)
        self._callers = context.rights

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        topic, kind = route_of(scope["path"])
        if kind == "tail" and scope["method"] == "GET":
            await (self._socket if UPGRADE in scope else self._tail)(topic, scope, receive, send)
            return
        if kind != "records":
            route = next((found for each in self._further if (found := each.find(scope["path"])) is not None), None)
            await (
                super()._pass_on(scope, receive, send) if route is None else self._serve(route, scope, receive, send)
            )
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        known = dict(headers)
        self._check_connection(scope)
        principal = self._caller(scope, known)
        if len(known) < len(headers) and [name for name, _ in headers].count(NAME_HEADER) > 1:
            raise InvalidArgument("an Idempotency-Key is there once")
        method = scope["method"]
        with self._bodies_kept.share() as share:
            body = await self._batches.read(known, receive, share, scope.get(BODY_NOW)) if method == "POST" else b""
            with served(f"HTTP {method}", headers, path=scope["path"][:PATH_LENGTH_MAX]):
                if self._quotas is not None and self._quotas.book.any:
                    await self._hold_call(self._quotas, principal)
                query = scope["query_string"]
                if method == "GET":
                    async with self._runs():
                        answer = await self._read(topic, principal, query, known, receive, share)
                else:
                    with self._running:  # for as long as the verb takes, which has limits of its own
                        answer = await self._answer(method, topic, principal, query, known, body, share)
            del body
        with self._answers_kept.share() as share:
            if not share.fits(len(answer.body)) and method == "GET":  # what was sent is answered in any case
                raise Overloaded(f"answers that are not read keep {ANSWERS_BYTES_MAX} bytes: try again")
            await _write(answer, send)

    async def _serve(self, route: Route, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request to one of the further routes; it ends with its client, and what it began is to be repeatable."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        known = dict(headers)
        self._check_connection(scope)
        principal = self._caller(scope, known)
        caller = Caller(self._callers, lambda *_: None)
        caller.admitted(principal)
        with self._bodies_kept.share() as share:
            body = await self._batches.read(known, receive, share, scope.get(BODY_NOW))
            with served(f"HTTP {scope['method']}", headers, path=scope["path"][:PATH_LENGTH_MAX]):
                if self._quotas is not None and self._quotas.book.any:
                    await self._hold_call(self._quotas, principal)
                query, write = query_of(scope["query_string"]), lambda answer: _write(answer, send)
                asked = Asked(scope["method"], query, headers, body, caller, write, send)
                async with self._runs(), _while_there(receive):
                    with acting_for(principal, bounds_of(principal)):
                        answer = await route(asked)
            if answer is not None:
                share.fits(len(answer.body))
                await _write(answer, send)

    async def _tail(self, topic: str, scope: Message, receive: Receive, send: Send) -> None:
        known: dict[bytes, bytes] = dict(scope["headers"])
        caller, check = await self._follower(topic, scope, known)
        with suppress(TimeoutError):
            async with _while_there(receive, asyncio.Event()):
                await self._tails.get(caller, topic, query_of(scope["query_string"]), known, send, check)

    async def _socket(self, topic: str, scope: Message, _receive: Receive, _send: Send) -> None:
        known: dict[bytes, bytes] = dict(scope["headers"])
        chosen = take_token(known)
        caller, check = await self._follower(topic, scope, known)
        check_handshake(known)
        upgrade: Upgrade = scope[UPGRADE]
        await self._sockets.get(caller, topic, query_of(scope["query_string"]), lambda: upgrade(chosen), check)

    async def _follower(
        self, topic: str, scope: Message, known: dict[bytes, bytes]
    ) -> tuple[Caller, Callable[[], Awaitable[None]]]:
        """Return who follows a topic, and what raises once it may no longer. Raises what is answered."""
        self._check_connection(scope)
        caller = Caller(self._callers, lambda *_: None)
        caller.admitted(self._caller(scope, known))

        async def check() -> None:
            caller.admitted(self._caller(scope, known))
            await caller.require_named(Verb.READ, TOPIC, topic)

        if self._quotas is not None and self._quotas.book.any:
            await self._hold_call(self._quotas, caller.principal)
        return caller, check

    async def _read(
        self,
        topic: str,
        principal: Principal | None,
        query: bytes,
        headers: dict[bytes, bytes],
        receive: Receive,
        share: KeptShare,
    ) -> RecordsAnswer:
        """Return records. A client that sends nothing more is answered at once: it may be gone."""
        if b"wait_ms" in query:
            half_closed = asyncio.Event()
            try:
                async with _while_there(receive, half_closed):
                    return await self._answer("GET", topic, principal, query, headers, b"", share)
            except TimeoutError:
                if not half_closed.is_set():
                    raise
            query = b"&".join(each for each in query.split(b"&") if not each.startswith(b"wait_ms="))
        async with _while_there(receive):
            return await self._answer("GET", topic, principal, query, headers, b"", share)

    async def _answer(
        self,
        method: str,
        topic: str,
        principal: Principal | None,
        query: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        share: KeptShare,
    ) -> RecordsAnswer:
        caller = Caller(self._callers, lambda *_: None)
        caller.admitted(principal)
        with acting_for(principal, bounds_of(principal)):
            if method == "POST":
                return await self._records.post(caller, topic, query_of(query), headers, body, share)
            if method == "GET":
                return await self._records.get(caller, topic, query_of(query), headers)
        raise Refusal(405, InvalidArgument("records are sent with POST and read with GET"))

    def _refused(self, error: Exception, scope: Message) -> App:
        if isinstance(error, Refusal) and error.status == 426:
            response = error_response(error.error, error.status)
            response.headers.update({"upgrade": "websocket", "sec-websocket-version": VERSION.decode()})
            return response
        if not isinstance(error, RangelogError):
            return super()._refused(error, scope)
        response = error_response(error, status_of(error))
        if response.status_code in (429, 503):
            response.headers["retry-after"] = str(RETRY_AFTER_S)
        return response

    async def _hold_call(self, quotas: QuotaGuard, principal: Principal | None) -> None:
        if (who := client_of(principal)) is not None:
            await quotas.hold(who, Measure.CALLS, 1, self._request_timeout_s)


def application(context: DoorContext, settings: HttpSettings) -> App:
    """Return the door's application, as its settings want it."""
    app = Application(context, settings)
    return PageOrigins(app, settings.allow_origins) if settings.allow_origins else app


async def _write(answer: RecordsAnswer, send: Send) -> None:
    """Send an answer as fast as the client reads it; after ANSWER_TIMEOUT_S the server ends the connection."""
    body = memoryview(answer.body)
    headers = [(b"content-type", answer.content_type.encode()), (b"content-length", b"%d" % len(body)), *answer.headers]
    if answer.status == 204:
        headers = list(answer.headers)
    if len(body) <= PART_BYTES:  # at most one wait for the client, which the server bounds
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            for at in range(0, max(1, len(body)), PART_BYTES):
                end = at + PART_BYTES
                await send({"type": "http.response.body", "body": bytes(body[at:end]), "more_body": end < len(body)})


@asynccontextmanager
async def _while_there(receive: Receive, half_closed: asyncio.Event | None = None) -> AsyncGenerator[None, None]:
    """End what runs in an `async with` block once the client has gone; with `half_closed`, once it sends nothing more."""

    async def gone() -> None:
        while (kind := (await receive())["type"]) != "http.disconnect":
            if kind == HALF_CLOSED and half_closed is not None:
                half_closed.set()
                break
        limit.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as limit:
        watching = asyncio.create_task(gone())
        try:
            yield
        finally:
            watching.cancel()


def route_of(path: str) -> tuple[str, str]:
    """Return the topic of /v1/topics/NAMESPACE/NAME/KIND, and the kind: records or tail; ("", ""): it is another path.

    >>> route_of("/v1/topics/shop/orders/records")
    ('shop/orders', 'records')
    """
    parts = path.split("/")
    if len(parts) == 6 and parts[5] in ("records", "tail") and parts[1:3] == ["v1", "topics"]:
        return f"{parts[3]}/{parts[4]}", parts[5]
    return "", ""
