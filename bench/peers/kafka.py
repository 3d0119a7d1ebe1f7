"""Apache Kafka: three servers in KRaft mode, one partition with three copies; acked by all copies that are in sync.

By default an ack means the page cache of all in sync, two at least; with `flush on every append` each of them has flushed
each batch (log.flush.interval.messages=1, which Kafka's documentation advises against: replication is to be enough).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from java_system import JavaSystem
from jvm import require
from measure import main
from servers import HOST, free_ports, listening

from rangelog_bench.anchors import KAFKA, KAFKA_FLUSHED
from rangelog_bench.workload import OF_PEERS, PRODUCER_COUNT, PRODUCER_SHARDS

NODES = (1, 2, 3)
_CLUSTER_ID = "cmFuZ2Vsb2ctYmVuY2gtMQ"
_SERVER = ["-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
_FORMATTER = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_START_S_MAX = 60.0
_PRODUCE_S_MAX = 300.0
_PRODUCER_BYTES = 1 << 20
"""In flight of each of many producers."""


class Kafka(JavaSystem):
    """See the module."""

    name = KAFKA.system
    peer = "kafka"
    abilities = OF_PEERS
    in_flight_bytes, in_flight_max = 32 << 20, 200_000

    def __init__(self, setting: str) -> None:
        super().__init__(setting)
        ports = free_ports(2 * len(NODES))
        self._ports = dict(zip(NODES, ports[: len(NODES)], strict=True))
        self._quorum_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))

    @property
    def addresses(self) -> str:
        """Of its servers, as clients take them."""
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    async def start(self) -> None:
        """See System."""
        require("kafka")
        for node in NODES:
            config = str(self._configure(node))
            format_it = self.java(_FORMATTER, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", config)
            self._servers.spawn(f"format{node}", format_it)
        for node in NODES:
            await asyncio.to_thread(self._servers.finish, f"format{node}", _START_S_MAX)
        for node in NODES:
            self._spawn(node)
        for port in self._ports.values():
            await listening(port, _START_S_MAX)
        await self.start_driver([], "KafkaLog", self.addresses)

    def _file(self, node: int) -> Path:
        return self._servers.directory / f"node{node}.properties"

    def _configure(self, node: int) -> Path:
        voters = ",".join(f"{each}@{HOST}:{port}" for each, port in self._quorum_ports.items())
        addresses = f"DATA://{HOST}:{self._ports[node]},QUORUM://{HOST}:{self._quorum_ports[node]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "controller.listener.names": "QUORUM",
            "inter.broker.listener.name": "DATA",
            "listeners": addresses,
            "advertised.listeners": addresses,
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
        self._file(node).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return self._file(node)

    def _spawn(self, node: int) -> None:
        self._servers.spawn(f"node{node}", self.java(_SERVER, "kafka.Kafka", str(self._file(node))))

    async def produce_together(self, payload: bytes, seconds: float, keys: int) -> tuple[int, float]:
        """See System: each producer in a thread of its own."""
        words = (PRODUCER_COUNT, PRODUCER_SHARDS, len(payload), seconds, _PRODUCER_BYTES // len(payload), keys)
        answer = await self.driver.ask("produce", *words, limit_s=seconds + _PRODUCE_S_MAX)
        return int(answer["acked"]), answer["took_ns"] / 1e9

    async def in_charge(self) -> str:
        """See System: the partition's leader, which may lead the metadata as well."""
        return f"node{(await self.servers_in_charge())[0]}"

    async def restore(self, name: str) -> None:
        """See System; the next log waits for all its copies."""
        node = int(name.removeprefix("node"))
        self._spawn(node)
        await listening(self._ports[node], _START_S_MAX)


if __name__ == "__main__":
    main(Kafka, [KAFKA.setting, KAFKA_FLUSHED.setting])
