"""The write-ahead log, as the event loop uses it: `submit` assigns an entry its place, `kick` sends all submitted entries.

A small group of entries is flushed at the end of the loop's turn, in the loop, while the disk is fast; a larger group, or any
group during a flush or after a slow one, is flushed by the committer's thread (docs/decisions: flush-in-the-loop).

Only the loop assigns places, so it knows whether there is room before it accepts an entry: segments are prepared ahead, and
the end of the last one is reserved for fences and other metadata (appends are refused with STORAGE_FULL before that).
Without an event loop (`loop_call` None) all work is done in the call, for tests and tools.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rangelog_core.errors import Overloaded, RangelogError, StorageFull
from rangelog_core.limits import MIB
from rangelog_server.wal.block_reader import BlockReader
from rangelog_server.wal.blocks import BlockWriter
from rangelog_server.wal.committer import Committer, CommitterThread, LogFailed, Pending, failure_message
from rangelog_server.wal.encryption import ENCRYPTED_START_BYTES, LogKeys, SegmentCipher
from rangelog_server.wal.entry import (
    ENTRY_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    TAG_BYTES,
    Kind,
    make_lsn,
    pack_header,
    sidecar_row,
    split_lsn,
)
from rangelog_server.wal.files import Segment, SegmentFiles, rows_of
from rangelog_server.wal.io import Io, write_all
from rangelog_server.wal.scan import Ending, Findings, SegmentLog, judge
from rangelog_server_common.metrics.tally import DurationTally

SEGMENT_BYTES_DEFAULT = 64 * MIB
RESERVE_BYTES = 1 * MIB
SPARES_WANTED = 2
SHRINK_PAUSE_S = 0.05
SHORT_SEGMENTS = 4

HERE_BYTES_MAX = 64 * 1024
"""Bytes that the loop itself flushes: with more, writing and copying would delay its reads of sockets."""
HERE_FLUSH_S_MAX = 0.002
"""After a flush that took longer, the thread does the next one."""

LoopCall = Callable[[Callable[[], None]], object]


class Wal:
    """The write-ahead log of one server. All methods are for the event loop's thread, unless documented otherwise."""

    def __init__(self, directory: Path, salt: int, *, io: Io | None = None,
                 segment_bytes: int = SEGMENT_BYTES_DEFAULT, capacity_bytes: int = 0,
                 direct: bool = True, keys: LogKeys | None = None) -> None:  # fmt: skip
        self.io = io or Io()
        self.salt = salt
        self.files = SegmentFiles(directory, self.io, segment_bytes, salt, capacity_bytes, keys)
        self.keys = self.files.keys
        self.encrypts = self.keys.encrypt
        """Whether new entries are encrypted: then each holds one batch at most."""
        self._tag_bytes = TAG_BYTES if self.encrypts else 0
        self.extra_bytes = ENTRY_HEADER_BYTES + TAG_BYTES if self.encrypts else 0
        """What each batch of a frame takes beside its own bytes, beyond what one entry for all would."""
        self.segment_bytes = segment_bytes
        self.segments: dict[int, Segment] = {}
        self.flushed_lsn = 0
        self.pending_bytes = 0
        self.appended_bytes = 0
        self.problem = ""  # why there is no spare segment
        self.on_flushed: Callable[[list[Any]], None] = lambda tokens: None
        self.on_fatal: Callable[[str], None] = lambda message: None
        self.on_spare: Callable[[], None] = lambda: None
        self._reserve_bytes = min(RESERVE_BYTES, segment_bytes // 16)
        self._spares: list[Segment] = []
        self._preparing = self._commit_due = False
        self._gathering: list[Pending] = []
        self._full: list[tuple[int, int, bytes, SegmentCipher | None]] = []  # their sidecars wait for their flush
        self._blocks = BlockWriter(self.io, self.files.path, direct=direct)
        self._reader = BlockReader(self.io, self.files.path, direct=direct)
        self._committer = Committer(self.io, salt, self._blocks)
        self._thread: CommitterThread | None = None
        self._loop_call: LoopCall | None = None
        self._loop_soon: LoopCall | None = None
        self._entries_on_thread = 0
        self.write_durations = DurationTally()
        """Of entries, from their submission to the completion: those of a group as long as its first one."""
        self._group_began_s = 0.0
        self._groups_on_thread: deque[tuple[float, int]] = deque()  # when each began, and its entries
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._current: Segment
        self._position = 0
        self._torn_ends: list[tuple[Segment, int]] = []
        self._found: dict[int, int] = {}  # by the segment that a start began: the end of what it found
        self._was_encrypted = False  # some of what a start found

    # ---- opening

    def open(self) -> Findings:
        """Recover the log. Blocking. Raises StorageFull, OSError; UnsupportedVersion before anything is changed."""
        segments = self.files.open_all()
        self.segments = {segment.sequence: segment for segment in segments}
        logs = [self.files.load(segment, trust_sidecar=segment not in segments[-2:]) for segment in segments]
        findings = judge(logs)
        tail = findings.tail_index
        self._spares = segments[tail + 1 :]
        next_sequence = segments[-1].sequence + 1 if segments else 1
        last = logs[tail] if tail >= 0 and not findings.tails and logs[tail].ending is Ending.END else None
        anew = self.encrypts or any(segment.cipher is not None for segment in segments[max(0, tail) :])
        for log in logs[tail + 1 :] if last is None else logs[tail:]:  # what may be appended to
            self.files.clear_headers(self.segments[log.sequence], log.leftovers)
        if last is not None and not anew:
            self._current, self._position = self.segments[last.sequence], last.end
            self._current.rows += rows_of(list(last.entries))
        else:
            for torn in findings.tails:
                sequence, position = split_lsn(torn.lsn)
                self._torn_ends.append((self.segments[sequence], position))
            if anew:
                self._renew_spares()
            if not self._spares:
                self._spares.append(self.files.prepare(next_sequence, beyond=anew))
            self._current = self._spares.pop(0)
            self._position = self._current.start
            self.segments[self._current.sequence] = self._current
            if last is not None:
                self._found[self._current.sequence] = last.reported_end
                self._end_with_next(self.segments[last.sequence], last.end)
                self.files.cut(self.segments[last.sequence], last.end)
        for spare in self._spares:
            self.segments[spare.sequence] = spare
        self._was_encrypted = any(segment.cipher is not None for segment in segments)
        self.flushed_lsn = self.log_end
        self._rebuild_sidecars(logs[: max(0, findings.tail_index)], findings)
        return findings

    def _renew_spares(self) -> None:
        """Replace spare segments of an earlier start: one that looks empty may have been written to.

        The first one stays in its place, another file by then: what is before it may end with NEXT.
        """
        for spare in reversed(self._spares[1:]):
            self.files.release(self.segments.pop(spare.sequence))
        self._spares = [self.files.prepare(spare.sequence, over=spare, beyond=True) for spare in self._spares[:1]]

    def _end_with_next(self, segment: Segment, position: int) -> None:
        marker = pack_header(self.salt, Kind.NEXT, make_lsn(segment.sequence, position), 0, 0, 0, 0, b"")
        write_all(self.io, segment.fd, [marker], position)
        self.io.fdatasync(segment.fd)

    def _rebuild_sidecars(self, full: list[SegmentLog], findings: Findings) -> None:
        damaged = {split_lsn(damage.lsn)[0] for damage in [*findings.middle, *findings.tails]}
        for log in full:
            if log.scanned and log.sequence not in damaged:
                cipher = self.segments[log.sequence].cipher
                self._write_sidecar(log.sequence, log.end, bytes(rows_of(list(log.entries))), cipher)

    def start(self, loop_call: LoopCall, loop_soon: LoopCall | None = None) -> None:
        """Start the threads; completions then run through `loop_call` (call_soon_threadsafe).

        `loop_soon` (call_soon): flush small groups in the loop; without it the thread does all flushes.
        """
        self._loop_call = loop_call
        self._loop_soon = loop_soon
        self._thread = CommitterThread(self._committer, self._flushed_on_thread, self._failed_on_thread)
        self._worker = threading.Thread(target=self._work, name="segments", daemon=True)
        self._worker.start()
        self._want_spare()

    def close(self) -> None:
        """Write the waiting entries and close the files."""
        if self._thread is None:
            self.kick()
        else:
            self._hand_over()
            self._thread.stop(30.0)
        if self._worker is not None:
            self._jobs.put(None)
            self._worker.join(30.0)
        self._blocks.close()
        for segment in self.segments.values():
            self.io.close(segment.fd)
        self.segments.clear()

    def close_torn_tails(self) -> None:
        """Make the cut of a damaged tail final, once its consequences are durable. Blocking. Raises OSError."""
        while self._torn_ends:
            segment, position = self._torn_ends[-1]  # the oldest last: while it is torn, later ones may be torn too
            self._end_with_next(segment, position)
            self._torn_ends.pop()

    # ---- writing

    @property
    def log_end(self) -> int:
        """The sequence number of the next entry; never decreases."""
        return make_lsn(self._current.sequence, self._position)

    @property
    def reported_end(self) -> int:
        """The end for placement drivers: of the flushed entries, or of those that a start found before the segment it began."""
        if self.flushed_lsn != make_lsn(self._current.sequence, self._current.start):
            return self.flushed_lsn
        return self._found.get(self._current.sequence, make_lsn(self._current.sequence, SEGMENT_HEADER_BYTES))

    @property
    def flush_count(self) -> int:
        """The number of flushes so far."""
        return self._committer.flush_count

    @property
    def commit_durations(self) -> DurationTally:
        """Of group commits: one write and one flush each, two where a segment ends in between."""
        return self._committer.commit_durations

    @property
    def committing_s(self) -> float:
        """How long the commit that runs now has taken; 0 while none runs. For any thread."""
        began_s = self._committer.began_s
        return time.perf_counter() - began_s if began_s is not None else 0.0

    @property
    def entry_bytes_max(self) -> int:
        """The largest payload that an entry can have."""
        start = ENCRYPTED_START_BYTES if self.encrypts else SEGMENT_HEADER_BYTES
        return self.segment_bytes - start - 2 * ENTRY_HEADER_BYTES - self._tag_bytes - self._reserve_bytes

    @property
    def used_bytes(self) -> int:
        """Disk space taken by segment files."""
        return self.files.used_bytes

    @property
    def waits_for_segment(self) -> bool:
        """Whether the last segment is nearly full and the next one is not ready: callers should pause appends."""
        return self._preparing and not self._spares and not self.problem

    def check_room(self, payload_bytes: int) -> None:
        """Raise if an append of that size must be refused: StorageFull, or Overloaded while the next segment is prepared."""
        if not self._spares and not self._fits(payload_bytes, self._reserve_bytes):
            self._need_spare()

    def _need_spare(self) -> None:
        self._want_spare()
        if not self._spares:
            full = StorageFull(f"no room in the log: {self.problem}")
            raise full if self.problem else Overloaded("the log's next segment is not ready yet: try again")

    def _fits(self, payload_bytes: int, reserve_bytes: int) -> bool:
        return self._position + payload_bytes + 2 * ENTRY_HEADER_BYTES + reserve_bytes <= self._current.size_bytes

    def submit(self, kind: int, stream_id: int, range_index: int, payload: bytes, digest: bytes,
               confirm_offset: int = 0, token: Any = None, payload_crc: int | None = None) -> int:  # fmt: skip
        """Assign an entry its place and return its sequence number; it is written with the next kick.

        `payload_crc`: for a payload of one batch that batch's checksum, otherwise none. `token` is passed to `on_flushed`
        once the entry is durable. Raises as `check_room`.
        """
        size = len(payload) + self._tag_bytes
        if not self._gathering:
            self._group_began_s = time.perf_counter()
        if not self._fits(size, 0):
            self._switch()
        segment, position = self._current, self._position
        entry = (segment, position, kind, stream_id, range_index, confirm_offset, payload, token, payload_crc)
        self._gathering.append(entry)
        segment.rows += sidecar_row(kind, position, stream_id, range_index, confirm_offset, size, digest)
        self._position = position + ENTRY_HEADER_BYTES + size
        self.pending_bytes += len(payload)
        self.appended_bytes += len(payload)
        return make_lsn(segment.sequence, position)

    def kick(self) -> None:
        """Start the write of all submitted entries."""
        if not self._gathering:
            return
        if self._thread is None:
            self._commit_here()
        elif self._loop_soon is None or self._entries_on_thread or self._committer.last_commit_s > HERE_FLUSH_S_MAX:
            self._hand_over()
        elif not self._commit_due:
            self._commit_due = True  # later entries of this turn of the loop join the group
            self._loop_soon(self._commit_gathered)

    def _commit_gathered(self) -> None:
        self._commit_due = False
        if self._entries_on_thread or sum([len(entry[6]) for entry in self._gathering]) > HERE_BYTES_MAX:
            self._hand_over()
        elif self._gathering:
            self._commit_here()

    def _hand_over(self) -> None:
        entries, self._gathering = self._gathering, []
        if entries and self._thread is not None:
            self._entries_on_thread += len(entries)
            self._groups_on_thread.append((self._group_began_s, len(entries)))
            self._thread.put(entries)

    def _commit_here(self) -> None:
        entries, self._gathering = self._gathering, []
        try:
            self._committer.commit(entries)
        except OSError as error:
            self.on_fatal(failure_message(error))
            raise LogFailed(str(error)) from error
        self.write_durations.observe(time.perf_counter() - self._group_began_s, len(entries))
        self._flushed(entries)

    def _switch(self) -> None:
        self._need_spare()
        old = self._current
        self._gathering.append((old, self._position, Kind.NEXT, 0, 0, 0, b"", None, None))
        self._full.append((old.sequence, self._position, bytes(old.rows), old.cipher))
        old.rows = bytearray()
        self._current = self._spares.pop(0)
        self._position = self._current.start
        self._want_spare()

    # ---- completions

    def _flushed_on_thread(self, entries: list[Pending]) -> None:
        self._on_loop(lambda: self._flushed_there(entries))

    def _failed_on_thread(self, message: str) -> None:
        self.on_fatal(message)

    def _flushed_there(self, entries: list[Pending]) -> None:
        self._entries_on_thread -= len(entries)
        now_s, left = time.perf_counter(), len(entries)
        while left and self._groups_on_thread:
            began_s, count = self._groups_on_thread.popleft()
            self.write_durations.observe(now_s - began_s, count)
            left -= count
        self._flushed(entries)

    def _flushed(self, entries: list[Pending]) -> None:
        last = entries[-1]
        self.flushed_lsn = make_lsn(last[0].sequence, last[1]) + ENTRY_HEADER_BYTES + len(last[6]) + self._tag_bytes
        tokens = []
        for entry in entries:
            self.pending_bytes -= len(entry[6])
            if entry[7] is not None:
                tokens.append(entry[7])
        if self._full and self._full[0][0] < last[0].sequence:
            self._write_sidecars(last[0].sequence)
        self.on_flushed(tokens)

    # ---- segments: work that waits for the disk, on its own thread

    def _do(self, job: Callable[[], None]) -> None:
        if self._worker is not None:
            self._jobs.put(job)
            return
        job()
        while self.files.has_surplus:
            self.files.shrink()

    def _wait_for_job(self) -> Callable[[], None] | None:
        """Return the next job; without one for a moment, the job of freeing space."""
        try:
            return self._jobs.get(timeout=SHRINK_PAUSE_S if self.files.has_surplus else None)
        except Empty:
            return self.files.shrink

    def _work(self) -> None:
        while (job := self._wait_for_job()) is not None:
            try:
                job()
            except OSError as error:
                self.on_fatal(f"the log's directory failed ({error.strerror or error})")
                return

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop_call is not None:
            self._loop_call(call)
        else:
            call()

    def _want_spare(self) -> None:
        if self._preparing or len(self._spares) >= SPARES_WANTED:
            return
        self._preparing = True
        last = self._spares[-1] if self._spares else self._current
        self._do(lambda: self._prepare(last.sequence + 1))

    def _prepare(self, sequence: int) -> None:
        segment: Segment | None = None
        problem = ""
        try:
            segment = self.files.prepare(sequence)
        except RangelogError as error:
            problem = error.message
        except OSError as error:
            problem = error.strerror or str(error)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.on_fatal(f"a segment of the write-ahead log could not be prepared ({problem})")
                raise LogFailed(problem) from error
        self._on_loop(lambda: self._prepared(segment, problem))

    def _prepared(self, segment: Segment | None, problem: str) -> None:
        self._preparing = False
        self.problem = problem
        if segment is not None:
            self._spares.append(segment)
            self.segments[segment.sequence] = segment
            self._want_spare()
        self.on_spare()

    def retry_spare(self) -> None:
        """Try again to prepare a segment; call it regularly while `problem` is set."""
        self._want_spare()

    def _write_sidecars(self, before: int) -> None:
        while self._full and self._full[0][0] < before:
            self._do(partial(self._write_sidecar, *self._full.pop(0)))

    def _write_sidecar(self, sequence: int, end: int, rows: bytes, cipher: SegmentCipher | None) -> None:
        with suppress(OSError):  # it saves time only: without it the segment is scanned
            self.files.write_sidecar(sequence, end, rows, cipher)

    @property
    def current_sequence(self) -> int:
        """The sequence number of the current segment."""
        return self._current.sequence

    @property
    def last_full_sequence(self) -> int:
        """The last segment that is full and flushed, as all before it are."""
        return min(split_lsn(self.flushed_lsn)[0], self._current.sequence) - 1

    @property
    def full_count(self) -> int:
        """The number of full segments."""
        return len(self.segments) - len(self._spares) - 1

    @property
    def is_short(self) -> bool:
        """Whether space is short: the log cannot grow, or not by an eighth of its capacity (SHORT_SEGMENTS at least)."""
        limit = self.files.capacity_bytes // self.segment_bytes
        return bool(self.problem) or bool(limit and limit - len(self.segments) < max(SHORT_SEGMENTS, limit // 8))

    @property
    def room_bytes(self) -> int:
        """The bytes of copies that fit before another segment is created: half of the reserve is for them."""
        left = self._current.size_bytes - self._position - 2 * ENTRY_HEADER_BYTES - self._reserve_bytes // 2
        return max(0, left) + len(self._spares) * self.entry_bytes_max

    def release(self, sequence: int) -> None:
        """Free a full segment. All its live data must have been written again and flushed."""
        segment = self.segments.pop(sequence)
        self._do(lambda: self.files.release(segment))

    def keys_in_use(self) -> dict[str, int]:
        """Return how many segments each key is needed for, by its id; "": in clear."""
        return dict(Counter([segment.key_id for segment in list(self.segments.values())]))

    def ask_key(self) -> None:
        """Ask whether another key is current, on the thread that prepares segments."""
        if self.encrypts:
            self._do(self.keys.refresh)

    def turn_to_key(self) -> bool:
        """Turn to a segment of the current key, where another one has become that; call it regularly.

        Returns whether it did: then an entry must follow. Segments that are prepared with an earlier key are freed first.
        """
        if not self.encrypts or self._preparing or self.keys.key_id == self._current.key_id:
            return False
        if any(spare.key_id != self.keys.key_id for spare in self._spares):
            while self._spares:  # the last first: a segment that is missing between two would be a lost one
                self.release(self._spares.pop().sequence)
        if not self._spares:
            self._want_spare()
            return False
        self._switch()
        return True

    def stale_segments(self) -> list[int]:
        """Return the full segments that are not as new ones are: under another key, in clear, or the other way round."""
        if not self.encrypts and not self._was_encrypted:
            return []
        wanted, last = self._current.key_id, self.last_full_sequence
        return [each.sequence for each in self.segments.values() if each.sequence <= last and each.key_id != wanted]

    # ---- reading, on any thread

    def read(self, place: int, length: int, *, from_disk: bool = False) -> memoryview:
        """Return `length` bytes at a place of the log, valid until this thread reads again. Raises OSError, KeyError."""
        sequence, position = split_lsn(place)
        return self._reader.read(self.segments[sequence], position, length, from_disk=from_disk)
