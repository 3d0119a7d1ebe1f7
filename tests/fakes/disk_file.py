"""One file of a disk in memory: as it reads, as it is on the disk, and the writes between the two.

What holds: flushed bytes survive. Of the rest a power cut keeps what its caller chooses: any pieces of any write in any
order (`survive_pieces`), or any sectors as they were last written and any length (`survive_sectors`). A flush that fails
marks its sectors clean: they read as written, the next flush succeeds without them, and a power cut takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""
Piece = tuple[int, bytes | None]  # position and bytes; no bytes: the file was cut there
Choice = Callable[[int, int], bool]
"""Whether the piece, or the changed name, of this number among so many is kept."""


class DiskFile:
    """See the module. `now` is what reads, `flushed` what is on the disk."""

    __slots__ = ("flushed", "lost", "now", "pending")

    def __init__(self, content: bytes | bytearray = b"") -> None:
        """A file of flushed bytes."""
        self.now = bytearray(content)
        self.flushed = bytearray(content)
        self.pending: list[Piece] = []
        """Writes and cuts since the last flush, in order."""
        self.lost: dict[int, None] = {}
        """Sectors that a failed flush marked clean: `now` and `flushed` differ there, and no flush changes that."""

    def copy(self) -> DiskFile:
        """Return another file of the same state."""
        twin = DiskFile()
        twin.now, twin.flushed = bytearray(self.now), bytearray(self.flushed)
        twin.pending, twin.lost = list(self.pending), dict(self.lost)
        return twin

    # ---- what a process does

    def write(self, position: int, data: bytes) -> None:
        """Write into the page cache; a file grows when needed."""
        if not data:
            return
        _put(self.now, position, data)
        self.pending.append((position, data))
        if self.lost:
            for sector in _sectors(position, data):
                self.lost.pop(sector, None)

    def cut(self, length: int) -> None:
        """Shorten the file, in the page cache."""
        del self.now[length:]
        self.pending.append((length, None))
        for sector in [each for each in self.lost if each * SECTOR_BYTES >= length]:
            del self.lost[sector]

    def flush(self) -> None:
        """Everything is on the disk, except what an earlier flush failed to write."""
        pending, self.pending = self.pending, []  # what another thread writes meanwhile is not flushed
        if self.lost or any(data is None for _, data in pending):
            before, self.flushed = self.flushed, bytearray(self.now)
            for sector in self.lost:
                start, end = _bounds(sector, len(self.flushed))
                self.flushed[start:end] = before[start:end].ljust(end - start, b"\0")
        else:
            for position, data in pending:
                start = position - position % SECTOR_BYTES
                end = position + len(data or b"")
                end += -end % SECTOR_BYTES
                _put(self.flushed, start, self.now[start:end])

    def fail_flush(self) -> None:
        """A flush fails: what was to be written is marked clean, and is not on the disk."""
        self.lost.update(self.dirty_sectors())
        self.pending = [piece for piece in self.pending if piece[1] is None]

    def drop_cache(self) -> None:
        """Clean pages are read from the disk again: what a failed flush lost is gone."""
        for sector in self.lost:
            start, end = _bounds(sector, len(self.now))
            self.now[start:end] = self.flushed[start:end].ljust(end - start, b"\0")
        self.lost.clear()

    # ---- what is between the page cache and the disk

    def dirty_sectors(self) -> dict[int, None]:
        """Return the sectors that were written since the last flush and not cut off, in the order of their first write."""
        found: dict[int, None] = {}
        for position, data in self.pending:
            if data is None:
                found = {sector: None for sector in found if sector * SECTOR_BYTES < position}
            else:
                found.update(_sectors(position, data))
        return found

    def pieces(self) -> Iterator[Piece]:
        """Yield what is pending, each write in pieces of at most a sector."""
        for position, data in self.pending:
            if data is None:
                yield position, None
                continue
            start, end = position, position + len(data)
            while start < end:
                stop = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, end)
                yield start, data[start - position : stop - position]
                start = stop

    # ---- what happens to the disk

    def settle(self) -> None:
        """All that reads is on the disk."""
        self.flushed = bytearray(self.now)
        self._clean()

    def survive_pieces(self, keep: Choice, *, whole_length: bool = False) -> None:
        """Cut the power: of the pending pieces those are there that `keep` chooses.

        `whole_length`: the file has its last length, though the bytes up to there may be missing.
        """
        content = bytearray(self.flushed)
        pieces = list(self.pieces())
        for number, (position, data) in enumerate(pieces):
            if keep(number, len(pieces)):
                if data is None:
                    del content[position:]
                else:
                    _put(content, position, data)
        if whole_length and len(content) < len(self.now):
            content.extend(bytes(len(self.now) - len(content)))
        self._become(content)

    def survive_sectors(self, keep: Callable[[], bool], length: int) -> None:
        """Cut the power: the dirty sectors for which `keep` returns true are there as last written, in a file of `length`."""
        content = bytearray(length)
        content[: len(self.flushed)] = self.flushed[:length]
        for sector in self.dirty_sectors():
            if keep():
                start, end = _bounds(sector, length)
                part = self.now[start:end]
                content[start : start + len(part)] = part
        self._become(content)

    def rot(self, position: int, mask: int) -> None:
        """Flip bits of one byte, in the page cache and on the disk."""
        self.now[position] ^= mask
        self.flushed[position] ^= mask

    def _become(self, content: bytearray) -> None:
        self.now, self.flushed = content, bytearray(content)
        self._clean()

    def _clean(self) -> None:
        self.pending.clear()
        self.lost.clear()


def _put(content: bytearray, position: int, data: bytes | bytearray) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _sectors(position: int, data: bytes) -> dict[int, None]:
    return dict.fromkeys(range(position // SECTOR_BYTES, (position + len(data) - 1) // SECTOR_BYTES + 1))


def _bounds(sector: int, length: int) -> tuple[int, int]:
    start = min(sector * SECTOR_BYTES, length)
    return start, min(start + SECTOR_BYTES, length)
