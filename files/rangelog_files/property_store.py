"""Where the properties of a stream are kept: an object of a store that has compare-and-set, a local directory or a bucket.

What holds: a change is made from the version that was read, or refused; a reader of any moment sees one version as a whole.
`PropertyWatch` sees a change at the next look where the file system shows it, and after `interval_s` in any case.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from rangelog_core.errors import ObjectNotFound, PreconditionFailed, StreamExists, StreamNotFound, Unavailable
from rangelog_files.stream_properties import EventStreamProperties, decode_properties
from rangelog_tier.object_store import ObjectStore

PROPERTIES_NAME = "properties.json"
LOOK_INTERVAL_S = 1.0
_TRIES = 1_000
"""Of a change by compare-and-set: each lost try is another caller's change."""


class PropertyStore:
    """The properties of one stream of events. Blocking; any number of processes may have one.

    Example:
        ```python
        store = PropertyStore(objects, "who")
        store.create(EventStreamProperties())
        found = store.get()
        store.replace(found, found.changed(ttl_s=60.0))
        ```
    """

    def __init__(self, objects: ObjectStore, stream: str) -> None:
        """Objects are those of a directory or a bucket in which the stream is."""
        self._objects = objects
        self._stream = stream
        self._key = f"{stream}/{PROPERTIES_NAME}"

    def create(self, properties: EventStreamProperties) -> None:
        """Make the stream. Raises StreamExists, StorageFull, Unavailable."""
        try:
            self._objects.put_if_absent(self._key, properties.encode())
        except PreconditionFailed:
            raise StreamExists(f"there is a stream of events {self._stream!r} already") from None

    def get(self) -> EventStreamProperties:
        """Return the present properties. Raises StreamNotFound, Corruption, Unavailable."""
        return self._read()[0]

    def replace(self, expected: EventStreamProperties, properties: EventStreamProperties) -> None:
        """Replace the version `expected`. Raises PreconditionFailed: another caller was first; StreamNotFound, Unavailable."""
        found, etag = self._read()
        if found.version != expected.version:
            raise PreconditionFailed(
                f"the properties of {self._stream!r} are of version {found.version}, not {expected.version}: read them again"
            )
        self._objects.replace(self._key, properties.encode(), etag)

    def update(self, change: Callable[[EventStreamProperties], EventStreamProperties]) -> EventStreamProperties:
        """Change whatever version there is, again as long as others are first; return what is kept then."""
        for _ in range(_TRIES):
            found = self.get()
            properties = change(found)
            try:
                self.replace(found, properties)
            except PreconditionFailed:
                continue
            return properties
        raise Unavailable(
            f"the properties of {self._stream!r} were changed by others {_TRIES} times meanwhile: try later"
        )

    def truncate(self) -> EventStreamProperties:
        """Begin the next generation, one for this call, and return its properties. Events of the present one are gone."""
        return self.update(EventStreamProperties.truncated)

    def _read(self) -> tuple[EventStreamProperties, str]:
        try:
            data, etag = self._objects.get_with_etag(self._key)
        except ObjectNotFound:
            raise StreamNotFound(
                f"there is no stream of events {self._stream!r}: rangelog files create makes one"
            ) from None
        return decode_properties(data, self._key), etag


class PropertyWatch:
    """The properties as a writer sees them: cheap to look at before every write."""

    def __init__(
        self,
        store: PropertyStore,
        path: Path | None,
        *,
        interval_s: float = LOOK_INTERVAL_S,
        clock_s: Callable[[], float] = monotonic,
        stat: Callable[[Path], os.stat_result] = os.stat,
    ) -> None:
        """`path`: the file to look at for changes; None, for a bucket: they are seen each `interval_s`."""
        self._store = store
        self._path = path
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._stat = stat
        self._seen: Any = None
        self._read_s = float("-inf")
        self._properties = EventStreamProperties()

    def look(self) -> EventStreamProperties:
        """Return the properties, at most `interval_s` seconds old. Raises StreamNotFound, Corruption, Unavailable."""
        now_s = self._clock_s()
        seen = self._signature()
        if seen != self._seen or now_s - self._read_s >= self._interval_s:
            self._properties = self._store.get()
            self._seen, self._read_s = seen, now_s  # as of before the read: a later change is seen
        return self._properties

    def _signature(self) -> Any:
        if self._path is None:
            return None
        try:
            found = self._stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
