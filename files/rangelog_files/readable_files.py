"""The files that a reader reads, wherever they are: the interface, and its implementation over an object store. Blocking.

What holds: a listing has no file of a partition that the times rule out, and of a local directory not even its names are read.
"""

from __future__ import annotations

from typing import Protocol

from rangelog_core.errors import InvalidArgument, ObjectNotFound
from rangelog_files.layout import DATA_SUFFIX, EventPath, generation_folder, parse_path, partitions_between
from rangelog_tier.object_store import ObjectStore


class ReadableFiles(Protocol):
    """A place with event files."""

    def list_files(
        self, stream: str, generation: int, from_ms: int | None = None, until_ms: int | None = None
    ) -> list[EventPath]:
        """Return the event files of the partitions that may have blocks of these times, in ms since 1970.

        Raises StreamNotFound without such a generation, Unavailable.
        """

    def read_file(self, path: str, offset: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a file from `offset` on: none at its end, None where there is no such file.

        Raises InvalidArgument for a path that leads elsewhere, Unavailable.
        """


class ObjectFiles:
    """Event files in an object store, which are whole when they appear."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._sizes: dict[str, int] = {}

    def list_files(
        self, stream: str, generation: int, from_ms: int | None = None, until_ms: int | None = None
    ) -> list[EventPath]:
        """Return the event files of the partitions that may have blocks of these times. Raises Unavailable.

        A generation without objects is one without files: an object store has no directories.
        """
        found: list[EventPath] = []
        for info in self._store.list(f"{generation_folder(stream, generation)}/"):
            try:
                path = parse_path(info.key)
            except InvalidArgument:
                continue  # of another program
            if info.key.endswith(f".{DATA_SUFFIX}") and partitions_between([path.partition], from_ms, until_ms):
                found.append(path)
        return found

    def read_file(self, path: str, offset: int, length: int) -> bytes | None:
        """Return up to `length` bytes of an object from `offset` on. Raises InvalidArgument, Unavailable."""
        parse_path(path)
        try:
            size = self._sizes.get(path)
            if size is None:
                size = self._sizes[path] = self._store.head(path).size_bytes
            return self._store.get_range(path, offset, min(length, size - offset)) if offset < size else b""
        except ObjectNotFound:
            return None
