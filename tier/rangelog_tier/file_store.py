"""An object store in a local directory: the default of the local cluster, and durable.

What holds: an object is written to a temporary file, flushed, then linked under its name, which fails if the name is taken;
so it appears whole, once, and survives a power cut. One that is replaced is whole before and after.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rangelog_core.errors import ObjectNotFound, PreconditionFailed, StorageFull, Unavailable
from rangelog_tier.object_store import ObjectInfo, ObjectTooShort, check_key, check_span, fill, source_size

_ASIDE = ".aside"
_REPLACE_LOCK = "replace.lock"
_ASIDE_AGE_S_MAX = 86_400.0
_ENOSPC = (28, 122)


class FileStore:
    """An ObjectStore in a local directory."""

    def __init__(self, directory: Path, *, create: bool = True) -> None:
        self._root = directory
        with _mapped(str(directory), directory.parent):
            if create:
                _make_directories(directory / _ASIDE)
                self._drop_left_over()
            elif not directory.is_dir():
                raise Unavailable(
                    f"there is no directory {directory} on this machine: mount the tier there, or pass its URL as it is here"
                )

    def _drop_left_over(self) -> None:
        """Remove the temporary files of killed processes; those of writes in progress are younger."""
        oldest = time.time() - _ASIDE_AGE_S_MAX
        for aside in (self._root / _ASIDE).iterdir():
            with suppress(OSError):  # another process was first, or this one has read access only
                if aside.name != _REPLACE_LOCK and aside.stat().st_mtime < oldest:
                    aside.unlink()

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _named(self, key: str) -> str:
        """Return the path for messages, so that a reader on another machine sees that the directory is a local one."""
        return f"{key} in {self._root}"

    def put_if_absent(self, key: str, source: bytes | Path) -> None:
        """Store bytes or a file under a new key."""
        path = self._path(key)
        source_size(source)
        with _mapped(self._named(key), self._root), self._written_aside(source) as aside:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(aside, path)
            except FileExistsError:
                raise PreconditionFailed(f"object {key} exists already") from None
            self._flush_directories(path.parent)

    @contextmanager
    def _written_aside(self, source: bytes | Path) -> Iterator[Path]:
        """Write bytes or a file to a temporary file, durably; remove that at the end, unless it was moved."""
        aside = self._root / _ASIDE / uuid.uuid4().hex
        _make_directories(aside.parent)  # another program may have removed the directory
        try:
            with aside.open("wb") as target:
                if isinstance(source, bytes):
                    target.write(source)
                else:
                    with source.open("rb") as origin:
                        shutil.copyfileobj(origin, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
            yield aside
        finally:
            aside.unlink(missing_ok=True)

    def replace(self, key: str, data: bytes, etag: str) -> None:
        """Overwrite the object that still has this etag. Raises PreconditionFailed, Unavailable."""
        path = self._path(key)
        with _mapped(self._named(key), self._root), self._written_aside(data) as aside:
            with (aside.parent / _REPLACE_LOCK).open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.is_file() or _etag(path.stat()) != etag:
                    raise PreconditionFailed(f"object {key} was changed meanwhile")
                aside.replace(path)
            _flush_directory(path.parent)

    def _flush_directories(self, directory: Path) -> None:
        """Flush all directories up to the root: each is an entry in its parent, which its creator may not have flushed yet."""
        _flush_directory(directory)
        if directory != self._root:
            self._flush_directories(directory.parent)

    def get(self, key: str) -> bytes:
        """Return the whole object. Raises ObjectNotFound, Unavailable."""
        with _mapped(self._named(key), self._root):
            return self._path(key).read_bytes()

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """Return the whole object and the etag of these bytes. Raises ObjectNotFound, Unavailable."""
        with _mapped(self._named(key), self._root), self._path(key).open("rb") as source:
            return source.read(), _etag(os.fstat(source.fileno()))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on. Raises ObjectNotFound, ObjectTooShort, Unavailable."""
        check_span(key, start, length)
        with _mapped(self._named(key), self._root), self._path(key).open("rb") as source:
            source.seek(start)
            data = source.read(length)
        if len(data) != length:
            raise ObjectTooShort(f"object {key} has no bytes {start} to {start + length}")
        return data

    def read_into(self, key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        """Fill `target` with the bytes from `start` on, piece by piece, until `stopped` returns True."""
        check_span(key, start, len(target))
        with _mapped(self._named(key), self._root), self._path(key).open("rb", buffering=0) as source:
            source.seek(start)
            return fill(target, source.read, stopped, key)

    def head(self, key: str) -> ObjectInfo:
        """Return the metadata of an object. Raises ObjectNotFound, Unavailable."""
        with _mapped(self._named(key), self._root):
            found = self._path(key).stat()
        if not stat.S_ISREG(found.st_mode):
            raise ObjectNotFound(f"there is no object {self._named(key)}")
        return ObjectInfo(key, found.st_size, _etag(found), found.st_mtime_ns // 1_000_000)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, by key. Raises Unavailable."""
        folder = self._root / prefix.rpartition("/")[0]
        with _mapped(self._named(prefix), self._root):
            if not self._root.is_dir():
                raise FileNotFoundError(prefix)
            keys = sorted(
                path.relative_to(self._root).as_posix()
                for path in (_files(folder) if folder.is_dir() else ())
                if path.relative_to(self._root).parts[0] != _ASIDE
            )
        for key in keys:
            if key.startswith(prefix):
                with suppress(ObjectNotFound):  # deleted meanwhile
                    yield self.head(key)

    def delete(self, key: str) -> None:
        """Remove an object; idempotent. Raises Unavailable."""
        with _mapped(self._named(key), self._root):
            self._path(key).unlink(missing_ok=True)

    def close(self) -> None:
        """Do nothing: there are no connections."""


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder. Raises OSError for one that cannot be read, which `Path.rglob` leaves out."""

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # removed meanwhile
            raise error

    for where, _, names in os.walk(folder, onerror=fail):
        yield from (Path(where, name) for name in names)


def _etag(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}"


def _make_directories(directory: Path) -> None:
    """Make a directory and its parents durably: each is an entry in its parent."""
    if directory.is_dir():
        return
    _make_directories(directory.parent)
    directory.mkdir(exist_ok=True)
    _flush_directory(directory.parent)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _mapped(what: str, root: Path) -> Iterator[None]:
    """Raise errors of files as those of a store. `root`: without it nothing can be said of an object."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        if not root.is_dir():
            raise Unavailable(f"the tier's directory is gone: is it mounted? ({what})") from error
        raise ObjectNotFound(f"there is no object {what}") from error
    except OSError as error:
        if error.errno in _ENOSPC:
            raise StorageFull(f"the tier's directory is full: free some space ({what})") from error
        raise Unavailable(f"the tier's directory cannot be used: {error.strerror} ({what})") from error
