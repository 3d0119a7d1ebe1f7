"""A client of Spark Connect that copies a stream, by a batch and by a query.

Arguments: those of cluster_job.py, without the last. The server is named by SPARK_REMOTE; neither it nor its executors have
rangelog: the client gives it to them.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rangelog.spark import give_to


def main(pd: str, source: str, folder: Path) -> None:
    """Read, write, and follow."""
    session = SparkSession.builder.getOrCreate()
    assert type(session).__module__.startswith("pyspark.sql.connect")
    give_to(session, folder / "rangelog.zip")
    frame = session.read.format("rangelog").options(pd=pd, stream=source).load()
    rows = frame.selectExpr("offset", "unix_millis(timestamp)", "hex(key)", "hex(value)").collect()
    (folder / "found.json").write_text(json.dumps({"rows": [list(row) for row in rows]}))
    frame.write.format("rangelog").options(pd=pd, stream=f"{source}-batch").mode("append").save()
    following = session.readStream.format("rangelog").options(pd=pd, stream=source, startingOffsets="earliest")
    query = (
        following.option("maxRecordsPerTrigger", 1_000)
        .load()
        .writeStream.format("rangelog")
        .options(pd=pd, stream=f"{source}-query", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
