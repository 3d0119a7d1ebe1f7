"""Record batches as Arrow: the public names of `rangelog_tier.arrow`."""

from __future__ import annotations

from rangelog_tier.arrow import HEADERS_TYPE, SCHEMA, batch_to_arrow, columns_to_arrow

__all__ = ["HEADERS_TYPE", "SCHEMA", "batch_to_arrow", "columns_to_arrow"]
