"""The name by which Spark finds the data source by itself. Nothing else belongs here."""

from __future__ import annotations

from rangelog.spark.source import RangelogSource as DefaultSource

__all__ = ["DefaultSource"]
