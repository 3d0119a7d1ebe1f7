"""The messages between members: typed, bounded, and checked before the Raft library gets them.

No message sets a code version, forwards a command or contains a pickle: other messages than those of this file cannot be sent.
A message never gets another field: a new message replaces it, and is sent to peers whose Hello announces a feature level that
has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rangelog_core.errors import ProtocolViolation
from rangelog_core.limits import COMMAND_BYTES_MAX, KIB
from rangelog_pd.consensus.files.configuration import decode as decode_configuration
from rangelog_pd.consensus.files.journal import INDEX_MAX, JournalEntry
from rangelog_pd.consensus.files.packing import check_kinds, pack, unpack

KIND_COMMAND = 0
KIND_NO_OP = 1
"""First byte of an entry's command, as the Raft library has it. Its other kinds (membership, version) are refused."""
KIND_CONFIGURATION = 4
"""Our own: the members from this entry on. From feature level 6 on."""

ENTRY_COMMAND_BYTES_MAX = COMMAND_BYTES_MAX + 1
APPEND_BYTES_MAX = 256 * KIB
"""Bytes of commands in one append message; the last command may exceed it."""
ENTRY_OVERHEAD_BYTES = 16
SNAPSHOT_CHUNK_BYTES = 256 * KIB
FRAME_BYTES_MAX = 512 * KIB
"""The largest message is an append of APPEND_BYTES_MAX and one more command. Checked before anything is buffered."""


@dataclass(frozen=True)
class Ping:
    """Shows that the sender is alive."""


@dataclass(frozen=True)
class VoteRequest:
    """Requests a vote in `term`. `commit_index` shows a member that lost its disk that entries were committed."""

    term: int
    last_index: int
    last_term: int
    commit_index: int


@dataclass(frozen=True)
class Vote:
    """Grants a vote."""

    term: int


@dataclass(frozen=True)
class Append:
    """Entries behind (`previous_index`, `previous_term`); none for a heartbeat."""

    term: int
    commit_index: int
    previous_index: int
    previous_term: int
    entries: tuple[JournalEntry, ...]


@dataclass(frozen=True)
class SnapshotChunk:
    """The next part of the snapshot file. A chunk without data that is neither first nor last is only a heartbeat."""

    term: int
    commit_index: int
    data: bytes
    first: bool
    last: bool


@dataclass(frozen=True)
class Position:
    """The position of the sender's log. `term` is the sender's term: the leader of another term ignores the message."""

    term: int
    next_index: int
    reset: bool
    success: bool


@dataclass(frozen=True)
class TakeOver:
    """The leader requests that the receiver starts an election at once."""

    term: int


@dataclass(frozen=True)
class Hello:
    """The first message of a connection: the sender's feature level. Messages of a level go only to peers that have it."""

    feature_level: int


@dataclass(frozen=True)
class LeaderCheck:
    """The leader of `term` checks that it still leads, for the reads of `round`. Feature level 2."""

    term: int
    round: int


@dataclass(frozen=True)
class LeaderChecked:
    """When the sender received the check of `round`, it knew no later term than `term`. Feature level 2."""

    term: int
    round: int


@dataclass(frozen=True)
class Removed:
    """The receiver is no member: the configuration of entry `index`, which is committed, is without it. Feature level 6."""

    index: int


Message = (
    Ping
    | VoteRequest
    | Vote
    | Append
    | SnapshotChunk
    | Position
    | TakeOver
    | Hello
    | LeaderCheck
    | LeaderChecked
    | Removed
)

_INT, _BOOL, _BYTES, _LIST = (int,), (bool,), (bytes,), (list,)
_FIELDS: dict[int, tuple[type[Any], list[tuple[type, ...]]]] = {
    0: (Ping, []),
    1: (VoteRequest, [_INT] * 4),
    2: (Vote, [_INT]),
    3: (Append, [_INT, _INT, _INT, _INT, _LIST]),
    4: (SnapshotChunk, [_INT, _INT, _BYTES, _BOOL, _BOOL]),
    5: (Position, [_INT, _INT, _BOOL, _BOOL]),
    6: (TakeOver, [_INT]),
    7: (Hello, [_INT]),
    8: (LeaderCheck, [_INT, _INT]),
    9: (LeaderChecked, [_INT, _INT]),
    10: (Removed, [_INT]),
}
_TAGS = {cls: tag for tag, (cls, _) in _FIELDS.items()}


def encode(message: Message) -> bytes:
    """Return the bytes of one frame's body."""
    tag = _TAGS[type(message)]
    if isinstance(message, Append):
        entries = [[entry.command, entry.term] for entry in message.entries]
        fields = [message.term, message.commit_index, message.previous_index, message.previous_term, entries]
    else:
        fields = list(vars(message).values())
    return pack([tag, *fields])


def decode(body: bytes) -> Message:
    """Decode a frame's body. Raises ProtocolViolation unless it is exactly one of the messages."""
    tag, *fields = unpack(body) or [None]
    if type(tag) is not int or tag not in _FIELDS:
        raise ProtocolViolation("an unknown Raft message")
    cls, kinds = _FIELDS[tag]
    check_kinds(fields, kinds)
    if cls is Append:
        return _append(fields)
    if cls is SnapshotChunk and isinstance(fields[2], bytes) and len(fields[2]) > SNAPSHOT_CHUNK_BYTES:
        raise ProtocolViolation("a snapshot chunk is too long")
    message: Message = cls(*fields)
    return message


def _check_command(command: bytes) -> None:
    kinds = (KIND_COMMAND, KIND_NO_OP, KIND_CONFIGURATION)
    if not 1 <= len(command) <= ENTRY_COMMAND_BYTES_MAX or command[0] not in kinds:
        raise ProtocolViolation("an entry that no member may propose")
    if command[0] == KIND_CONFIGURATION:
        decode_configuration(command[1:])


def _append(fields: list[Any]) -> Append:
    term, commit_index, previous_index, previous_term, packed = fields
    entries = []
    least = previous_term
    if previous_index + len(packed) > INDEX_MAX:
        raise ProtocolViolation("entries beyond the last index")
    for offset, item in enumerate(packed):
        if type(item) is not list:
            raise ProtocolViolation("an entry is not a list")
        check_kinds(item, [_BYTES, _INT])
        command, entry_term = item
        _check_command(command)
        if not least <= entry_term <= term:
            raise ProtocolViolation("the terms of the entries are out of order")
        least = entry_term
        entries.append(JournalEntry(command, previous_index + 1 + offset, entry_term))
    return Append(term, commit_index, previous_index, previous_term, tuple(entries))
