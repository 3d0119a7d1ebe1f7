"""The submissions of the last minutes: which of their records are in a shard's log, or in those of the shards before it.

What holds:
- The window is the fold of the acked batches below an offset, without what was noted more than WINDOW_MS ago by the owner's
  clock. A clock that jumps ahead forgets earlier; a change of owner, or of shard, forgets later.
- A record of a submission has one place, at every owner. The same name with another content is refused.
- A shard begins with the windows of its predecessors: a submission that is repeated over a split or a merge is found. Where
  shards that merge have taken different contents under one name, each content keeps its places.
- A batch that the window's records exclude shows that the owner had forgotten them: who replays the log does, too.
- A window that is full takes no new submission: it never forgets one early.

Source: the deduplication interval of message queues, as an idempotency key of HTTP (draft-ietf-httpapi-idempotency-key-header)
and a deduplication id of Amazon SQS have it, kept in the log itself.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rangelog_core.batch_extension import DIGEST_BYTES, Submission
from rangelog_core.errors import Corruption, Overloaded, PreconditionFailed

WINDOW_MS = 600_000
"""A submission that is repeated within ten minutes is found."""
MARK_INTERVAL_MS = 10_000
RUNS_MAX = 250_000
"""Of a shard's window: some 60 MB. A shard takes 400 submissions a second for good; more of them need more shards."""
PIECE_BYTES = 256 * 1024
"""A piece of a snapshot ends behind so many, with at most one submission more: below half a MiB."""

RUNS_FOUND_MAX = 1_000
"""In one answer, of some 20 bytes each."""
OTHER_CONTENT = "the same name was given to other records, less than ten minutes ago: take another"

_SECTION = struct.Struct("<QQI")  # content, end of its last batch in this shard's log, runs
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


class _Section(NamedTuple):
    """The places of one content of a name. `end`: 0 where only predecessors have it."""

    content: int
    end: int
    runs: tuple[PlacedRun, ...]
    """Rising, no record in two of them."""

    def encode(self) -> bytes:
        return _SECTION.pack(self.content, self.end, len(self.runs)) + b"".join([_RUN.pack(*run) for run in self.runs])


