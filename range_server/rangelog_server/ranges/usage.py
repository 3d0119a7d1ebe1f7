"""The live data of each segment of the log: counters that every change updates, so that no loop over replicas is needed. Pure.

What holds: `batches` of a segment is the total length of the batches placed there, and of unflushed copies there; `metadata`
counts the current states, tombstones and floors there; every range with an entry in a segment, current or not, is among its
`residents` until the segment is freed. A range may be among them twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Key = tuple[int, int]

METADATA_BYTES = 128
"""The bytes of one metadata entry, with its header: a state without a problem has 104."""
SPARSE_SHARE = 4
"""A segment is sparse while at most one byte in so many is live."""


class SegmentUsage:
    """The counters of all segments. `segment_bytes`: the size of one segment."""

    def __init__(self, segment_bytes: int) -> None:
        self._sparse_bytes_max = segment_bytes // SPARSE_SHARE
        self.batches: dict[int, int] = {}
        self.metadata: dict[int, int] = {}
        self.residents: dict[int, list[Key]] = {}
        self.floors: dict[int, list[int]] = {}
        """Streams whose floor was written to the segment; it may have been written again since."""
        self.sparse: dict[int, None] = {}
        """Candidates: all closed segments with few live bytes, and perhaps others, open ones among them."""
        self.batch_bytes = 0

    def live_bytes(self, sequence: int) -> int:
        """Return about how many bytes must be written again to free a segment."""
        return self.batches.get(sequence, 0) + METADATA_BYTES * self.metadata.get(sequence, 0)

    def is_sparse(self, sequence: int) -> bool:
        """Whether few of a segment's bytes are live."""
        return self.live_bytes(sequence) <= self._sparse_bytes_max

    def reside(self, key: Key, sequence: int) -> None:
        """Note a range's first entry in a segment."""
        self.residents.setdefault(sequence, []).append(key)

    def placed(self, sequence: int, size_bytes: int) -> None:
        """Count batches that are placed in a segment, or whose copies there are unflushed."""
        self.batches[sequence] = self.batches.get(sequence, 0) + size_bytes
        self.batch_bytes += size_bytes

    def freed(self, sizes: Mapping[int, int]) -> None:
        """Subtract batches that are no longer placed in these segments, bytes by segment."""
        for sequence, size_bytes in sizes.items():
            if size_bytes:
                self.batches[sequence] -= size_bytes
                self.batch_bytes -= size_bytes
                self._look(sequence)

    def wrote_metadata(self, sequence: int) -> None:
        """Count a state, a tombstone or a floor that was written to a segment."""
        self.metadata[sequence] = self.metadata.get(sequence, 0) + 1

    def replaced_metadata(self, sequence: int) -> None:
        """Subtract metadata that is no longer current."""
        count = self.metadata.get(sequence)
        if count:  # otherwise the segment was freed
            self.metadata[sequence] = count - 1
            self._look(sequence)

    def closed(self, sequences: Iterable[int]) -> None:
        """Note that these segments are full."""
        for sequence in sequences:
            self._look(sequence)

    def forget(self, sequence: int) -> list[Key]:
        """Remove a freed segment; return its residents."""
        for each in (self.batches, self.metadata, self.floors, self.sparse):
            each.pop(sequence, None)
        return self.residents.pop(sequence, [])

    def _look(self, sequence: int) -> None:
        if self.is_sparse(sequence):
            self.sparse[sequence] = None
