"""The lock of a server's data directory: one process at a time has it.

What holds: the lock is the kernel's, on the open file LOCK, so it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rangelog_core.errors import PreconditionFailed, Unavailable


def lock_directory(path: Path) -> int:
    """Make the directory if it is missing, with mode 0700, and lock it; return the open lock file.

    Closing the file unlocks the directory. Raises Unavailable when the directory cannot be used, PreconditionFailed when
    another process has the lock.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"the data directory {path} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise PreconditionFailed(
            f"another process uses the data directory {path}: stop it first, or choose another directory"
        ) from error
    return lock


def check_directory_name(path: Path) -> Path:
    """Return `path` if a file system can have it. Raises ValueError."""
    if "\0" in str(path):
        raise ValueError("no directory has a zero byte in its name")
    return path
