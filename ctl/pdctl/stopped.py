"""Whether the cluster of a context is one of `rangelog local` that does not run: then a command says so at once.

What holds: it is called stopped only where its process is gone and nothing listens at any of its addresses.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_core.errors import Unavailable
from rangelog_core.net.addresses import split_address

if TYPE_CHECKING:
    from rangelog.context import Context

_CONNECT_S = 0.3
"""On loopback an answer takes far less than this."""


def refuse_stopped(context: Context) -> None:
    """Raise Unavailable, with the command that starts it, where the context's local cluster does not run."""
    if not is_stopped(context):
        return
    if context.data_dir is not None and not Path(context.data_dir).exists():
        raise Unavailable(
            f"the local cluster {context.name!r} is gone with its directory {context.data_dir}: "
            f"remove it with `pdctl context delete {context.name}`, or choose another one with `pdctl context use`"
        )
    raise Unavailable(
        f"the local cluster {context.name!r} is stopped: start it with `rangelog local --data-dir {context.data_dir}`, "
        "or choose another one with `pdctl context use`"
    )


def is_stopped(context: Context, listens: Callable[[str], bool] | None = None) -> bool:
    """Return whether it is a cluster of `rangelog local` that does not run. `listens`: of an address, for tests."""
    if context.data_dir is None or supervisor_lives(Path(context.data_dir)):
        return False
    return not any(map(listens or _listens, context.pd))


def supervisor_lives(data_dir: Path) -> bool:
    """Return whether the process that the directory's lock file names exists."""
    try:
        pid = int((data_dir / "LOCK").read_text().strip())
    except (OSError, ValueError):
        return False
    return pid > 0 and process_began(pid) is not None


def process_began(pid: int) -> str | None:
    """Return when a process began, in the kernel's ticks; "" where the kernel does not show it, None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]  # an ended one stays listed until its parent has looked
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    try:
        os.kill(pid, 0)
    except PermissionError:
        return ""
    except (OSError, OverflowError):
        return None
    return ""


def _listens(address: str) -> bool:
    try:
        with socket.create_connection(split_address(address), _CONNECT_S):
            return True
    except OSError:
        return False
