"""For whom a program calls: a broker names the caller of its REST interface to the placement driver, with the bounds of its
token.

What holds: only the task that serves a request speaks for its principal. Tasks that it starts act for the process: lookups
that requests share, and work that outlives them. So no call of another request, or of the broker, counts as the principal's.
"""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType

from rangelog_core.errors import InvalidArgument, RoleForbids
from rangelog_core.ids import check_name
from rangelog_core.net.principals import ANY_NAME, PORT_ROLES, Port, Principal, Role
from rangelog_core.rights import check_client_name
from rangelog_core.tokens import Bounds, bounds_of_list, listed

ACTING_KEY = "rangelog-acting-for"
"""In the metadata of a gRPC call: role:name."""
WITHIN_KEY = "rangelog-acting-within"
"""Beside it, of a token that is bound: to what, as JSON."""

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Represented(Principal):
    """A principal for whom another one calls, `through`; the call counts as the former's."""

    through: Principal
    bounds: Bounds | None = field(default=None, compare=False)
    """Of its token. None: it is not bound to anything."""


_ACTING: ContextVar[tuple[Metadata, asyncio.Task[object] | None] | None] = ContextVar("acting", default=None)


class acting_for:  # noqa: N801 - a `with` statement's, and at every request: no generator
    """Make the calls of this task for a principal, in a `with` block. None: without a principal, they are the process's own.

    `bounds`: what the principal's token is bound to.
    """

    __slots__ = ("_before", "_said")

    def __init__(self, principal: Principal | None, bounds: Bounds | None = None) -> None:
        said: Metadata = ((ACTING_KEY, str(principal)),) if principal is not None else ()
        if bounds is not None:
            said += ((WITHIN_KEY, json.dumps(listed(bounds.rules), separators=(",", ":"))),)
        self._said = said

    def __enter__(self) -> None:
        self._before = _ACTING.set((self._said, asyncio.current_task()))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ACTING.reset(self._before)


def with_principal(metadata: Metadata) -> Metadata:
    """Return metadata of a gRPC call with the principal for whom this task calls, if there is one."""
    acting = _ACTING.get()
    if acting is None or acting[1] is not asyncio.current_task():
        return metadata
    return metadata + acting[0]


def represented(caller: Principal | None, said: str, within: str, port: Port) -> Represented:
    """Return whom a call counts for, of which its caller says "role:name", and what that one's token is bound to, if it is.

    Brokers are believed, by the role in their certificate, and only at the API of a placement driver: that is where changes go
    that REST asks for. Anybody else is refused. To ignore the header would record the change under another name than the
    caller meant, and hide the attempt.

    Raises RoleForbids; InvalidArgument where it names no principal that may use REST.
    """
    if caller is None or caller.role is not Role.BROKER or port is not Port.PD_API:
        raise RoleForbids(f"{caller or 'a caller without a certificate'} may not call the {port} for another principal")
    role, _, name = said.partition(":")
    if role not in PORT_ROLES[Port.BROKER_REST]:
        raise InvalidArgument(f"{caller} calls for {said[:100]!r}, who may not use the {Port.BROKER_REST}")
    if name != ANY_NAME:
        check_client_name(name) if role == Role.CLIENT else check_name("principal", name)
    return Represented(Role(role), name, caller, _bounds(within) if within else None)


def _bounds(within: str) -> Bounds:
    try:
        return bounds_of_list(json.loads(within))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument("what a token is bound to is not JSON") from error
