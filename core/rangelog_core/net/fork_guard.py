"""gRPC and forks: once a process has called, a child that is forked from it cannot call any more, and would wait for ever.

What holds: such a child is told so, by whichever client it calls with, its own or the one it inherited. And nothing that it
inherited is ever freed in it: freeing a channel there joins gRPC's thread, which is not there, at full load for ever; freeing
a connection takes its socket out of the epoll set that is shared with the parent.

Left alone: gRPC's own handlers of forks, which at times kill a child with signal 11 when calls are under way at the fork.
GRPC_ENABLE_FORK_SUPPORT=0 in the environment prevents it. We do not set it, for it holds for the whole process: children that
use a gRPC channel of their own beside us would hang.
"""

from __future__ import annotations

import ctypes
import os
import weakref

from rangelog_core.errors import InvalidArgument

_called = False
_forked = False  # from a process that had called
_parents: weakref.WeakSet[object] = weakref.WeakSet()


def note_call() -> None:
    """Before every call. Raises InvalidArgument in a child of a process that had called before it forked."""
    global _called
    if _forked:
        raise InvalidArgument(
            "this process was forked from one that had called a cluster, and gRPC does not work in it: "
            'start it anew (multiprocessing: "spawn"), or connect after forking only'
        )
    _called = True


def never_free_in_children(thing: object) -> None:
    """Keep `thing`, if it still lives at a fork, and all that it refers to, in the child to the child's end."""
    _parents.add(thing)


def _keep() -> None:
    global _forked
    _forked = _called
    for thing in _parents:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # a variable would let go when the interpreter ends


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep)
