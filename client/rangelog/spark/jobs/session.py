"""The Spark session of the command: the one that spark-submit configures, or a local one without log lines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog.spark.environment import create_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEBUG_ENV = "RANGELOG_DEBUG"
_SUBMITTED_ENV = "PYSPARK_GATEWAY_PORT"
"""spark-submit starts the program with it: then master, memory and packages are chosen already."""
_LOGGING = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""


def open_session(app_name: str, master: str | None, packages: str | None, config: Mapping[str, str]) -> SparkSession:
    """Return the session that a job runs in.

    Args:
        app_name: The application's name.
        master: Spark's master; None: all cores of this machine. Under spark-submit its own.
        packages: Maven packages, separated by commas.
        config: Settings of Spark.

    Raises:
        MissingExtra: pyspark or Java is missing.
    """
    if os.environ.get(_SUBMITTED_ENV):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(app_name)
        for name, value in config.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    level = "warn" if os.environ.get(DEBUG_ENV) else "off"  # what fails is said by the command, in one line
    with tempfile.TemporaryDirectory(prefix="rangelog-spark-") as folder:  # the JVM reads it while it starts
        logging = Path(folder) / "log4j2.properties"
        logging.write_text(_LOGGING.format(level=level))
        settings = {
            "spark.master": master or "local[*]",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        }
        if packages:
            settings["spark.jars.packages"] = packages
        session = create_session(app_name, **(settings | dict(config)))
        session.sparkContext.setLogLevel(level.upper())
    return session
