"""One writer for a prefix: a file that is locked while its writer lives.

What holds: of two writers on one prefix of one stream, on one machine, the second is refused, and the error names the first.
The lock ends with its process, however that ends; the file stays, and means nothing by itself.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rangelog_core.errors import PreconditionFailed
from rangelog_files.writable_files import typed_errors

CONTROL_FOLDER = ".control"
"""Beside the generations of a stream: locks of its writers."""
_OWNER_BYTES_MAX = 4_096


class WriterLock:
    """The lock on a prefix, held until `release`.

    Example:
        ```python
        lock = WriterLock(folder, "file.0", now_ms)
        try:
            ...
        finally:
            lock.release()
        ```
    """

    def __init__(self, folder: Path, prefix: str, now_ms: int) -> None:
        """Take the lock of `prefix` in this directory. Raises PreconditionFailed: another has it; StorageFull, AccessDenied."""
        path = folder / f"{prefix}.lock"
        with typed_errors(f"the lock of the prefix {prefix!r}"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor: int = os.open(path, flags, 0o644)
        try:
            with typed_errors(f"the lock of the prefix {prefix!r}"):
                self._lock(descriptor, prefix)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _owner(now_ms), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor: int | None = descriptor

    def _lock(self, descriptor: int, prefix: str) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PreconditionFailed(
                f"the prefix {prefix!r} has a writer: {_told(os.pread(descriptor, _OWNER_BYTES_MAX, 0))}: "
                f"close that one, or give this one another prefix"
            ) from None

    def release(self) -> None:
        """Release the lock; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _owner(now_ms: int) -> bytes:
    return json.dumps({"host": os.uname().nodename, "pid": os.getpid(), "since_ms": now_ms}).encode()


def _told(data: bytes) -> str:
    """Return who the owner is, as far as its file has it: it may be about to be written."""
    owner: Any = None
    with suppress(ValueError):
        owner = json.loads(data)
    if not isinstance(owner, dict) or not isinstance(owner.get("since_ms"), int):
        return "a process that has just begun"
    with suppress(ValueError, OverflowError):
        since = datetime.fromtimestamp(owner["since_ms"] / 1_000, UTC)
        return f"process {owner.get('pid')} on {owner.get('host')}, since {since:%Y-%m-%d %H:%M:%S} UTC"
    return f"process {owner.get('pid')} on {owner.get('host')}"
