"""What the tests give to spark-submit: copies of a stream, by a batch and by a query. It runs without the project's files.

Arguments: the placement driver; the stream to read; the folder for what it finds and for checkpoints; "whole", or "held" for
copies that stop in the middle of a task, until the executor of that task is killed.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession


def copy(session: SparkSession, pd: str, source: str, folder: Path, *, held: bool) -> None:
    """Copy the stream to "…-batch" and to "…-query"."""
    frame = session.read.format("rangelog").options(pd=pd, stream=source, records_per_partition=300).load()
    through(frame, folder / "batch", held=held).write.format("rangelog").options(pd=pd, stream=f"{source}-batch").mode(
        "append"
    ).save()
    following = session.readStream.format("rangelog").options(pd=pd, stream=source, startingOffsets="earliest")
    following = following.options(maxRecordsPerTrigger=1_000, records_per_partition=300)
    query = (
        through(following.load(), folder / "query", held=held)
        .writeStream.format("rangelog")
        .options(pd=pd, stream=f"{source}-query", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def through(frame: DataFrame, mark: Path, *, held: bool) -> DataFrame:
    """The frame; with `held` the first task with partition 1 stops behind its first rows, once, and leaves its pid."""

    def hold(batches):  # type: ignore[no-untyped-def]
        context = TaskContext.get()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if context.partitionId() == 1 and not mark.exists():
                mark.with_suffix(".new").write_text(str(os.getpid()))
                mark.with_suffix(".new").replace(mark)
                signal.pause()
            yield batch.slice(half)

    return frame.mapInArrow(hold, frame.schema) if held else frame


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
    copy(session, pd, source, folder, held=mode == "held")
    session.stop()


if __name__ == "__main__":
    assert pa.__version__
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
