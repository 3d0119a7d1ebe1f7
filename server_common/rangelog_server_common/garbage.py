"""Keeps the garbage collector from walking a large state again and again.

What holds: a collector that is off stays off. Objects that exist when `spare_long_lived` is called are never visited by the
collector; reference counts free them as before. A server's state has no cycles, so no memory leaks.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_MAX = 20_000
"""Allocations between two collections of the youngest generation; Python's default, 700, is made for small programs."""


def spare_long_lived(young_max: int = YOUNG_MAX) -> None:
    """Collect once, then exempt all remaining objects from collection. Call it when a server has loaded its state."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(young_max, 20, 50)


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect nothing meanwhile; afterwards the collector is as it was."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
