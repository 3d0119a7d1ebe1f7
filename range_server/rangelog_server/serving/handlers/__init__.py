"""The operations of the data plane, one per file: a frame of a connection in, calls to the store and replies out."""

from __future__ import annotations

import functools
from collections.abc import Callable

from rangelog_core.frame import Opcode
from rangelog_server.serving.connection import ClientConnection, DataPlane, Handler
from rangelog_server.serving.handlers import append, commit_end, confirm, fetch, hello, lookup_timestamp, seal

HANDLERS: dict[Opcode, Handler] = {
    Opcode.HELLO: hello.handle,
    Opcode.APPEND: append.handle,
    Opcode.CONFIRM: confirm.handle,
    Opcode.FETCH: fetch.handle,
    Opcode.LOOKUP_TIMESTAMP: lookup_timestamp.handle,
    Opcode.SEAL: seal.handle,
    Opcode.COMMIT_END: commit_end.handle,
}


def make_connection_factory(plane: DataPlane) -> Callable[[], ClientConnection]:
    """Return the function that the event loop calls for each new connection."""
    return functools.partial(ClientConnection, plane, HANDLERS)
