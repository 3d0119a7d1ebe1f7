"""A driver of Spark that copies a stream to a stream and a topic to a topic, by checkpoints, until it is killed.

Its executors are processes of their own. Lines: ["began"], ["stopped", query, error]. A query that ends by itself is begun anew
from its checkpoint, as its operator would.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from rangelog.spark import create_session
from rangelog_cli.local.lifeline import follow_parent
from tests.chaos.chaos_spark_load import COPY, EXECUTORS, STREAM
from tests.chaos.chaos_topic_notes import TOPIC, Notes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

RECORDS_PER_TRIGGER = 4_000
RECORDS_PER_PARTITION = 500
"""A micro-batch of some seconds is several tasks, for both executors."""
LOOK_S = 0.5
FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def open_session() -> SparkSession:
    """A session whose executors are processes of their own."""
    return create_session(
        "chaos",
        spark_master=f"local-cluster[{EXECUTORS},1,512]",
        spark_driver_memory="512m",
        spark_executor_memory="512m",
        spark_executor_extraJavaOptions=FAST_JAVA,
        spark_sql_streaming_noDataMicroBatches_enabled="false",
        spark_sql_codegen_wholeStage="false",
    )


def copying(session: SparkSession, pds: str, kind: str, source: str, checkpoints: Path) -> StreamingQuery:
    """Begin a query, or go on with it."""
    reader = session.readStream.format("rangelog").option("pd", pds).option(kind, source)
    reader = reader.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", RECORDS_PER_TRIGGER)
    frame = reader.option("records_per_partition", RECORDS_PER_PARTITION).load()
    writer = frame.writeStream.format("rangelog").option("pd", pds).option(kind, COPY)
    return writer.option("checkpointLocation", str(checkpoints / kind)).start()


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--pds", required=True)
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--notes", required=True, type=Path)
    options = parser.parse_args()
    notes = Notes(options.notes)
    session = open_session()
    begin: dict[str, Callable[[], StreamingQuery]] = {
        kind: lambda kind=kind, source=source: copying(session, options.pds, kind, source, options.checkpoints)  # type: ignore[misc]
        for kind, source in (("stream", STREAM), ("topic", TOPIC))
    }
    queries = {kind: start() for kind, start in begin.items()}
    notes.note(("began",))
    look = threading.Event()
    while not look.wait(LOOK_S):
        for kind, query in list(queries.items()):
            if not query.isActive:
                print(f"{kind} stopped: {query.exception()}", flush=True)
                notes.note(("stopped", kind, str(query.exception())[:1_000]))
                queries[kind] = begin[kind]()


if __name__ == "__main__":
    main()
