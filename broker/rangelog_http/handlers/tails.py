"""A topic's records as they come: GET /v1/topics/NAMESPACE/NAME/tail, as server-sent events.

What holds: each event's id is the position behind its record, so that a client that was cut off goes on by Last-Event-ID at any
broker without a gap and without a repeat; a position that moves over records which a filter leaves out is an event without
data, of which clients keep the id alone. A client that reads slowly holds back its own reader and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing

from rangelog.errors import RangelogError
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.read import Followed, Reads
from rangelog_broker.verbs.record_filter import RecordFilter
from rangelog_http.handlers.records import Query, check_known
from rangelog_http.wire.filters import HEADER_START, NAMES, wanted_of
from rangelog_http.wire.records_out import dumped, error_object, record_object, start_of, token_of
from rangelog_server_common.http_guard import Send

BEAT_S = 15.0
"""A comment is sent so often while there is nothing else, and the caller's right is looked at again."""
HEADERS = (
    (b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"),
)  # fmt: skip
KNOWN = frozenset({"from"}) | NAMES
"""The parameters of a tail's query, beside those of headers."""


class Tails:
    """The handler of tails."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def get(
        self,
        caller: Caller,
        topic: str,
        query: Query,
        headers: Mapping[bytes, bytes],
        send: Send,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """Send events until the client goes, or the broker stops.

        `check` raises where the caller may read no more. Raises RangelogError before the first byte; later ones are an event.
        """
        check_known(query, KNOWN, HEADER_START)
        last = headers.get(b"last-event-id", b"").decode("latin-1")
        start = start_of(last or query.get("from", "latest"))
        limit = asyncio.timeout(None)
        wanted = RecordFilter(*wanted_of(query))
        followed = await self._reads.follow(caller, topic, start, lambda: _end(limit), wanted)
        try:
            async with limit, aclosing(followed):
                await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
                await _Events(followed, send).run(check, limit)
        except TimeoutError:
            if not limit.expired():
                raise
        await send({"type": "http.response.body", "body": b""})


class _Events:
    """The events of one tail."""

    def __init__(self, followed: Followed, send: Send) -> None:
        self._followed = followed
        self._send = send
        self._turn = asyncio.Lock()  # of a record, or of a position without one
        self._next = ""  # as the client has it

    async def run(self, check: Callable[[], Awaitable[None]], limit: asyncio.Timeout) -> None:
        """Send events until an error, which is the last one; at first where the tail begins."""
        await self._tell_position()
        beating = asyncio.create_task(self._beat(check, limit))
        try:
            async for record, position in self._followed:
                body = dumped(record_object(record))
                async with self._turn:
                    self._next = token_of(position)
                    await _part(self._send, b"id: %s\ndata: %s\n\n" % (self._next.encode(), body))
        except RangelogError as error:
            await _part(self._send, b"event: error\ndata: %s\n\n" % dumped(error_object(error)))
        finally:
            beating.cancel()

    async def _beat(self, check: Callable[[], Awaitable[None]], limit: asyncio.Timeout) -> None:
        """Keep the connection up; end it once the caller may read no more."""
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await check()
            except RangelogError as error:
                await _part(self._send, b"event: error\ndata: %s\n\n" % dumped(error_object(error)))
                _end(limit)
                return
            await self._tell_position()

    async def _tell_position(self) -> None:
        async with self._turn:
            passed = self._followed.passed
            token = token_of(passed) if passed is not None else self._next
            moved, self._next = token != self._next, token
            await _part(self._send, b"id: %s\n\n" % token.encode() if moved else b": \n\n")


async def _part(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _end(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())
