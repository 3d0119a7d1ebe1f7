"""rangelog in Spark: `spark.read.format("rangelog")`, found without registration. The only package that imports pyspark.

Importing this one does not import pyspark yet: `create_session` sets up the environment first.
"""

from __future__ import annotations

from rangelog.spark.environment import create_session, prepare_environment

__all__ = ["create_session", "prepare_environment"]
