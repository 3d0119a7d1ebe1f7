"""The records that the workload appends: bytes that do not compress, with a number and a time in front.

Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

import os
import struct

WARM_UP = (1 << 64) - 1
"""The number of a record that is not measured."""

_NOISE = os.urandom(1 << 20)
_HEAD = struct.Struct("<Qd")


def make_record(size: int, number: int, stamp_s: float = 0.0) -> bytes:
    """`size` bytes (16 or more) that do not compress: a number, a time and noise."""
    return _HEAD.pack(number, stamp_s) + _NOISE[: size - _HEAD.size]


def read_record(payload: bytes) -> tuple[int, float]:
    """The number and the time in a record."""
    return _HEAD.unpack_from(payload)
