"""A driver as a process of its own, to be killed: copies a stream into a stream or topic, by a checkpoint, to its end.

python copying_driver.py PD SOURCE KIND TARGET CHECKPOINT
"""

from __future__ import annotations

import sys

from rangelog.spark import create_session

RECORDS_PER_TRIGGER = 250


def main() -> None:
    """Run the query to its end."""
    pd, source, kind, target, checkpoint = sys.argv[1:]
    session = create_session("copying", spark_driver_memory="512m", spark_master="local[2,4]")
    reader = session.readStream.format("rangelog").option("pd", pd).option("startingOffsets", "earliest")
    frame = reader.option("maxRecordsPerTrigger", RECORDS_PER_TRIGGER).option("records_per_partition", 100).load(source)
    writer = frame.writeStream.format("rangelog").option("pd", pd).option(kind, target)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
