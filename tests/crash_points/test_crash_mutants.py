"""The crash points can fail: each step of durability, left out on purpose, loses something that the suite finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rangelog_pd.consensus.files import hard_state, journal, snapshot_file
from rangelog_pd.consensus.files.disk import Files
from rangelog_pd.consensus.files.durable_file import write_fully
from rangelog_pd.consensus.files.journal import RaftJournal
from rangelog_server.ranges import replay
from rangelog_server.ranges.space import LogSpace
from rangelog_server.ranges.store import Store
from rangelog_server.wal.committer import Committer, Pending
from rangelog_server.wal.entry import SEGMENT_HEADER_BYTES, Kind, make_lsn, pack_header, pack_segment_header
from rangelog_server.wal.files import Segment, SegmentFiles
from rangelog_server.wal.io import write_all
from tests.crash_points import crash_tally
from tests.crash_points.crash_points import small
from tests.crash_points.journal_crash import MemberCrashes
from tests.crash_points.store_crash import StoreCrashes
from tests.fakes.faces import LogDisk, RaftDisk

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def one_is_enough(monkeypatch: Patch) -> None:
    """Stop at the first problem."""
    monkeypatch.setattr(crash_tally, "PROBLEMS_MAX", 1)


# ---- the range server


def _ack_before_flush(patch: Patch) -> None:
    real = Committer.commit

    def commit(self: Committer, entries: list[Pending]) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(LogDisk, "fdatasync", lambda io, fd: None)
            real(self, entries)

    patch.setattr(Committer, "commit", commit)


def _no_flush_of_the_directory(patch: Patch) -> None:
    patch.setattr(LogDisk, "sync_directory", lambda self, directory: None)


def _no_flush_of_the_directory_on_opening(patch: Patch) -> None:
    real = SegmentFiles.open_all

    def open_all(self: SegmentFiles) -> list[Segment]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(LogDisk, "sync_directory", lambda io, directory: None)
            return real(self)

    patch.setattr(SegmentFiles, "open_all", open_all)


def _rename_before_the_first_bytes(patch: Patch) -> None:
    """A recycled file gets its new name while the old bytes are in it."""

    def prepare(self: SegmentFiles, sequence: int, **how: Any) -> Segment:
        path = self.directory / f"free-{sequence:016x}.seg"
        if self._free:
            path = self._free.pop()
            fd = self.io.open(path)
        else:
            fd = self.io.create(path, self.segment_bytes)
        self.io.rename(path, self.path(sequence))
        self.io.sync_directory(self.directory)
        end = pack_header(self.salt, Kind.END, make_lsn(sequence, SEGMENT_HEADER_BYTES), 0, 0, 0, 0, b"")
        write_all(self.io, fd, [pack_segment_header(sequence, self.segment_bytes), end], 0)
        return Segment(sequence, fd, self.segment_bytes)

    patch.setattr(SegmentFiles, "prepare", prepare)


def _free_before_flush(patch: Patch) -> None:
    """A segment is freed when what was in it is written again, not when that is flushed."""

    def write_server(self: Store, done: Callable[[], None] | None = None) -> None:
        real(self)
        if done is not None:
            done()

    real = Store.write_server
    patch.setattr(Store, "write_server", write_server)
    patch.setattr(Store, "after", lambda self, done: real(self, done))


def _no_carrying_forward(patch: Patch) -> None:
    patch.setattr(LogSpace, "_carry_forward", lambda self, sequence, entries_max: entries_max)


def _copies_are_not_replayed(patch: Patch) -> None:
    """Recovery was not taught the new kind of entry."""
    real = replay._take

    def take(result: Any, found: Any, entry: Any) -> None:
        if entry.kind is not Kind.MOVED:
            real(result, found, entry)

    patch.setattr(replay, "_take", take)


def _tombstones_cover_places_alone(patch: Patch) -> None:
    """A tombstone goes when the segments go from which its replica was read: not those of superseded copies and states."""
    real = LogSpace.dropped

    def dropped(self: LogSpace, hosted: Any, as_of: int, lsn: int) -> None:
        real(self, hosted, as_of, lsn)
        segments = self.store.tombstones[hosted.key].segments
        segments &= {place >> 32 for place in hosted.places}

    patch.setattr(LogSpace, "dropped", dropped)


def _moved_to_a_place_that_is_not_flushed(patch: Patch) -> None:
    """The old place is given up when the copy is submitted; its segment goes with the next server state."""

    def move(self: LogSpace, hosted: Any, plan: Any, batches: Any) -> bool:
        submitted = real(self, hosted, plan, batches)
        if submitted:
            segment, _, *_, token, _ = self.store.wal._gathering[-1]
            token()
            for sequence in self._idle():
                self._release([sequence])
            self._moving += 1  # the token comes again
            self.usage.placed(segment.sequence, sum(one.length for one in plan.wanted))
        return submitted

    real = LogSpace.move
    patch.setattr(LogSpace, "move", move)


def _fence_before_flush(patch: Patch) -> None:
    real = Store.write_state

    def write_state(self: Store, hosted: Any, done: Callable[[], None] | None = None) -> None:
        real(self, hosted)
        if done is not None:
            done()

    patch.setattr(Store, "write_state", write_state)


STORE_MUTANTS = [
    _ack_before_flush,
    _no_flush_of_the_directory,
    _no_flush_of_the_directory_on_opening,
    _rename_before_the_first_bytes,
    _free_before_flush,
    _no_carrying_forward,
    _copies_are_not_replayed,
    _tombstones_cover_places_alone,
    _moved_to_a_place_that_is_not_flushed,
    _fence_before_flush,
]


@pytest.mark.parametrize("mutant", STORE_MUTANTS, ids=lambda each: each.__name__.strip("_"))
def test_a_step_left_out_of_the_log_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The range server's log without one of its flushes, or with its steps in another order."""
    mutant(monkeypatch)
    again = 10**9 if mutant is _no_flush_of_the_directory_on_opening else 0
    for seed in range(6):
        if StoreCrashes(small(seed, 25), draws=1, again=again).run().problems:
            return
    pytest.fail("nothing was lost that anybody noticed")