class SubmissionWindow:
    """See the module. `find` and `note` take time for the runs of one submission."""

    def __init__(self) -> None:
        self._noted: OrderedDict[bytes, bytes] = OrderedDict()  # sections by digest, that of the last batch first
        self._marks: list[tuple[int, int]] = []  # (time in ms, end of the log), both rising
        self._run_count = 0

    def __len__(self) -> int:
        return self._run_count

    def find(self, submission: Submission) -> list[PlacedRun]:
        """Return the places of those of a batch's records that are in a log, of many at least RUNS_FOUND_MAX runs.

        Raises PreconditionFailed for another content.
        """
        value = self._noted.get(submission.digest)
        if value is None:
            return []
        noted = next((each.runs for each in _sections(value) if each.content == submission.content), None)
        if noted is None:
            raise PreconditionFailed(OTHER_CONTENT)
        found: list[PlacedRun] = []
        for first, count in submission.runs:
            at = max(0, bisect_right(noted, PlacedRun(first, _U64_MAX, 0, 0)) - 1)
            while len(found) < RUNS_FOUND_MAX and at < len(noted) and (run := noted[at]).first < first + count:
                low, high = max(first, run.first), min(first + count, run.first + run.records)
                if low < high:
                    found.append(PlacedRun(low, high - low, run.shard_id, run.offset + low - run.first))
                at += 1
        return found

    def check_room(self, submission: Submission) -> None:
        """Raise Overloaded where the window has no room for a new submission."""
        if self._run_count + len(submission.runs) > RUNS_MAX:
            raise Overloaded(f"the shard has {self._run_count} submissions of ten minutes, its limit: try again later")

    def note(self, submission: Submission, shard_id: int, offset: int) -> None:
        """Add the log's next batch, at an offset of this shard."""
        digest, content, runs = submission
        value = self._noted.get(digest, b"")
        sections = _sections(value) if value and not self._excludes(submission) else []
        placed = [run for each in sections if each.content == content for run in each.runs]
        for first, count in runs:
            placed.append(PlacedRun(first, count, shard_id, offset))
            offset += count
        others = [each for each in sections if each.content != content]
        self._keep(digest, [_Section(content, offset, tuple(sorted(placed))), *others])
        self._noted.move_to_end(digest)

    def _excludes(self, submission: Submission) -> bool:
        """Whether what is known of a name had been forgotten when this batch was taken: it would not have been."""
        try:
            return bool(self.find(submission))
        except PreconditionFailed:
            return True

    def inherit(self, other: SubmissionWindow) -> None:
        """Add what the window of a predecessor has: it is kept for as long as what was noted when this shard began."""
        noted = self._noted
        for digest, value in other._noted.items():
            if digest not in noted and (count := _only_count(value)):
                noted[digest] = _SECTION.pack(_SECTION.unpack_from(value)[0], 0, count) + value[_SECTION.size :]
                self._run_count += count
                continue
            own = {each.content: each.runs for each in _sections(noted.get(digest, b""))}
            for each in _sections(value):  # what was before both is in both
                own[each.content] = tuple(sorted({*own.get(each.content, ()), *each.runs}))
            self._keep(digest, [_Section(content, 0, runs) for content, runs in own.items()])

    def _keep(self, digest: bytes, sections: Sequence[_Section]) -> None:
        before = self._noted.get(digest, b"")
        value = self._noted[digest] = b"".join([each.encode() for each in sections])
        self._run_count += _run_count(value) - _run_count(before)

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
            digest, value = next(iter(self._noted.items()))
            if _SECTION.unpack_from(value)[1] > below:
                break
            del self._noted[digest]
            self._run_count -= _run_count(value)

    # ---- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Return the window in pieces, none for an empty one; later batches do not change what the iterator yields."""
        rows = list(self._noted.items())
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
            digest, at = piece[at : at + DIGEST_BYTES], at + DIGEST_BYTES
            count = _SECTION.unpack_from(piece, at)[2]
            end = at + _SECTION.size + count * _RUN.size
            if end > len(piece):
                raise Corruption("a snapshot of submissions is cut short")
            self._noted[digest] = self._noted.get(digest, b"") + piece[at:end]
            self._run_count += count
            at = end


def _cuts(value: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where the sections of a value begin and end, and how many runs each has."""
    at = 0
    while at < len(value):
        count = _SECTION.unpack_from(value, at)[2]
        end = at + _SECTION.size + count * _RUN.size
        yield at, end, count
        at = end


def _sections(value: bytes) -> list[_Section]:
    found: list[_Section] = []
    for at, end, _ in _cuts(value):
        content, log_end, _ = _SECTION.unpack_from(value, at)
        runs = tuple([PlacedRun._make(run) for run in _RUN.iter_unpack(value[at + _SECTION.size : end])])
        found.append(_Section(content, log_end, runs))
    return found


def _only_count(value: bytes) -> int:
    """Return the runs of a value of one section; 0: it has another number of them."""
    count: int = _SECTION.unpack_from(value)[2] if value else 0
    return count if len(value) == _SECTION.size + count * _RUN.size else 0


def _run_count(value: bytes) -> int:
    return _only_count(value) or sum([count for _, _, count in _cuts(value)])


def _pieces(rows: list[tuple[bytes, bytes]], marks: bytes) -> Iterator[bytes]:
    yield marks
    parts, size_bytes = [ENTRIES], 0
    for digest, value in rows:
        if _only_count(value):
            parts += (digest, value)
        else:
            parts += [part for at, end, _ in _cuts(value) for part in (digest, value[at:end])]
        size_bytes += DIGEST_BYTES + len(value)
        if size_bytes >= PIECE_BYTES:
            yield b"".join(parts)
            parts, size_bytes = [ENTRIES], 0
    if size_bytes:
        yield b"".join(parts)
