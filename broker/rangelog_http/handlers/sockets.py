"""A topic's records as they come: GET /v1/topics/NAMESPACE/NAME/tail with an upgrade to a WebSocket.

What holds: a record is a message, {"record": {…}, "next": "…"}; `next` is the position behind it, to go on from at any broker.
The client gives credits, {"credits": n}, and no more records are sent than it has given: until then they wait in the log. The
client is asked whether it is there, and its right is looked at, again and again. The code of an ending says why.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple, Protocol

from rangelog.errors import InvalidArgument, Overloaded, RangelogError, RightMissing, Unauthorized, Unavailable
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.read import Followed, Reads
from rangelog_broker.verbs.record_filter import RecordFilter
from rangelog_http.handlers import tails
from rangelog_http.handlers.records import Query, check_known
from rangelog_http.wire.filters import HEADER_START, wanted_of
from rangelog_http.wire.records_out import dumped, error_object, record_object, start_of, token_of

CREDITS_MAX = 1_000_000
"""That a client may have given and that were not used."""
NORMAL, GOING_AWAY, NOT_TEXT, POLICY, DEFECT, LATER = 1000, 1001, 1007, 1008, 1011, 1013
_CODES: tuple[tuple[type[RangelogError], int], ...] = (
    (Unauthorized, POLICY), (RightMissing, POLICY), (Overloaded, LATER), (Unavailable, LATER), (InvalidArgument, POLICY),
)  # fmt: skip


class Socket(Protocol):
    """A connection of messages."""

    has_answered: bool

    async def send(self, text: str) -> bool:
        """Send a message once there is room; return False where the connection is over."""

    async def receive(self) -> str | None:
        """Return the next message; None: the connection is over."""

    def ping(self) -> None:
        """Ask whether the client is there: see `has_answered`."""

    def close(self, code: int, reason: str = "") -> None:
        """End the connection."""


class SocketEnding(NamedTuple):
    """Why a connection ends."""

    code: int
    reason: str = ""


class SocketTails:
    """The handler of tails over WebSockets."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def get(
        self,
        caller: Caller,
        topic: str,
        query: Query,
        accept: Callable[[], Socket],
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """Send records until the connection is over. `accept`: answers 101. `check`: raises where the caller may read no more.

        Raises RangelogError, and what `accept` raises: there was no answer.
        """
        check_known(query, tails.KNOWN, HEADER_START)
        start, wanted = start_of(query.get("from", "latest")), RecordFilter(*wanted_of(query))
        accepted: list[Socket] = []

        def leave() -> None:
            for socket in accepted:
                socket.close(GOING_AWAY, "this broker stops: ask another one")

        async with aclosing(await self._reads.follow(caller, topic, start, leave, wanted)) as followed:
            accepted.append(accept())
            await SocketTail(accepted[0], followed, check).run()


class SocketTail:
    """One connection."""

    def __init__(self, socket: Socket, followed: Followed, check: Callable[[], Awaitable[None]]) -> None:
        self._socket = socket
        self._followed = followed
        self._check = check
        self._credits = 0
        self._given = asyncio.Event()
        self._turn = asyncio.Lock()  # of a record, or of a position without one
        self._next = ""  # as the client has it

    async def run(self) -> None:
        """Return once the connection is over, or is being closed. The first message is where the tail begins."""
        await self._tell_position()
        work = (self._take_credits(), self._send_records(), self._beat())
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = next(each for each in tasks if each.done())
            code, reason = ended.result()
            self._socket.close(code, reason)
        finally:
            self._socket.close(DEFECT)
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_credits(self) -> SocketEnding:
        while (text := await self._socket.receive()) is not None:
            try:
                given = _credits_of(text)
            except ValueError:
                return SocketEnding(NOT_TEXT, 'a message is {"credits": n}')
            if given + self._credits > CREDITS_MAX:
                return SocketEnding(POLICY, f"more than {CREDITS_MAX} credits")
            self._credits += given
            self._given.set()
        return SocketEnding(NORMAL)

    async def _send_records(self) -> SocketEnding:
        try:
            while True:
                while not self._credits:
                    self._given.clear()
                    await self._given.wait()
                record, position = await self._followed.next()
                self._credits -= 1
                async with self._turn:
                    self._next = token_of(position)
                    await self._send({"record": record_object(record), "next": self._next})
        except StopAsyncIteration:
            return SocketEnding(GOING_AWAY)
        except RangelogError as error:
            return await self._failed(error)

    async def _beat(self) -> SocketEnding:
        """Keep the connection up, and send a position that has moved over records that are left out."""
        while True:
            await asyncio.sleep(tails.BEAT_S)
            if not self._socket.has_answered:
                return SocketEnding(DEFECT, "no answer to a ping")
            try:
                await self._check()
            except RangelogError as error:
                return await self._failed(error)
            self._socket.ping()
            await self._tell_position()

    async def _tell_position(self) -> None:
        async with self._turn:
            passed = self._followed.passed
            if passed is not None and (token := token_of(passed)) != self._next:
                self._next = token
                await self._send({"next": token})

    async def _failed(self, error: RangelogError) -> SocketEnding:
        async with self._turn:
            await self._send({"error": error_object(error)})
        code = next((code for kind, code in _CODES if isinstance(error, kind)), DEFECT)
        return SocketEnding(code, error.code)

    async def _send(self, value: object) -> None:
        await self._socket.send(dumped(value).decode())


def _credits_of(text: str) -> int:
    """Raises ValueError."""
    try:
        given = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    count = given.get("credits") if isinstance(given, dict) and given.keys() == {"credits"} else None
    if type(count) is not int or count < 1:
        raise ValueError("no credits")
    return count
