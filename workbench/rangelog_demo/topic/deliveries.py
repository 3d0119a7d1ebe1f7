"""The records that the members of the group got, and whether they came in order.

A member notes each delivery before it processes it, with one unbuffered write: the note survives `kill -9`. Times are
CLOCK_MONOTONIC, which all processes of one machine share, so the notes of all members have one order.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rangelog import ShardInfo

_NOTE = struct.Struct("<qqqq")


class Delivery(NamedTuple):
    """The records [start, end) of a shard, handed to a member."""

    time_ns: int
    shard_id: int
    start: int
    end: int


class DeliveryLog:
    """The writing side: one file per member."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)

    def delivered(self, shard_id: int, start: int, end: int) -> None:
        """Note a delivery."""
        self._file.write(_NOTE.pack(time.monotonic_ns(), shard_id, start, end))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_deliveries(path: Path) -> Iterator[Delivery]:
    """Return the notes of one member; none when it has written none."""
    content = path.read_bytes() if path.exists() else b""
    whole = len(content) - len(content) % _NOTE.size
    for fields in _NOTE.iter_unpack(content[:whole]):
        yield Delivery(*fields)


@dataclass(frozen=True)
class DeliveryCheck:
    """The deliveries of a group to all its members.

    Attributes:
        records: Records that were delivered, each counted once.
        again: Deliveries of records that had been delivered before: what a killed member had not committed.
        missing: Records of the topic that no member was given.
        violations: Deliveries that left records of their shard out, or came before those of a predecessor of the shard.
    """

    records: int
    again: int
    missing: int
    violations: int


def check_deliveries(
    deliveries: Iterable[Delivery], shards: Sequence[ShardInfo], ends: Mapping[int, int]
) -> DeliveryCheck:
    """Check deliveries against the topic's shards; `ends` has the number of records of each shard."""
    predecessors = {shard.shard_id: shard.predecessors for shard in shards}
    seen: dict[int, int] = {}  # of each shard: all records below were delivered
    again = violations = 0
    for _, shard_id, start, end in sorted(deliveries):
        if shard_id not in seen:
            seen[shard_id] = 0
            violations += any(seen.get(each, 0) < ends.get(each, 0) for each in predecessors[shard_id])
        violations += start > seen[shard_id]
        again += max(0, min(end, seen[shard_id]) - start)
        seen[shard_id] = max(seen[shard_id], end)
    missing = sum(max(0, end - seen.get(shard_id, 0)) for shard_id, end in ends.items())
    return DeliveryCheck(sum(seen.values()), again, missing, violations)
