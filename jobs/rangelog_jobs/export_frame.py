"""The columns of an export, from the frame of a stream: what the format can hold, and what it is divided by.

Parquet and Delta: offset, timestamp, key, value, headers, with keys and values as bytes or as text. CSV has text only: bytes
are in base64 there, and headers are a JSON object. `by`: "day" adds the column `day` (UTC), "key" the column `by_key`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS = ("parquet", "csv", "delta")
DIVISIONS = ("day", "key")
VALUE_FORMS = ("binary", "string")
DAY_COLUMN, KEY_COLUMN = "day", "by_key"
_DAY_MS = 86_400_000


def default_form(file_format: str) -> str:
    """Return the default form of values: CSV as text, others as bytes."""
    return "string" if file_format == "csv" else "binary"


def division_column(by: str) -> str | None:
    """Return the column that the files are divided by."""
    return {"day": DAY_COLUMN, "key": KEY_COLUMN}.get(by)


def export_columns(file_format: str, by: str, value_as: str) -> list[str]:
    """Return the columns as SQL expressions over those of a stream. Text that is not UTF-8 fails the query.

    Example:
        >>> export_columns("parquet", "day", "binary")[-1]
        'date_from_unix_date(CAST(floor(unix_millis(timestamp) / 86400000) AS INT)) AS day'
    """
    as_text = value_as == "string"

    def shown(expression: str) -> str:
        if as_text:
            return f"validate_utf8(CAST({expression} AS STRING))"
        return f"base64({expression})" if file_format == "csv" else expression

    headers = "headers"
    if file_format == "csv":
        headers = f"to_json(transform_values(headers, (name, each) -> {shown('each')}))"
    elif as_text:
        headers = f"transform_values(headers, (name, each) -> {shown('each')})"
    columns = ["offset", "timestamp", f"{shown('key')} AS key", f"{shown('value')} AS value", f"{headers} AS headers"]
    if by == "day":
        columns.append(f"date_from_unix_date(CAST(floor(unix_millis(timestamp) / {_DAY_MS}) AS INT)) AS {DAY_COLUMN}")
    elif by == "key":
        columns.append(f"validate_utf8(CAST(key AS STRING)) AS {KEY_COLUMN}")
    return columns


def to_export(frame: DataFrame, file_format: str, by: str, value_as: str) -> DataFrame:
    """Return a stream's frame as it is exported."""
    return frame.selectExpr(*export_columns(file_format, by, value_as))
