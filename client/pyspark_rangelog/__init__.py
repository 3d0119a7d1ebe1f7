"""The module by whose name Spark finds the data source without registration. It holds nothing else."""

from __future__ import annotations

from rangelog.spark.source import RangelogSource as DefaultSource

__all__ = ["DefaultSource"]
