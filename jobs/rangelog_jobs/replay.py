"""The job `replay`: the records of a stream or topic, changed by SQL, into another one, each exactly once and over restarts.

A streaming query from the source `rangelog` to the sink `rangelog`: the checkpoint has how far it is, the sink appends each
micro-batch once. It ends with what was acked when it began, or follows. A name with a slash is a topic's.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rangelog_core.errors import InvalidArgument
from rangelog_jobs.argument_types import count
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.console import Console
from rangelog_jobs.copy_ends import id_of, option_of
from rangelog_jobs.job import EXIT_OK, Job, JobCall, JobTable
from rangelog_jobs.running import check_checkpoint, run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "records"
_LONG_EXAMPLE = """replay clicks --to clicks-eu --checkpoint s3a://lake/checkpoints/clicks-eu --follow \\
    --sql "SELECT key, value, timestamp, headers FROM records WHERE key LIKE 'eu-%'\""""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The source, the target and the limits of a replay.

    Attributes:
        source: The stream, or the topic "namespace/name".
        target: The stream, or the topic "namespace/name", that it goes to; it must exist.
        checkpoint: A folder of Spark's for this replay alone: a path or URL.
        sql: A query over the view `records`, with the columns of a stream; its columns are value, key, timestamp, headers.
        follow: Go on after what is acked now.
        start: Where a new replay begins: "earliest", "latest", an offset or a time.
        records_per_batch: Records of one micro-batch at most; 0: all.
    """

    source: str
    target: str
    checkpoint: str
    sql: str = ""
    follow: bool = False
    start: str = "earliest"
    records_per_batch: int = 0

    def check(self) -> None:
        """Raise InvalidArgument for options that fit no cluster."""
        if self.source == self.target:
            raise InvalidArgument(f"{self.source!r} cannot be replayed into itself: name another stream with --to")
        if not self.checkpoint:
            raise InvalidArgument("no checkpoint is given: --checkpoint DIR")


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The counts of a run: records, and the micro-batches that they came in."""

    record_count: int
    batch_count: int


def replay_stream(
    spark: SparkSession, cluster: ClusterAddress, options: ReplayOptions, *, console: Console | None = None
) -> CopyResult:
    """Replay from where the checkpoint is, to the end as of now; with `follow` until it is interrupted.

    Raises:
        InvalidArgument: An option is not valid, the SQL does not fit, or the checkpoint is of something else.
        StreamNotFound, TopicNotFound: Source or target do not exist.
        WriterFenced: The target has another writer.

    Example:
        ```python
        options = ReplayOptions("clicks", "clicks-eu", "/checkpoints/clicks-eu", "SELECT * FROM records WHERE key LIKE 'eu%'")
        replay_stream(spark, ClusterAddress("127.0.0.1:7100"), options)
        ```
    """
    options.check()
    id_of(cluster, options.source)
    target_id = id_of(cluster, options.target)
    frame = transformed(spark, source_frame(spark, cluster, options), options.sql)
    note = {"job": "replay", "from": options.source, "to": options.target, "to_id": target_id}
    check_checkpoint(spark, options.checkpoint, note)
    records, batches = run_query(
        frame,
        cluster.to_sink_options(**option_of(options.target)),
        options.checkpoint,
        follow=options.follow,
        console=console or Console(quiet=True),
        what=f"{options.source} to {options.target}",
    )
    return CopyResult(records, batches)


def source_frame(spark: SparkSession, cluster: ClusterAddress, options: ReplayOptions) -> DataFrame:
    """Return the streaming frame of the source."""
    known = cluster.to_options(**option_of(options.source), startingOffsets=options.start)
    if options.records_per_batch:
        known["maxRecordsPerTrigger"] = str(options.records_per_batch)
    return spark.readStream.format("rangelog").options(**known).load()


def transformed(spark: SparkSession, frame: DataFrame, sql: str) -> DataFrame:
    """Return what the SQL makes of a frame. Raises InvalidArgument if it does not fit Spark, or the sink."""
    from pyspark.errors import PySparkException

    from rangelog_jobs.failures import explain

    if not sql:
        return frame
    frame.createOrReplaceTempView(VIEW)
    try:
        made = spark.sql(sql)
        schema = made.schema
    except PySparkException as error:
        raise InvalidArgument(f"--sql: {explain(error).message}") from None
    if not made.isStreaming:
        raise InvalidArgument(f"--sql: the query does not read the view {VIEW!r}")
    from rangelog.spark.encoding import check_schema

    check_schema(schema)
    return made


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "replay",
            "Append a stream's or topic's records, changed by SQL, to another stream or topic, each exactly once.",
            [
                "replay clicks --to clicks-copy --checkpoint /data/checkpoints/clicks-copy",
                "replay clicks --to shop/clicks --checkpoint /data/checkpoints/shop-clicks",
                _LONG_EXAMPLE,
            ],
            _arguments,
            _run,
            "Run again with the same checkpoint it goes on where it was, also after a crash. A stream has one writer: a\n"
            "replay into it fences any other. Into a topic it writes beside others, a micro-batch in few transactions.",
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM", help="a stream, or a topic NAMESPACE/NAME")
    parser.add_argument(
        "--to", required=True, metavar="STREAM", dest="target", help="a stream, or a topic NAMESPACE/NAME"
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="a folder for this replay alone, path or URL"
    )
    parser.add_argument("--sql", default="", metavar="'SELECT … FROM records'", help="what to append, as key, value, …")
    parser.add_argument(
        "--start", default="earliest", help="where a new replay begins: earliest, latest, offset or time"
    )
    parser.add_argument(
        "--batch-records", type=count, default=0, metavar="N", help="records of one micro-batch at most"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes after the end as of now")


def _run(call: JobCall) -> int:
    given = call.arguments
    cluster = call.cluster()
    options = ReplayOptions(
        given.source, given.target, given.checkpoint, given.sql, given.follow, given.start, given.batch_records
    )
    options.check()
    result = replay_stream(call.session(), cluster, options, console=call.console)
    call.emit({}, f"{result.record_count:,} records of {options.source} read in {result.batch_count} micro-batches")
    return EXIT_OK
