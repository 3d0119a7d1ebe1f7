"""Stores a written object under its key, and reads objects back: only what the store really holds may be committed.

What holds: an object is read in pieces, so memory does not depend on its size. Uploads, scrubs, restores, `pdctl verify` and
audits all compare it with what is listed by the digests that are computed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_core.errors import Corruption, PreconditionFailed, RangelogError, Unavailable
from rangelog_core.limits import MIB

if TYPE_CHECKING:
    from rangelog_proto.v1 import common_pb2
    from rangelog_tier.object_store import ObjectStore
    from rangelog_tier.parquet import WrittenObject

PIECE_BYTES = 4 * MIB
EARLIER_TRY = "an earlier try, which encrypted it with another data key"
"""The difference of an encrypted object whose name was taken: no two tries make the same bytes, so that is no damage."""


def store_object(objects: ObjectStore, key: str, path: Path, written: WrittenObject) -> str:
    """Store the file and compare the stored object with it.

    Returns the difference in words, empty for equal bytes: then, and only then, the object may be committed. Raises
    ObjectNotFound, Unavailable.
    """
    taken = False
    try:
        objects.put_if_absent(key, path)
    except PreconditionFailed:  # perhaps by an earlier try whose reply was lost: the comparison decides
        taken = True
    size = objects.head(key).size_bytes
    if size == written.size_bytes and stored_digest(objects, key, size) == written.digest:
        return ""
    if taken and written.encryption_key_id:
        return EARLIER_TRY
    return f"{size} bytes instead of {written.size_bytes}" if size != written.size_bytes else "its digest differs"


def not_stored(key: str, problem: str) -> RangelogError:
    """Return the error for an object that `store_object` says not to commit; the next try needs another key of the store."""
    if problem == EARLIER_TRY:
        return Unavailable(f"the object {key} was stored by {EARLIER_TRY}: the next try stores it under another name")
    return Corruption(f"the stored object {key} differs from the uploaded one: {problem}")


def stored_digest(objects: ObjectStore, key: str, size_bytes: int) -> str:
    """Read an object and return its digest. Raises ObjectNotFound, ObjectTooShort, Unavailable."""
    digest = hashlib.sha256()
    for piece in _pieces(objects, key, size_bytes):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def prove_pieces(objects: ObjectStore, described: common_pb2.Object) -> Iterator[int]:
    """Read an object and yield the size of each piece: where this ends without an error, it has the bytes that are listed.

    Raises Corruption (another size, or another digest), ObjectNotFound, ObjectTooShort, Unavailable.
    """
    size_bytes = objects.head(described.key).size_bytes
    if size_bytes != described.size_bytes:
        raise Corruption(f"object {described.key} has {size_bytes} bytes, not {described.size_bytes}")
    digest = hashlib.sha256()
    for piece in _pieces(objects, described.key, size_bytes):
        digest.update(piece)
        yield len(piece)
    if f"sha256:{digest.hexdigest()}" != described.digest:
        raise Corruption(f"object {described.key} is damaged: its digest is not the one that was committed")


def _pieces(objects: ObjectStore, key: str, size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, PIECE_BYTES):
        yield objects.get_range(key, start, min(PIECE_BYTES, size_bytes - start))
