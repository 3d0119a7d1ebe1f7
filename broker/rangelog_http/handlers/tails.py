"""A topic's records as they come: GET /v1/topics/NAMESPACE/NAME/tail, as server-sent events.

What holds: each event's id is the position behind its record, so that a client that was cut off goes on by Last-Event-ID at any
broker without a gap and without a repeat. A client that reads slowly holds back its own reader and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing

from rangelog.errors import RangelogError
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.read import FollowedRecord, Reads
from rangelog_http.handlers.records import Query, check_known
from rangelog_http.wire.records_out import dumped, error_object, record_object, start_of, token_of
from rangelog_server_common.http_guard import Send

BEAT_S = 15.0
"""A comment is sent so often while there is nothing else, and the caller's right is looked at again."""
HEADERS = (
    (b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"),
)  # fmt: skip
_KNOWN = frozenset({"from"})


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
        check_known(query, _KNOWN)
        last = headers.get(b"last-event-id", b"").decode("latin-1")
        start = start_of(last or query.get("from", "latest"))
        limit = asyncio.timeout(None)
        followed = await self._reads.follow(caller, topic, start, lambda: _end(limit))
        try:
            async with limit, aclosing(followed):
                await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
                await _part(send, b": \n\n")
                await self._events(followed, send, check, limit)
        except TimeoutError:
            if not limit.expired():
                raise
        await send({"type": "http.response.body", "body": b""})

    async def _events(
        self,
        followed: AsyncIterator[FollowedRecord],
        send: Send,
        check: Callable[[], Awaitable[None]],
        limit: asyncio.Timeout,
    ) -> None:
        beating = asyncio.create_task(_beat(send, check, limit))
        try:
            async for record, position in followed:
                body = dumped(record_object(record))
                await _part(send, b"id: %s\ndata: %s\n\n" % (token_of(position).encode(), body))
        except RangelogError as error:
            await _part(send, b"event: error\ndata: %s\n\n" % dumped(error_object(error)))
        finally:
            beating.cancel()


async def _part(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _beat(send: Send, check: Callable[[], Awaitable[None]], limit: asyncio.Timeout) -> None:
    """Keep the connection up; end it once the caller may read no more."""
    while True:
        await asyncio.sleep(BEAT_S)
        try:
            await check()
        except RangelogError as error:
            await _part(send, b"event: error\ndata: %s\n\n" % dumped(error_object(error)))
            _end(limit)
            return
        await _part(send, b": \n\n")


def _end(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())
