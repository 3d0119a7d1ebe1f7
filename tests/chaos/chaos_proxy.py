"""A TCP proxy that makes the way to a server long: every byte arrives, in order, some time later. Runs in its own thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

_CHUNK_BYTES = 64 * 1024
_CLOSE_TIMEOUT_S = 10.0


class DelayProxy:
    """See the module. `delay_s`: each way. Use it as a context manager, or `close` it."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="delay proxy", daemon=True)
        self._thread.start()

    def forward(self, listener: socket.socket, target: tuple[str, int]) -> None:
        """Take what comes to a listening socket, which is the proxy's from now on, to a target."""
        listener.setblocking(False)
        self._call(self._spawn(self._accept(listener, target)))

    def close(self) -> None:
        """End every connection and stop listening. Idempotent."""
        if self._loop.is_closed():
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- in the thread

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CLOSE_TIMEOUT_S)

    async def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        with listener:
            while True:
                near, _ = await self._loop.sock_accept(listener)
                await self._spawn(self._serve(near, target))

    async def _serve(self, near: socket.socket, target: tuple[str, int]) -> None:
        with near, socket.socket(type=socket.SOCK_STREAM) as far:
            for each in (near, far):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await asyncio.sleep(2 * self.delay_s)  # what a handshake takes
                await self._loop.sock_connect(far, target)
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._carry(near, far))
                    ways.create_task(self._carry(far, near))
            except* OSError:
                pass  # either side may break off

    async def _carry(self, source: socket.socket, target: socket.socket) -> None:
        """One way, until its end. Raises OSError."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with asyncio.TaskGroup() as both:
            both.create_task(self._hand_out(queue, target))
            data = b"first"
            while data:
                data = await self._loop.sock_recv(source, _CHUNK_BYTES)
                queue.put_nowait((self._loop.time() + self.delay_s, data))

    async def _hand_out(self, queue: asyncio.Queue[tuple[float, bytes]], target: socket.socket) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - self._loop.time())
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            await self._loop.sock_sendall(target, data)
