"""The gate of one client: its frames, or other requests, pass once a grant lets them, in order by what they concern.

What holds: a frame waits until the grant of its resource is known, and those behind it for the same resource wait with it;
others do not. Waiting frames are bounded in number and bytes. Nothing waits, and no grant is looked for, where rights are not
enforced, and for those whom they do not limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from typing import Generic, Protocol, TypeVar

from rangelog_core.errors import Overloaded
from rangelog_core.limits import MIB
from rangelog_core.net.principals import Principal
from rangelog_core.rights import Verb
from rangelog_server_common.rights.grants import Grants, Key
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.bounds import bounds_of, check_unbound

FRAMES_WAITING_MAX = 10_000
BYTES_WAITING_MAX = 64 * MIB
KNOWN_MAX = 10_000
LOOK_AGAIN_S = 5.0
"""A frame looks for its grant at least so often, so that this is renewed and ends; a change of rights ends it at once."""

Resource = tuple[int, int | str]
"""Kind, and id or name."""


class Item(Protocol):
    """A frame, or another request with bytes."""

    @property
    def payload(self) -> Sized:
        """Its bytes."""


T = TypeVar("T", bound=Item)


class FrameGate(Generic[T]):
    """The gate of one client. For the event loop's thread."""

    def __init__(self, guard: RightsGuard, again: Callable[[T], None]) -> None:
        """`again`: handles a frame that has waited."""
        self._guard = guard
        self._grants: Grants = guard.grants
        self._again = again
        self._principal = ""
        self._bound: Principal | None = None  # with a token that is bound to something
        self._waiting: dict[Resource, list[T]] = {}
        self._known: dict[Resource, tuple[int, int, float]] = {}  # verbs, of which version, and until when
        self._count = self._bytes = 0
        self._closed = False

    def admitted(self, principal: Principal | None) -> None:
        """Note who has connected."""
        self._principal = str(principal) if self._guard.limits(principal) else ""
        self._bound = principal if bounds_of(principal) is not None else None
        self._known.clear()

    @property
    def is_open(self) -> bool:
        """Whether everything passes."""
        return not self._principal or (not self._grants.version and self._bound is None)

    def passes(self, frame: T, verbs: int, resource: Resource) -> bool:
        """Whether a frame passes now; else it waits, and is handled again. Raises RightMissing, Unavailable, Overloaded.

        `verbs`: a plain number, since a flag would cost more than the rest.
        """
        if not self._principal:
            return True
        version = self._grants.version
        if not self._waiting:
            if not version:
                check_unbound(self._bound)
                return True
            known = self._known.get(resource)
            if known is not None and known[0] & verbs and known[1] == version and time.monotonic() < known[2]:
                return True
        return self._asks(frame, Verb(verbs), resource)

    def _asks(self, frame: T, verbs: Verb, resource: Resource) -> bool:
        waiting = self._waiting.get(resource)
        if waiting is not None:
            self._hold(frame, waiting)
            return False
        if not self._grants.version:
            check_unbound(self._bound)
            return True
        key = self._key(resource)
        grant = self._guard.find(key)
        if grant is not None:
            given = self._guard.check(key, grant, verbs, bounds_of(self._bound))
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[resource] = (int(given), self._grants.version, time.monotonic() + LOOK_AGAIN_S)
            return True
        waiting = []
        self._hold(frame, waiting)
        self._guard.ask(key, lambda: self._release(resource))
        self._waiting[resource] = waiting
        return False

    def still_passes(self, verbs: int, resource: Resource) -> bool:
        """Whether what passed before still does; where that is not known it is asked for. Raises RightMissing, Unavailable."""
        if self.is_open:
            return True
        if not self._grants.version:
            check_unbound(self._bound)
        key = self._key(resource)
        grant = self._guard.find(key)
        if grant is None:
            self._guard.ask(key, lambda: None)
            return False
        self._guard.check(key, grant, Verb(verbs), bounds_of(self._bound))
        return True

    def close(self) -> None:
        """Forget what waits, and the connection: in a circle it would keep its buffers until the collector comes by."""
        self._closed = True
        self._waiting.clear()
        self._again = _forgotten

    def _key(self, resource: Resource) -> Key:
        kind, which = resource
        return (self._principal, kind, which, 0) if isinstance(which, str) else (self._principal, kind, "", which)

    def _hold(self, frame: T, waiting: list[T]) -> None:
        size = len(frame.payload)
        if self._count >= FRAMES_WAITING_MAX or self._bytes + size > BYTES_WAITING_MAX:
            raise Overloaded("too much waits for the placement driver to say what this client may do")
        waiting.append(frame)
        self._count += 1
        self._bytes += size

    def _release(self, resource: Resource) -> None:
        for frame in self._waiting.pop(resource, ()):
            self._count -= 1
            self._bytes -= len(frame.payload)
            if not self._closed:
                self._again(frame)


def _forgotten(frame: Item) -> None:
    """Take a frame of a connection that is closed."""
