"""gRPC and forks: once a process has called, a child that is forked from it cannot call any more, and would wait for ever.

What holds: such a child is told so, by whichever client it calls with, its own or the one it inherited.
"""

from __future__ import annotations

import os

from rangelog.errors import InvalidArgument

_called_in: int | None = None


def note_call() -> None:
    """Before every call. Raises InvalidArgument in a child of a process that had called before it forked."""
    global _called_in
    if _called_in is None:
        _called_in = os.getpid()
    elif _called_in != os.getpid():
        raise InvalidArgument(
            f"process {_called_in} had called a cluster before it forked this one, in which gRPC does not work: "
            'start it anew (multiprocessing: "spawn"), or connect after forking only'
        )
