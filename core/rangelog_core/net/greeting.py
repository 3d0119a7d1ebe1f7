"""The hello of a connection of frames, and the hellos by which a client shows its next token on it.

What holds: a token that changes reaches the server within RENEW_LOOK_S on connections that are open, so these do not end with
the token before; what goes wrong there ends nothing, the server does that once the token it knows has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from rangelog_core.errors import RangelogError
from rangelog_core.frame import Opcode
from rangelog_core.ids import ReplicaId
from rangelog_core.versions import DATA_PLANE_VERSIONS, FEATURES
from rangelog_proto.v1 import data_pb2

RENEW_LOOK_S = 10.0
RENEW_TIMEOUT_S = 5.0

_log = logging.getLogger("rangelog.tokens")


class Greeted(Protocol):
    """A connection whose first hello was answered."""

    replica: ReplicaId
    closed: RangelogError | None

    async def request(self, opcode: Opcode, message: bytes, *, timeout_s: float) -> Any:
        """Send a request and return its reply."""


def hello_of(replica: ReplicaId, text: str, client_name: str) -> bytes:
    """Return the hello to a server. `text`: the token, "" without one."""
    return data_pb2.Hello(
        protocol_version=DATA_PLANE_VERSIONS.highest,
        protocol_version_min=DATA_PLANE_VERSIONS.lowest,
        features=sorted(FEATURES),
        client=client_name,
        token=text,
        server=replica.server,
        incarnation=replica.incarnation,
    ).SerializeToString()


class TokenRenewal:
    """Looks at a token while a connection is open, and shows it once it is another one. For one event loop."""

    def __init__(self, connection: Greeted, text: str, now: Callable[[], str], client_name: str) -> None:
        """`text`: what was shown. `now`: returns the token that is valid now."""
        self._connection = connection
        self._text = text
        self._now = now
        self._client_name = client_name
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._later()

    def _later(self) -> None:
        self._loop.call_later(RENEW_LOOK_S, self._look)

    def _look(self) -> None:
        if self._connection.closed is None:
            self._task = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            text = self._now()
            if text != self._text:
                hello = hello_of(self._connection.replica, text, self._client_name)
                await self._connection.request(Opcode.HELLO, hello, timeout_s=RENEW_TIMEOUT_S)
                self._text = text
        except RangelogError as error:
            _log.warning("the next token could not be shown to %s: %s", self._connection.replica.server, error.message)
        except Exception:
            _log.exception("the next token could not be had")
        self._later()
