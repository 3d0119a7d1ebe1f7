"""Every object key, in one place.

    manifest_key(7, "flights") -> "manifests/7/flights.json"
    manifest_key(9, "shop/orders/0") -> "manifests/9/shop/orders/0.json"
    object_key(7, 3, 1000, 2000, 42) -> "streams/7/ranges/00000003/00000000000000001000-00000000000000002000-42.parquet"

The key of an object is never reused, because its object id is not. Sorted by name, a range's objects are sorted by offset.
Manifests are in a folder of their own: to list them shows the name of every stream in the store.
"""

from __future__ import annotations

import re

MANIFESTS = "manifests/"
"""The common prefix of all manifests."""
STREAMS = "streams/"
"""The common prefix of all objects."""


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


_OBJECT_KEY = re.compile(r"streams/([0-9]{1,20})/ranges/([0-9]{8,10})/([0-9]{20})-([0-9]{20})-([0-9]{1,20})\.parquet")


def object_of_key(key: str) -> int | None:
    """Return the id of the object with this key; None: the key is not an object's.

    >>> object_of_key(object_key(7, 3, 1000, 2000, 42)), object_of_key("streams/7/notes.txt")
    (42, None)
    """
    found = _OBJECT_KEY.fullmatch(key)
    if found is None or object_key(*map(int, found.groups())) != key:
        return None
    return int(found[5])
