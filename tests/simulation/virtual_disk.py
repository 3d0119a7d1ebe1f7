"""The disk of a simulated range server, and the production log on it with virtual threads.

`ServerDisk` is what outlives a process: the log's bytes (flushed or not), the identity, the count of starts. It also remembers
where every batch was written, so that a check can ask at any moment what is durable there: the bytes themselves are
compared, not what the server believes.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rangelog_core.checked_batches import checked_batches
from rangelog_core.errors import Corruption, Overloaded
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.wal.committer import Committer, Pending
from rangelog_server.wal.encryption import LogKeys, SegmentCipher
from rangelog_server.wal.entry import BATCH_KINDS, ENTRY_HEADER_BYTES, TAG_BYTES, Kind, decrypt_entry
from rangelog_server.wal.log import LoopCall, Wal
from tests.fakes.directory import Directory
from tests.fakes.disk import ProcessGone
from tests.fakes.disk_file import DiskFile
from tests.fakes.faces import LogDisk
from tests.simulation.virtual_time import VirtualLoop, here

SEGMENT_BYTES = 128 * 1024
ENCRYPTED_SEGMENT_BYTES = SEGMENT_BYTES + 16 * 1024
PLACES_BEFORE_LAST = 8


class SwitchedDisk(LogDisk):
    """A disk of which one kind of call fails while it is switched on."""

    def __init__(self, directory: Directory | None = None) -> None:
        super().__init__(directory)
        self.failing = ""
        """The call that fails from now on."""

    def _change(
        self, call: str, file: DiskFile | None = None, name: str = "", position: int = 0, data: bytes = b""
    ) -> None:
        if call == self.failing:
            for each in self.names.values():
                each.fail_flush()
            raise OSError(errno.EIO, "Input/output error")
        super()._change(call, file, name, position, data)

    def kill(self) -> None:
        """See Disk."""
        super().kill()
        self.failing = ""


@dataclass
class Written:
    """One entry of batches, where it went."""

    file: DiskFile
    position: int
    payload: bytes
    spans: list[tuple[int, int]]
    cipher: SegmentCipher | None = None  # what encrypts the entry; None: it is in clear
    number: int = 0  # in the order of writing
    moved: bool = False  # a copy that compaction made
    stored: bytes = b""  # of an encrypted entry, once it was seen there
    was_durable: bool = False
    excused: bool = False  # the one disk that may be lost, is: what was durable there counts as such

    def durable(self) -> bool:
        """Whether its bytes are on the disk now, as flushed; or were, until the disk itself failed."""
        if self.excused:
            return self.was_durable
        if not self._is_there():
            return False
        self.was_durable = True
        return True

    def _is_there(self) -> bool:
        if self.cipher is None:
            end = self.position + len(self.payload)
            return self.file.flushed[self.position : end] == self.payload
        start, end = self.position - ENTRY_HEADER_BYTES, self.position + len(self.payload) + TAG_BYTES
        stored = bytes(self.file.flushed[start:end])
        if self.stored:
            return stored == self.stored
        try:
            if decrypt_entry(self.cipher, stored, start, len(self.payload)) != self.payload:
                return False
        except Corruption:
            return False
        self.stored = stored  # to decrypt it each time would take most of a run
        return True

    def excuse(self) -> None:
        """The disk fails here."""
        self.durable()
        self.excused = True


@dataclass
class ServerDisk:
    """What a server's machine keeps."""

    io: SwitchedDisk = field(default_factory=SwitchedDisk)
    identity: DirectoryIdentity | None = None
    written: dict[tuple[int, int], list[Written]] = field(default_factory=dict)
    written_count: int = 0
    moved: dict[int, None] = field(default_factory=dict)
    """Places of the log that batches were moved to."""

    def durable_span(self, key: tuple[int, int], start: int, want: int) -> int:
        """Return up to where [start, want) is durable here without a hole."""
        spans = sorted(
            (span for each in self.written.get(key, ()) for span in each.spans if each.durable()),
        )
        end = start
        for base, stop in spans:
            if base > end or end >= want:
                break
            end = max(end, stop)
        return end

    def holds(self, key: tuple[int, int], offset: int) -> bool:
        """Whether one offset is durable here."""
        for each in reversed(self.written.get(key, ())):
            if each.spans[0][0] <= offset < each.spans[-1][1] and each.durable():
                return True
        return False

    def has_failed(self, key: tuple[int, int]) -> bool:
        """Whether something that was durable of this range is not any more."""
        return any(each.excused for each in self.written.get(key, ()))

    def excuse(self) -> None:
        """This disk is lost."""
        for found in self.written.values():
            for each in found:
                each.excuse()

    def copy(self) -> ServerDisk:
        """An image of it."""
        twin = SwitchedDisk(self.io.directory.copy())
        twin.directory.flush_names()
        return ServerDisk(twin, self.identity)

    def rot(self, chance: Random) -> bool:
        """Flip bits of one place that was written; return whether there was one."""
        places = [each for found in self.written.values() for each in found if each.durable()]
        if not places:
            return False
        self._rot_at(chance.choice(places), chance)
        return True

    def rot_last(self, chance: Random) -> bool:
        """Flip bits of what was written last; return whether there was anything."""
        last = self.last_durable()
        if last is None:
            return False
        self._rot_at(last, chance)
        return True

    def rot_before_last(self, key: tuple[int, int], chance: Random) -> bool:
        """Flip bits of one range's batches, with later writes behind them; return whether there were any."""
        last = self.last_durable()
        places = [each for each in self.written.get(key, ()) if not (each.moved or each.excused) and each.durable()]
        places = [each for each in places if last is not None and each.number < last.number]
        if not places:
            return False
        self._rot_at(chance.choice(places[-PLACES_BEFORE_LAST:]), chance)
        return True

    def last_durable(self) -> Written | None:
        """Return the batches that were written last, among those that are durable and not rotten."""
        found = (each for places in self.written.values() for each in places if not each.excused and each.durable())
        return max(found, key=lambda each: each.number, default=None)

    @staticmethod
    def _rot_at(place: Written, chance: Random) -> None:
        place.excuse()
        at = place.position + chance.randrange(-ENTRY_HEADER_BYTES, len(place.payload))
        place.file.rot(at, chance.randrange(1, 256))


