"""The Spark session of the command: the one that spark-submit configures, or a local one without log lines."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog.spark.environment import create_session
from rangelog_core.errors import RangelogError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEBUG_ENV = "RANGELOG_DEBUG"
_SUBMITTED_ENV = "PYSPARK_GATEWAY_PORT"
"""spark-submit starts the program with it: then master, memory and packages are chosen already."""
_LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.only.ref = only
appender.only.name = only
"""
_SILENT = "appender.only.type = Null\n"
_SHOWN = """appender.only.type = Console
appender.only.target = SYSTEM_ERR
appender.only.layout.type = PatternLayout
appender.only.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_TOLD_BYTES = 20_000
_TROUBLE = re.compile(r"unresolved dependency|not found|Exception|[Ee]rror|refused|Unable", re.MULTILINE)


def open_session(app_name: str, master: str | None, packages: str | None, config: Mapping[str, str]) -> SparkSession:
    """Return the session that a job runs in.

    Args:
        app_name: The application's name.
        master: Spark's master; None: all cores of this machine. Under spark-submit its own.
        packages: Maven packages, separated by commas.
        config: Settings of Spark.

    Raises:
        MissingExtra: pyspark or Java is missing.
        Unavailable: Spark does not start.
    """
    if os.environ.get(_SUBMITTED_ENV):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(app_name)
        for name, value in config.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    is_debugged = bool(os.environ.get(DEBUG_ENV))
    with tempfile.TemporaryDirectory(prefix="rangelog-spark-") as folder:  # the JVM reads it while it starts
        logging = Path(folder) / "log4j2.properties"
        logging.write_text(_LOGGING + (_SHOWN if is_debugged else _SILENT))
        settings = {
            "spark.master": master or "local[*]",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        }
        if packages:
            settings["spark.jars.packages"] = packages
        settings |= dict(config)
        if is_debugged:
            session = create_session(app_name, **settings)
            session.sparkContext.setLogLevel("WARN")
            return session
        session = _start_quietly(app_name, settings)  # what fails is said by the command, in one line
        session.sparkContext.setLogLevel("OFF")
    _silence_pyspark()
    return session


def _silence_pyspark() -> None:
    """Errors of queries are raised; pyspark logs them with their traceback as well."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def _start_quietly(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a session whose JVM has no terminal: it says things that no setting turns off. Raises Unavailable."""
    with tempfile.TemporaryFile() as told:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(told.fileno(), 2)
        try:
            return create_session(app_name, **settings)
        except RangelogError:
            raise
        except Exception as error:
            told.seek(max(0, told.seek(0, os.SEEK_END) - _TOLD_BYTES))
            lines = told.read().decode(errors="replace").splitlines()
            reasons = [line.strip(" :\t") for line in lines if _TROUBLE.search(line)]
            said = reasons[0] if reasons else " ".join(str(error).split())
            raise Unavailable(f"Spark does not start: {said[:300]}: set {DEBUG_ENV}=1 for all of it") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
