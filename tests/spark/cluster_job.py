"""What the tests give to spark-submit: copies of a stream, by a batch and by a query. It runs without the project's files.

Arguments: the placement driver; the stream to read; the folder for what it finds and for checkpoints; "whole", "held" for
copies that stop in the middle of a task, until the executor of that task is killed, or "outrun" for copies of which the first
attempt of a task never ends.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession


def copy(session: SparkSession, pd: str, source: str, folder: Path, mode: str) -> None:
    """Copy the stream to "…-batch" and to "…-query"."""
    frame = session.read.format("rangelog").options(pd=pd, stream=source, records_per_partition=300).load()
    through(frame, folder / "batch", mode).write.format("rangelog").options(pd=pd, stream=f"{source}-batch").mode(
        "append"
    ).save()
    following = session.readStream.format("rangelog").options(pd=pd, stream=source, startingOffsets="earliest")
    following = following.options(maxRecordsPerTrigger=1_000, records_per_partition=300)
    query = (
        through(following.load(), folder / "query", mode)
        .writeStream.format("rangelog")
        .options(pd=pd, stream=f"{source}-query", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def through(frame: DataFrame, mark: Path, mode: str) -> DataFrame:
    """The frame; unless "whole", some task with partition 1 stops behind its first rows.

    "held": once, and leaves its pid. "outrun": as first attempt; what comes behind it leaves its number.
    """

    def hold(batches):  # type: ignore[no-untyped-def]
        context = TaskContext.get()
        is_second = context.partitionId() == 1
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if is_second and mode == "held" and not mark.exists():
                mark.with_suffix(".new").write_text(str(os.getpid()))
                mark.with_suffix(".new").replace(mark)
                signal.pause()
            if is_second and mode == "outrun" and context.attemptNumber() == 0:
                signal.pause()
            yield batch.slice(half)
        if is_second and mode == "outrun":
            mark.write_text(str(context.attemptNumber()))

    return frame.mapInArrow(hold, frame.schema) if mode != "whole" else frame


def where(_: object) -> list[list[str]]:
    """In a task: which Python, where rangelog comes from, and all that is on the path."""
    import rangelog.spark.sink

    return [[sys.prefix, os.path.abspath(rangelog.spark.sink.__file__), *sys.path]]


def main(pd: str, source: str, folder: Path, mode: str) -> None:
    """Run the copies; of whole ones, write what was read and where."""
    session = SparkSession.builder.getOrCreate()
    if mode == "whole":
        frame = session.read.format("rangelog").options(pd=pd, stream=source).load()
        rows = frame.selectExpr("offset", "unix_millis(timestamp)", "hex(key)", "hex(value)").collect()
        places = session.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
        (folder / "found.json").write_text(json.dumps({"rows": [list(row) for row in rows], "places": places}))
    copy(session, pd, source, folder, mode)
    session.stop()


if __name__ == "__main__":
    assert pa.__version__
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
