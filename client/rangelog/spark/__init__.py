"""rangelog in Spark: `spark.read.format("rangelog")`, found without registration. The only package that imports pyspark.

Importing this package does not import pyspark: `create_session` prepares the environment first.

    spark = create_session()
    df = spark.read.format("rangelog").option("pd", "127.0.0.1:7100").option("stream", "flights").load()
"""

from __future__ import annotations

from rangelog.spark.environment import create_session, prepare_environment

__all__ = ["create_session", "prepare_environment"]
