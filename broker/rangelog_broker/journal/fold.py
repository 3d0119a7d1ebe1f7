"""The fold of a journal's entries: the machine, the sessions and the time, after all entries below an offset.

What holds:
- The state is a function of the entries, whoever applies them and whenever. A snapshot holds exactly the state after the
  entries below the offset that it covers, so it changes nothing but the time to replay.
- `apply` is total over acked entries: one at which the machine fails has INTERNAL as its result, here and at every later owner,
  and the entries behind it are applied. Only UnsupportedVersion ends a journal: a program that knows the entry goes on with it.
- A rule of applying that changes holds from a level on. The level is an entry of the log, so all owners change at one place; it
  is one that every broker has, so no owner meets what it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Generic

from rangelog_broker.journal.entry import PIECE_BYTES_MAX, Command, Entry, Level, Own, Piece, Proof
from rangelog_broker.journal.machine import M
from rangelog_broker.journal.sessions import Result, Sessions, kept, refused
from rangelog_core.errors import Corruption, InternalError, RangelogError, UnsupportedVersion
from rangelog_core.versions import FEATURE_LEVEL

_HEAD = struct.Struct("<BQ")  # _OF_FOLD, now_ms; behind it, where there is one, the level u32
_LEVEL = struct.Struct("<I")
_OF_FOLD, _OF_SESSIONS, _OF_MACHINE = b"\0", b"\1", b"\2"


class Fold(Generic[M]):
    """The state of one journal. Every method is deterministic."""

    def __init__(self, machine: M) -> None:
        self.machine = machine
        self.sessions = Sessions()
        self.on_failed: Callable[[int, Exception], object] = lambda offset, error: None
        """Called with an entry's offset when the machine failed at it. Not part of the state."""
        self.now_ms = 0
        self.level = 0
        """Of the last entry that raised it; 0: the rules from before there were levels."""
        self.applied_offset = 0  # all entries below it are applied

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return self.machine.size_bytes + self.sessions.size_bytes

    def apply(self, offset: int, entry: Entry) -> Result | None:
        """Apply the entry at an offset; return a command's result.

        Raises Corruption when entries before it are missing, UnsupportedVersion when the machine does not know the command.
        """
        if offset != self.applied_offset:
            raise Corruption(f"the journal's entry {offset} follows {self.applied_offset}: entries are missing")
        self.applied_offset = offset + 1
        if isinstance(entry, Piece | Proof):
            return None
        if isinstance(entry, Level):
            self._raise_level(entry.level)
            return None
        if entry.now_ms > self.now_ms:
            self.now_ms = entry.now_ms
        now_ms = self.now_ms
        self.sessions.expire(now_ms)
        if isinstance(entry, Command):
            known = self.sessions.begin(entry, now_ms)
            if known is not None:
                return known
            result = kept(self._apply(offset, entry.command, now_ms))
            self.sessions.keep(entry, result)
            return result
        if isinstance(entry, Own):
            return self._apply(offset, entry.command, now_ms)
        return self.sessions.open(entry.number or offset, now_ms)

    def _raise_level(self, level: int) -> None:
        if level > FEATURE_LEVEL:
            raise UnsupportedVersion(
                f"the journal is of level {level}, and this program knows {FEATURE_LEVEL}: upgrade this broker"
            )
        self.level = self.machine.level = self.sessions.level = max(level, self.level)

    def _apply(self, offset: int, command: bytes, now_ms: int) -> Result:
        try:
            return Result(self.machine.apply(command, now_ms))
        except (UnsupportedVersion, MemoryError):
            raise
        except RangelogError as error:
            return refused(error)
        except Exception as error:
            self.on_failed(offset, error)
            return refused(InternalError(f"the journal's machine failed at entry {offset}: see the broker's log"))

    # ---- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Return the pieces of the present state; later entries do not change them."""
        level = _LEVEL.pack(self.level) if self.level else b""
        return _tagged(_HEAD.pack(0, self.now_ms) + level, self.sessions.snapshot(), self.machine.snapshot())

    def restore_begin(self, head: bytes) -> None:
        """Forget the state: `head` is the first piece of a snapshot. Raises Corruption, UnsupportedVersion."""
        if len(head) not in (_HEAD.size, _HEAD.size + _LEVEL.size) or head[:1] != _OF_FOLD:
            raise Corruption("a journal's snapshot has no head")
        self.now_ms = _HEAD.unpack_from(head)[1]
        self.sessions = Sessions()
        self.machine.restore_begin()
        self.level = self.machine.level = 0
        if len(head) > _HEAD.size:
            self._raise_level(_LEVEL.unpack_from(head, _HEAD.size)[0])

    def restore_piece(self, piece: bytes) -> None:
        """Take the next piece. Raises Corruption, UnsupportedVersion."""
        tag = piece[:1]
        if tag == _OF_SESSIONS:
            self.sessions.restore(piece[1:])
        elif tag == _OF_MACHINE:
            self.machine.restore_piece(piece[1:])
        else:
            raise Corruption("a journal's snapshot has a piece of an unknown kind")

    def restore_end(self, covers: int) -> None:
        """Be the state of the snapshot, which covers all entries below `covers`. Raises Corruption."""
        self.machine.restore_end()
        self.applied_offset = covers


def _tagged(head: bytes, sessions: Iterator[bytes], machine: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    for tag, pieces in ((_OF_SESSIONS, sessions), (_OF_MACHINE, machine)):
        for piece in pieces:
            if len(piece) >= PIECE_BYTES_MAX:
                raise InternalError(f"a piece of {len(piece)} bytes; the limit is {PIECE_BYTES_MAX - 1}")
            yield tag + piece
