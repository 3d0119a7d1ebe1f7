"""What Spark's Python processes import, loaded once by the process that forks them.

A worker collects garbage after each task: what is loaded here is no part of that.
"""

from __future__ import annotations

import gc
import importlib
import threading

for name in (
    "tests.support.forked_modules",
    "grpc_status",
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.datasource",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "zstandard",
    "rangelog.spark.source",
    "rangelog.spark.sink",
    "rangelog.spark.stream_source",
    "rangelog.spark.topic_planning",
):
    importlib.import_module(name)

assert threading.active_count() == 1, "a module began a thread: it would be lost in each fork"
gc.collect()
gc.freeze()
