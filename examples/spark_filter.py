"""A streaming query of Spark: the records of a topic that have a text in them go into a stream, each once.

python examples/spark_filter.py kitchen-orders ann-only --text ann --checkpoint /tmp/checkpoint
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

import rangelog.sync
from rangelog.spark import create_session


def run(spark: SparkSession, addresses: str, topic: str, stream: str, text: str, checkpoint: str) -> int:
    """Go on from where the checkpoint is to what is acked now; return how many records were looked at."""
    records = spark.readStream.format("rangelog").option("pd", addresses).option("topic", topic)
    chosen = records.option("startingOffsets", "earliest").load().where(f"contains(string(value), '{text}')")
    sink = chosen.select("key", "value", "timestamp").writeStream.format("rangelog").option("pd", addresses)
    query = sink.option("stream", stream).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("stream")
    parser.add_argument("--text", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    given = parser.parse_args()
    with rangelog.sync.connect(given.pd) as client:
        client.create_stream(given.stream, exist_ok=True)
    looked_at = run(create_session(), given.pd, given.topic, given.stream, given.text, given.checkpoint)
    print(f"looked at {looked_at} records")
