"""The snapshot file: the whole state at one index, and the last two log entries up to it.

What holds: the file appears whole or not at all; a damaged or foreign one is Corruption before any of it is used.

File: magic 8, version u32, crc32c u32, indexes, terms and lengths of the two entries, length of the state; then the two
commands and the state. Little endian. The checksum of version 1 covers all that follows it. Version 2, which is written once
the group's members were changed, has the index and the length of the configuration behind the other lengths, and the
configuration before the state; its checksum covers magic and version too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_core.versions import VersionRange, unsupported
from rangelog_pd.consensus.files import configuration as configurations
from rangelog_pd.consensus.files.configuration import Configuration
from rangelog_pd.consensus.files.disk import REAL_FILES, Files, read_whole
from rangelog_pd.consensus.files.durable_file import write_atomically
from rangelog_pd.consensus.files.journal import ENTRY_BYTES_MAX, INDEX_MAX, JournalEntry, RaftJournal

_MAGIC = b"RLSNAP01"
_STATIC_VERSION, _VERSION = 1, 2
_COVERED_LATER = 12
"""From version 2 on the checksum covers magic and version too, so damage to them is not taken for a later version."""
_START = struct.Struct("<8sII")
_FIELDS = struct.Struct("<QQIQQIQ")
_CONFIGURATION = struct.Struct("<QI")

SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024
"""A placement driver's state has some hundred bytes per range, so this is enough for millions of ranges."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot. `state` includes all entries up to `last`; `previous` is the entry before `last`.

    `configuration` is that of entry `configuration_index`, the last one up to `last`; None: no entry had one.
    """

    previous: JournalEntry
    last: JournalEntry
    state: bytes
    configuration: Configuration | None = None
    configuration_index: int = 0


def encode(snapshot: Snapshot) -> list[bytes]:
    """Return the file's bytes, in chunks."""
    previous, last = snapshot.previous, snapshot.last
    fields = _FIELDS.pack(
        previous.log_index,
        previous.term,
        len(previous.command),
        last.log_index,
        last.term,
        len(last.command),
        len(snapshot.state),
    )
    body = [fields, previous.command, last.command, snapshot.state]
    version, crc = _STATIC_VERSION, 0
    if snapshot.configuration is not None:
        packed = configurations.encode(snapshot.configuration)
        lengths = _CONFIGURATION.pack(snapshot.configuration_index, len(packed))
        body = [fields, lengths, previous.command, last.command, packed, snapshot.state]
        version, crc = _VERSION, google_crc32c.value(_START.pack(_MAGIC, _VERSION, 0)[:_COVERED_LATER])
    for chunk in body:
        crc = google_crc32c.extend(crc, chunk)
    return [_START.pack(_MAGIC, version, crc), *body]


def decode(data: bytes, *, source: str) -> Snapshot:
    """Check and decode a snapshot. Raises Corruption or UnsupportedVersion, which name `source`."""
    if len(data) < _START.size + _FIELDS.size or len(data) > SNAPSHOT_BYTES_MAX:
        raise Corruption(f"{source}: {len(data)} bytes cannot be a snapshot")
    magic, version, crc = _START.unpack_from(data)
    if magic != _MAGIC or not version:
        raise Corruption(f"{source}: this is no snapshot")
    covered = b"" if version == _STATIC_VERSION else data[:_COVERED_LATER]
    if google_crc32c.extend(google_crc32c.value(covered), data[_START.size :]) != crc:
        raise Corruption(f"{source}: the checksum does not fit")
    if version > _VERSION:
        raise unsupported(source, version, VersionRange(1, _VERSION), "this placement driver")
    index0, term0, length0, index1, term1, length1, state_length = _FIELDS.unpack_from(data, _START.size)
    start0, at, length2 = _START.size + _FIELDS.size, 0, 0
    if version == _VERSION:
        if len(data) < start0 + _CONFIGURATION.size:
            raise Corruption(f"{source}: the lengths do not fit")
        at, length2 = _CONFIGURATION.unpack_from(data, start0)
        start0 += _CONFIGURATION.size
    start1, start2 = start0 + length0, start0 + length0 + length1
    start3 = start2 + length2
    if start3 + state_length != len(data) or max(length0, length1) > ENTRY_BYTES_MAX or index1 != index0 + 1:
        raise Corruption(f"{source}: the lengths do not fit")
    if not index0 or max(index1, term1) > INDEX_MAX or term0 > term1 or at > index1:
        raise Corruption(f"{source}: the entries cannot be of a log")
    return Snapshot(
        JournalEntry(data[start0:start1], index0, term0),
        JournalEntry(data[start1:start2], index1, term1),
        data[start3:],
        _configuration(data[start2:start3], source) if version == _VERSION else None,
        at,
    )


def _configuration(data: bytes, source: str) -> Configuration:
    try:
        return configurations.decode(data)
    except ProtocolViolation as error:
        raise Corruption(f"{source}: {error}") from error


def last_index_of(data: bytes) -> int:
    """Return the last index of an encoded snapshot that was checked before."""
    return int(_FIELDS.unpack_from(data, _START.size)[3])


def write(path: Path, snapshot: Snapshot, *, files: Files = REAL_FILES) -> None:
    """Replace the file; durable on return. Raises OSError."""
    write_atomically(files, path, encode(snapshot))


def read(path: Path, *, files: Files = REAL_FILES) -> Snapshot | None:
    """Return the snapshot, or None where there is no file. Raises Corruption, UnsupportedVersion."""
    data = read_whole(files, path, bytes_max=SNAPSHOT_BYTES_MAX)
    return None if data is None else decode(data, source=str(path))


def align(journal: RaftJournal, snapshot: Snapshot | None) -> None:
    """Make the journal start exactly at the snapshot: its first entries become the snapshot's two entries.

    A crash between "snapshot renamed" and "journal trimmed" leaves a journal that starts before the snapshot, or (when
    the leader sent the snapshot) one that ends before it or disagrees with it. Entries behind the snapshot are kept.
    Raises Corruption when entries between the two are missing.
    """
    if snapshot is None:
        if journal.first_index != 1:
            raise Corruption(f"{journal.path} begins at entry {journal.first_index} and there is no snapshot before it")
        return
    last = snapshot.last
    if len(journal) and journal.first_index > last.log_index + 1:
        raise Corruption(
            f"{journal.path} begins at entry {journal.first_index}, the snapshot ends at {last.log_index}: some are missing"
        )
    wanted = [snapshot.previous, last]
    if list(journal.entries[:2]) == wanted:
        return
    follows = journal.term_at(last.log_index) == last.term or journal.first_index == last.log_index + 1
    tail = [entry for entry in journal.entries if entry.log_index > last.log_index] if follows else []
    journal.replace([*wanted, *tail])
