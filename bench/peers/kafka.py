"""Apache Kafka: three servers in KRaft mode, one partition with three copies; acked by all copies that are in sync.

By default an ack means the page cache of all in sync, two at least; with `flush on every append` each of them has flushed
each batch (log.flush.interval.messages=1, which Kafka's documentation advises against: replication is to be enough).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from jvm import java, require
from measure import main
from servers import HOST, Servers, free_ports, wait_port

from rangelog_cli.bench.anchors import KAFKA, KAFKA_FLUSHED
from rangelog_cli.bench.payload import WARM_UP, make_record
from rangelog_cli.bench.system import Stop, System
from rangelog_cli.bench.workload import SHARED

NODES = (1, 2, 3)
_CLUSTER_ID = "cmFuZ2Vsb2ctYmVuY2gtMQ"
_SERVER = ["-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
_FORMATTER = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_PRODUCES_AT_ONCE = 500
_CONSUMES_AT_ONCE = 5_000
_WAIT_S_MAX = 60.0
_READ_S_MAX = 120.0
_POLL_S = 0.1


class Kafka(System):
    """See the module."""

    name = KAFKA.system
    abilities = SHARED
    append_timeout_s = 60.0
    """The idempotent producer goes on trying by itself."""
    compiles_while_running = True

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self._servers = Servers("kafka")
        ports = free_ports(2 * len(NODES))
        self._ports = dict(zip(NODES, ports[: len(NODES)], strict=True))
        self._quorum_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._topic_number = 0
        self._skipped = 0
        self._batching: Any = None
        self._single: Any = None
        self._admin: Any = None
        self._polling: threading.Thread | None = None
        self._stop_polling = threading.Event()
        self._poll_in_thread = False

    # ---- servers

    async def start(self) -> None:
        """See System."""
        require("kafka")
        for node in NODES:
            self._format(node)
        for node in NODES:
            await asyncio.to_thread(self._servers.finish, f"format{node}", _WAIT_S_MAX)
        for node in NODES:
            self._spawn(node)
        for port in self._ports.values():
            await asyncio.to_thread(wait_port, port, _WAIT_S_MAX)
        servers = ",".join(f"{HOST}:{port}" for port in self._ports.values())
        common = {"bootstrap.servers": servers, "log_level": 0}
        self._consumer_config = common | {
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 128 << 10,
            "fetch.message.max.bytes": 8 << 20,
            "fetch.queue.backoff.ms": 5,  # 1,000 by default: a reader that fills its queue would sleep as long
        }
        self._admin = AdminClient(common)
        producer = common | {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 300_000}
        self._batching = Producer(
            producer
            | {
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 32 << 10,
                "delivery.report.only.error": True,
            }
        )
        self._single = Producer(producer | {"linger.ms": 0})

    def _format(self, node: int) -> None:
        config = self._servers.directory / f"node{node}.properties"
        voters = ",".join(f"{each}@{HOST}:{port}" for each, port in self._quorum_ports.items())
        here, quorum = f"{HOST}:{self._ports[node]}", f"{HOST}:{self._quorum_ports[node]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "controller.listener.names": "QUORUM",
            "inter.broker.listener.name": "DATA",
            "listeners": f"DATA://{here},QUORUM://{quorum}",
            "advertised.listeners": f"DATA://{here},QUORUM://{quorum}",
            "listener.security.protocol.map": "DATA:PLAINTEXT,QUORUM:PLAINTEXT",
            "log.dirs": self._servers.directory / f"node{node}",
            "auto.create.topics.enable": "false",
            "default.replication.factor": len(NODES),
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": len(NODES),
            "log.segment.delete.delay.ms": 1_000,
        }
        if self.setting == KAFKA_FLUSHED.setting:
            settings["log.flush.interval.messages"] = 1
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = java(
            "kafka", self._servers.directory, _FORMATTER,
            "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config),
        )  # fmt: skip
        self._servers.spawn(f"format{node}", command)

    def _spawn(self, node: int) -> None:
        config = self._servers.directory / f"node{node}.properties"
        command = java("kafka", self._servers.directory, _SERVER, "kafka.Kafka", str(config))
        self._servers.spawn(f"node{node}", command)

    async def stop(self) -> None:
        """See System."""
        self._end_polling()
        for producer in (self._single, self._batching):
            if producer is not None:
                producer.purge()
                producer.flush(1)
        await asyncio.to_thread(self._servers.stop)

    def pids(self) -> Mapping[str, int]:
        """See System."""
        return self._servers.pids()

    # ---- topics

    @property
    def _topic(self) -> str:
        return f"log{self._topic_number}"

    async def fresh_log(self) -> None:
        """See System. A record of each producer comes first, so that both know the leader; no reader gets them."""
        self._end_polling()
        await asyncio.to_thread(self._new_topic)
        for producer in (self._single, self._batching):
            producer.produce(self._topic, make_record(100, WARM_UP))
            if producer.flush(_WAIT_S_MAX):
                raise RuntimeError("the first record of a topic is not acked")
        self._skipped = 2

    def _new_topic(self) -> None:
        if self._topic_number:
            with suppress(KafkaException):
                self._admin.delete_topics([self._topic])[self._topic].result(_WAIT_S_MAX)
        self._topic_number += 1
        end_s = time.monotonic() + _WAIT_S_MAX
        while True:  # the servers may still be electing
            try:
                topic = NewTopic(self._topic, 1, len(NODES))
                self._admin.create_topics([topic])[self._topic].result(10)
                break
            except KafkaException as error:
                if "ALREADY_EXISTS" in str(error):
                    break
                if time.monotonic() > end_s:
                    raise
                time.sleep(_POLL_S)
        self._wait_in_sync()

    def _wait_in_sync(self) -> None:
        end_s = time.monotonic() + _WAIT_S_MAX
        while time.monotonic() < end_s:
            with suppress(KafkaException, KeyError, IndexError):
                partition = self._partition()
                if len(partition.isrs) == len(NODES) and partition.leader in NODES:
                    return
            time.sleep(_POLL_S)
        raise RuntimeError("the partition has not three copies in sync")

    def _partition(self) -> Any:
        return self._admin.list_topics(self._topic, timeout=5).topics[self._topic].partitions[0]

    # ---- appends

    async def pump(self, payload: bytes, seconds: float) -> int:
        """See System: produce and poll, as the client's documentation advises; only errors are reported one by one."""
        producer, topic = self._batching, self._topic
        refused: list[str] = []

        def refuse(error: Any, _message: Any) -> None:
            refused.append(str(error))

        end_s, sent = time.perf_counter() + seconds, 0
        while time.perf_counter() < end_s:
            for _ in range(_PRODUCES_AT_ONCE):
                while True:
                    try:
                        producer.produce(topic, payload, on_delivery=refuse)
                        break
                    except BufferError:
                        producer.poll(0.01)
            sent += _PRODUCES_AT_ONCE
            producer.poll(0)
            await asyncio.sleep(0)  # Ctrl-C arrives here
        if await asyncio.to_thread(producer.flush, _READ_S_MAX) or refused:
            raise RuntimeError(f"{len(refused)} of {sent} records were refused, {len(producer)} are not acked")
        return sent

    async def append(self, payload: bytes) -> None:
        """See System: produce, and poll until the delivery is reported."""
        if self._poll_in_thread:
            await self._append_polled(payload)
            return
        reported: list[Any] = []
        self._single.produce(self._topic, payload, on_delivery=lambda error, _message: reported.append(error))
        while not reported:
            self._single.poll(0.01 if self._polling else 1.0)
        if reported[0] is not None:
            raise RuntimeError(str(reported[0]))
        await asyncio.sleep(0)

    async def _append_polled(self, payload: bytes) -> None:
        """The same without blocking the event loop: during a failover there are no acks for seconds."""
        loop = asyncio.get_running_loop()
        acked: asyncio.Future[Any] = loop.create_future()

        def report(error: Any) -> None:
            if not acked.done():
                acked.set_result(error)

        self._start_polling()
        self._single.produce(
            self._topic, payload, on_delivery=lambda error, _message: loop.call_soon_threadsafe(report, error)
        )
        if (error := await acked) is not None:
            raise RuntimeError(str(error))

    def send(self, payload: bytes, on_acked: Callable[[], None]) -> None:
        """See System: a thread polls, as asyncio programs do with this client, and calls `on_acked`."""
        self._start_polling()
        self._single.produce(
            self._topic, payload, on_delivery=lambda error, _message: on_acked() if error is None else None
        )

    def _start_polling(self) -> None:
        if self._polling is None:
            self._stop_polling.clear()
            self._polling = threading.Thread(target=self._poll, daemon=True)
            self._polling.start()

    def _poll(self) -> None:
        while not self._stop_polling.is_set():
            self._single.poll(_POLL_S)

    def _end_polling(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            self._stop_polling.set()
            polling.join()

    # ---- reads

    def _consumer(self, offset: int) -> Any:
        consumer = Consumer(self._consumer_config)
        consumer.assign([TopicPartition(self._topic, 0, offset)])
        return consumer

    async def read_all(self, count: int) -> int:
        """See System: every record made and looked at."""
        return await asyncio.to_thread(self._read_all, count)

    def _read_all(self, count: int) -> int:
        consumer, came, size_bytes = self._consumer(self._skipped), 0, 0
        end_s = time.monotonic() + _READ_S_MAX
        while came < count and time.monotonic() < end_s:
            for message in consumer.consume(min(_CONSUMES_AT_ONCE, count - came), 0.2):
                if message.error() is None:
                    size_bytes += len(message.value())
                    came += 1
        consumer.close()
        assert size_bytes
        return came

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """See System: the consumer has a thread of its own."""
        stopping = threading.Event()
        consumer = self._consumer(await asyncio.to_thread(self._end))

        def follow() -> None:
            while not stopping.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    on_record(message.value())

        following = threading.Thread(target=follow, daemon=True)
        following.start()

        async def stop() -> None:
            stopping.set()
            await asyncio.to_thread(following.join)
            consumer.close()

        return stop

    def _end(self) -> int:
        consumer = self._consumer(0)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=10)[1])
        finally:
            consumer.close()

    # ---- failover

    async def prepare_failover(self) -> None:
        """See System."""
        self._poll_in_thread = True

    async def in_charge(self) -> str:
        """See System: the partition's leader, which may lead the metadata as well."""
        return f"node{(await asyncio.to_thread(self._partition)).leader}"

    def kill(self, name: str) -> None:
        """See System."""
        self._servers.kill(name)

    async def restore(self, name: str) -> None:
        """See System."""
        node = int(name.removeprefix("node"))
        self._spawn(node)
        await asyncio.to_thread(wait_port, self._ports[node], _WAIT_S_MAX)
        await asyncio.to_thread(self._wait_in_sync)


if __name__ == "__main__":
    main(Kafka, [KAFKA.setting, KAFKA_FLUSHED.setting])
