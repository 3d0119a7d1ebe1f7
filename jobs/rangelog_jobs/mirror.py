"""The job `mirror`: a Kafka topic into a stream or topic, by Spark's Kafka source and the sink of rangelog, each record once.

Key, value, headers and timestamp are kept. A record without a value gets an empty one and the header `kafka-null-value`: a
value of rangelog is never null. Of several headers with one name the last is kept; a header without a value gets an empty one.
Records of one Kafka partition stay in order within a micro-batch and over them; in a topic those of one key do.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog_core.errors import InvalidArgument
from rangelog_jobs.argument_types import count, setting
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.console import Console
from rangelog_jobs.copy_ends import id_of, option_of
from rangelog_jobs.job import EXIT_OK, Job, JobCall, JobTable
from rangelog_jobs.needed import need_format
from rangelog_jobs.replay import CopyResult
from rangelog_jobs.running import check_checkpoint, run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NULL_VALUE_HEADER = "kafka-null-value"
STARTS = ("earliest", "latest")
_EXAMPLES = (
    """mirror --kafka 127.0.0.1:9092 --topic clicks --to clicks --checkpoint /data/checkpoints/clicks \\
    --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0""",
    """mirror --kafka k1:9092,k2:9092 --topic clicks --to clicks --checkpoint s3a://lake/clicks --follow \\
    --kafka-option kafka.security.protocol=SSL""",
)
_ADDRESSES = re.compile(r"[^\s,:]+:[0-9]{1,5}(,[^\s,:]+:[0-9]{1,5})*|\[[0-9a-fA-F:]+\]:[0-9]{1,5}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MARKED = (
    "concat(transform(coalesce(headers, array()), each -> named_struct('key', each.key, 'value', coalesce(each.value, X''))), "
    f"CASE WHEN value IS NULL THEN array(named_struct('key', '{NULL_VALUE_HEADER}', 'value', X'')) ELSE array() END) AS marked"
)
_LAST_OF_NAME = (
    "filter(marked, (each, at) -> NOT exists(slice(marked, at + 2, size(marked)), later -> later.key = each.key))"
)
_FIRST = ("key", "value", "timestamp", _MARKED)
_THEN = ("key", "coalesce(value, X'') AS value", "timestamp", f"map_from_entries({_LAST_OF_NAME}) AS headers")


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The source, the target and the limits of a mirror.

    Attributes:
        bootstrap: Addresses of Kafka: "host:port,host:port".
        topic: The Kafka topic.
        target: The stream, or the topic "namespace/name", that it goes to; it must exist.
        checkpoint: A folder of Spark's for this mirror alone: a path or URL.
        follow: Go on after what is there now.
        start: Where a new mirror begins: "earliest" or "latest".
        records_per_batch: Records of one micro-batch at most; 0: all.
        more: Further options of Spark's Kafka source, such as kafka.security.protocol.
    """

    bootstrap: str
    topic: str
    target: str
    checkpoint: str
    follow: bool = False
    start: str = "earliest"
    records_per_batch: int = 0
    more: dict[str, str] = field(default_factory=dict)

    def to_kafka(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source. Raises InvalidArgument."""
        if not _ADDRESSES.fullmatch(self.bootstrap):
            raise InvalidArgument(f"--kafka is host:port, or several with commas, not {self.bootstrap[:100]!r}")
        if not _TOPIC.fullmatch(self.topic):
            raise InvalidArgument(f"--topic is the name of one Kafka topic, not {self.topic[:100]!r}")
        if self.start not in STARTS:
            raise InvalidArgument(f"--start is {' or '.join(STARTS)}, not {self.start[:100]!r}")
        known = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": self.start,
            "includeHeaders": "true",
        }
        for name in self.more:
            if name in known:
                raise InvalidArgument(f"the Kafka option {name!r} is set by the job itself: leave it out")
        if self.records_per_batch:
            known["maxOffsetsPerTrigger"] = str(self.records_per_batch)
        return known | self.more


def to_records(frame: DataFrame) -> DataFrame:
    """Return a frame of Spark's Kafka source, with headers, as the sink takes it."""
    return frame.selectExpr(*_FIRST).selectExpr(*_THEN)


def mirror_topic(
    spark: SparkSession, cluster: ClusterAddress, options: MirrorOptions, *, console: Console | None = None
) -> CopyResult:
    """Mirror from where the checkpoint is, to the end as of now; with `follow` until it is interrupted.

    Raises:
        InvalidArgument: An option is not valid, or the checkpoint is of something else.
        MissingExtra: Spark's Kafka source is not there.
        StreamNotFound, TopicNotFound: The target does not exist.

    Example:
        ```python
        options = MirrorOptions("127.0.0.1:9092", "clicks", "clicks", "/checkpoints/clicks")
        mirror_topic(spark, ClusterAddress("127.0.0.1:7100"), options)
        ```
    """
    known = options.to_kafka()
    target_id = id_of(cluster, options.target)
    need_format(spark, "kafka")
    frame = to_records(spark.readStream.format("kafka").options(**known).load())
    note = {"job": "mirror", "from": options.topic, "to": options.target, "to_id": target_id}
    check_checkpoint(spark, options.checkpoint, note)
    records, batches = run_query(
        frame,
        cluster.to_sink_options(**option_of(options.target)),
        options.checkpoint,
        follow=options.follow,
        console=console or Console(quiet=True),
        what=f"Kafka's {options.topic} to {options.target}",
    )
    return CopyResult(records, batches)


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "mirror",
            "Append a Kafka topic to a stream or topic, each record exactly once.",
            _EXAMPLES,
            _arguments,
            _run,
            "Run again with the same checkpoint it goes on where it was, also after a crash.",
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT,…", help="Kafka's bootstrap servers")
    parser.add_argument("--topic", required=True, metavar="T", help="the Kafka topic")
    parser.add_argument(
        "--to", required=True, metavar="STREAM", dest="target", help="a stream, or a topic NAMESPACE/NAME"
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="a folder for this mirror alone, path or URL"
    )
    parser.add_argument(
        "--start", choices=STARTS, default="earliest", help="where a new mirror begins; default: earliest"
    )
    parser.add_argument(
        "--batch-records", type=count, default=0, metavar="N", help="records of one micro-batch at most"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes after the end as of now")
    parser.add_argument(
        "--kafka-option", action="append", type=setting, default=[], metavar="NAME=VALUE",
        help="an option of Spark's Kafka source; repeatable",
    )  # fmt: skip


def _run(call: JobCall) -> int:
    given = call.arguments
    cluster = call.cluster()
    options = MirrorOptions(
        given.kafka, given.topic, given.target, given.checkpoint, given.follow, given.start, given.batch_records,
        dict(given.kafka_option),
    )  # fmt: skip
    options.to_kafka()
    result = mirror_topic(call.session(), cluster, options, console=call.console)
    call.emit({}, f"{result.record_count:,} records of {options.topic} read in {result.batch_count} micro-batches")
    return EXIT_OK
