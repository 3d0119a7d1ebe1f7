"""Keeps Python's garbage collector from taking half of the processor time of a program with many streams.

What holds: a program that has set thresholds of its own, or has switched the collector off, keeps them. Otherwise they are
raised, for the process, when a client gets many writers: each append makes some objects that live until its ack, so with
thousands of streams Python's own thresholds have the collector look at all of them over and over, and find nothing.
"""

from __future__ import annotations

import gc

MANY_WRITERS = 100
"""With fewer in a client the collector costs little."""
PYTHONS_OWN = ((700, 10, 10), (2_000, 10, 10), (2_000, 10, 0))
"""By its versions."""
RAISED = (20_000, 20, 50)
"""As the servers have. Between two collections of the youngest: some MiB."""


def spare_many_writers() -> None:
    """Raise the thresholds, unless the program has set its own."""
    if gc.isenabled() and gc.get_threshold() in PYTHONS_OWN:
        gc.set_threshold(*RAISED)
