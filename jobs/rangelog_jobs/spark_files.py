"""Small files at URLs that Spark can reach: the notes that jobs leave beside their output or checkpoint."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import ConfigInvalid, Corruption, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIZE_BYTES_MAX = 64 * 1024 * 1024


def read_json(spark: SparkSession, url: str) -> dict[str, Any] | None:
    """Return a JSON document; None: there is no such file. Raises Corruption, Unavailable, ConfigInvalid."""
    files, path = _opened(spark, url)
    try:
        if not files.exists(path):
            return None
        size = files.getFileStatus(path).getLen()
        if size > _SIZE_BYTES_MAX:
            raise Corruption(f"{url} is not a note of this job: it has {size:,} bytes")
        stream = files.open(path)
        try:
            data = bytes(stream.readAllBytes())
        finally:
            stream.close()
    except _java_errors() as error:
        raise Unavailable(f"{url} cannot be read: {_reason(error)}") from None
    try:
        found = json.loads(data)
    except ValueError as error:
        raise Corruption(f"{url} is damaged: it is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise Corruption(f"{url} is damaged: it is not a JSON object")
    return found


def write_json(spark: SparkSession, url: str, document: dict[str, Any]) -> None:
    """Write a JSON document under a new name and give it its name then. Raises Unavailable, ConfigInvalid."""
    files, path = _opened(spark, url)
    _, temporary = _opened(spark, f"{url}.{uuid.uuid4().hex}")
    try:
        stream = files.create(temporary, True)
        try:
            stream.write(bytearray(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"))
        finally:
            stream.close()
        if not files.rename(temporary, path):  # many stores refuse to replace
            files.delete(path, False)
            if not files.rename(temporary, path):
                raise Unavailable(f"{url} cannot be written: its new content is {temporary.toString()}")
    except _java_errors() as error:
        raise Unavailable(f"{url} cannot be written: {_reason(error)}") from None


def delete(spark: SparkSession, url: str) -> None:
    """Remove a file, or a folder with all that is in it; idempotent. Raises Unavailable, ConfigInvalid."""
    files, path = _opened(spark, url)
    try:
        files.delete(path, True)
    except _java_errors() as error:
        raise Unavailable(f"{url} cannot be removed: {_reason(error)}") from None


def _opened(spark: SparkSession, url: str) -> tuple[Any, Any]:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise ConfigInvalid("this job needs a session of Spark itself, not one of Spark Connect")
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path
    except _java_errors() as error:
        raise ConfigInvalid(f"{url[:200]!r} is no place that Spark can write to: {_reason(error)}") from None


def _java_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a failing call of Java raises: Spark turns some exceptions into its own."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


def _reason(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return " ".join(str(error if java is None else java.getMessage()).split("JVM stacktrace")[0].split())[:300]
