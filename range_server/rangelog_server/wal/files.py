"""The segment files of a log: how they are named, created, recycled and opened.

    wal-<sequence>.seg   in use, or prepared for use      wal-<sequence>.idx   sidecar of a full segment
    free-<sequence>.seg  no longer needed, to be recycled

A file is renamed to `free-` before any of its bytes is overwritten, and to its new name only once its new first bytes are on
the disk: after a crash at any moment the name fits the content. A segment of a newer version is refused before anything
is changed; only a `free-` file, whose content is not needed, is overwritten whatever its version.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rangelog_core.errors import RangelogError, StorageFull, UnsupportedVersion
from rangelog_server.wal.encryption import ENCRYPTED_START_BYTES, HEADER_COPY_BYTES, LogKeys, SegmentCipher
from rangelog_server.wal.entry import (
    CLEAR_SEGMENT_VERSION,
    ENCRYPTED_SEGMENT_VERSION,
    ENTRY_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Entry,
    Kind,
    check_segment_header,
    make_lsn,
    pack_header,
    pack_segment_header,
    pack_sidecar,
    segment_version,
    sidecar_row,
    unpack_sidecar,
)
from rangelog_server.wal.io import Io, read_all, replace_file, write_all
from rangelog_server.wal.scan import Ending, SegmentLog, scan_segment

FREE_FILES_MAX = 16
"""Files kept for recycling: blocks that were written before are flushed faster than new ones."""
BLOCK_BYTES = 4096
"""A multiple of every device's sector: what is read and written at once."""
SHRINK_BYTES = 1024 * 1024
"""Bytes that are freed at a time: where the file system discards freed blocks, freeing a whole file at once stalls flushes."""
_ENCRYPTED_SIDECAR_MAGIC = b"RLIDX2\0\3"


class Segment:
    """One open segment file."""

    __slots__ = ("cipher", "fd", "rows", "sequence", "size_bytes", "start")

    def __init__(self, sequence: int, fd: int, size_bytes: int) -> None:
        self.sequence = sequence
        self.fd = fd
        self.size_bytes = size_bytes
        self.cipher: SegmentCipher | None = None
        """What encrypts its entries; None: they are in clear."""
        self.start = SEGMENT_HEADER_BYTES
        """The position of its first entry."""
        self.rows = bytearray()  # of the sidecar to be; only while the segment fills

    def encrypt_by(self, cipher: SegmentCipher) -> None:
        """Encrypt entries."""
        self.cipher, self.start = cipher, ENCRYPTED_START_BYTES

    @property
    def key_id(self) -> str:
        """The key that it is encrypted with; empty: none."""
        return self.cipher.key_id if self.cipher is not None else ""


