"""Event files in a local directory, as readers see them. Blocking; safe to use from several threads.

What holds: no symbolic link is followed below the store's directory, whatever a path names, and also where a directory is
replaced by a link meanwhile; what is no regular file is not opened. Nothing is kept open between two reads.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rangelog_core.errors import InvalidArgument, StreamNotFound, Unavailable
from rangelog_files.layout import (
    DATA_SUFFIX,
    EventPath,
    TimePartition,
    checked_name,
    generation_folder,
    parse_file,
    parse_partition,
    parse_path,
    partitions_between,
)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What the system says of a link where a directory or a file is wanted."""


class LocalFiles:
    """A ReadableFiles in a local directory."""

    def __init__(self, directory: Path) -> None:
        self._root = directory

    def list_files(
        self, stream: str, generation: int, from_ms: int | None = None, until_ms: int | None = None
    ) -> list[EventPath]:
        """Return the event files of the partitions that may have blocks of these times, in ms since 1970.

        Raises StreamNotFound without such a generation, Unavailable.
        """
        folder = generation_folder(checked_name(stream, "name of a stream"), generation)
        found: list[EventPath] = []
        with self._opened(folder) as opened:
            if opened is None:
                raise StreamNotFound(f"there is no generation {generation} of {stream} in {self._root}")
            named = [parse_partition(entry.name) for entry in _entries(opened) if entry.is_dir(follow_symlinks=False)]
        for partition in partitions_between((each for each in named if each is not None), from_ms, until_ms):
            found += self._files_of(stream, generation, partition)
        return found

    def _files_of(self, stream: str, generation: int, partition: TimePartition) -> Iterator[EventPath]:
        with self._opened(f"{generation_folder(stream, generation)}/{partition.text}") as opened:
            entries = _entries(opened) if opened is not None else []  # removed meanwhile
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        for name in sorted(names):
            parsed = parse_file(name)
            if parsed is not None and parsed[2] == DATA_SUFFIX:
                yield EventPath(stream, generation, partition, parsed[0], parsed[1])

    def read_file(self, path: str, offset: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a file from `offset` on: none at its end, None where there is no such file.

        Raises InvalidArgument for a path that leads elsewhere, Unavailable.
        """
        parse_path(path)
        folder, _, name = path.rpartition("/")
        with self._opened(folder) as opened, self._mapped(path):
            if opened is None:
                return None
            try:
                descriptor = os.open(name, _FILE, dir_fd=opened)
            except FileNotFoundError:
                return None
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise InvalidArgument(f"{path} is not a regular file")
                return os.pread(descriptor, length, offset)
            finally:
                os.close(descriptor)

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int | None]:
        """Open a directory below the store's, part by part; None: there is no such directory."""
        descriptor: int | None = None
        try:
            with self._mapped(folder):
                try:
                    descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    for part in folder.split("/"):
                        inner = os.open(part, _FOLDER, dir_fd=descriptor)
                        os.close(descriptor)
                        descriptor = inner
                except FileNotFoundError:
                    if descriptor is not None:
                        os.close(descriptor)
                    descriptor = None
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        """Raise errors of files as typed ones."""
        try:
            yield
        except OSError as error:
            if error.errno in _LINKS:
                raise InvalidArgument(
                    f"{what} in {self._root} leads through a symbolic link, or is no directory"
                ) from error
            raise Unavailable(f"{what} in {self._root} cannot be read: {error.strerror}") from error


def _entries(descriptor: int) -> list[os.DirEntry[str]]:
    with os.scandir(descriptor) as entries:
        return list(entries)
