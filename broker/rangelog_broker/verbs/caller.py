"""Who asks through a door: a client, what it may do, and what it owes to quotas.

What holds: a verb asks its caller before it does anything; where a grant is not known yet the request waits, and those behind
it for the same resource wait with it. The waiting requests are bounded, and forgotten with the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Protocol

from rangelog_core.net.principals import Principal
from rangelog_core.rights import Verb
from rangelog_server_common.rights.frame_gate import FrameGate, Resource
from rangelog_server_common.rights.guard import RightsGuard


class Request(Protocol):
    """A request that may have to wait: it is run again once a grant is known."""

    @property
    def payload(self) -> Sized:
        """Its bytes."""

    def run(self, caller: Caller) -> None:
        """Begin again. Raises RangelogError."""

    def failed(self, error: Exception) -> None:
        """Answer what an error says that `run` has raised."""


Charge = Callable[[int, tuple[int, int], int], None]
"""Counts the bytes of a request, by its id, at a client's quotas; the door holds the client to them in its own way."""


class Caller:
    """One client of a door. For the event loop's thread."""

    def __init__(self, rights: RightsGuard, charge: Charge) -> None:
        self.charge = charge
        self._rights = rights
        self._principal: Principal | None = None
        self._gate: FrameGate[Request] | None = None  # of a caller whose requests may have to wait here

    def admitted(self, principal: Principal | None) -> None:
        """Note who it is; None: not known, on a port without TLS."""
        self._principal = principal
        if self._gate is not None:
            self._gate.admitted(principal)

    @property
    def principal(self) -> Principal | None:
        """Who it is."""
        return self._principal

    def passes(self, request: Request, verbs: int, resource: Resource) -> bool:
        """Whether a request passes now; else it is run again later. Raises RightMissing, Unavailable, Overloaded."""
        return (self._gate or self._opened()).passes(request, verbs, resource)

    async def require(self, verbs: Verb, kind: int, resource_id: int) -> None:
        """Wait until it is known that the caller may do one of the verbs. Raises RightMissing, Unavailable."""
        await self._rights.require(self._principal, [(verbs, kind, "", resource_id)])

    async def require_named(self, verbs: Verb, kind: int, name: str) -> None:
        """The same, of a resource by its name."""
        await self._rights.require(self._principal, [(verbs, kind, name, 0)])

    def close(self) -> None:
        """Forget what waits, and the door's connection: in a circle it would keep its buffers until the collector comes by."""
        if self._gate is not None:
            self._gate.close()
        self.charge = _uncharged

    def _opened(self) -> FrameGate[Request]:
        self._gate = gate = FrameGate(self._rights, self._again)
        gate.admitted(self._principal)
        return gate

    def _again(self, request: Request) -> None:
        try:
            request.run(self)
        except Exception as error:
            request.failed(error)


def _uncharged(request_id: int, resource: tuple[int, int], size_bytes: int) -> None:
    """Charge a request of a caller that is gone."""