class SegmentFiles:
    """All segment files of one directory. Blocking: for threads that may wait for the disk."""

    def __init__(
        self,
        directory: Path,
        io: Io,
        segment_bytes: int,
        salt: int,
        capacity_bytes: int = 0,
        keys: LogKeys | None = None,
    ) -> None:
        self.keys = keys or LogKeys(None, salt, encrypt=False)
        self.directory = directory
        self.io = io
        self.segment_bytes = segment_bytes
        self.salt = salt
        self.capacity_bytes = capacity_bytes
        self.free_files_max = FREE_FILES_MAX
        self.used_bytes = 0
        """The size of all files of segments, free ones included: what `capacity_bytes` bounds."""
        self._free: list[Path] = []  # to be recycled, newest last
        self._unwanted: list[Path] = []  # to be removed: they have bytes in clear, and new segments are encrypted
        self._shrinking: tuple[Path, int] | None = None  # the file that is being freed, and its length

    def path(self, sequence: int) -> Path:
        """Return the path of a segment."""
        return self.directory / f"wal-{sequence:016x}.seg"

    def sidecar_path(self, sequence: int) -> Path:
        """Return the path of a segment's sidecar."""
        return self.directory / f"wal-{sequence:016x}.idx"

    def open_all(self) -> list[Segment]:
        """Open all segments, oldest first, and note the free files. Raises OSError, UnsupportedVersion."""
        # A killed process may have renamed files without flushing the names: bytes that are written to one of them from
        # here on must not be lost with its name.
        self.io.sync_directory(self.directory)
        segments: list[Segment] = []
        unfinished: list[Path] = []
        free: list[Path] = []
        for name in self.io.list(self.directory):
            path = self.directory / name
            if name.startswith("wal-") and name.endswith(".seg"):
                fd = self.io.open(path)
                segment = Segment(int(name[4:-4], 16), fd, self.io.size(fd))
                segments.append(segment)
                self._check_header(segment)
            elif name.startswith("free-"):
                free.append(path)
            elif name.endswith(".tmp"):
                unfinished.append(path)
        for path in unfinished:
            self.io.unlink(path)
        for path in free:
            self._set_free(path, in_clear=self.keys.encrypt and not self._is_encrypted(path))
        free_bytes = sum(map(self._size_of, [*self._free, *self._unwanted]))
        self.used_bytes = sum(segment.size_bytes for segment in segments) + free_bytes
        return segments

    def _is_encrypted(self, path: Path) -> bool:
        """Whether a free file was an encrypted segment: those are never made of files in clear."""
        fd = self.io.open(path)
        try:
            return segment_version(read_all(self.io, fd, SEGMENT_HEADER_BYTES, 0)) == ENCRYPTED_SEGMENT_VERSION
        except OSError:
            return False
        finally:
            self.io.close(fd)

    def _set_free(self, path: Path, *, in_clear: bool) -> None:
        """Keep a file to be used again, or have it removed: no encrypted segment is made of a file in clear."""
        if not in_clear or not self.keys.encrypt:
            self._free.append(path)
            return
        unwanted = path.with_suffix(".tmp")  # another name than that of a file to come; a start removes it
        self.io.rename(path, unwanted)
        self._unwanted.append(unwanted)

    def _check_header(self, segment: Segment) -> None:
        try:
            first = read_all(self.io, segment.fd, min(SEGMENT_HEADER_BYTES, segment.size_bytes), 0)
        except OSError:
            first = b""  # as with a damaged header: reads of the entries report the fault
        try:
            check_segment_header(first)
            if segment_version(first) != CLEAR_SEGMENT_VERSION:  # encrypted, or damaged: the copy of its header tells
                cipher = self.keys.open_segment(self._header_copies(segment), segment.sequence)
                if cipher is not None:
                    segment.encrypt_by(cipher)
        except RangelogError as error:
            raise type(error)(f"{self.path(segment.sequence)}: {error.message}") from error

    def _header_copies(self, segment: Segment) -> list[bytes]:
        found: list[bytes] = []
        for position in (0, HEADER_COPY_BYTES):
            with suppress(OSError):
                found.append(read_all(self.io, segment.fd, HEADER_COPY_BYTES, position))
        return found

    def prepare(self, sequence: int, *, over: Segment | None = None, beyond: bool = False) -> Segment:
        """Return a segment with its blocks reserved and an END at its start. Raises StorageFull, OSError.

        `over`: a segment of this sequence that nothing was written to, which it replaces in one step; its file is removed.
        `beyond`: the capacity does not count, since without this segment the server could not start. Where segments are
        encrypted: it has a new key. Raises EncryptionKeyMissing, AccessDenied, Unavailable.
        """
        fd = -1
        while self._free and fd < 0:
            path = self._free.pop()
            fd = self.io.open(path)
            if self.io.size(fd) != self.segment_bytes:  # created under another setting, or cut
                self.io.close(fd)
                self._remove(path)
                fd = -1
        if fd < 0:
            while self._unwanted and self._is_full:
                self._remove(self._unwanted.pop())
            if self._is_full and not beyond:
                raise StorageFull(f"the log has reached its capacity of {self.capacity_bytes} bytes")
            path = self.directory / f"free-{sequence:016x}.seg"
            fd = self.io.create(path, self.segment_bytes)
            self.used_bytes += self.segment_bytes
        segment = Segment(sequence, fd, self.segment_bytes)
        header = pack_segment_header(sequence, self.segment_bytes)
        try:
            if self.keys.encrypt:
                header, cipher = self.keys.new_segment(sequence, self.segment_bytes)
                segment.encrypt_by(cipher)
        except RangelogError:
            self.io.close(fd)
            self._free.append(path)
            raise
        end = pack_header(self.salt, Kind.END, make_lsn(sequence, segment.start), 0, 0, 0, 0, b"")
        write_all(self.io, fd, [header, end], 0)
        self.io.fdatasync(fd)
        self.io.rename(path, self.path(sequence))
        self.io.sync_directory(self.directory)
        if over is not None:
            self.io.close(over.fd)
            self.used_bytes -= over.size_bytes
        return segment

    def cut(self, segment: Segment, end: int) -> None:
        """Truncate a segment's file behind its NEXT, which is at `end` and durable. Raises OSError."""
        size = -(-(end + ENTRY_HEADER_BYTES) // BLOCK_BYTES) * BLOCK_BYTES
        if size < segment.size_bytes:
            self.io.truncate(self.path(segment.sequence), size)
            self.used_bytes -= segment.size_bytes - size
            segment.size_bytes = size

    @property
    def _is_full(self) -> bool:
        """Whether another file would go beyond the capacity."""
        return bool(self.capacity_bytes) and self.used_bytes + self.segment_bytes > self.capacity_bytes

    def clear_headers(self, segment: Segment, positions: Sequence[int]) -> None:
        """Overwrite the headers of an unfinished write, durably: a later scan would take them for a sign of lost bytes."""
        for position in positions:
            write_all(self.io, segment.fd, [bytes(ENTRY_HEADER_BYTES)], position)
        if positions:
            self.io.fdatasync(segment.fd)

    def release(self, segment: Segment) -> None:
        """Remove a segment from the log. All its live data must be durable elsewhere."""
        free = self.directory / f"free-{segment.sequence:016x}.seg"
        self.io.close(segment.fd)
        self.io.rename(self.path(segment.sequence), free)
        self.drop_sidecar(segment.sequence)
        self.io.sync_directory(self.directory)
        self._set_free(free, in_clear=segment.cipher is None)

    @property
    def has_surplus(self) -> bool:
        """Whether free files are to be removed: too many, beyond the capacity, or in clear beside encrypted segments."""
        if self._shrinking is not None or self._unwanted or len(self._free) > self.free_files_max:
            return True
        return bool(self._free and self.capacity_bytes) and self.used_bytes > self.capacity_bytes

    def shrink(self) -> None:
        """Free some bytes of the surplus; call it again after a pause. Raises OSError."""
        if self._shrinking is None:
            path = (self._unwanted or self._free).pop(0)
            self._shrinking = path, self._size_of(path)
        path, size = self._shrinking
        if size > SHRINK_BYTES:
            self._shrinking = path, size - SHRINK_BYTES
            self.io.truncate(path, size - SHRINK_BYTES)
            self.used_bytes -= SHRINK_BYTES
        else:
            self._shrinking = None
            self.io.unlink(path)
            self.used_bytes -= size

    def _remove(self, path: Path) -> None:
        size = self._size_of(path)
        self.io.unlink(path)
        self.used_bytes -= size

    def _size_of(self, path: Path) -> int:
        fd = self.io.open(path)
        try:
            return self.io.size(fd)
        finally:
            self.io.close(fd)

    def drop_sidecar(self, sequence: int) -> None:
        """Remove a sidecar, if there is one."""
        path = self.sidecar_path(sequence)
        if path.name in self.io.list(self.directory):
            self.io.unlink(path)

    # ---- content

    def load(self, segment: Segment, *, trust_sidecar: bool) -> SegmentLog:
        """Return the entries of a segment: from its sidecar, or by reading all of it from the disk.

        Raises OSError; UnsupportedVersion when a newer program wrote some of it.
        """
        if trust_sidecar:
            found = self._load_sidecar(segment)
            if found is not None:
                return SegmentLog(segment.sequence, found[1], found[0], Ending.NEXT, scanned=False)
        # After a failed flush pages may be in the cache, clean, and not on the disk: flush, drop the cache, read the disk.
        self.io.fdatasync(segment.fd)
        self.io.drop_cache(segment.fd)
        data = read_all(self.io, segment.fd, self.io.size(segment.fd), 0)
        try:
            return scan_segment(data, segment.sequence, self.salt, segment.start, segment.cipher)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{self.path(segment.sequence)}: {error.message}") from None

    def _load_sidecar(self, segment: Segment) -> tuple[int, list[Entry]] | None:
        sequence, cipher = segment.sequence, segment.cipher
        path = self.sidecar_path(sequence)
        if path.name not in self.io.list(self.directory):
            return None
        fd = self.io.open(path)
        try:
            data: bytes | None = read_all(self.io, fd, self.io.size(fd), 0)
        finally:
            self.io.close(fd)
        if cipher is not None and data is not None:
            bound = _ENCRYPTED_SIDECAR_MAGIC + sequence.to_bytes(8, "little")
            data = cipher.decrypt_sidecar(data[len(bound) :], bound) if data.startswith(bound) else None
        return None if data is None else unpack_sidecar(self.salt, sequence, data)

    def write_sidecar(self, sequence: int, end: int, rows: bytes, cipher: SegmentCipher | None) -> None:
        """Write the sidecar of a full and flushed segment, encrypted as that is."""
        parts = pack_sidecar(self.salt, sequence, end, rows)
        if cipher is not None:
            bound = _ENCRYPTED_SIDECAR_MAGIC + sequence.to_bytes(8, "little")
            parts = [bound, cipher.encrypt_sidecar(b"".join(parts), bound)]
        replace_file(self.io, self.sidecar_path(sequence), parts)


def rows_of(entries: list[Entry]) -> bytearray:
    """Return the sidecar rows of entries that were read back."""
    rows = bytearray()
    for entry in entries:
        place = (entry.stream_id, entry.range_index, entry.confirm_offset, entry.length)
        rows += sidecar_row(entry.kind, entry.lsn & 0xFFFFFFFF, *place, entry.digest)
    return rows
