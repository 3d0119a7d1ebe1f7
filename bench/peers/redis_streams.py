"""Redis streams: a primary and two replicas; acked by WAIT 1, when one replica has it too.

`always` flushes before it answers, on both (seen with strace; the manual does not promise it); `everysec` flushes each
second. A reader sees a record as soon as the primary has it, before any ack. Failover is by three sentinels.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import hiredis
from measure import main
from servers import HOST, Missing, Servers, free_ports, wait_port

from rangelog_bench.system import Stop, System
from rangelog_bench.workload import SHARED

ALWAYS, EVERY_SECOND = "always, WAIT 1", "everysec, WAIT 1"
_WAIT = hiredis.pack_command(("WAIT", 1, 5000))
_GROUP_BYTES, _GROUP_MIN, _GROUP_MAX = 4 << 20, 128, 4_096
_GROUPS_IN_FLIGHT = 4
_READ_COUNT = 2_000


def _add(payload: bytes) -> bytes:
    return bytes(hiredis.pack_command(("XADD", "log", "*", "d", payload)))


class Connection(asyncio.Protocol):
    """Commands in, answers out, in order: no more than the protocol itself."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[int, list[Any], asyncio.Future[list[Any]]]] = deque()
        self._transport: Any = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect; raises OSError."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionError("the server is gone"))
                future.exception()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            count, answers, future = self._waiting[0]
            answers.append(answer)
            if len(answers) == count:
                self._waiting.popleft()
                if not future.done():
                    future.set_result(answers)

    def send(self, packed: bytes, count: int) -> asyncio.Future[list[Any]]:
        """Send `count` packed commands; the future gives their answers."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            future.set_exception(ConnectionError("not connected"))
            return future
        self._waiting.append((count, [], future))
        self._transport.write(packed)
        return future

    async def ask(self, *command: object) -> Any:
        """Send one command and return its answer; raises what the server says."""
        answer = (await self.send(hiredis.pack_command(command), 1))[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Let go."""
        if self._transport is not None:
            self._transport.close()


