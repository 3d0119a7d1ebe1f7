"""A client of Spark Connect that copies a stream, by a batch or by a query.

Arguments: those of cluster_job.py, with "batch" or "query" as the last. The server is named by SPARK_REMOTE. For a batch its
executors do not have rangelog: the client gives it to them.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rangelog.spark import give_to


def main(pd: str, source: str, folder: Path, mode: str) -> None:
    """Read and write, or follow."""
    session = SparkSession.builder.getOrCreate()
    assert type(session).__module__.startswith("pyspark.sql.connect")
    if mode == "batch":
        give_to(session, folder / "rangelog.zip")
        batch(session, pd, source, folder)
    else:
        query(session, pd, source, folder)
    session.stop()


def batch(session: SparkSession, pd: str, source: str, folder: Path) -> None:
    """Read and copy the stream."""
    frame = session.read.format("rangelog").options(pd=pd, stream=source).load()
    rows = frame.selectExpr("offset", "unix_millis(timestamp)", "hex(key)", "hex(value)").collect()
    (folder / "found.json").write_text(json.dumps({"rows": [list(row) for row in rows]}))
    frame.write.format("rangelog").options(pd=pd, stream=f"{source}-batch").mode("append").save()


def query(session: SparkSession, pd: str, source: str, folder: Path) -> None:
    """Copy the stream in micro-batches."""
    following = session.readStream.format("rangelog").options(pd=pd, stream=source, startingOffsets="earliest")
    copying = (
        following.option("maxRecordsPerTrigger", 1_000)
        .load()
        .writeStream.format("rangelog")
        .options(pd=pd, stream=f"{source}-query", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert copying.awaitTermination(120)
    assert copying.exception() is None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
