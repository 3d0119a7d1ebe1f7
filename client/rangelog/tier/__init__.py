"""The tier: sealed ranges as Parquet objects in an object store. Needs the extra `tier` (boto3, pyarrow)."""

from __future__ import annotations

from rangelog.tier.object_store import ObjectInfo, ObjectStore
from rangelog.tier.opening import open_object_store

__all__ = ["ObjectInfo", "ObjectStore", "open_object_store"]
