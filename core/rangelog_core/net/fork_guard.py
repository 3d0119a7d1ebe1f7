"""gRPC and forks: after a process has made a gRPC call, calls of its forked children would wait for ever.

What holds: a call in such a child raises InvalidArgument, with a client of its own and with an inherited one. Inherited
clients are never freed in a child: freeing a channel there waits for gRPC's thread, which does not exist, at full load for
ever; freeing a connection removes its socket from the epoll set that is shared with the parent.

Not covered: gRPC's own fork handlers, which sometimes kill a child with signal 11 when calls are in progress at the fork.
GRPC_ENABLE_FORK_SUPPORT=0 in the environment prevents it. It is not set here, because it holds for the whole process:
children that use a gRPC channel of their own beside rangelog would hang.
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
    """Note that a call follows. Raises InvalidArgument in a child of a process that had made a call before the fork."""
    global _called
    if _forked:
        raise InvalidArgument(
            "this process was forked from one that had called a cluster, and gRPC does not work in it: "
            'start it anew (multiprocessing: "spawn"), or connect after forking only'
        )
    _called = True


def never_free_in_children(thing: object) -> None:
    """Keep `thing`, and all that it refers to, alive in forked children until they end."""
    _parents.add(thing)


def _keep() -> None:
    global _forked
    _forked = _called
    for thing in _parents:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # a variable would be freed when the interpreter ends


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep)
