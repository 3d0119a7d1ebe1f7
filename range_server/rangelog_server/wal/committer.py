"""Group commit: all waiting entries are written with one write and one flush, then all are reported as durable at once.

A failed write or flush is never retried: the content of the disk is unknown after it, and the kernel may have dropped the
pages. The committer stops for good, reports no more entries as durable, and the process ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from rangelog_server.wal.blocks import BlockWriter
from rangelog_server.wal.encryption import SegmentCipher
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, TAG_BYTES, Kind, make_lsn, pack_encrypted, pack_header
from rangelog_server.wal.files import Segment
from rangelog_server.wal.io import Io
from rangelog_server_common.metrics.tally import DurationTally

# segment, position, kind, stream id, range index, confirm offset, payload, token, checksum of the payload if it is one batch
Pending = tuple[Segment, int, int, int, int, int, bytes, Any, int | None]

GROUP_ENTRIES_MAX = 2048
GROUP_BYTES_MAX = 16 * 1024 * 1024


class LogFailed(Exception):
    """The log's disk failed."""


def failure_message(error: OSError) -> str:
    """Return the message that the process logs before it ends."""
    return f"the write-ahead log failed ({error.strerror or error}); the process ends at once"


class Committer:
    """Writes groups of entries. `commit` does all the work; the thread only calls it."""

    def __init__(self, io: Io, salt: int, blocks: BlockWriter) -> None:
        self._io = io
        self._salt = salt
        self._blocks = blocks
        self.flush_count = 0
        self.failed = False
        self.last_commit_s = 0.0
        self.commit_durations = DurationTally()
        self.began_s: float | None = None
        """On the performance counter: when the commit that runs now began; None: none does."""

    def commit(self, entries: list[Pending]) -> None:
        """Write and flush consecutive entries. Raises OSError, after which the log must not be written."""
        try:
            self.began_s = began_s = time.perf_counter()
            self._commit(entries)
            self.last_commit_s = time.perf_counter() - began_s
            self.began_s = None
            self.commit_durations.observe(self.last_commit_s)
        except OSError:
            self.failed = True
            raise

    def _commit(self, entries: list[Pending]) -> None:
        start = 0
        while start < len(entries):
            segment = entries[start][0]
            stop = start + 1
            while stop < len(entries) and entries[stop][0] is segment:
                stop += 1
            # A segment is flushed before the next one is touched: entries there prove that this one is whole.
            self._write(segment, entries[start:stop])
            self._io.fdatasync(segment.fd)
            self.flush_count += 1
            start = stop

    def _write(self, segment: Segment, entries: list[Pending]) -> None:
        if segment.cipher is not None:
            self._write_encrypted(segment, segment.cipher, entries)
            return
        salt, sequence = self._salt, segment.sequence
        first = position = entries[0][1]
        buffers: list[bytes] = []
        for _, position, kind, stream_id, range_index, confirm_offset, payload, _, crc in entries:
            lsn = make_lsn(sequence, position)
            head = pack_header(salt, kind, lsn, position - first, stream_id, range_index, confirm_offset, payload, crc)
            buffers += (head, payload)
        end = position + ENTRY_HEADER_BYTES + len(entries[-1][6])
        if entries[-1][2] != Kind.NEXT:
            buffers.append(pack_header(salt, Kind.END, make_lsn(sequence, end), end - first, 0, 0, 0, b""))
        self._blocks.write(segment, buffers, first)

    def _write_encrypted(self, segment: Segment, cipher: SegmentCipher, entries: list[Pending]) -> None:
        """Encrypt each entry, once, and write what came of it: also a short write goes on with the same bytes."""
        salt, sequence = self._salt, segment.sequence
        first, end = entries[0][1], entries[0][1]
        buffers: list[bytes] = []
        for _, position, kind, stream_id, range_index, confirm_offset, payload, _, _ in entries:
            lsn = make_lsn(sequence, position)
            if kind == Kind.NEXT:
                buffers.append(pack_header(salt, kind, lsn, position - first, 0, 0, 0, b""))
                break
            place = (stream_id, range_index, confirm_offset)
            buffers += pack_encrypted(salt, cipher, kind, lsn, position - first, *place, payload)
            end = position + ENTRY_HEADER_BYTES + len(payload) + TAG_BYTES
        else:
            buffers.append(pack_header(salt, Kind.END, make_lsn(sequence, end), end - first, 0, 0, 0, b""))
        self._blocks.write(segment, buffers, first)


class CommitterThread:
    """Runs a committer on its own thread. `flushed(entries)` and `failed(message)` are called on that thread."""

    def __init__(
        self, committer: Committer, flushed: Callable[[list[Pending]], None], failed: Callable[[str], None]
    ) -> None:
        self._committer = committer
        self._flushed = flushed
        self._failed = failed
        self._queue: SimpleQueue[list[Pending] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def put(self, entries: list[Pending]) -> None:
        """Queue entries, in order."""
        self._queue.put(entries)

    def stop(self, timeout_s: float) -> None:
        """Write the waiting entries, then end the thread."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            taken = self._queue.get()
            if taken is None:
                return
            entries, size = taken, sum(len(entry[6]) for entry in taken)
            while len(entries) < GROUP_ENTRIES_MAX and size < GROUP_BYTES_MAX:
                try:
                    more = self._queue.get_nowait()
                except Empty:
                    break
                if more is None:
                    stopping = True
                    break
                size += sum(len(entry[6]) for entry in more)
                entries += more
            try:
                self._committer.commit(entries)
            except OSError as error:
                self._failed(failure_message(error))
                return
            self._flushed(entries)
