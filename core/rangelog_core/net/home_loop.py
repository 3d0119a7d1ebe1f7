"""The event loop that a client belongs to: that of its first use.

What holds: on any other loop, and in a process that was forked from its own, a call ends at once with InvalidArgument, which
says what to do. Without it such a call would fail in the midst of asyncio or gRPC, or wait for a thread that does not exist.
"""

from __future__ import annotations

import asyncio
import os

from rangelog_core.errors import InvalidArgument


class HomeLoop:
    """Knows the loop and the process of the first use."""

    __slots__ = ("_loop", "_pid")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def check(self) -> None:
        """Note the running loop at the first call; later ones raise InvalidArgument on any other loop.

        Example:
            >>> home = HomeLoop()
            >>> async def use() -> None: home.check()
            >>> asyncio.run(use())
            >>> asyncio.run(use())  # doctest: +ELLIPSIS
            Traceback (most recent call last):
            ...
            rangelog_core.errors.InvalidArgument: this client was first used in another event loop, and works in no other: ...
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is None:
            self._loop, self._pid = loop, os.getpid()
        elif self._pid != os.getpid():
            raise InvalidArgument(
                f"this client was made in process {self._pid}, before a fork: connect in the child, and only there"
            )
        else:
            raise InvalidArgument(
                "this client was first used in another event loop, and works in no other: connect anew in each asyncio.run, "
                "put all of the work in one, or use rangelog.sync"
            )
