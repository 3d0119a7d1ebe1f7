"""Keeps the garbage collector from walking a large state again and again.

What holds: objects that are there when a server is ready, or when this is called again, are never looked at by the collector;
they are freed by their reference counts as before. A server's state has no cycles, so nothing is lost by that.
"""

from __future__ import annotations

import gc

YOUNG_MAX = 20_000
"""Allocations between two collections of the youngest; Python's own number is 700, made for small programs."""


def spare_long_lived() -> None:
    """Collect once, then leave out all that is left. Call it when a server has loaded its state."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)
