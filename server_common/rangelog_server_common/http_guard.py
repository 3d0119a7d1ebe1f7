"""The checks of every request over HTTP before an application looks at it: number and time of requests, and their bodies.

What holds: no more requests than the limit run at once, and none for longer than its limit; a body is never held beyond its
limit, and of bodies that are held back there is a bounded number, of which the one that has waited longest goes; their bytes
together are bounded in the same way where they count to a share. An error is answered once, in the form of the interface; one
that is a defect is logged. A request that is under way when the server stops is answered with an error that says whether it may
have been carried out.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

from rangelog_core.errors import InvalidArgument, Overloaded, RangelogError, RequestTimeout, RoleForbids, Unavailable

BODY_NOW = "rangelog.body_now"
"""In the scope of a request, where its server can do this: a function that returns the body if it is whole, else None."""
DISCARD_TIMES = 16
"""So many times the limit is read, and not kept, of a body that is too large."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Refusal(Exception):
    """A request that is not passed on: its status, and the error that the answer shows."""

    def __init__(self, status: int, error: RangelogError) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


class HttpGuard(ABC):
    """An ASGI application around another one. A subclass says who asks, and how errors are answered."""

    def __init__(self, app: App, *, requests_max: int, request_timeout_s: float) -> None:
        self._app = app
        self._request_timeout_s = request_timeout_s
        self._running = _RequestCount(requests_max)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. Part of ASGI."""
        if scope["type"] != "http":
            return
        started = False

        async def start(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._starts(message)
            await send(message)

        try:
            await self._pass_on(scope, receive, start)
        except (Exception, asyncio.CancelledError) as error:
            answer = self._refused(_at_a_stop(scope) if isinstance(error, asyncio.CancelledError) else error, scope)
            if not started:
                await answer(scope, receive, start)

    @abstractmethod
    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        """Check a request, and run the application within `running`. Raises what is answered."""

    @abstractmethod
    def _refused(self, error: Exception, scope: Message) -> App:
        """Return the answer to a request that raised an error; log one that is a defect."""

    def _starts(self, message: Message) -> None:
        """An answer starts: a subclass may add headers."""
        message.setdefault("headers", [])

    @asynccontextmanager
    async def _runs(self) -> AsyncGenerator[None, None]:
        """Count a request that runs, for a limited time. Raises Overloaded, RequestTimeout."""
        with self._running:
            try:
                async with asyncio.timeout(self._request_timeout_s):
                    yield
            except TimeoutError:
                raise RequestTimeout(f"the request took longer than {self._request_timeout_s:g} s") from None


class _RequestCount:
    """Counts the requests that run: each in a `with` block of its own."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0

    def __enter__(self) -> None:
        """Raises Overloaded."""
        if self._count >= self._count_max:
            raise Overloaded(f"{self._count_max} requests are running: try again")
        self._count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._count -= 1


def _at_a_stop(scope: Message) -> RangelogError:
    """Return the error of a request that was under way as its server stopped, which has cancelled it."""
    if scope["method"] in ("GET", "HEAD"):
        return Unavailable("this server stops: ask another one")
    return RequestTimeout("this server stops: whether the request was carried out is not known", outcome_unknown=True)


def refused_role(error: RangelogError) -> RoleForbids:
    """Return the error of a connection that was refused by its certificate, for an answer."""
    return error if isinstance(error, RoleForbids) else RoleForbids(error.message)


