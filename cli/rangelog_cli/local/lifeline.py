"""A child process ends when its parent process ends, in whichever way.

Idea: the parent holds the only write end of a pipe and each child the read end. When the parent is gone, even by
`kill -9`, the kernel closes the write end, the child's read returns, and the child kills its own process group.
Unlike PR_SET_PDEATHSIG this needs no code between fork and exec and does not care which thread started the child.
"""

from __future__ import annotations

import os
import signal
import threading

LIFELINE_ENV = "RANGELOG_LIFELINE_FD"

_pipe: tuple[int, int, int] | None = None
"""(pid that made it, read end, write end). The write end is never inherited across exec."""


def lifeline_fd() -> int:
    """Return the read end for children (`pass_fds`, and its number in the environment as LIFELINE_ENV)."""
    global _pipe
    if _pipe is None or _pipe[0] != os.getpid():
        read_end, write_end = os.pipe()
        _pipe = (os.getpid(), read_end, write_end)
    return _pipe[1]


def follow_parent() -> None:
    """In a child: end with the parent. Does nothing in a process that was not started by a supervisor."""
    number = os.environ.pop(LIFELINE_ENV, "")
    if not number.isdigit():
        return
    threading.Thread(target=_wait_for_end, args=(int(number),), name="lifeline", daemon=True).start()


def _wait_for_end(read_end: int) -> None:
    try:
        while os.read(read_end, 1):
            pass
    except OSError:
        return  # not the pipe: the variable was set without passing the descriptor
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # with its own children, such as a Java runtime
    os._exit(1)
