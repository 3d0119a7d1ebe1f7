"""The interface of an object store, and its checks. Blocking; safe to use from several threads.

What holds: for every implementation, an object appears whole or not at all; `put_if_absent` has exactly one winner, and so has
`replace` among those that name one etag; a missing object is ObjectNotFound, a failing store is Unavailable, never the other
way round.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rangelog_core.errors import (
    ConfigInvalid,
    InvalidArgument,
    ObjectNotFound,
    PreconditionFailed,
    RangelogError,
    Unavailable,
)

KEY_LENGTH_MAX = 1_000
PIECE_BYTES = 1 << 20
"""The bytes that `read_into` reads between two checks of `stopped`; small enough for the processor's cache."""
PROBE_PREFIX = "probe/"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The metadata of an object: its key, its size in bytes, the store's etag, and when it was stored, by the store's clock."""

    key: str
    size_bytes: int
    etag: str
    stored_ms: int = 0


class ObjectTooShort(InvalidArgument):
    """An object does not have the requested bytes. A reader takes this error alone for damage, no other InvalidArgument."""


class ObjectStore(Protocol):
    """The interface of an object store. Keys are relative to the URL's prefix."""

    def put_if_absent(self, key: str, source: bytes | Path) -> None:
        """Store bytes or a file under a new key.

        Raises PreconditionFailed when the key is taken, InvalidArgument when the file does not exist, Unavailable.
        """

    def get(self, key: str) -> bytes:
        """Return the whole object. Raises ObjectNotFound, Unavailable."""

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """Return the whole object and the etag of these bytes. Raises ObjectNotFound, Unavailable."""

    def replace(self, key: str, data: bytes, etag: str) -> None:
        """Overwrite the object that still has this etag. Only manifests are overwritten, objects with records never are.

        A store that ignores If-Match overwrites whatever is there. Raises PreconditionFailed when the object was changed or is
        gone, Unavailable.
        """

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on. Raises ObjectNotFound, ObjectTooShort, Unavailable."""

    def read_into(self, key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        """Fill `target` with the bytes from `start` on, piece by piece, until `stopped` returns True.

        Returns the seconds from the first byte of the reply to the last. After an error the content of `target` is undefined.
        Raises ObjectNotFound, ObjectTooShort, Unavailable.
        """

    def head(self, key: str) -> ObjectInfo:
        """Return the metadata of an object. Raises ObjectNotFound, Unavailable."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, by key. Raises Unavailable."""

    def delete(self, key: str) -> None:
        """Remove an object; idempotent. Raises Unavailable."""

    def close(self) -> None:
        """Close all connections; idempotent."""


def check_key(key: str) -> str:
    """Return the key if it stays inside the store. Raises InvalidArgument."""
    parts = key.split("/")
    if not key or len(key) > KEY_LENGTH_MAX or not key.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise InvalidArgument(f"bad object key {key!r}")
    return key


def fill(target: memoryview, read: Callable[[int], bytes], stopped: Callable[[], bool], key: str) -> float:
    """Fill memory with the bytes that `read` returns, for ObjectStore.read_into.

    Raises ObjectTooShort when there are too few, Unavailable when stopped.
    """
    begun_s = time.monotonic()
    filled = 0
    while filled < len(target):
        if stopped():
            raise Unavailable(f"the fetch of object {key} was cancelled")
        data = read(min(PIECE_BYTES, len(target) - filled))
        if not data:
            raise ObjectTooShort(f"object {key} is shorter than the requested span")
        target[filled : filled + len(data)] = data
        filled += len(data)
    return time.monotonic() - begun_s


def check_span(key: str, start: int, length: int) -> None:
    """Check a span. Raises ObjectTooShort for a span that no object can have: stores differ in their replies to those."""
    if start < 0 or length < 0:
        raise ObjectTooShort(f"object {key} has no {length} bytes from {start} on")


def source_size(source: bytes | Path) -> int:
    """Return the size in bytes of the source of an object. Raises InvalidArgument for a file that cannot be read."""
    if isinstance(source, bytes):
        return len(source)
    try:
        return source.stat().st_size
    except OSError as error:
        raise InvalidArgument(f"the file to be stored cannot be read: {error.strerror} ({source})") from error


def probe(store: ObjectStore) -> None:
    """Check that the store keeps what it is given, and honours "only if absent": else two uploads could overwrite each other.

    The probe's object is deleted where the store allows it: uploads do not need the right to delete.
    Raises ConfigInvalid when the store overwrites, AccessDenied, Unavailable when it cannot be reached, or returns other bytes.
    """
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    data = key.encode() * 8
    with suppress(PreconditionFailed):  # by a try whose reply was lost: no other knows this key
        store.put_if_absent(key, data)
    try:
        try:
            kept = store.get(key)
        except ObjectNotFound as error:
            raise Unavailable("this object store does not have what it has just stored: is it an S3 server?") from error
        if kept != data:
            raise Unavailable("this object store returns other bytes than were stored: is it an S3 server?")
        store.put_if_absent(key, data)
    except PreconditionFailed:
        return
    finally:
        with suppress(RangelogError):
            store.delete(key)
    raise ConfigInvalid(
        "this object store ignores If-None-Match: objects could be overwritten, so it cannot be the tier"
    )
