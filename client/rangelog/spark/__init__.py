"""rangelog in Spark: `spark.read.format("rangelog")`, found without registration. The only package that imports pyspark.

Importing this package does not import pyspark: `create_session` prepares the environment first. In a process that has pyspark,
as each of Spark's has, it raises MissingExtra at once if a package is missing that tasks need.

    spark = create_session()
    df = spark.read.format("rangelog").option("pd", "127.0.0.1:7100").option("stream", "flights").load()
"""

from __future__ import annotations

import sys

from rangelog.spark.archive import give_to, register, write_archive
from rangelog.spark.environment import create_session, prepare_environment
from rangelog.spark.needs import check_packages

__all__ = ["create_session", "give_to", "prepare_environment", "register", "write_archive"]

if "pyspark" in sys.modules:
    check_packages()
