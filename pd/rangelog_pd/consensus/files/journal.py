"""The Raft journal: an append-only file of checksummed entries.

What holds:
- an entry is found after any crash once `sync` has returned for it;
- the remains of unflushed entries (a torn tail) are cut off on open; damage to flushed entries is Corruption, raised and
  never cut. Two marks distinguish them: each record contains the index that was durable when it was written, and the
  caller passes the durable index of the hard state (`must_hold`);
- dropping the head and replacing the journal write a new file, fsync, rename and fsync the directory: a crash leaves the
  old file or the new one;
- indexes are dense and terms never fall;
- after a failed write or flush the journal refuses all calls: the content of the disk is unknown (never retried); the
  next process writes the entries again before it relies on them.

File: head (magic 8, version u32, crc32c u32), then per entry: length u32, crc32c u32, index u64, term u64, durable u64,
command. The crc covers the length and all fields behind the crc. Little endian; positions are 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from rangelog_core.errors import Corruption, InternalError
from rangelog_core.versions import VersionRange, unsupported
from rangelog_pd.consensus.files.disk import REAL_FILES, Files, read_all
from rangelog_pd.consensus.files.durable_file import (
    replace_durably,
    write_fully,
    write_new_file,
)

_MAGIC = b"RLJRNL01"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_RECORD = struct.Struct("<IIQQQ")  # length of the command, crc32c, index, term, durable index
_AFTER_CRC = 8

ENTRY_BYTES_MAX = 64 * 1024
"""Length of one command with its kind; a longer one in the file is damage."""
INDEX_MAX = (1 << 63) - 1
"""The highest index and term; a higher one is damage, or a forged message."""


class JournalEntry(NamedTuple):
    """One log entry. A plain tuple in the order of the Raft library."""

    command: bytes
    log_index: int
    term: int


class RaftJournal:
    """One member's log, mirrored in memory. Not thread-safe: one thread owns it."""

    def __init__(self, path: Path, *, must_hold: int = 0, files: Files = REAL_FILES) -> None:
        """Open or create.

        Raises Corruption when flushed entries are damaged or end before index `must_hold`, and UnsupportedVersion.
        """
        self.path = path
        self._files = files
        self.flushes = 0
        self._entries: list[JournalEntry] = []
        self._positions: list[int] = []
        self.size_bytes = _HEAD.size
        self.durable_index = 0
        self._dirty = False
        self._failed = False
        if files.exists(path):
            self._fd = files.open(path)
            try:
                self._recover(must_hold)
            except BaseException:
                files.close(self._fd)
                raise
        else:
            if must_hold > 0:
                raise Corruption(f"{path} is missing, but entries up to {must_hold} were flushed")
            self._fd = -1
            self._write_whole([])

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Sequence[JournalEntry]:
        """All entries, oldest first. Callers must not change the list."""
        return self._entries

    @property
    def first_index(self) -> int:
        """Index of the first entry; 1 in an empty journal."""
        return self._entries[0].log_index if self._entries else 1

    @property
    def last_index(self) -> int:
        """Index of the last entry; 0 in an empty journal."""
        return self._entries[-1].log_index if self._entries else 0

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`, or None without an entry there."""
        if not self._entries or not self.first_index <= index <= self.last_index:
            return None
        return self._entries[index - self.first_index].term

    def append(self, command: bytes, index: int, term: int) -> None:
        """Add one entry behind the last; durable after the next `sync`."""
        self._check_usable()
        if self._entries and (index != self.last_index + 1 or term < self._entries[-1].term):
            raise InternalError(f"entry {index} of term {term} does not follow {self._entries[-1][1:]}")
        if max(index, term) > INDEX_MAX:
            raise InternalError(f"entry {index} of term {term}: there is no such number")
        if len(command) > ENTRY_BYTES_MAX:
            raise InternalError(f"an entry of {len(command)} bytes; the limit is {ENTRY_BYTES_MAX}")
        entry = JournalEntry(command, index, term)
        record = _encode(entry, self.durable_index)
        try:
            write_fully(self._files, self._fd, record, self.size_bytes)
        except OSError:
            self._failed = True
            raise
        self._entries.append(entry)
        self._positions.append(self.size_bytes)
        self.size_bytes += len(record)
        self._dirty = True

    def sync(self) -> None:
        """Flush all appends and cuts. Raises OSError, after which the journal refuses all calls."""
        self._check_usable()
        if not self._dirty:
            return
        try:
            self._files.fdatasync(self._fd)
        except OSError:
            self._failed = True
            raise
        self._dirty = False
        self.flushes += 1
        self.durable_index = self.last_index

    def truncate_from(self, index: int) -> None:
        """Cut the entries from `index` on, which lost an election. Durable on return.

        The cut records count as flushed: they must be removed durably before others are written over them, or a power cut
        could leave their end behind the new entries.
        """
        self._check_usable()
        if not self._entries or index > self.last_index:
            return
        keep = max(index - self.first_index, 0)
        end = self._positions[keep]
        try:
            self._files.truncate(self._fd, end)
        except OSError:
            self._failed = True
            raise
        del self._entries[keep:]
        del self._positions[keep:]
        self.size_bytes = end
        self.durable_index = min(self.durable_index, index - 1)
        self._dirty = True
        self.sync()

    def drop_before(self, index: int) -> None:
        """Remove the entries below `index`, which a durable snapshot holds. Durable on return."""
        if index > self.first_index:
            self.replace(self._entries[index - self.first_index :])

    def replace(self, entries: Sequence[JournalEntry]) -> None:
        """Hold exactly these entries. Durable on return; a crash leaves the old ones or the new ones."""
        self._check_usable()
        try:
            self._write_whole(list(entries))
        except OSError:
            self._failed = True
            raise

    def close(self) -> None:
        """Close the file, without a flush. Idempotent."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _check_usable(self) -> None:
        if self._failed or self._fd < 0:
            raise InternalError(f"{self.path}: the journal failed or was closed")

    def _write_whole(self, entries: list[JournalEntry]) -> None:
        # Each record marks only earlier ones as durable: a tail that loses an election later leaves no false mark.
        records = [_encode(entry, entry.log_index - 1) for entry in entries]
        temporary = self.path.with_name(self.path.name + ".new")
        fd = write_new_file(self._files, temporary, [_head(), *records])
        try:
            replace_durably(self._files, temporary, self.path)
        except BaseException:
            self._files.close(fd)
            raise
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = fd
        self._entries = entries
        self._positions = []
        self.size_bytes = _HEAD.size
        for record in records:
            self._positions.append(self.size_bytes)
            self.size_bytes += len(record)
        self.durable_index = self.last_index
        self._dirty = False

    def _recover(self, must_hold: int) -> None:
        data = read_all(self._files, self._fd)
        _check_head(self.path, data[: _HEAD.size])
        durable = must_hold
        while (found := _decode(data, self.size_bytes)) is not None:
            entry, record_durable = found
            if self._entries and (entry.log_index != self.last_index + 1 or entry.term < self._entries[-1].term):
                break
            self._entries.append(entry)
            self._positions.append(self.size_bytes)
            self.size_bytes += _RECORD.size + len(entry.command)
            durable = max(durable, record_durable)
        if self.size_bytes < len(data):
            durable = max(durable, _durable_claim(data, self.size_bytes + 1))
        if self.last_index < durable:
            raise Corruption(
                f"{self.path}: damaged after entry {self.last_index}; entries up to {durable} were flushed"
            )
        if self.size_bytes < len(data):
            self._files.truncate(self._fd, self.size_bytes)
        # The page cache may hold bytes that the disk lacks, and after a failed flush it counts as clean: entries that no
        # later record marks as durable are written again and flushed before they count.
        vouched = sum(entry.log_index <= durable for entry in self._entries)
        if vouched < len(self._entries):
            start = self._positions[vouched]
            write_fully(self._files, self._fd, memoryview(data)[start : self.size_bytes], start)
        self._files.fsync(self._fd)
        self.durable_index = self.last_index


def _head() -> bytes:
    return _HEAD.pack(_MAGIC, _VERSION, google_crc32c.value(_MAGIC + _VERSION.to_bytes(4, "little")))


def _check_head(path: Path, head: bytes) -> None:
    """Raise Corruption; UnsupportedVersion for a whole head of a later version."""
    if head == _head():
        return
    if len(head) == _HEAD.size:
        magic, version, crc = _HEAD.unpack(head)
        if magic == _MAGIC and version > _VERSION and crc == google_crc32c.value(head[:-4]):
            raise unsupported(str(path), version, VersionRange(1, _VERSION), "this placement driver")
    raise Corruption(f"{path}: the head is damaged")


def _encode(entry: JournalEntry, durable_index: int) -> bytes:
    record = bytearray(_RECORD.pack(len(entry.command), 0, entry.log_index, entry.term, durable_index))
    record += entry.command
    struct.pack_into("<I", record, 4, _crc(record))
    return bytes(record)


def _crc(record: bytes | bytearray | memoryview) -> int:
    """Return the crc32c of the length and of all bytes behind the crc field."""
    return int(google_crc32c.extend(google_crc32c.value(bytes(record[:4])), bytes(record[_AFTER_CRC:])))


def _decode(data: bytes, position: int) -> tuple[JournalEntry, int] | None:
    if position + _RECORD.size > len(data):
        return None
    length, crc, index, term, durable = _RECORD.unpack_from(data, position)
    end = position + _RECORD.size + length
    if length > ENTRY_BYTES_MAX or end > len(data) or not 0 < index <= INDEX_MAX or term > INDEX_MAX:
        return None
    if _crc(memoryview(data)[position:end]) != crc:
        return None
    return JournalEntry(data[position + _RECORD.size : end], index, term), durable


def _durable_claim(data: bytes, position: int) -> int:
    """Return the highest durable index in any whole record behind a damaged place."""
    claim = 0
    while position + _RECORD.size <= len(data):
        found = _decode(data, position)
        if found is None:
            position += 1
        else:
            claim = max(claim, found[1])
            position += _RECORD.size + len(found[0].command)
    return claim