class RedisStreams(System):
    """See the module."""

    name = "redis-streams"
    abilities = SHARED

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self._servers = Servers("redis")
        self._ports = free_ports(3)
        self._sentinels = free_ports(3)
        self._primary = 0
        self._connection = Connection()
        self._due: list[tuple[bytes, Callable[[], None]]] = []
        self._sending: asyncio.Task[None] | None = None

    # ---- servers

    async def start(self) -> None:
        """See System."""
        if shutil.which("redis-server") is None:
            raise Missing("redis-server is not installed: apt-get install redis-server")
        for member in range(3):
            self._spawn(member)
        for port in self._ports:
            await asyncio.to_thread(wait_port, port)
        await self._all_online()
        self._connection = await Connection.open(self._ports[0])

    def _spawn(self, member: int) -> None:
        directory = self._servers.directory / f"r{member}"
        directory.mkdir(exist_ok=True)
        settings = {
            "port": self._ports[member],
            "bind": HOST,
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": "always" if self.setting == ALWAYS else "everysec",
            "repl-diskless-sync-delay": 0,
            "repl-backlog-size": "256mb",
            "auto-aof-rewrite-percentage": 0,
        }
        command = ["redis-server", *(word for name, value in settings.items() for word in (f"--{name}", str(value)))]
        command += ["--save", "", "--client-output-buffer-limit", "replica 0 0 0"]
        if member != self._primary:
            command += ["--replicaof", HOST, str(self._ports[self._primary])]
        self._servers.spawn(f"r{member}", command)

    async def _all_online(self) -> None:
        for _ in range(300):
            with suppress(OSError, ConnectionError, hiredis.HiredisError):
                connection = await Connection.open(self._ports[self._primary])
                found = (await connection.ask("INFO", "replication")).decode()
                connection.close()
                if found.count("state=online") >= 2:
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError("the replicas are not online")

    async def stop(self) -> None:
        """See System."""
        self._connection.close()
        await asyncio.to_thread(self._servers.stop)

    def pids(self) -> Mapping[str, int]:
        """See System."""
        return self._servers.pids()

    # ---- the workload

    async def fresh_log(self) -> None:
        """See System."""
        for _ in range(100):
            with suppress(ConnectionError):
                await self._connection.ask("UNLINK", "log")
                return
            await self.after_failed_append()
            await asyncio.sleep(0.1)

    async def pump(self, payload: bytes, seconds: float) -> int:
        """See System: groups of XADD with a WAIT at their end, some of them in flight on one connection."""
        size = max(_GROUP_MIN, min(_GROUP_MAX, _GROUP_BYTES // len(payload)))
        packed = _add(payload) * size + _WAIT
        flight: deque[asyncio.Future[list[Any]]] = deque()
        loop = asyncio.get_running_loop()
        end_s, acked = loop.time() + seconds, 0
        while flight or loop.time() < end_s:
            while len(flight) < _GROUPS_IN_FLIGHT and loop.time() < end_s:
                flight.append(self._connection.send(packed, size + 1))
            if flight:
                _check(await flight.popleft())
                acked += size
        return acked

    async def append(self, payload: bytes) -> None:
        """See System."""
        _check(await self._connection.send(_add(payload) + _WAIT, 2))

    def send(self, payload: bytes, on_acked: Callable[[], None]) -> None:
        """See System: what is due while a group is in flight goes out as the next one."""
        self._due.append((payload, on_acked))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_due())

    async def _send_due(self) -> None:
        while self._due:
            group, self._due = self._due, []
            packed = b"".join(_add(payload) for payload, _ in group) + _WAIT
            _check(await self._connection.send(packed, len(group) + 1))
            for _, on_acked in group:
                on_acked()

    async def read_all(self, count: int) -> int:
        """See System."""
        came, last = 0, b"0"
        while came < count:
            found = await self._connection.ask("XREAD", "COUNT", _READ_COUNT, "STREAMS", "log", last)
            if not found:
                break
            records = found[0][1]
            last = records[-1][0]
            came += len(records)
        return came

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """See System: XREAD BLOCK on a connection of its own."""
        connection = await Connection.open(self._ports[self._primary])

        async def follow() -> None:
            last: bytes | str = "$"
            while True:
                found = await connection.ask("XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", "log", last)
                for name, fields in found[0][1] if found else ():
                    last = name
                    on_record(fields[1])

        following = asyncio.create_task(follow())

        async def stop() -> None:
            following.cancel()
            connection.close()
            await asyncio.wait([following])

        return stop

    # ---- failover

    async def prepare_failover(self) -> None:
        """See System. Sentinels only now: under full load they would take a primary that flushes for dead."""
        for number, port in enumerate(self._sentinels):
            config = self._servers.directory / f"s{number}.conf"
            config.write_text(
                f"port {port}\nbind {HOST}\ndir {self._servers.directory}\n"
                f"sentinel monitor bench {HOST} {self._ports[self._primary]} 2\n"
                "sentinel down-after-milliseconds bench 1000\nsentinel failover-timeout bench 5000\n"
            )
            self._servers.spawn(f"s{number}", ["redis-server", str(config), "--sentinel"])
        for port in self._sentinels:
            await asyncio.to_thread(wait_port, port)
        await asyncio.sleep(4)

    async def in_charge(self) -> str:
        """See System."""
        return f"r{self._primary}"

    def kill(self, name: str) -> None:
        """See System."""
        self._servers.kill(name)

    async def after_failed_append(self) -> None:
        """See System: ask the sentinels who is primary now."""
        for port in self._sentinels:
            with suppress(OSError, ConnectionError, hiredis.HiredisError, TimeoutError):
                async with asyncio.timeout(0.3):
                    sentinel = await Connection.open(port)
                    _, primary = await sentinel.ask("SENTINEL", "get-master-addr-by-name", "bench")
                    sentinel.close()
                    fresh = await Connection.open(int(primary))
                self._primary = self._ports.index(int(primary))
                self._connection.close()
                self._connection = fresh
                return

    async def restore(self, name: str) -> None:
        """See System."""
        await self.after_failed_append()
        self._spawn(int(name[1:]))
        await asyncio.to_thread(wait_port, self._ports[int(name[1:])])
        await self._all_online()


def _check(answers: list[Any]) -> None:
    """Raises RuntimeError unless all were added and the WAIT at the end was met."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    if answers[-1] < 1:
        raise RuntimeError("no replica has it")


if __name__ == "__main__":
    main(RedisStreams, [ALWAYS, EVERY_SECOND])
