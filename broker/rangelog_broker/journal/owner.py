"""The core of a journal's owner: proposals become entries, acks become results, the state becomes snapshots. Pure.

What holds:
- Entries are applied in the order of the log, each once it is acked: nothing that could vanish is in the state or in a result.
- What is decided is decided as an entry is applied. A proposal is refused beforehand only for the owner's own bounds, which
  leaves no doubt: nothing was appended. A known result is given at once: it stays true whoever gives it.
- A snapshot is captured between two entries and covers what is applied then. The stream may be trimmed below that offset,
  not below the snapshot's own place, once its last piece is acked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple

from rangelog_broker.journal.entry import (
    COMMAND_BYTES_MAX,
    Command,
    Entry,
    Level,
    Open,
    Own,
    Piece,
    Proof,
    encode_entry,
)
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.machine import M
from rangelog_broker.journal.sessions import Result
from rangelog_core.errors import InternalError, InvalidArgument, Overloaded
from rangelog_core.limits import MIB
from rangelog_core.versions import LEVEL_BROKERS


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """Bounds of one owner, and when it takes snapshots."""

    proposals_max: int = 65_536
    """Entries that are proposed and not acked."""
    proposals_bytes_max: int = 32 * MIB
    snapshot_entries: int = 100_000
    """Entries after which the next snapshot is due: what a replay applies beside a snapshot."""
    snapshot_bytes_min: int = 8 * MIB
    """Bytes of entries after which it is due, or as many as the state has, whichever is more."""


DEFAULT_LIMITS = OwnerLimits()


class Proposed(NamedTuple):
    """A proposal has the result of the entry at `offset`. `value`: to be appended now; None: the entry is there already."""

    offset: int
    value: bytes | None


class Applied(NamedTuple):
    """The result of the entry at an offset."""

    offset: int
    result: Result


class Owner(Generic[M]):
    """One owner of one journal, under one epoch. Whatever `propose` and the like return is appended in that order."""

    def __init__(
        self, fold: Fold[M], epoch: int, *, limits: OwnerLimits = DEFAULT_LIMITS, replayed_entries: int = 0
    ) -> None:
        """`fold`: that of the whole log, read to its end after the fence. `replayed_entries`: applied since its snapshot."""
        self.fold = fold
        self.epoch = epoch
        self.next_offset = fold.applied_offset
        self._limits = limits
        self._level = fold.level  # applied, or proposed
        self._in_flight: deque[tuple[int, Entry, int]] = deque()
        self._in_flight_bytes = 0
        self._proposed: dict[tuple[int, int], int] = {}  # session and sequence → offset
        self._entries_since = replayed_entries  # the last snapshot
        self._bytes_since = 0
        self._pieces: Iterator[bytes] | None = None
        self._covers = 0
        self._piece: bytes | None = None  # the next one
        self._piece_number = 0
        self._last_piece_offset: int | None = None
        self._trim_offset = 0

    # ---- proposals

    def open_session(self, now_ms: int, number: int) -> Proposed:
        """Propose a new session; the result's value is its number. Raises Overloaded.

        `number`: drawn by lot, not 0, and given to it once all brokers can read that.
        """
        return self._append(Open(now_ms, number if self.fold.level >= LEVEL_BROKERS else 0))

    def propose(self, command: Command) -> Proposed | Result:
        """Propose a session's command. Raises Overloaded, InvalidArgument: nothing was appended."""
        key = command.session, command.sequence
        if command.settled > command.sequence:
            raise InvalidArgument(f"command {command.sequence} is settled already, as all below {command.settled}")
        known = self.fold.sessions.known(*key)
        if known is not None:
            return known
        offset = self._proposed.get(key)
        if offset is not None:
            return Proposed(offset, None)
        proposed = self._append(command)
        self._proposed[key] = proposed.offset
        return proposed

    def is_new(self, session: int, sequence: int) -> bool:
        """Return whether a session's command is neither applied, as far as results are kept, nor in flight."""
        return self.fold.sessions.known(session, sequence) is None and (session, sequence) not in self._proposed

    def propose_own(self, command: Own) -> Proposed:
        """Propose a command of the owner, which nobody retries. Raises Overloaded, InvalidArgument."""
        return self._append(command)

    def prove(self) -> Proposed:
        """Append what changes nothing: its ack proves that what was read before is the newest state."""
        return self._append(Proof())

    def raise_level(self, level: int) -> Proposed | None:
        """Append that all brokers have a feature level by now; None where the log says so, or a higher one."""
        if level <= self._level:
            return None
        self._level = level
        return self._append(Level(level))

    def _append(self, entry: Entry) -> Proposed:
        if not isinstance(entry, Piece | Proof | Level):
            if (
                len(self._in_flight) >= self._limits.proposals_max
                or self._in_flight_bytes >= self._limits.proposals_bytes_max
            ):
                raise Overloaded(f"{len(self._in_flight)} proposals of a journal wait for their acks, the limit")
            if not isinstance(entry, Open) and len(entry.command) > COMMAND_BYTES_MAX:
                raise InvalidArgument(f"a command of {len(entry.command)} bytes; the limit is {COMMAND_BYTES_MAX}")
        value = encode_entry(entry)
        offset = self.next_offset
        self.next_offset = offset + 1
        self._in_flight.append((offset, entry, len(value)))
        self._in_flight_bytes += len(value)
        return Proposed(offset, value)

    # ---- acks

    def confirmed(self, confirm_offset: int) -> list[Applied]:
        """Apply all entries below the confirm offset; return their results. Raises InternalError, what a machine raises."""
        if confirm_offset > self.next_offset:
            raise InternalError(
                f"offset {confirm_offset} is confirmed; this owner has proposed up to {self.next_offset}"
            )
        applied: list[Applied] = []
        in_flight, fold = self._in_flight, self.fold
        while in_flight and in_flight[0][0] < confirm_offset:
            offset, entry, size_bytes = in_flight.popleft()
            self._in_flight_bytes -= size_bytes
            result = fold.apply(offset, entry)
            if not isinstance(entry, Piece):
                self._entries_since += 1
                self._bytes_since += size_bytes
            if result is not None:
                applied.append(Applied(offset, result))
            if isinstance(entry, Command):
                self._proposed.pop((entry.session, entry.sequence), None)
            elif offset == self._last_piece_offset:
                self._last_piece_offset = None
                self._trim_offset = self._covers
        return applied

    @property
    def in_flight_count(self) -> int:
        """Entries that are proposed and not applied."""
        return len(self._in_flight)

    # ---- snapshots

    @property
    def snapshot_due(self) -> bool:
        """Whether a snapshot should be started."""
        if self._pieces is not None or self._last_piece_offset is not None:
            return False
        limits = self._limits
        return self._entries_since >= limits.snapshot_entries or self._bytes_since >= max(
            limits.snapshot_bytes_min, self.fold.size_bytes
        )

    def start_snapshot(self) -> None:
        """Capture the present state; `next_piece` returns it bit by bit."""
        self._covers = self.fold.applied_offset
        self._pieces = self.fold.snapshot()
        self._piece, self._piece_number = next(self._pieces), 0
        self._entries_since = self._bytes_since = 0

    def next_piece(self) -> Proposed | None:
        """Return the next piece to append; None when there is none. Call it between proposals, at leisure."""
        if self._pieces is None or self._piece is None:
            return None
        data, self._piece = self._piece, next(self._pieces, None)
        last = self._piece is None
        proposed = self._append(Piece(self.epoch, self._covers, self._piece_number, last, data))
        self._piece_number += 1
        if last:
            self._pieces, self._last_piece_offset = None, proposed.offset
        return proposed

    def take_trim(self) -> int:
        """Return the offset to which the stream may be trimmed now; 0: none that was not returned before."""
        offset, self._trim_offset = self._trim_offset, 0
        return offset
