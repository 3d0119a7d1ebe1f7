"""Kafka beside rangelog: three servers of bench/peers/kafka.py, read and written by Spark's own Kafka source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jvm import JAVA, require
from kafka import NODES, Kafka
from spark_side import Side

from rangelog_bench.anchors import KAFKA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

SOURCE = "spark-kafka"
"""The folder of the source's jars."""
PARTITIONS = 2
_OPEN_S_MAX = 60.0
_PRODUCER = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "5", "kafka.buffer.memory": str(64 << 20)}


def jars() -> str:
    """The value of spark.jars for Spark's Kafka source. Raises Missing."""
    require("kafka")
    require(SOURCE)
    return ",".join(str(path) for path in sorted((JAVA / SOURCE / "lib").glob("*.jar")))


class KafkaSide(Side):
    """Topics of two partitions with three copies; acked by all in sync, not flushed."""

    name, setting = KAFKA.system, KAFKA.setting
    kinds = ("topic",)
    sinks = ("topic, at least once",)

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._loop = asyncio.new_event_loop()
        self._system = Kafka(KAFKA.setting)
        self._made = 0

    def start(self) -> None:
        """Start the servers and the client that appends."""
        self._loop.run_until_complete(self._system.start())
        java = self._java()
        settings = java.java.util.HashMap()
        settings.put("bootstrap.servers", self._system.addresses)
        self._admin = java.org.apache.kafka.clients.admin.Admin.create(settings)

    def stop(self) -> None:
        """End them and remove their files."""
        self._loop.run_until_complete(self._system.stop())
        self._loop.close()

    def _java(self) -> Any:
        return self._spark._jvm

    def make(self, topic: str) -> None:
        """Make a topic."""
        java = self._java()
        made = java.org.apache.kafka.clients.admin.NewTopic(topic, PARTITIONS, len(NODES))
        self._admin.createTopics(java.java.util.List.of(made)).all().get()

    def fill(self, size: int, records: DataFrame) -> None:
        """Make the topic of a size from a frame that has `offset` and `value`: offsets alternate between the partitions."""
        self.make(f"topic-{size}")
        rows = records.selectExpr(f"CAST(offset % {PARTITIONS} AS INT) AS partition", "value")
        rows.write.format("kafka").options(**self._options(), **_PRODUCER).option("topic", f"topic-{size}").save()

    def _options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._system.addresses}

    def batch(self, size: int, kind: str) -> DataFrame:
        """See Side."""
        return self._spark.read.format("kafka").options(**self._options(), subscribe=f"topic-{size}").load()

    def follow(self, size: int, per_batch: int) -> DataFrame:
        """See Side."""
        options = self._options() | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_batch)}
        return self._spark.readStream.format("kafka").options(**options, subscribe=f"topic-{size}").load()

    def tail(self) -> DataFrame:
        """See Side: a topic of one partition, which the client in Java makes."""
        self._loop.run_until_complete(self._system.fresh_log())
        names = [str(name) for name in self._admin.listTopics().names().get()]
        topic = max((name for name in names if name.startswith("log")), key=lambda name: int(name.removeprefix("log")))
        options = self._options() | {"startingOffsets": "earliest", "subscribe": topic}
        return self._spark.readStream.format("kafka").options(**options).load()

    def append(self, size: int, rate_per_s: int, count: int) -> None:
        """See Side: the client in Java stamps its records likewise, by the same clock."""
        self._loop.run_until_complete(self._system.driver.open_loop(size, rate_per_s, count, _OPEN_S_MAX))

    def sink(self, frame: DataFrame, kind: str) -> tuple[DataStreamWriter, Callable[[], int]]:
        """See Side."""
        self._made += 1
        topic = f"sink-{self._made}"
        self.make(topic)
        writer = frame.writeStream.format("kafka").options(**self._options(), **_PRODUCER, topic=topic)
        read = self._spark.read.format("kafka").options(**self._options(), subscribe=topic)
        return writer, lambda: read.load().count()

    def pids(self) -> Mapping[str, int]:
        """See Side."""
        return dict(self._system.pids())
