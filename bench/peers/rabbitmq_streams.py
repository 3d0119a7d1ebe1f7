"""RabbitMQ streams: three servers; acked when a majority has the record in the page cache, never flushed before that.

A figure to know, not an equal: what an ack promises is less than rangelog's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import rstream
from measure import main
from rstream import ConsumerOffsetSpecification, OffsetType
from servers import HOST, Missing, Servers, free_ports, wait_port

from rangelog_bench.system import Stop, System
from rangelog_bench.workload import SHARED

UNFLUSHED = "stream, not flushed"
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_BATCH_BYTES, _BATCH_MIN, _BATCH_MAX = 512 << 10, 16, 1_000
_BATCHES_IN_FLIGHT = 8
_START_S = 120.0

logging.disable(logging.CRITICAL)  # the client logs each lost connection with its stack


class RabbitStreams(System):
    """See the module."""

    name = "rabbitmq-streams"
    abilities = SHARED
    append_timeout_s = 2.0

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self._servers = Servers("rabbitmq")
        ports = free_ports(10)
        self._queue_ports, self._stream_ports, self._inner_ports = ports[:3], ports[3:6], ports[6:9]
        self._names_port = ports[9]
        self._producer: Any = None
        self._number = 0
        self._leader = 0

    # ---- servers

    async def start(self) -> None:
        """See System."""
        if not _PROGRAM.exists():
            raise Missing("rabbitmq-server is not installed: apt-get install rabbitmq-server")
        names = ["epmd", "-port", str(self._names_port), "-address", HOST]
        self._servers.spawn("names", names)
        await asyncio.to_thread(wait_port, self._names_port)
        for member in range(3):
            self._spawn(member)
            await asyncio.to_thread(wait_port, self._stream_ports[member], _START_S)
        await asyncio.sleep(5)  # the cluster forms
        await self._connect()

    def _spawn(self, member: int) -> None:
        directory = self._servers.directory
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{number + 1} = rb{number}@localhost\n" for number in range(3)
        )
        config = directory / f"rb{member}.conf"
        config.write_text(
            f"listeners.tcp.1 = {HOST}:{self._queue_ports[member]}\n"
            f"stream.listeners.tcp.1 = {HOST}:{self._stream_ports[member]}\n"
            f"stream.advertised_host = {HOST}\nstream.advertised_port = {self._stream_ports[member]}\n"
            f"cluster_formation.peer_discovery_backend = classic_config\n{peers}"
            "cluster_formation.randomized_startup_delay_range.min = 0\n"
            "cluster_formation.randomized_startup_delay_range.max = 1\n"
            "vm_memory_high_watermark.absolute = 4GB\ndisk_free_limit.absolute = 1GB\nlog.file.level = warning\n"
        )
        plugins = directory / "plugins"
        plugins.write_text("[rabbitmq_stream].")
        advanced = directory / "advanced.config"
        advanced.write_text("[].")
        env = {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"rb{member}@localhost",
            "RABBITMQ_NODE_PORT": str(self._queue_ports[member]),
            "RABBITMQ_DIST_PORT": str(self._inner_ports[member]),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_MNESIA_BASE": str(directory / f"data{member}"),
            "RABBITMQ_LOG_BASE": str(directory / f"log{member}"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(advanced),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_PID_FILE": str(self._pid_file(member)),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            # no busy waiting: the machine is shared by three of them and the client
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self._servers.spawn(f"rb{member}", [str(_PROGRAM)], env)

    def _pid_file(self, member: int) -> Path:
        return self._servers.directory / f"rb{member}.pid"

    def _real_pid(self, member: int) -> int | None:
        """Of the Erlang machine: what was started is a script around it."""
        with suppress(OSError, ValueError):
            return int(self._pid_file(member).read_text())
        return None

    async def stop(self) -> None:
        """See System."""
        await self._disconnect()
        for member in range(3):
            if f"rb{member}" in self._servers.pids():
                self.kill(f"rb{member}")
        await asyncio.to_thread(self._servers.stop)

    def pids(self) -> Mapping[str, int]:
        """See System."""
        return {
            name: self._real_pid(int(name[2:])) or pid for name, pid in self._servers.pids().items() if name[:2] == "rb"
        }

    # ---- client

    async def _connect(self) -> None:
        alive = [member for member in range(3) if f"rb{member}" in self._servers.pids()]
        home = self._leader if self._leader in alive else alive[0]
        self._producer = rstream.Producer(HOST, self._stream_ports[home], username="guest", password="guest")
        await self._producer.start()

    async def _disconnect(self) -> None:
        if self._producer is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._producer.close(), 1)

    async def _find_leader(self) -> int:
        leader, replicas = await self._producer._query_leader(self._stream)
        self._leader = self._stream_ports.index(leader.port)
        return len(replicas)

    async def _wait_for_replicas(self) -> None:
        for _ in range(100):
            if await self._find_leader() >= 2:
                return
            await asyncio.sleep(0.1)
        raise RuntimeError("the stream does not get its replicas")

    @property
    def _stream(self) -> str:
        return f"log{self._number}"

    async def fresh_log(self) -> None:
        """See System."""
        for attempts_left in reversed(range(60)):
            try:
                if self._number:
                    await self._producer.delete_stream(self._stream, missing_ok=True)
                await self._disconnect()
                await self._connect()
                self._number += 1
                arguments = {"queue-leader-locator": "client-local"}
                await self._producer.create_stream(self._stream, arguments=arguments, exists_ok=True)
                await self._wait_for_replicas()
                break
            except Exception:
                if not attempts_left:
                    raise
                await asyncio.sleep(0.5)
        await asyncio.sleep(1)

    # ---- the workload

    async def pump(self, payload: bytes, seconds: float) -> int:
        """See System."""
        size = max(_BATCH_MIN, min(_BATCH_MAX, _BATCH_BYTES // len(payload)))
        batch, loop, news = [payload] * size, asyncio.get_running_loop(), asyncio.Event()
        sent = acked = refused = 0

        async def confirmed(status: Any) -> None:
            nonlocal acked, refused
            if status.is_confirmed:
                acked += 1
            else:
                refused += 1
            news.set()

        end_s = loop.time() + seconds
        while loop.time() < end_s or acked + refused < sent:
            while loop.time() < end_s and sent - acked - refused < size * _BATCHES_IN_FLIGHT:
                await self._producer.send_batch(self._stream, batch, on_publish_confirm=confirmed)
                sent += size
            news.clear()
            if acked + refused < sent:
                await asyncio.wait_for(news.wait(), 20)
        if refused:
            raise RuntimeError(f"{refused} records were refused")
        return acked

    async def append(self, payload: bytes) -> None:
        """See System."""
        await self._producer.send_wait(self._stream, payload, timeout=self.append_timeout_s)

    async def _consume(self, on_record: Callable[[bytes], None], start: OffsetType) -> Stop:
        await self._find_leader()
        consumer = rstream.Consumer(HOST, self._stream_ports[self._leader], username="guest", password="guest")
        await consumer.start()

        async def take(body: Any, _context: Any) -> None:
            on_record(bytes(body))

        where = ConsumerOffsetSpecification(start, None)
        await consumer.subscribe(self._stream, take, initial_credit=50, offset_specification=where)

        async def stop() -> None:
            await consumer.close()

        return stop

    async def read_all(self, count: int) -> int:
        """See System."""
        came, done = 0, asyncio.Event()

        def take(_body: bytes) -> None:
            nonlocal came
            came += 1
            if came >= count:
                done.set()

        stop = await self._consume(take, OffsetType.FIRST)
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 120)
        await stop()
        return came

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """See System."""
        return await self._consume(on_record, OffsetType.NEXT)

    # ---- failover

    async def in_charge(self) -> str:
        """See System."""
        await self._find_leader()
        return f"rb{self._leader}"

    def kill(self, name: str) -> None:
        """See System."""
        pid = self._real_pid(int(name[2:]))
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._servers.kill(name)

    async def after_failed_append(self) -> None:
        """See System: the client does not find the new leader by itself."""
        await self._disconnect()
        with suppress(Exception):
            await asyncio.wait_for(self._connect(), 2)
            await asyncio.wait_for(self._find_leader(), 2)

    async def restore(self, name: str) -> None:
        """See System."""
        self._spawn(int(name[2:]))
        await asyncio.to_thread(wait_port, self._stream_ports[int(name[2:])], _START_S)
        await asyncio.sleep(5)


if __name__ == "__main__":
    main(RabbitStreams, [UNFLUSHED])
