"""The tier: sealed ranges as Parquet objects in an object store. Needs the extra `tier` (boto3, pyarrow).

Servers import its modules on several threads at once. So this package imports none of them until a name is asked for: a
thread that held the import lock of the package while another held that of a module would see half of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rangelog_tier.object_store import ObjectInfo, ObjectStore
    from rangelog_tier.opening import open_object_store

__all__ = ["ObjectInfo", "ObjectStore", "open_object_store"]

_LAZY = {
    "ObjectInfo": "rangelog_tier.object_store",
    "ObjectStore": "rangelog_tier.object_store",
    "open_object_store": "rangelog_tier.opening",
}


def __getattr__(name: str) -> Any:
    """Import the module of a name when it is asked for."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'rangelog_tier' has no attribute {name!r}")
