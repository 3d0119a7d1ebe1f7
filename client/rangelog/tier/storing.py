"""Stores a written object under its key, and reads it back: only what the store really holds may be committed."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_core.errors import PreconditionFailed
from rangelog_core.limits import MIB

if TYPE_CHECKING:
    from rangelog.tier.object_store import ObjectStore
    from rangelog.tier.parquet import WrittenObject

_READ_BYTES = 4 * MIB


def store_object(objects: ObjectStore, key: str, path: Path, written: WrittenObject) -> str:
    """Store the file and compare the stored object with it.

    Returns the difference in words, empty when there is none: then, and only then, the object may be committed. Raises
    ObjectNotFound, Unavailable.
    """
    with suppress(PreconditionFailed):  # perhaps by an earlier try whose reply was lost: the comparison decides
        objects.put_if_absent(key, path)
    size = objects.head(key).size_bytes
    if size != written.size_bytes:
        return f"{size} bytes instead of {written.size_bytes}"
    return "" if stored_digest(objects, key, size) == written.digest else "its digest differs"


def stored_digest(objects: ObjectStore, key: str, size_bytes: int) -> str:
    """Read an object piece by piece and return its digest. Raises ObjectNotFound, InvalidArgument (shorter), Unavailable."""
    digest = hashlib.sha256()
    for start in range(0, size_bytes, _READ_BYTES):
        digest.update(objects.get_range(key, start, min(_READ_BYTES, size_bytes - start)))
    return f"sha256:{digest.hexdigest()}"