class KeptBytes:
    """Counts the bytes that the requests of an interface keep in memory, together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0

    def share(self) -> KeptShare:
        """Return the share of one request, for a `with` block."""
        return KeptShare(self)


class KeptShare:
    """The bytes that one request keeps in memory: none after its `with` block."""

    __slots__ = ("_of", "_size_bytes")

    def __init__(self, of: KeptBytes) -> None:
        self._of = of
        self._size_bytes = 0

    def __enter__(self) -> KeptShare:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.fits(0)

    def fits(self, size_bytes: int) -> bool:
        """Note that the request keeps so many bytes now; return whether all requests together are within their limit."""
        self._of.size_bytes += size_bytes - self._size_bytes
        self._size_bytes = size_bytes
        return self._of.size_bytes <= self._of.bytes_max

    def keep(self, size_bytes: int) -> None:
        """The same. Raises Overloaded where they are above it."""
        if not self.fits(size_bytes):
            raise Overloaded(f"requests keep {self._of.bytes_max} bytes, the limit of this interface: try again")


class Bodies:
    """The bodies that are being received by one interface."""

    def __init__(self, *, bytes_max: int, timeout_s: float, count_max: int) -> None:
        """`bytes_max`: of one. `count_max`: bodies that have not come wholly."""
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._count_max = count_max
        self._limits: dict[asyncio.Timeout, KeptShare | None] = {}  # of those that are being received

    async def read(
        self,
        headers: dict[bytes, bytes],
        receive: Receive,
        share: KeptShare | None = None,
        now: Callable[[], bytes | None] | None = None,
    ) -> bytes:
        """Return a body, whole; `share`: what it counts to. `now`: see BODY_NOW.

        Raises Refusal: it is too large, late, or ends early; Overloaded: there is no room for it.
        """
        stated = headers.get(b"content-length", b"0")
        if len(stated) > 20 or int(stated) > self._bytes_max:
            if b"expect" not in headers:  # otherwise the client waits before it sends the body
                await self._discard(receive)
            raise self._too_large()
        if now is not None and (whole := now()) is not None:
            if len(whole) > self._bytes_max:
                raise self._too_large()
            if share is None or share.fits(len(whole)):
                return whole
            receive = Replay(whole, receive)  # others have to make room first
        return await self._received(receive, share)

    def _too_large(self) -> Refusal:
        return Refusal(413, InvalidArgument(f"the body is above the limit of {self._bytes_max} bytes"))

    async def _received(self, receive: Receive, share: KeptShare | None) -> bytes:
        body = bytearray()
        try:
            async with self._receiving(share) as limit:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refusal(400, InvalidArgument("the body ended early"))
                    body += message.get("body", b"")
                    if len(body) > self._bytes_max:
                        body.clear()
                        if message.get("more_body", False):
                            await self._discard(receive)
                        raise self._too_large()
                    while share is not None and not share.fits(len(body)):
                        if self._end_longest() in (limit, None):
                            share.keep(len(body))
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            late = RequestTimeout(f"the body did not arrive within {self._timeout_s:g} s", outcome_unknown=False)
            raise Refusal(408, late) from None

    @asynccontextmanager
    async def _receiving(self, share: KeptShare | None = None) -> AsyncGenerator[asyncio.Timeout, None]:
        """Raise TimeoutError where a body does not come in time, or has waited longest of too many."""
        async with asyncio.timeout(self._timeout_s) as limit:
            self._limits[limit] = share
            if len(self._limits) > self._count_max:
                self._end_longest()
            try:
                yield limit
            finally:
                self._limits.pop(limit, None)

    def _end_longest(self) -> asyncio.Timeout | None:
        """End the body that has waited longest, and return its limit; None: each one ends already."""
        longest = next(iter(self._limits), None)
        if longest is not None:
            share = self._limits.pop(longest)
            if share is not None:
                share.fits(0)
            if not longest.expired():
                longest.reschedule(asyncio.get_running_loop().time())
        return longest

    async def _discard(self, receive: Receive) -> None:
        """Read on for a while: a client that still sends would find the connection broken in place of its answer."""
        left = DISCARD_TIMES * self._bytes_max
        with suppress(TimeoutError):
            async with self._receiving():
                while left > 0:
                    message = await receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
                    left -= len(message.get("body", b""))


class Replay:
    """Gives the body that was received already, then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message. Part of ASGI."""
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}
