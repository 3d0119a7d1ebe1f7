"""Reads that the disk refused: when they count as damage, and when as temporary. Pure: the caller passes the time.

What holds: a batch counts as lost when FAULTS_MIN reads of it have failed, the last of them LASTING_S or more after the
first, and none in between succeeded. Until then the replica stays in service: a reader continues with another one. A failed
read of one batch is no evidence about others.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_core.errors import Unavailable

FAULTS_MIN = 3
LASTING_S = 60.0
"""The failover of a path and the reset of a controller take less time."""
FORGOTTEN_S = 600.0
"""A fault after so long without one is counted from the beginning."""

Key = tuple[int, int]


class ReadFault(Unavailable):
    """The disk refused to read a batch. A later read may succeed."""

    def __init__(self, message: str, base_offset: int, end_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        self.end_offset = end_offset


@dataclass(slots=True)
class _Faults:
    end_offset: int
    count: int
    first_s: float
    last_s: float


class ReadFaults:
    """The faults of one server that no later read has refuted."""

    def __init__(self) -> None:
        self._faults: dict[Key, dict[int, _Faults]] = {}  # by base offset

    def failed(self, key: Key, fault: ReadFault, now_s: float) -> bool:
        """Note a fault of a replica's batch; return whether the batch counts as lost."""
        of_replica = self._faults.setdefault(key, {})
        known = of_replica.get(fault.base_offset)
        if known is None or now_s - known.last_s > FORGOTTEN_S:
            known = of_replica[fault.base_offset] = _Faults(fault.end_offset, 0, now_s, now_s)
        known.count += 1
        known.last_s = now_s
        return known.count >= FAULTS_MIN and now_s - known.first_s >= LASTING_S

    def succeeded(self, key: Key, start_offset: int, end_offset: int) -> None:
        """Note that all batches of a replica that overlap [start, end) were read."""
        of_replica = self._faults.get(key)
        if of_replica is None:
            return
        for base, known in list(of_replica.items()):
            if base < end_offset and known.end_offset > start_offset:
                del of_replica[base]
        if not of_replica:
            del self._faults[key]

    def forget(self, key: Key) -> None:
        """Remove the faults of a dropped replica."""
        self._faults.pop(key, None)
