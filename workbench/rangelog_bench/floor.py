"""The floor: three processes that only write, flush and reply; an append is acked by two of three.

Without offsets, checksums, epochs and metadata only the transport and the disk remain. The figures of rangelog are divided by
those of the floor, of the same run, wherever an absolute figure would depend on the load of the machine.

A message is its length (4 bytes), its kind (1) and its content. Waiting appends are written with one call and flushed with
one fdatasync, on a thread; the reply is the number of flushed appends so far (8 bytes).
"""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rangelog_bench.system import Stop, System
from rangelog_bench.workload import CATCHUP, LATENCY, OPEN_LOOP, THROUGHPUT
from rangelog_cli.local.lifeline import follow_parent
from rangelog_cli.local.ports import LOOPBACK, free_ports, is_free
from rangelog_cli.local.process import Process, stop_all, wait_until
from rangelog_core.errors import InvalidArgument, Unavailable

NAME, SETTING = "floor", "3 processes that write and flush"
_COPIES, _ACKS = 3, 2
_APPEND, _READ = 0, 1
_FILE_BYTES = 256 << 20
_BATCH_BYTES = 256 << 10
_BATCHES_IN_FLIGHT = 4
_READ_BYTES = 256 << 10
_GROUP_MAX = 1024


class _Disk:
    """Writes and flushes all waiting data together, again and again into the same preallocated file."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
        os.posix_fallocate(self.descriptor, 0, _FILE_BYTES)
        self._waiting: queue.SimpleQueue[tuple[bytes, Callable[[], None]]] = queue.SimpleQueue()
        self._loop = loop
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    def append(self, data: bytes, done: Callable[[], None]) -> None:
        """Call `done` on the loop once the data is flushed."""
        self._waiting.put((data, done))

    def _run(self) -> None:
        at = 0
        while True:
            group = [self._waiting.get()]
            while len(group) < _GROUP_MAX and not self._waiting.empty():
                group.append(self._waiting.get())
            size = sum(len(data) for data, _ in group)
            if at + size > _FILE_BYTES:
                at = 0
            at += os.pwritev(self.descriptor, [data for data, _ in group], at)
            os.fdatasync(self.descriptor)
            self._loop.call_soon_threadsafe(_call_all, [done for _, done in group])


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()


class _Serving(asyncio.Protocol):
    """One connection of a server."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk
        self._buffer = bytearray()
        self._flushed = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 5:
            length = int.from_bytes(buffer[at : at + 4], "little")
            if len(buffer) - at - 5 < length:
                break
            content = bytes(memoryview(buffer)[at + 5 : at + 5 + length])
            self._take(buffer[at + 4], content)
            at += 5 + length
        del buffer[:at]

    def _take(self, kind: int, content: bytes) -> None:
        if kind == _APPEND:
            self._disk.append(content, self._answer)
            return
        left = int.from_bytes(content, "little")
        at = 0
        while left:
            size = min(left, _READ_BYTES)
            self._transport.write(os.pread(self._disk.descriptor, size, at % (_FILE_BYTES - _READ_BYTES)))
            at += size
            left -= size

    def _answer(self) -> None:
        self._flushed += 1
        if not self._transport.is_closing():
            self._transport.write(self._flushed.to_bytes(8, "little"))


class _Asking(asyncio.Protocol):
    """The client's side: counts the flushed appends, or the bytes that were read."""

    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        self._on_data = on_data

    def data_received(self, data: bytes) -> None:
        self._on_data(data)


