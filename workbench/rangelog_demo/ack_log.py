"""The log of a writer or producer process: when each flight was submitted, when it was acked, and at which place.

A file of fixed slots, one per flight, written through a memory map: 0.4 µs an ack, no system call, and the entries survive
`kill -9` of the process because the pages belong to the kernel. Times are CLOCK_MONOTONIC, which all processes
of one machine share. An empty slot is a flight that this writer did not submit; one without an ack time was not acked.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("<q")  # acks noted so far
_SLOT = struct.Struct("<qqqq")  # submitted ns, acked ns, offset + 1, shard
_ACK = struct.Struct("<qqq")


class LoggedAck(NamedTuple):
    """One flight as one writer saw it; `acked_ns` and `offset` are None where there was no ack. A stream has no `shard`: 0."""

    flight: int
    submitted_ns: int
    acked_ns: int | None
    offset: int | None
    shard: int = 0


class AckLog:
    """The writing side. Slots are numbered by flight."""

    def __init__(self, path: Path, flight_count: int) -> None:
        with path.open("xb+") as file:
            file.truncate(_HEAD.size + flight_count * _SLOT.size)
            self._map = mmap.mmap(file.fileno(), 0)
        self._count = 0

    def submitted(self, index: int, now_ns: int) -> None:
        """Note the submission of flight `index`."""
        _SLOT.pack_into(self._map, _HEAD.size + index * _SLOT.size, now_ns, 0, 0, 0)

    def acked(self, index: int, now_ns: int, offset: int, shard: int = 0) -> None:
        """Note the ack of flight `index`."""
        _ACK.pack_into(self._map, _HEAD.size + index * _SLOT.size + 8, now_ns, offset + 1, shard)
        self._count += 1
        _HEAD.pack_into(self._map, 0, self._count)

    def close(self) -> None:
        """Close the file."""
        self._map.close()


def read_acks(path: Path) -> Iterator[LoggedAck]:
    """Return the entries by flight, without flights that were not submitted."""
    for index, (submitted_ns, acked_ns, offset_1, shard) in enumerate(
        _SLOT.iter_unpack(path.read_bytes()[_HEAD.size :])
    ):
        if submitted_ns:
            yield LoggedAck(index, submitted_ns, acked_ns or None, offset_1 - 1 if offset_1 else None, shard)


def count_acks(path: Path) -> int:
    """How many acks were noted so far; 0 when the file is not there yet. Reads eight bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
    except FileNotFoundError:
        return 0
    return int(_HEAD.unpack(head)[0]) if len(head) == _HEAD.size else 0
