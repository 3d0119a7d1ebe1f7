"""Keeps the garbage collector from walking a large state again and again.

What holds: objects that exist when `spare_long_lived` is called are never visited by the collector; reference counts free them
as before. A server's state has no cycles, so no memory leaks.
"""

from __future__ import annotations

import gc

YOUNG_MAX = 20_000
"""Allocations between two collections of the youngest generation; Python's default, 700, is made for small programs."""


def spare_long_lived() -> None:
    """Collect once, then exempt all remaining objects from collection. Call it when a server has loaded its state."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)