class VirtualCommitter:
    """In place of CommitterThread: the production committer, run in one piece when its time has come."""

    def __init__(self, loop: VirtualLoop, disk: ServerDisk, delay_s: Callable[[], float], begun: Callable[[], None],
                 committer: Committer, flushed: Callable[[list[Pending]], None],
                 failed: Callable[[str], None]) -> None:  # fmt: skip
        self._begun = begun
        self._loop, self._disk, self._delay_s = loop, disk, delay_s
        self._committer, self._flushed, self._failed = committer, flushed, failed
        self._process = here()
        self._waiting: list[Pending] = []
        self.under_way: list[Pending] = []

    def put(self, entries: list[Pending]) -> None:
        """Hand over entries, in order."""
        self._waiting += entries
        if not self.under_way:
            self._begin()

    def stop(self, timeout_s: float) -> None:
        """Write what waits."""
        rest = self.under_way + self._waiting
        self.under_way, self._waiting = [], []
        if rest:
            self._committer.commit(rest)

    def _begin(self) -> None:
        self.under_way, self._waiting = self._waiting, []
        self._loop.call_in(self._process, self._delay_s(), self._commit)
        self._begun()

    def _commit(self) -> None:
        group = self.under_way
        try:
            self._note(group)
            self._committer.commit(group)
        except OSError as error:
            self._committer.failed = True
            self._failed(f"the write-ahead log failed ({error.strerror or error})")
            return
        self.under_way = []
        self._flushed(group)
        if self._waiting and not self.under_way:
            self._begin()

    def _note(self, group: list[Pending]) -> None:
        for segment, position, kind, stream_id, index, _, payload, _, _ in group:
            if kind in BATCH_KINDS:
                spans = [(each.base_offset, each.end_offset) for each, _, _ in checked_batches(payload)]
                file = self._disk.io.file(segment.fd)
                self._disk.written_count += 1
                number, moved = self._disk.written_count, kind is Kind.MOVED
                place = Written(file, position + ENTRY_HEADER_BYTES, payload, spans, segment.cipher, number, moved)
                self._disk.written.setdefault((stream_id, index), []).append(place)

    def interrupt(self, chance: Random) -> None:
        """The process ends while this group is being written: some of it, or all, or none reaches the file."""
        if self.under_way and chance.random() < 0.7:
            self._disk.io.cut_after = chance.randrange(0, 4)
            try:
                self._note(self.under_way)
                self._committer.commit(self.under_way)
            except (ProcessGone, OSError):
                pass


class VirtualWal(Wal):
    """The production log; only its two threads are virtual."""

    def __init__(
        self,
        loop: VirtualLoop,
        disk: ServerDisk,
        delay_s: Callable[[], float],
        begun: Callable[[], None],
        keys: LogKeys,
    ) -> None:
        self._begun = begun
        self.refusing = False
        assert disk.identity is not None
        size = ENCRYPTED_SEGMENT_BYTES if keys.encrypt else SEGMENT_BYTES
        super().__init__(Path("wal"), disk.identity.salt, io=disk.io, segment_bytes=size, keys=keys)
        self._virtual = (loop, disk, delay_s)
        self.files.free_files_max = 1
        self._chain: list[Callable[[], None]] = []

    def start(self, loop_call: LoopCall, loop_soon: LoopCall | None = None) -> None:
        """See Wal. Nothing is flushed in the loop: flushes take virtual time."""
        loop, disk, delay_s = self._virtual
        self._loop_call = loop_call
        self._thread = VirtualCommitter(  # type: ignore[assignment]
            loop, disk, delay_s, self._begun, self._committer, self._flushed_on_thread, self._failed_on_thread
        )
        self._process = here()
        self._started = True
        self._want_spare()

    def check_room(self, payload_bytes: int) -> None:
        """See Wal; `refusing`: no segment is ready, once. A segment holds every frame, as every setting sees to."""
        assert payload_bytes <= self.entry_bytes_max, f"a frame of {payload_bytes} bytes in segments of {SEGMENT_BYTES}"
        if self.refusing:
            self.refusing = False
            raise Overloaded("the next segment of the log is not ready yet: try again")
        super().check_room(payload_bytes)

    def _do(self, job: Callable[[], None]) -> None:
        if self._loop_call is None:
            job()
            return
        self._chain.append(job)
        if len(self._chain) == 1:
            self._virtual[0].call_in(self._process, self._virtual[2](), self._next_job)

    def _next_job(self) -> None:
        job = self._chain.pop(0)
        try:
            job()
        except OSError as error:
            self.on_fatal(f"the log's directory failed ({error.strerror or error})")
            return
        if not self._chain and self.files.has_surplus:
            self._chain.append(self.files.shrink)
        if self._chain:
            self._virtual[0].call_in(self._process, self._virtual[2](), self._next_job)

    def interrupt(self, chance: Random) -> None:
        """See VirtualCommitter."""
        if isinstance(self._thread, VirtualCommitter):
            self._thread.interrupt(chance)


def checksum(disk: ServerDisk) -> int:
    """A number for the trace."""
    total = 0
    for name, file in sorted(disk.io.names.items()):
        total = zlib.crc32(file.flushed, zlib.crc32(name.encode(), total))
    return total
