"""The entries of a journal: the values of its stream's records. Bytes only, no I/O.

    entry:    version u8 · kind u8 · rest
    OPEN      now_ms u64
    OPEN_AS   now_ms u64 · number u64
    COMMAND   now_ms u64 · session u64 · sequence u64 · settled u64 · command
    OWN       now_ms u64 · command
    PIECE     epoch u64 · covers u64 · number u32 · last u8 · piece
    PROOF     nothing
    LEVEL     level u32

Little-endian. The time is the owner's at the proposal: who replays the entry uses this one, never its own. OWN is a command of
the journal's owner, which nobody retries. A PIECE is part of the snapshot that the owner of `epoch` took of the state
after all entries below the offset `covers`. A PROOF changes nothing: its ack shows that the owner's epoch still holds. From
a LEVEL on the entries may need that feature level, and are applied by its rules.

An entry of a later version or of an unknown kind raises UnsupportedVersion: who skipped it would have another state.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from rangelog_core.errors import Corruption
from rangelog_core.limits import KIB, RECORD_SIZE_BYTES_MAX
from rangelog_core.versions import VersionRange, unsupported

VERSIONS = VersionRange(1, 1)
COMMAND_BYTES_MAX = RECORD_SIZE_BYTES_MAX - KIB
PIECE_BYTES_MAX = RECORD_SIZE_BYTES_MAX - KIB
U64_MAX = (1 << 64) - 1

_HEAD = struct.Struct("<BB")
_OPEN = struct.Struct("<BBQ")
_OPEN_AS = struct.Struct("<BBQQ")
_COMMAND = struct.Struct("<BBQQQQ")
_OWN = struct.Struct("<BBQ")
_PIECE = struct.Struct("<BBQQIB")
_LEVEL = struct.Struct("<BBI")


class EntryKind(IntEnum):
    """The kind of an entry."""

    OPEN = 1
    COMMAND = 2
    OWN = 3
    PIECE = 4
    PROOF = 5
    LEVEL = 6
    OPEN_AS = 7


class Open(NamedTuple):
    """Opens a session. `number`: its name, a secret of its proposer; 0: the entry's offset, as before there were levels."""

    now_ms: int
    number: int = 0


class Command(NamedTuple):
    """A command of a session. `settled`: the proposer has the results of all sequences below it."""

    now_ms: int
    session: int
    sequence: int
    settled: int
    command: bytes


class Own(NamedTuple):
    """A command of the owner."""

    now_ms: int
    command: bytes


class Piece(NamedTuple):
    """A part of a snapshot."""

    epoch: int
    covers: int
    number: int
    last: bool
    data: bytes


class Proof(NamedTuple):
    """Shows, by its ack, that nobody had fenced the owner when it was appended."""


class Level(NamedTuple):
    """The feature level that all brokers have."""

    level: int


Entry = Open | Command | Own | Piece | Proof | Level


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    version = VERSIONS.highest
    if isinstance(entry, Command):
        now_ms, session, sequence, settled, command = entry
        return _COMMAND.pack(version, EntryKind.COMMAND, now_ms, session, sequence, settled) + command
    if isinstance(entry, Piece):
        epoch, covers, number, last, data = entry
        return _PIECE.pack(version, EntryKind.PIECE, epoch, covers, number, last) + data
    if isinstance(entry, Own):
        return _OWN.pack(version, EntryKind.OWN, entry.now_ms) + entry.command
    if isinstance(entry, Proof):
        return _HEAD.pack(version, EntryKind.PROOF)
    if isinstance(entry, Level):
        return _LEVEL.pack(version, EntryKind.LEVEL, entry.level)
    if entry.number:
        return _OPEN_AS.pack(version, EntryKind.OPEN_AS, *entry)
    return _OPEN.pack(version, EntryKind.OPEN, entry.now_ms)


def decode_entry(data: bytes) -> Entry:
    """Return the entry. Raises Corruption, UnsupportedVersion.

    >>> decode_entry(encode_entry(Open(5)))
    Open(now_ms=5, number=0)
    """
    if len(data) < _HEAD.size:
        raise Corruption("an entry of a journal is cut short")
    version, kind = _HEAD.unpack_from(data)
    if version not in range(VERSIONS.lowest, VERSIONS.highest + 1) or kind not in _DECODERS:
        raise unsupported(f"an entry of kind {kind} of a journal", version, VERSIONS, "this broker")
    form, make = _DECODERS[kind]
    if len(data) < form.size:
        raise Corruption("an entry of a journal is cut short")
    return make(data)


def _decode_open(data: bytes) -> Entry:
    if len(data) != _OPEN.size:
        raise Corruption("an entry that opens a session is too long")
    return Open(_OPEN.unpack(data)[2])


def _decode_open_as(data: bytes) -> Entry:
    if len(data) != _OPEN_AS.size:
        raise Corruption("an entry that opens a session is too long")
    opened = Open(*_OPEN_AS.unpack(data)[2:])
    if not opened.number:
        raise Corruption("an entry that opens a session gives it no number")
    return opened


def _decode_command(data: bytes) -> Entry:
    _, _, now_ms, session, sequence, settled = _COMMAND.unpack_from(data)
    if settled > sequence:
        raise Corruption(f"a command {sequence} that is settled already, as all below {settled}")
    return Command(now_ms, session, sequence, settled, data[_COMMAND.size :])


def _decode_own(data: bytes) -> Entry:
    return Own(_OWN.unpack_from(data)[2], data[_OWN.size :])


def _decode_piece(data: bytes) -> Entry:
    _, _, epoch, covers, number, last = _PIECE.unpack_from(data)
    if last > 1:
        raise Corruption("a piece of a snapshot with a bad flag")
    return Piece(epoch, covers, number, bool(last), data[_PIECE.size :])


def _decode_proof(data: bytes) -> Entry:
    if len(data) != _HEAD.size:
        raise Corruption("a proof in a journal is too long")
    return Proof()


def _decode_level(data: bytes) -> Entry:
    if len(data) != _LEVEL.size:
        raise Corruption("a level in a journal is too long")
    return Level(_LEVEL.unpack(data)[2])


_DECODERS = {
    int(EntryKind.OPEN): (_OPEN, _decode_open),
    int(EntryKind.COMMAND): (_COMMAND, _decode_command),
    int(EntryKind.OWN): (_OWN, _decode_own),
    int(EntryKind.PIECE): (_PIECE, _decode_piece),
    int(EntryKind.PROOF): (_HEAD, _decode_proof),
    int(EntryKind.OPEN_AS): (_OPEN_AS, _decode_open_as),
    int(EntryKind.LEVEL): (_LEVEL, _decode_level),
}