# ---- the placement driver


def _journal_without_flush(patch: Patch) -> None:
    real = RaftJournal.sync

    def sync(self: RaftJournal) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(RaftDisk, "fdatasync", lambda files, fd: None)
            real(self)

    patch.setattr(RaftJournal, "sync", sync)


def _cut_without_flush(patch: Patch) -> None:
    real = RaftJournal.truncate_from

    def truncate_from(self: RaftJournal, index: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(RaftJournal, "sync", lambda journal: None)
            real(self, index)

    patch.setattr(RaftJournal, "truncate_from", truncate_from)


def _write_in_place(files: Files, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    fd = files.create(path)
    position = 0
    for chunk in chunks:
        write_fully(files, fd, chunk, position)
        position += len(chunk)
    files.fsync(fd)
    files.close(fd)
    files.sync_directory(path.parent)


def _vote_in_place(patch: Patch) -> None:
    patch.setattr(hard_state, "write_atomically", _write_in_place)


def _snapshot_in_place(patch: Patch) -> None:
    patch.setattr(snapshot_file, "write_atomically", _write_in_place)


def _rename_without_flush_of_the_directory(patch: Patch) -> None:
    patch.setattr(RaftDisk, "sync_directory", lambda self, path: None)


def _compact_without_flush(patch: Patch) -> None:
    def write_new_file(files: Files, path: Path, chunks: Sequence[bytes]) -> int:
        fd = files.create(path)
        position = 0
        for chunk in chunks:
            write_fully(files, fd, chunk, position)
            position += len(chunk)
        return fd

    patch.setattr(journal, "write_new_file", write_new_file)


MEMBER_MUTANTS = [
    _journal_without_flush,
    _cut_without_flush,
    _vote_in_place,
    _snapshot_in_place,
    _rename_without_flush_of_the_directory,
    _compact_without_flush,
]


@pytest.mark.parametrize("mutant", MEMBER_MUTANTS, ids=lambda each: each.__name__.strip("_"))
def test_a_step_left_out_of_the_raft_files_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The placement driver's files without one of their flushes, or written in place."""
    mutant(monkeypatch)
    for seed in range(1, 7):
        if MemberCrashes(seed, 60, draws=2, again=0).run().problems:
            return
    pytest.fail("nothing was lost that anybody noticed")
