"""The calls of a writer on the local file system, and what their errors mean.

What holds: a file is made once and never opened to be written again; no symbolic link is followed inside of a store. Every
error is one of rangelog: StorageFull without room, AccessDenied without the right, Unavailable for all others.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rangelog_core.errors import AccessDenied, InvalidArgument, PreconditionFailed, StorageFull, Unavailable

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class WritableFiles:
    """The file system. Each call raises OSError; `typed_errors` has what that means. Tests derive their faults from it."""

    def make_directory(self, path: Path) -> bool:
        """Make a directory in one that exists; return False where it is there."""
        try:
            path.mkdir()
        except FileExistsError:
            if path.is_symlink() or not path.is_dir():
                raise NotADirectoryError(
                    errno.ENOTDIR, "not a directory, or a symbolic link to one", str(path)
                ) from None
            return False
        return True

    def create(self, path: Path) -> int:
        """Make a file to be written; return its descriptor. Raises FileExistsError."""
        return os.open(path, _MAKE, 0o644)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write at the end of a file; return how many bytes were written, which may be fewer."""
        return os.write(descriptor, data)

    def flush(self, descriptor: int) -> None:
        """Return once the content of a file, and its length, are on the disk."""
        os.fdatasync(descriptor)

    def flush_directory(self, path: Path) -> None:
        """Return once the names in a directory are on the disk."""
        descriptor = os.open(path, _DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file."""
        os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, in order; none where there is no such directory."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []


def write_all(files: WritableFiles, descriptor: int, data: bytes) -> None:
    """Write all of it, in as many writes as the file system makes of it. Raises OSError."""
    rest = memoryview(data)
    while rest:
        written = files.write(descriptor, rest)
        if written <= 0:
            raise OSError(errno.EIO, "a write that wrote nothing")
        rest = rest[written:]


def make_directories(files: WritableFiles, root: Path, relative: str) -> Path:
    """Make the directories of a path below `root`, and return the last; all are on the disk then. Raises OSError.

    One that is there may have been made by another writer just now, which has not flushed its name yet.
    """
    path = root
    for name in relative.split("/"):
        parent, path = path, path / name
        files.make_directory(path)
        files.flush_directory(parent)
    return path


@contextmanager
def typed_errors(what: str, *, outcome_unknown: bool = False) -> Iterator[None]:
    """Raise an error of the file system as one of rangelog. `what`: the thing that is read or written, for the message."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            raise StorageFull(
                f"{what}: no room ({why}): free some space, or write elsewhere", outcome_unknown=outcome_unknown
            ) from error
        if error.errno in _NO_RIGHT:
            raise AccessDenied(
                f"{what}: not allowed ({why}): check who owns the directory", outcome_unknown=outcome_unknown
            ) from error
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise InvalidArgument(
                f"{what}: {error.filename or 'a part of the path'} is no directory, or a symbolic link"
            ) from error
        if isinstance(error, FileExistsError):
            raise PreconditionFailed(f"{what}: exists already: another writer of this prefix has made it") from error
        raise Unavailable(f"{what}: {why}", outcome_unknown=outcome_unknown) from error
