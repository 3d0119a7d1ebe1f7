"""Packages of Spark that some jobs need: whether they are there, and what to type if they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangelog_core.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADVICE = {
    "kafka": (
        "Spark's Kafka source is not there: run with --packages org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}, "
        "or the newest version before it that there is"
    ),
    "delta": (
        "Delta is not there: run with --packages io.delta:delta-spark_{series}_{scala}:VERSION, a release of Delta that is "
        "made for Spark {spark}, and --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --conf "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
}


def need_format(spark: SparkSession, name: str) -> None:
    """Raise MissingExtra unless Spark has the format "kafka" or "delta"."""
    if not has_format(spark, name):
        series = ".".join(spark.version.split(".")[:2])
        raise MissingExtra(_ADVICE[name].format(scala=scala_version(spark), spark=spark.version, series=series))


def has_format(spark: SparkSession, name: str) -> bool:
    """Whether Spark finds a data source by this name."""
    from pyspark.errors import PySparkException

    try:
        spark.read.format(name).load("rangelog-no-such-place")
    except PySparkException as error:
        return error.getCondition() != "DATA_SOURCE_NOT_FOUND" and "Failed to find data source" not in str(error)
    except Exception as error:  # an error of the source itself: it is there
        return "ClassNotFoundException" not in str(error)
    return True


def scala_version(spark: SparkSession) -> str:
    """Return the version of Scala that Spark is built with, as it stands in names of packages: "2.13"."""
    jvm = getattr(spark, "_jvm", None)
    told = str(jvm.scala.util.Properties.versionNumberString()) if jvm is not None else "2.13"
    return ".".join(told.split(".")[:2])
