"""Orders of the parent on standard input, and answers to them: the protocol of a client process.

What holds: a role answers on standard output, once it is ready and once for each order; a failure ends the process, with the
error as the last line of standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rangelog import Client

_LINE_BYTES_MAX = 1 << 24


class Orders:
    """The parent's lines."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls) -> Orders:
        """Read standard input from now on."""
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        return cls(reader)

    async def next(self) -> dict[str, Any] | None:
        """Return the next order; None: no order follows."""
        line = await self._reader.readline()
        return json.loads(line) if line else None


def answer(content: Mapping[str, object]) -> None:
    """Send a line to the parent."""
    sys.stdout.write(json.dumps(dict(content)) + "\n")
    sys.stdout.flush()


Role = Callable[[Client, dict[str, Any], Orders], Awaitable[None]]
