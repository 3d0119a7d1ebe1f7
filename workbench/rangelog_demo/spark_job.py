"""The demo's query in Spark SQL, in a process of its own: mean departure delay and cancelled share per carrier.

Asks twice, and writes the answers as JSON: of the whole stream as one table, hot and tiered ranges in one plan; and of a topic,
into which a streaming query has copied the stream, micro-batch by micro-batch, each as a transaction.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import rangelog.sync
from rangelog import StreamConfig, TopicConfig
from rangelog_cli.local.lifeline import follow_parent

QUERY = """
SELECT f.carrier AS carrier,
       count(*) AS flights,
       avg(f.dep_delay) AS mean_delay,
       avg(CASE WHEN f.dep_time IS NULL THEN 1D ELSE 0D END) AS cancelled_share
FROM (SELECT from_json(CAST(value AS STRING), 'carrier STRING, dep_delay DOUBLE, dep_time INT') AS f FROM log)
GROUP BY f.carrier ORDER BY f.carrier
"""


COPY = "copied-by-spark"
RECORDS_PER_TRIGGER = 100_000


def answer(pds: str, stream: str, checkpoint: Path) -> dict[str, object]:
    """Start Spark, ask, copy, ask again, stop Spark."""
    from rangelog.spark import create_session

    spark = create_session("rangelog-demo")
    try:
        rows = _ask(spark, pds, stream=stream)
        _copy(spark, pds, stream, checkpoint)
        return {"rows": rows, "copied": _ask(spark, pds, topic=COPY)}
    finally:
        spark.stop()


def _ask(spark: Any, pds: str, **source: str) -> list[list[object]]:
    spark.read.format("rangelog").option("pd", pds).options(**source).load().createOrReplaceTempView("log")
    return [[row.carrier, row.flights, row.mean_delay, row.cancelled_share] for row in spark.sql(QUERY).collect()]


def _copy(spark: Any, pds: str, stream: str, checkpoint: Path) -> None:
    """Copy what the stream has now into a topic."""
    with rangelog.sync.connect(pds) as client:
        client.topics.create(COPY, TopicConfig(stream=StreamConfig(tiered=False)), shards=2)
    frame = spark.readStream.format("rangelog").option("pd", pds).option("startingOffsets", "earliest")
    flights = frame.option("maxRecordsPerTrigger", RECORDS_PER_TRIGGER).load(stream)
    writer = flights.writeStream.format("rangelog").option("pd", pds).option("topic", COPY)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--pds", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    checkpoint = options.output.with_suffix(".checkpoint")
    options.output.write_text(json.dumps(answer(options.pds, options.stream, checkpoint)))


if __name__ == "__main__":
    main()
