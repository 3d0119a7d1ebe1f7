"""Runs work that is divided by rangelog, not by Spark's sources, in Spark's tasks: plain values there and back, as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rangelog_jobs.console import Console

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_MAX = 2_000
_POLL_S = 0.25


def spread(spark: SparkSession, work: Sequence[dict[str, Any]]) -> DataFrame:
    """Return a frame with the column `work`, one row for each item as JSON, in as many partitions as there are items."""
    rows = [(json.dumps(each, separators=(",", ":")),) for each in work]
    return spark.createDataFrame(rows, "work string").repartition(max(1, min(len(rows), TASKS_MAX)))


def items_of(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the items of a partition of `spread`."""
    for batch in batches:
        for text in batch.column(0).to_pylist():
            yield json.loads(text)


def fan_out(
    spark: SparkSession,
    function: Callable[[dict[str, Any]], dict[str, Any]],
    work: Sequence[dict[str, Any]],
    console: Console,
    what: str,
) -> list[dict[str, Any]]:
    """Call a function with each item, in Spark's tasks; return the results in no order. Raises what the function raises."""
    if not work:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for item in items_of(batches):
            yield pa.RecordBatch.from_pydict({"result": [json.dumps(function(item))]})

    frame = spread(spark, work).mapInArrow(run, "result string")
    with watched(spark, console, what):
        return [json.loads(row[0]) for row in frame.collect()]


@contextmanager
def watched(spark: SparkSession, console: Console, what: str) -> Iterator[None]:
    """Show how many of Spark's tasks are done, while the context lasts."""
    from pyspark.errors import PySparkException

    if console.quiet:
        yield
        return
    try:
        tracker = spark.sparkContext.statusTracker()
    except PySparkException:  # Spark Connect has none
        yield
        return
    known = set(tracker.getJobIdsForGroup(None))
    ended = threading.Event()
    with console.progress(what, "tasks") as show:

        def look() -> None:
            while not ended.wait(_POLL_S):
                jobs = [tracker.getJobInfo(each) for each in set(tracker.getJobIdsForGroup(None)) - known]
                stages = dict.fromkeys(stage for job in jobs if job is not None for stage in job.stageIds)
                infos = [info for info in map(tracker.getStageInfo, stages) if info is not None]
                if infos:
                    show(sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos))

        watcher = threading.Thread(target=look, name="rangelog-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
