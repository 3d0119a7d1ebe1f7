"""Runs a streaming query to its end, or until it is interrupted, and says how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_jobs.console import Console

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_POLL_S = 1.0
_FOLLOW_EVERY = "1 second"
NOTE_NAME = "_rangelog_job.json"


def check_checkpoint(spark: SparkSession, checkpoint: str, note: dict[str, Any]) -> None:
    """Note in a checkpoint what it is of; raise InvalidArgument if it is of something else.

    Spark itself goes on with whatever it finds there, into whatever sink it is given.
    """
    from rangelog_jobs.spark_files import read_json, write_json

    place = f"{checkpoint.rstrip('/')}/{NOTE_NAME}"
    found = read_json(spark, place)
    if found is None:
        write_json(spark, place, note)
        return
    for name, value in note.items():
        if name not in found:
            raise Corruption(f"{place} is damaged: it has no {name!r}: begin with a new checkpoint")
        if found[name] != value:
            raise InvalidArgument(
                f"the checkpoint {checkpoint} is of another job, with {name} {found[name]!r} in place of {value!r}: "
                "give this one a checkpoint of its own"
            )


def run_query(
    frame: DataFrame, sink: dict[str, str], checkpoint: str, *, follow: bool, console: Console, what: str
) -> tuple[int, int]:
    """Write a streaming frame to a stream; return the numbers of records read and of micro-batches.

    Raises StreamingQueryException, whose text has the error of rangelog; KeyboardInterrupt, after the query has stopped.
    """
    writer = frame.writeStream.format("rangelog").options(**sink).option("checkpointLocation", checkpoint)
    writer = writer.trigger(processingTime=_FOLLOW_EVERY) if follow else writer.trigger(availableNow=True)
    query = writer.start()
    seen: dict[int, int] = {}
    try:
        with console.progress(what, "records") as show:
            while True:
                ended = query.awaitTermination(_POLL_S)
                _look(query, seen)
                show(sum(seen.values()))
                if ended:
                    return sum(seen.values()), sum(1 for rows in seen.values() if rows)
    except BaseException:
        query.stop()
        raise


def _look(query: StreamingQuery, seen: dict[int, int]) -> None:
    for progress in query.recentProgress:
        seen[progress["batchId"]] = max(seen.get(progress["batchId"], 0), progress["numInputRows"])
