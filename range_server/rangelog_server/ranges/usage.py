"""What each segment of the log is still needed for: counters, kept on each change, so that nobody walks all replicas. Pure.

What holds: `batches` of a segment is the sum of the lengths of the batches that replicas are read from there, and of copies
that are on their way there; `metadata` counts the current states, tombstones and floors there; every range that has any
entry in a segment, current or not, is among its `residents` until the segment is freed. A range may be there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Key = tuple[int, int]

METADATA_BYTES = 128
"""Of one entry of metadata, its header included: a state without a problem has 104."""
SPARSE_SHARE = 4
"""A segment is sparse while at most one byte in so many is live."""


class SegmentUsage:
    """See the module. `segment_bytes`: of one segment."""

    def __init__(self, segment_bytes: int) -> None:
        self._sparse_bytes_max = segment_bytes // SPARSE_SHARE
        self.batches: dict[int, int] = {}
        self.metadata: dict[int, int] = {}
        self.residents: dict[int, list[Key]] = {}
        self.floors: dict[int, list[int]] = {}
        """Streams whose floor was written there; it may have been written again since."""
        self.sparse: dict[int, None] = {}
        """Candidates: all closed segments with few live bytes are here, and perhaps others, open ones too."""
        self.batch_bytes = 0

    def live_bytes(self, sequence: int) -> int:
        """What would have to be written again to free a segment, about."""
        return self.batches.get(sequence, 0) + METADATA_BYTES * self.metadata.get(sequence, 0)

    def is_sparse(self, sequence: int) -> bool:
        """Whether few of a segment's bytes are live."""
        return self.live_bytes(sequence) <= self._sparse_bytes_max

    def reside(self, key: Key, sequence: int) -> None:
        """A range has its first entry in a segment."""
        self.residents.setdefault(sequence, []).append(key)

    def placed(self, sequence: int, size_bytes: int) -> None:
        """Batches were placed in a segment, or are on their way there."""
        self.batches[sequence] = self.batches.get(sequence, 0) + size_bytes
        self.batch_bytes += size_bytes

    def freed(self, sizes: Mapping[int, int]) -> None:
        """Batches are not read from these segments any more, bytes by segment."""
        for sequence, size_bytes in sizes.items():
            if size_bytes:
                self.batches[sequence] -= size_bytes
                self.batch_bytes -= size_bytes
                self._look(sequence)

    def wrote_metadata(self, sequence: int) -> None:
        """A state, a tombstone or a floor was written there."""
        self.metadata[sequence] = self.metadata.get(sequence, 0) + 1

    def replaced_metadata(self, sequence: int) -> None:
        """What was written there is not current any more."""
        count = self.metadata.get(sequence)
        if count:  # else the segment was freed
            self.metadata[sequence] = count - 1
            self._look(sequence)

    def closed(self, sequences: Iterable[int]) -> None:
        """These segments are full."""
        for sequence in sequences:
            self._look(sequence)

    def forget(self, sequence: int) -> list[Key]:
        """A segment was freed; return who had entries there."""
        for each in (self.batches, self.metadata, self.floors, self.sparse):
            each.pop(sequence, None)
        return self.residents.pop(sequence, [])

    def _look(self, sequence: int) -> None:
        if self.is_sparse(sequence):
            self.sparse[sequence] = None