class Floor(System):
    """The three processes as a measured system."""

    name = NAME
    setting = SETTING
    abilities = frozenset({THROUGHPUT, LATENCY, OPEN_LOOP, CATCHUP})

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = free_ports(_COPIES)
        self._processes = [
            Process(
                f"floor{number + 1}",
                ["-m", "rangelog_bench.floor", str(port), str(directory / f"file{number + 1}")],
                log_path=directory / "logs" / f"floor{number + 1}.log",
            )
            for number, port in enumerate(self._ports)
        ]
        self._transports: list[Any] = []
        self._rests: list[bytes] = []
        self._flushed: list[int] = []
        self._sent = self._acked = 0
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        self._record_size = 0

    async def start(self) -> None:
        """Start the servers and connect."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for process in self._processes:
            process.start()
        await asyncio.to_thread(wait_until, self._all_listen, 30.0, "the floor's processes do not listen")

    def _all_listen(self) -> bool:
        return all(process.ready() and not is_free(port) for process, port in zip(self._processes, self._ports))

    async def stop(self) -> None:
        """End everything that `start` started and remove its files. Idempotent, also after a failed start."""
        self._disconnect()
        await asyncio.to_thread(stop_all, self._processes)
        shutil.rmtree(self._directory, ignore_errors=True)

    def pids(self) -> Mapping[str, int]:
        """Name → pid of the servers that run."""
        return {each.name: each.pid for each in self._processes if each.running}

    async def fresh_log(self) -> None:
        """Continue with new connections, which count from 0."""
        self._disconnect()
        self._rests, self._flushed = [b""] * _COPIES, [0] * _COPIES
        self._sent = self._acked = 0
        loop = asyncio.get_running_loop()
        for number, port in enumerate(self._ports):
            transport, _ = await loop.create_connection(lambda number=number: _Asking(self._acks_of(number)), LOOPBACK, port)  # type: ignore[misc]  # fmt: skip
            transport.set_write_buffer_limits(high=64 << 20)
            self._transports.append(transport)

    def _disconnect(self) -> None:
        for transport in self._transports:
            transport.close()
        self._transports.clear()
        self._due.clear()

    def _acks_of(self, number: int) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            data = self._rests[number] + data
            whole = len(data) // 8 * 8
            self._rests[number] = data[whole:]
            if whole:
                self._flushed[number] = int.from_bytes(data[whole - 8 : whole], "little")
                self._acked = sorted(self._flushed)[-_ACKS]
                while self._due and self._due[0][0] <= self._acked:
                    self._due.popleft()[1]()

        return take

    def send(self, payload: bytes, on_acked: Callable[[], None]) -> None:
        """Append without waiting; `on_acked` is called once it is. By default a task for each record."""
        self._sent += 1
        self._due.append((self._sent, on_acked))
        head = len(payload).to_bytes(4, "little") + bytes([_APPEND])
        for transport in self._transports:
            transport.writelines((head, payload))

    async def append(self, payload: bytes) -> None:
        """Append one record and return once it is acked."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.send(payload, lambda: future.set_result(None))
        await future

    async def pump(self, payload: bytes, seconds: float) -> int:
        """Append the payload as often as possible for so long, in batches, some in flight; return how many were acked."""
        loop = asyncio.get_running_loop()
        self._record_size = len(payload)
        count = max(1, _BATCH_BYTES // len(payload))
        batch, end_s, news = payload * count, loop.time() + seconds, asyncio.Event()
        first = self._acked
        while loop.time() < end_s:
            while self._sent - self._acked < _BATCHES_IN_FLIGHT:
                self.send(batch, news.set)
            news.clear()
            await news.wait()
        while self._acked < self._sent:
            news.clear()
            await news.wait()
        return (self._acked - first) * count

    async def read_all(self, count: int) -> int:
        """Read as many bytes as `count` records have from one of the processes; return how many came."""
        wanted, came = count * self._record_size, 0
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def take(data: bytes) -> None:
            nonlocal came
            came += len(data)
            if came >= wanted and not done.done():
                done.set_result(None)

        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: _Asking(take), LOOPBACK, self._ports[0]
        )
        try:
            content = wanted.to_bytes(8, "little")
            transport.write(len(content).to_bytes(4, "little") + bytes([_READ]) + content)
            await done
        finally:
            transport.close()
        return came // self._record_size

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """Deliver every record that is appended from now on; returns what ends it."""
        raise InvalidArgument("the floor has no readers that follow")

    async def in_charge(self) -> str:
        """Name of a server whose death hurts the log most."""
        raise InvalidArgument("no process of the floor runs")

    def kill(self, name: str) -> None:
        """`kill -9` it."""
        raise Unavailable(f"{name} does not come back")

    async def restore(self, name: str) -> None:
        """Start it again and return once the log has all its copies."""
        raise Unavailable(f"{name} does not come back")


async def _serve(port: int, path: Path) -> None:
    loop = asyncio.get_running_loop()
    disk = _Disk(path, loop)
    server = await loop.create_server(lambda: _Serving(disk), LOOPBACK, port)
    await server.serve_forever()


def main() -> None:
    """Entry point of a process: serve until killed."""
    follow_parent()
    from rangelog_bench.loop import run_on_loop

    try:
        run_on_loop(lambda: _serve(int(sys.argv[1]), Path(sys.argv[2])))
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass


if __name__ == "__main__":
    main()
