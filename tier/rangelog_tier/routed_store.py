"""The object stores of a tier as one: each call goes to the store that has the object, by its key (tier_stores.py).

What holds: a store is opened when the first call needs it, so a former one that is away troubles only who reads from it. The
listing has from each store the objects that belong there. A manifest is in the last store only: one that is put there is
removed from the former stores.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rangelog_core.errors import RangelogError
from rangelog_core.object_keys import MANIFESTS, STREAMS
from rangelog_core.tier_stores import TierStore, store_of_key
from rangelog_tier.object_store import ObjectInfo, ObjectStore


class RoutedStore:
    """An ObjectStore over the stores of a tier."""

    def __init__(self, stores: Sequence[TierStore], open_one: Callable[[TierStore], ObjectStore]) -> None:
        self._stores = stores
        self._open_one = open_one
        self._opened: dict[TierStore, ObjectStore] = {}
        self._lock = threading.Lock()

    def _open(self, store: TierStore) -> ObjectStore:
        with self._lock:
            found = self._opened.get(store)
            if found is None:
                found = self._opened[store] = self._open_one(store)
            return found

    def _of(self, key: str) -> ObjectStore:
        return self._open(store_of_key(self._stores, key))

    def put_if_absent(self, key: str, source: bytes | Path) -> None:
        """Store bytes or a file under a new key; a manifest is removed from the former stores."""
        self._of(key).put_if_absent(key, source)
        if key.startswith(MANIFESTS):
            for former in self._stores[:-1]:
                with suppress(RangelogError):
                    self._open(former).delete(key)

    def get(self, key: str) -> bytes:
        """Return the whole object. Raises ObjectNotFound, Unavailable."""
        return self._of(key).get(key)

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """Return the whole object and the etag of these bytes. Raises ObjectNotFound, Unavailable."""
        return self._of(key).get_with_etag(key)

    def replace(self, key: str, data: bytes, etag: str) -> None:
        """Overwrite the object that still has this etag. Raises PreconditionFailed, Unavailable."""
        self._of(key).replace(key, data, etag)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on. Raises ObjectNotFound, InvalidArgument (too long), Unavailable."""
        return self._of(key).get_range(key, start, length)

    def read_into(self, key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        """Fill `target` with the bytes from `start` on, piece by piece, until `stopped` returns True."""
        return self._of(key).read_into(key, start, target, stopped)

    def head(self, key: str) -> ObjectInfo:
        """Return the metadata of an object. Raises ObjectNotFound, Unavailable."""
        return self._of(key).head(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, by key. Raises Unavailable."""
        objects = prefix.startswith(STREAMS) or STREAMS.startswith(prefix)
        listed = [self._listed(each, prefix) for each in (self._stores if objects else self._stores[-1:])]
        return heapq.merge(*listed, key=_key)

    def _listed(self, store: TierStore, prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in self._open(store).list(prefix) if store_of_key(self._stores, info.key) == store)

    def delete(self, key: str) -> None:
        """Remove an object; idempotent. Raises Unavailable."""
        self._of(key).delete(key)

    def close(self) -> None:
        """Close all connections; idempotent."""
        with self._lock:
            for each in self._opened.values():
                each.close()


def _key(info: ObjectInfo) -> str:
    return info.key
