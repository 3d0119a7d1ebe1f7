"""Every object key, in one place.

    manifest_key(7, "flights") -> "manifests/7/flights.json"
    manifest_key(9, "shop/orders/0") -> "manifests/9/shop/orders/0.json"
    snapshot_key("5f0c", 810) -> "_pd/5f0c/00000000000000000810.snapshot"
    object_key(7, 3, 1000, 2000, 42) -> "streams/7/ranges/00000003/00000000000000001000-00000000000000002000-42.parquet"

The key of an object is never reused, because its object id is not. Sorted by name, a range's objects are sorted by offset.
Manifests are in a folder of their own: to list them shows the name of every stream in the store.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MANIFESTS = "manifests/"
"""The common prefix of all manifests."""
STREAMS = "streams/"
"""The common prefix of all objects."""
SNAPSHOTS = "_pd/"
"""The common prefix of the snapshots of placement drivers."""


def object_key(stream_id: int, range_index: int, start_offset: int, end_offset: int, object_id: int) -> str:
    """Return the key of one tiered object, below the store's prefix."""
    return f"{range_prefix(stream_id, range_index)}{start_offset:020d}-{end_offset:020d}-{object_id}.parquet"


def stream_prefix(stream_id: int) -> str:
    """Return the common prefix of a stream's keys."""
    return f"{STREAMS}{stream_id}/"


def range_prefix(stream_id: int, range_index: int) -> str:
    """Return the common prefix of a range's keys."""
    return f"{stream_prefix(stream_id)}ranges/{range_index:08d}/"


def manifest_prefix(stream_id: int) -> str:
    """Return the start of the key of a stream's manifest, for who does not know the stream's name."""
    return f"{MANIFESTS}{stream_id}/"


def manifest_key(stream_id: int, name: str) -> str:
    """Return the key of the manifest of a stream, or of the stream of a shard: namespace/topic/shard id."""
    return f"{manifest_prefix(stream_id)}{name}.json"


def stream_of_key(key: str) -> int | None:
    """Return the id of the stream that an object belongs to; None: the key is not an object's.

    >>> stream_of_key(object_key(7, 3, 1000, 2000, 42)), stream_of_key("probe/x")
    (7, None)
    """
    folder, _, rest = key.partition("/")
    number = rest.partition("/")[0]
    return int(number) if folder == "streams" and number.isdecimal() else None


class ObjectKey(NamedTuple):
    """The fields in the key of an object."""

    stream_id: int
    range_index: int
    start_offset: int
    end_offset: int
    object_id: int


_OBJECT_KEY = re.compile(r"streams/(\d{1,20})/ranges/(\d{8,10})/(\d{20})-(\d{20})-(\d{1,20})\.parquet\Z", re.ASCII)


def parse_object_key(key: str) -> ObjectKey | None:
    """Return the parts of an object's key; None: it is no object's.

    >>> parse_object_key(object_key(7, 3, 1000, 2000, 42))
    ObjectKey(stream_id=7, range_index=3, start_offset=1000, end_offset=2000, object_id=42)
    """
    found = _OBJECT_KEY.match(key)
    if found is None:
        return None
    parts = ObjectKey(*map(int, found.groups()))
    return parts if parts.start_offset < parts.end_offset and object_key(*parts) == key else None


def object_of_key(key: str) -> int | None:
    """Return the id of the object with this key; None: the key is not an object's.

    >>> object_of_key(object_key(7, 3, 1000, 2000, 42)), object_of_key("streams/7/notes.txt")
    (42, None)
    """
    found = parse_object_key(key)
    return found.object_id if found is not None else None


def snapshot_prefix(cluster_id: str) -> str:
    """Return the common prefix of a cluster's snapshots."""
    return f"{SNAPSHOTS}{cluster_id}/"


def snapshot_key(cluster_id: str, applied_index: int) -> str:
    """Return the key of the snapshot of the state at a log index: by name, later ones come later."""
    return f"{snapshot_prefix(cluster_id)}{applied_index:020d}.snapshot"


def parse_snapshot_key(key: str) -> tuple[str, str] | None:
    """Return the cluster's id and the snapshot's, which is its log index; None: the key is no snapshot's.

    >>> parse_snapshot_key(snapshot_key("c1", 7))
    ('c1', '7')
    """
    found = _SNAPSHOT_KEY.match(key)
    return (found[1], str(int(found[2]))) if found is not None else None


_SNAPSHOT_KEY = re.compile(rf"{SNAPSHOTS}([^/]{{1,200}})/(\d{{20}})\.snapshot\Z", re.ASCII)
