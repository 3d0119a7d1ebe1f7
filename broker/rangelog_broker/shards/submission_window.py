"""The submissions of the last minutes: which of their records are in a shard's log, or in those of the shards before it.

What holds:
- The window is the fold of the acked batches below an offset, without what was noted more than WINDOW_MS ago by the owner's
  clock. A clock that jumps ahead forgets earlier; a change of owner, or of shard, forgets later.
- A record of a submission has one place, at every owner. The same name with another content is refused.
- A shard begins with the windows of its predecessors: a submission that is repeated over a split or a merge is found.
- A window that is full takes no new submission: it never forgets one early.

Source: the deduplication interval of message queues, as an idempotency key of HTTP (draft-ietf-httpapi-idempotency-key-header)
and a deduplication id of Amazon SQS have it, kept in the log itself.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rangelog_core.batch_extension import Submission
from rangelog_core.errors import Corruption, Overloaded, PreconditionFailed

WINDOW_MS = 600_000
"""A submission that is repeated within ten minutes is found."""
MARK_INTERVAL_MS = 10_000
RUNS_MAX = 250_000
"""Of a shard's window: some 50 MB. A shard takes 400 submissions a second for good; more of them need more shards."""
RUNS_PER_PIECE = 10_000
"""Runs in one piece of a snapshot: below half a MiB."""

RUNS_FOUND_MAX = 1_000
"""In one answer, of some 20 bytes each."""
OTHER_CONTENT = "the same name was given to other records, less than ten minutes ago: take another"

_ENTRY = struct.Struct("<16sQQI")  # digest, content, end of its last batch, runs
_RUN = struct.Struct("<IIQQ")  # first, records, shard id, offset
_MARK = struct.Struct("<QQ")  # a time in ms, and where the log ended then
_U64_MAX = (1 << 64) - 1
ENTRIES, MARKS = b"U", b"V"


class PlacedRun(NamedTuple):
    """Where records of a submission are: those from number `first` on, one after the other from an offset of a shard."""

    first: int
    records: int
    shard_id: int
    offset: int


class _Noted:
    __slots__ = ("content", "end", "runs")

    def __init__(self, content: int) -> None:
        self.content = content
        self.end = 0  # of its last batch in this shard's log
        self.runs: list[PlacedRun] = []  # rising, no record in two of them


class SubmissionWindow:
    """See the module. `find` and `note` take time for the runs of one submission."""

    def __init__(self) -> None:
        self._noted: OrderedDict[bytes, _Noted] = OrderedDict()  # by the end of the last batch
        self._marks: list[tuple[int, int]] = []  # (time in ms, end of the log), both rising
        self._run_count = 0

    def __len__(self) -> int:
        return self._run_count

    def find(self, submission: Submission) -> list[PlacedRun]:
        """Return the places of those of a batch's records that are in a log, of many at least RUNS_FOUND_MAX runs.

        Raises PreconditionFailed for another content.
        """
        noted = self._noted.get(submission.digest)
        if noted is None:
            return []
        if noted.content != submission.content:
            raise PreconditionFailed(OTHER_CONTENT)
        found: list[PlacedRun] = []
        for first, count in submission.runs:
            at = max(0, bisect_right(noted.runs, PlacedRun(first, _U64_MAX, 0, 0)) - 1)
            while (
                len(found) < RUNS_FOUND_MAX and at < len(noted.runs) and (run := noted.runs[at]).first < first + count
            ):
                low, high = max(first, run.first), min(first + count, run.first + run.records)
                if low < high:
                    found.append(PlacedRun(low, high - low, run.shard_id, run.offset + low - run.first))
                at += 1
        return found

    def check_room(self, submission: Submission) -> None:
        """Raise Overloaded where the window has no room for a new submission."""
        if self._run_count + len(submission.runs) > RUNS_MAX:
            raise Overloaded(
                f"the shard has {self._run_count} submissions of ten minutes, its limit: try again later, or split it"
            )

    def note(self, submission: Submission, shard_id: int, offset: int) -> None:
        """Add the log's next batch, at an offset of this shard."""
        noted = self._noted.setdefault(submission.digest, _Noted(submission.content))
        self._noted.move_to_end(submission.digest)
        for first, count in submission.runs:
            insort(noted.runs, PlacedRun(first, count, shard_id, offset))
            offset += count
        noted.end = offset
        self._run_count += len(submission.runs)

    def inherit(self, other: SubmissionWindow) -> None:
        """Add what the window of a predecessor has: it is kept for as long as what was noted when this shard began."""
        for digest, noted in other._noted.items():
            own = self._noted.setdefault(digest, _Noted(noted.content))
            self._run_count -= len(own.runs)
            own.runs = sorted({*own.runs, *noted.runs})  # what the shard before both had is in both
            self._run_count += len(own.runs)

    def forget(self, time_ms: int, end_offset: int) -> None:
        """Forget what was noted before the window that ends at this time, when the log ends there."""
        marks = self._marks
        if marks and marks[-1][0] > time_ms:  # the clock has gone back
            marks = self._marks = [mark for mark in marks if mark[0] <= time_ms]
        if not marks or time_ms - marks[-1][0] >= MARK_INTERVAL_MS:
            marks.append((time_ms, end_offset))
        below = -1
        while marks[0][0] <= time_ms - WINDOW_MS:
            below = marks.pop(0)[1]
        while self._noted and below >= 0:
            digest, noted = next(iter(self._noted.items()))
            if noted.end > below:
                break
            del self._noted[digest]
            self._run_count -= len(noted.runs)

    # ---- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Return the window in pieces, none for an empty one; later batches do not change what the iterator yields."""
        rows = [(digest, each.content, each.end, tuple(each.runs)) for digest, each in self._noted.items()]
        marks = MARKS + b"".join([_MARK.pack(*each) for each in self._marks])
        return _pieces(rows, marks) if rows else iter(())

    @classmethod
    def restore(cls, pieces: Iterable[bytes]) -> SubmissionWindow:
        """Return the window of a snapshot. Raises Corruption."""
        window = cls()
        try:
            for piece in pieces:
                if piece[:1] == MARKS:
                    window._marks = list(_MARK.iter_unpack(piece[1:]))
                else:
                    window._restore(piece)
        except struct.error as error:
            raise Corruption("a snapshot of submissions does not decode") from error
        return window

    def _restore(self, piece: bytes) -> None:
        at = 1
        while at < len(piece):
            digest, content, end, count = _ENTRY.unpack_from(piece, at)
            at += _ENTRY.size
            if count * _RUN.size > len(piece) - at:
                raise Corruption("a snapshot of submissions is cut short")
            noted = self._noted[digest] = _Noted(content)
            noted.end = end
            noted.runs = [PlacedRun._make(each) for each in _RUN.iter_unpack(piece[at : at + count * _RUN.size])]
            self._run_count += count
            at += count * _RUN.size


def _pieces(rows: list[tuple[bytes, int, int, tuple[PlacedRun, ...]]], marks: bytes) -> Iterator[bytes]:
    yield marks
    parts, runs_in_piece = [ENTRIES], 0
    for digest, content, end, runs in rows:
        parts.append(_ENTRY.pack(digest, content, end, len(runs)))
        parts += [_RUN.pack(*run) for run in runs]
        runs_in_piece += len(runs) + 1
        if runs_in_piece >= RUNS_PER_PIECE:
            yield b"".join(parts)
            parts, runs_in_piece = [ENTRIES], 0
    if runs_in_piece:
        yield b"".join(parts)
