"""Requests on one connection whose replies go to listeners: at no cost of a timer, a task or a future for each.

What holds: each request ends with `replied`, with `refused`, or with the end of the connection, for which each attached
listener is called once. A reply reaches the listener that put the request, also after it was detached.
"""

from __future__ import annotations

from typing import Protocol

from rangelog_core.errors import RangelogError
from rangelog_core.frame import Frame


class ReplyListener(Protocol):
    """Who puts requests on a connection; called on the event loop."""

    def replied(self, request_id: int, frame: Frame) -> None:
        """The reply to a request."""

    def refused(self, request_id: int, error: RangelogError) -> None:
        """The error in place of a reply."""

    def connection_closed(self, error: RangelogError) -> None:
        """No reply will come any more."""


class PutRequests:
    """The requests of one connection without a reply, and the listeners."""

    def __init__(self) -> None:
        self._listeners: dict[int, ReplyListener] = {}
        self._attached: dict[ReplyListener, None] = {}

    def attach(self, listener: ReplyListener) -> None:
        """Tell a listener when the connection ends."""
        self._attached[listener] = None

    def detach(self, listener: ReplyListener) -> None:
        """Send it no further replies. Idempotent."""
        self._attached.pop(listener, None)

    def add(self, request_id: int, listener: ReplyListener) -> None:
        """A request was sent."""
        self._listeners[request_id] = listener

    def taken(self, frame: Frame) -> bool:
        """Hand a reply to its listener, if it has one."""
        listener = self._listeners.pop(frame.request_id, None)
        if listener is not None:
            listener.replied(frame.request_id, frame)
        return listener is not None

    def refused(self, request_id: int, error: RangelogError) -> bool:
        """Hand an error to its listener, if it has one."""
        listener = self._listeners.pop(request_id, None)
        if listener is not None:
            listener.refused(request_id, error)
        return listener is not None

    def close(self, error: RangelogError) -> None:
        """The connection has ended."""
        attached, self._attached = list(self._attached), {}
        self._listeners.clear()
        for listener in attached:
            listener.connection_closed(error)
