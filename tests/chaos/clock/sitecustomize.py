"""Lets the wall clock of this process jump while it runs, without a compiler: the first thing Python imports.

The servers read wall time through `time.time` and `time.time_ns` alone; both are given an offset here that another
process writes into a shared page. The monotonic clock is not touched.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

_NS = struct.Struct("<q")


def _install(path: str) -> None:
    with open(path, "rb") as file:
        page = mmap.mmap(file.fileno(), _NS.size, prot=mmap.PROT_READ)
    true_ns = time.time_ns

    def time_ns() -> int:
        return true_ns() + int(_NS.unpack_from(page)[0])

    def seconds() -> float:
        return time_ns() / 1e9

    time.time_ns = time_ns
    time.time = seconds


if "RANGELOG_CHAOS_CLOCK" in os.environ:
    _install(os.environ["RANGELOG_CHAOS_CLOCK"])
