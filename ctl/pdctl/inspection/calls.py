"""The calls of inspection that several commands share: pages of ranges, and the range servers' control planes.

What holds: a server that does not answer is a problem of its own, kept beside the answers of the others; at most PEERS_MAX
connections are open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pdctl.session import Session
from rangelog_core.errors import RangelogError, Unavailable
from rangelog_core.net.pages import goes_on

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_core.net.peer_client import PeerClient

RANGES_PAGE_SIZE = 500
PEERS_MAX = 1_000

_T = TypeVar("_T")


async def inspected_ranges(pd: PdClient, name: str, timeout_s: float, from_index: int = 0) -> AsyncIterator[Any]:
    """Yield pages of a stream's ranges with their copies; at least one page. Raises StreamNotFound."""
    from rangelog_proto.v1 import inspection_pb2

    request = inspection_pb2.InspectRangesRequest(name=name, from_index=from_index, page_size=RANGES_PAGE_SIZE)
    while True:
        page = await pd.call(request, inspection_pb2.InspectRangesResponse, timeout_s=timeout_s)
        yield page
        if not goes_on(page.more, page.ranges):
            return
        request.from_index = page.ranges[-1].range.index + 1


class Servers:
    """The control planes of the range servers, connected at first use. Use it with `async with`."""

    def __init__(self, session: Session, listed: Sequence[Any]) -> None:
        """`listed`: the servers as the placement driver lists them."""
        self._session = session
        self._known: Mapping[str, Any] = {each.name: each for each in listed}
        self._peers: dict[str, PeerClient] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def ask(
        self, server: str, incarnation: int, call: Callable[[PeerClient], Awaitable[_T]]
    ) -> _T | RangelogError:
        """Return a member's answer, or the error."""
        known = self._known.get(server)
        if known is None or known.incarnation != incarnation:
            return Unavailable(f"range server {server} has another data directory now: this copy is gone")
        if not known.control_address:
            return Unavailable(f"range server {server} has no control address")
        try:
            return await call(await self._peer(server, known.control_address))
        except RangelogError as error:
            return error

    async def _peer(self, server: str, address: str) -> PeerClient:
        peer = self._peers.get(server)
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                raise Unavailable(f"{PEERS_MAX} range servers are connected, which is the limit")
            made = self._session.peer(address, f"range server {server}")
            peer = self._peers[server] = await self._stack.enter_async_context(made)
        return peer

    async def ask_all(
        self, replicas: Sequence[Any], call: Callable[[PeerClient], Awaitable[_T]]
    ) -> list[_T | RangelogError]:
        """Return the answer of each member, or its error, in order."""
        return list(await asyncio.gather(*(self.ask(each.server, each.incarnation, call) for each in replicas)))


async def list_servers(pd: PdClient, timeout_s: float) -> Sequence[Any]:
    """Return the range servers as the placement driver lists them."""
    from rangelog_proto.v1 import pd_pb2

    return (await pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=timeout_s)).servers
