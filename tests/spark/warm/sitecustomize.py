"""On the path of Spark's Python processes in the tests, so that they start fast: less of what runs for milliseconds is imports.

- Daemons import what their workers need before they fork them: Spark has one daemon for each of a dozen kinds of work.
- pyspark comes from where it is installed. Spark puts an archive of it first, of which each process would compile all anew.
- Where no bytecode is written, that of the project is kept in a directory of the test run.

The processes of test_spark_environments.py and test_spark_clusters.py start without it; those that begin by a fork
(tests/support/forked_spark.py) do not need it.
"""

import os
import sys

_RUNNERS = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner")


def _import() -> None:
    sys.path[:] = [each for each in sys.path if not each.endswith("pyspark.zip")]
    import grpc_status
    import pandas
    import pyarrow.compute
    import pyspark.sql.datasource
    import pyspark.sql.streaming.datasource
    import zstandard

    assert pandas and grpc_status and pyarrow.compute and pyspark.sql.streaming.datasource and zstandard
    folder = os.environ.get("RANGELOG_TEST_BYTECODE") if sys.dont_write_bytecode else None
    if folder:
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder
    import rangelog.spark.source

    if sys.orig_argv[2] == "pyspark.daemon":
        import rangelog.spark.sink
        import rangelog.spark.topic_planning
    import rangelog.spark.stream_source  # noqa: F401

    if folder:
        sys.dont_write_bytecode, sys.pycache_prefix = True, None


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in _RUNNERS:
    _import()
