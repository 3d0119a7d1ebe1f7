"""All replicas of one server over one write-ahead log. Runs on the event loop's thread and never waits for the disk.

An operation changes the pure replica, submits the entries that must be durable, and passes a completion for then. The log is
ordered, so completions run in the order of submission: when a fence is reported durable, so was every append before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from rangelog_core.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from rangelog_core.batch import TRAILER_BYTES as BATCH_TRAILER_BYTES
from rangelog_core.errors import (
    Corruption,
    Overloaded,
    ProtocolViolation,
    RangeDropped,
    RangelogError,
    RangeNotFound,
    StorageFull,
    Unavailable,
    WriterFenced,
)
from rangelog_server.ranges.awaited_replicas import AwaitedReplicas
from rangelog_server.ranges.cache import CACHE_BYTES_DEFAULT, TailCache
from rangelog_server.ranges.counts import ServingCounts
from rangelog_server.ranges.hosted_replica import HostedReplica, Writing, nobody
from rangelog_server.ranges.idle_writers import IdleWriters
from rangelog_server.ranges.read_faults import ReadFault, ReadFaults
from rangelog_server.ranges.reading import ReadPlan, is_current
from rangelog_server.ranges.replay import DropFloor, Replayed, Tombstone, replay, unhealthy
from rangelog_server.ranges.replica import DiskTrust, NewBatch, Replica
from rangelog_server.ranges.space import LogSpace
from rangelog_server.ranges.state import ServerState, pack_state, pack_tombstone
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, Kind, batch_heads
from rangelog_server.wal.log import Wal

REPLICAS_MAX = 300_000
"""Bounds the memory that clients can make a server use. An idle replica with one batch takes 1.9 KiB (measured; 48 bytes
more for each further batch), so these take 560 MiB. They are recovered in about 6 s, and reported to a new leader in one
heartbeat, whose size is the limit: at 52 bytes a report 15 of the 16 MiB that a message may have (GRPC_MESSAGE_BYTES_MAX)."""


class AppendClient(Protocol):
    """The origin of an append: a connection."""

    def acked(self, hosted: HostedReplica, request_id: int) -> None:
        """Everything below hosted.core.durable_offset is durable. Called once per group commit and range."""

    def send_acks(self) -> None:
        """Send the acks of one group commit: `acked` was called for all its ranges."""

    def settled(self, size_bytes: int) -> None:
        """Note that so many bytes are no longer in flight."""


class Store:
    """All replicas of one server."""

    def __init__(self, wal: Wal, *, cache_bytes: int = CACHE_BYTES_DEFAULT) -> None:
        self.wal = wal
        self.cache = TailCache(cache_bytes)
        self.replicas: dict[tuple[int, int], HostedReplica] = {}
        self.awaited = AwaitedReplicas()
        self.idle = IdleWriters()
        self.floors: dict[int, DropFloor] = {}
        self.tombstones: dict[tuple[int, int], Tombstone] = {}
        self.server = ServerState()
        self.server_lsn = 0
        self.problems: list[str] = []
        self.read_faults = ReadFaults()
        self.changed: dict[tuple[int, int], None] = {}  # replicas whose state differs from the last one reported
        self.grown: dict[tuple[int, int], None] = {}  # open ones that differ in offsets and size alone
        self.space = LogSpace(self)
        self.counts = ServingCounts()
        wal.on_flushed = self.on_flushed

    # ---- opening

    def open(self, *, started_before: bool = False) -> Replayed:
        """Recover everything from the log. Blocking, before any thread runs.

        Raises StorageFull, OSError; UnsupportedVersion when a newer program wrote some of it.

        `started_before`: the directory is not new, so a log without segments was lost.
        """
        replayed = replay(self.wal.open(), started_before=started_before)
        self.replicas, self.floors, self.tombstones = replayed.replicas, replayed.floors, replayed.tombstones
        self.server, self.server_lsn, self.problems = replayed.server, replayed.server_lsn, replayed.problems
        self.space.open()
        for hosted in unhealthy(replayed):
            self.write_state(hosted)
        if replayed.problems:
            self.write_server()
        self.wal.kick()
        self.wal.close_torn_tails()
        self.changed = dict.fromkeys(self.replicas)
        return replayed

    # ---- looking up

    def find(self, stream_id: int, range_index: int) -> HostedReplica:
        """Return a replica.

        Raises RangeNotFound if there never was one, RangeDropped if it was dropped, Corruption if the log was damaged and
        may have held this range.
        """
        hosted = self.replicas.get((stream_id, range_index))
        floor = self.floors.get(stream_id) if hosted is None else None
        if floor is not None and range_index <= floor.index:
            raise RangeDropped(f"range {stream_id}/{range_index} was dropped here")
        if hosted is None and self.server.doubt_unknown:
            raise Corruption(f"the log was damaged: range {stream_id}/{range_index} may have been here")
        if hosted is None:
            raise RangeNotFound(f"this server has no replica of range {stream_id}/{range_index}")
        return hosted

    def check_start(self, hosted: HostedReplica, start_offset: int) -> None:
        """Check the start offset of a request. Raises ProtocolViolation when it differs from the replica's."""
        if hosted.core.start_offset != start_offset:
            raise ProtocolViolation(f"range {hosted} starts at {hosted.core.start_offset}, not {start_offset}")

    def new_core(self, stream_id: int, range_index: int, start_offset: int, epoch: int, *,
                 by_placement_driver: bool = False) -> Replica:  # fmt: skip
        """Return a replica that is not yet hosted. Raises WriterFenced where dropped ranges forbid it, Overloaded."""
        floor = self.floors.get(stream_id)
        if floor is not None and range_index <= floor.index and not by_placement_driver:
            raise WriterFenced(
                f"this server has dropped its replica of range {stream_id}/{range_index}", epoch=floor.epoch
            )
        if len(self.replicas) >= REPLICAS_MAX:
            raise Overloaded(f"this server holds {REPLICAS_MAX} replicas already")
        core = Replica(stream_id, range_index, start_offset, epoch)
        if self.server.doubt_unknown:
            core.doubt("the log was damaged before this range was seen again")
        return core

    def host(self, core: Replica) -> HostedReplica:
        """Add a new replica; written with the next kick. Raises StorageFull."""
        self.wal.check_room(1024)
        hosted = HostedReplica(core)
        self.replicas[hosted.key] = hosted
        self.idle.forget(hosted.key)
        self.write_state(hosted)
        hosted.born_lsn = hosted.state_lsn
        self.awaited.made(hosted.key)
        return hosted

    # ---- appends

    def append(self, appender: AppendClient | None, request_id: int, message: Any, batches: Sequence[NewBatch],
               payload: bytes) -> HostedReplica:  # fmt: skip
        """Append a frame's batches; `appender` gets an ack once they are durable. Returns the replica.

        Raises the errors of Replica.append, and of Wal.check_room.
        """
        hosted = self.replicas.get((message.stream_id, message.range_index))
        self.wal.check_room(len(payload) + 1024 + self.wal.extra_bytes * len(batches))
        if hosted is None:
            core = self.new_core(message.stream_id, message.range_index, message.start_offset, message.epoch)
            fresh = core.append(message.epoch, batches, message.confirm_offset, recovery=message.recovery)
            hosted = self.host(core)
        else:
            core = hosted.core
            if hosted.leaving and not message.recovery:
                raise Unavailable(hosted.leaving)
            if core.start_offset != message.start_offset:
                self.check_start(hosted, message.start_offset)
            before = core.confirm_offset
            fresh = core.append(message.epoch, batches, message.confirm_offset, recovery=message.recovery)
            if core.confirm_offset != before and hosted.waiters:
                hosted.wake()
        self.counts.appends += 1
        if not fresh:
            self._already_there(hosted, appender, request_id, batches[-1].header.end_offset, len(payload))
            return hosted
        size_bytes = len(payload)
        if len(fresh) != len(batches):
            payload = b"".join([batch.data for batch in fresh])
        self._write(hosted, appender, request_id, fresh, payload, size_bytes, message.memory)
        self._count(fresh, len(payload))
        return hosted

    def _count(self, fresh: Sequence[NewBatch], size_bytes: int) -> None:
        counts = self.counts
        counts.append_batches += len(fresh)
        counts.append_bytes += size_bytes
        counts.append_records += fresh[-1].header.end_offset - fresh[0].header.base_offset

    def repair(self, hosted: HostedReplica, batches: Sequence[NewBatch], done: Callable[[], None]) -> None:
        """Add a peer's batches of a sealed range; `done` is called once they are durable.

        Raises the errors of Replica.repair, StorageFull, and RangeDropped if the replica was dropped while they were fetched.
        """
        if hosted.dropped:
            raise RangeDropped(f"the replica of range {hosted} was dropped while its batches were copied")
        self.wal.check_room(sum(len(batch.data) + self.wal.extra_bytes for batch in batches) + 1024)
        fresh = hosted.core.repair(batches)
        if fresh:
            payload = b"".join([batch.data for batch in fresh])
            self._write(hosted, None, 0, fresh, payload, len(payload), False)
            self.counts.copied_bytes += len(payload)
        self.after(done)

    def _write(self, hosted: HostedReplica, appender: AppendClient | None, request_id: int, fresh: Sequence[NewBatch],
               payload: bytes, size_bytes: int, memory: bool) -> None:  # fmt: skip
        core, wal = hosted.core, self.wal
        if wal.encrypts and len(fresh) > 1:
            self._write_before(hosted, fresh[:-1])
            fresh, payload = fresh[-1:], fresh[-1].data
        end = fresh[-1].header.end_offset
        memory = memory and core.durable_offset >= hosted.strict_end
        token = (hosted, end, None if memory else appender, request_id, size_bytes)
        one = len(fresh) == 1
        digest = payload[:BATCH_HEADER_BYTES] + payload[-BATCH_TRAILER_BYTES:] if one else batch_heads(payload)
        crc = fresh[0].crc if one else None  # the caller has checked the batch
        lsn = wal.submit(
            Kind.BATCHES, core.stream_id, core.range_index, payload, digest, core.confirm_offset, token, crc
        )
        self.space.placed(hosted, lsn, len(payload))
        skip, flushed, place = 0, wal.flushed_lsn, lsn + ENTRY_HEADER_BYTES
        for batch in fresh:
            hosted.place(batch.header, lsn, skip)
            self.cache.put(place + skip, batch.data, flushed)
            skip += batch.header.length
        if not memory:
            hosted.strict_end = end
        elif appender is not None:
            core.flushed(end)
            hosted.wake()
            self._acked_alone(appender, hosted, request_id, size_bytes)

    def _write_before(self, hosted: HostedReplica, batches: Sequence[NewBatch]) -> None:
        """Write all batches of a frame but its last one, an entry each: each is encrypted, and read, alone."""
        core, wal = hosted.core, self.wal
        flushed = wal.flushed_lsn
        for batch in batches:
            data = batch.data
            digest = data[:BATCH_HEADER_BYTES] + data[-BATCH_TRAILER_BYTES:]
            place = (core.stream_id, core.range_index)
            lsn = wal.submit(Kind.BATCHES, *place, data, digest, core.confirm_offset, None, batch.crc)
            self.space.placed(hosted, lsn, len(data))
            hosted.place(batch.header, lsn, 0)
            self.cache.put(lsn + ENTRY_HEADER_BYTES, data, flushed)

    def _already_there(
        self, hosted: HostedReplica, appender: AppendClient | None, request_id: int, end_offset: int, size_bytes: int
    ) -> None:
        if appender is None:
            return
        if end_offset <= hosted.core.durable_offset:
            self._acked_alone(appender, hosted, request_id, size_bytes)
        else:
            self.after(lambda: self._acked_alone(appender, hosted, request_id, size_bytes))

    @staticmethod
    def _acked_alone(appender: AppendClient, hosted: HostedReplica, request_id: int, size_bytes: int) -> None:
        appender.acked(hosted, request_id)
        appender.send_acks()
        appender.settled(size_bytes)

    def confirm(self, message: Any, writing: Callable[[], Writing | None] = nobody) -> None:
        """Apply the writer's confirm offsets, of one range or more; `writing` is its connection."""
        for each in (message, *message.others):
            key = (each.stream_id, each.range_index)
            hosted = self.replicas.get(key)
            if hosted is None:
                if each.HasField("start_offset"):
                    self.idle.note(key, each.epoch, each.start_offset, writing)
                else:
                    self.idle.answered(key, each.epoch)
                continue
            hosted.confirm_count += 1
            if each.HasField("start_offset") and each.epoch == hosted.core.epoch:
                hosted.writing = writing
            before = hosted.core.confirm_offset
            if hosted.core.confirm(each.epoch, each.confirm_offset):
                self.grown[hosted.key] = None
            if hosted.core.confirm_offset != before:
                hosted.wake()

    # ---- fences and ends

    def seal(self, stream_id: int, range_index: int, epoch: int, start_offset: int,
             done: Callable[[HostedReplica], None], *, by: str = "") -> None:  # fmt: skip
        """Fence a range; `done` is called once that is durable. `by`: see Replica.seal.

        Raises WriterFenced, ProtocolViolation, StorageFull.
        """
        hosted = self.replicas.get((stream_id, range_index))
        if hosted is None:
            hosted = self.host(self.new_core(stream_id, range_index, start_offset, epoch))
        self.check_start(hosted, start_offset)
        hosted.core.seal(epoch, by)
        self.write_state(hosted, lambda: done(hosted))

    def commit_end(self, stream_id: int, range_index: int, start_offset: int, end_offset: int, epoch: int,
                   done: Callable[[HostedReplica], None], *, by_placement_driver: bool = False) -> None:  # fmt: skip
        """Apply a range's committed end; `done` is called once it is durable. Raises as Replica.commit_end, StorageFull."""
        hosted = self.replicas.get((stream_id, range_index))
        if hosted is None:
            forced = by_placement_driver
            core = self.new_core(stream_id, range_index, start_offset, epoch, by_placement_driver=forced)
            hosted = self.host(core)
        self.check_start(hosted, start_offset)
        if hosted.core.commit_end(end_offset, epoch=None if by_placement_driver else epoch):
            self.space.cut(hosted)
            self.write_state(hosted, lambda: done(hosted))
            hosted.wake()
        elif hosted.unwritten:
            self.write_state(hosted, lambda: done(hosted))
        else:
            self.after(lambda: done(hosted))

    # ---- metadata

    def write_state(self, hosted: HostedReplica, done: Callable[[], None] | None = None) -> None:
        """Write all of a replica's metadata; `done` is called once it is durable. Raises StorageFull."""
        core = hosted.core
        payload = pack_state(core, hosted.born_lsn)
        hosted.unwritten = True
        before_lsn = hosted.state_lsn
        hosted.state_lsn = self.wal.submit(Kind.STATE, core.stream_id, core.range_index, payload, payload, 0, done)
        self.space.state_written(hosted, before_lsn)
        hosted.unwritten = False
        hosted.written_trust = core.trust
        self.changed[hosted.key] = None

    def write_server(self, done: Callable[[], None] | None = None) -> None:
        """Write the metadata of the log as a whole; `done` is called once it is durable. Raises StorageFull."""
        payload = self.server.pack()
        self.server_lsn = self.wal.submit(Kind.SERVER, 0, 0, payload, payload, 0, done)

    def after(self, done: Callable[[], None]) -> None:
        """Call `done` once all entries submitted so far are durable, at once if they are. Raises StorageFull."""
        if self.wal.flushed_lsn == self.wal.log_end:
            done()
        else:
            self.write_server(done)

    def quarantine(self, hosted: HostedReplica, problem: str) -> None:
        """Quarantine a replica; this is written to the log and reported."""
        if hosted.core.trust is not DiskTrust.QUARANTINED and not hosted.dropped:
            hosted.core.quarantine(problem)
            self.counts.quarantines += 1
            self._note_health(hosted)
            self.wal.kick()
            hosted.wake()

    def read_failed(
        self, hosted: HostedReplica, error: RangelogError, now_s: float, plan: ReadPlan | None = None
    ) -> bool:
        """Quarantine a replica after a wrong checksum or a lasting fault of the disk; a temporary fault is only noted.

        `plan`: of the failed read. Returns True if its batches were moved meanwhile: then the failure is no evidence, and
        the read is to be repeated.
        """
        if hosted.dropped:
            return False
        if plan is not None and not is_current(hosted, plan):
            return True
        lost = isinstance(error, ReadFault) and self.read_faults.failed(hosted.key, error, now_s)
        if lost or isinstance(error, Corruption):
            self.quarantine(hosted, error.message)
        return False

    def _note_health(self, hosted: HostedReplica) -> None:
        self.changed[hosted.key] = None
        if not hosted.dropped:
            with suppress(StorageFull, Overloaded):  # a restart detects the same damage again
                self.write_state(hosted)

    def turn_to_key(self) -> None:
        """Continue the log in a segment of the current encryption key, where that has changed."""
        if self.wal.turn_to_key():
            self.write_server()
            self.wal.kick()

    def unknown_ranges_settled(self) -> None:
        """Note that every range that damage may have destroyed is hosted, as untrusted: unknown ranges are new again."""
        if self.server.doubt_unknown:
            self.server.doubt_unknown = False
            self.write_server()
            self.wal.kick()

    # ---- completions

    def on_flushed(self, tokens: list[Any]) -> None:
        """Run the completions of durable entries, by their tokens."""
        acked: dict[tuple[AppendClient, HostedReplica], int] = {}
        moved: dict[HostedReplica, None] = {}
        for token in tokens:
            if type(token) is not tuple:
                self._answer(acked, moved)
                token()
                continue
            hosted, end_offset, appender, request_id, size_bytes = token
            hosted.core.flushed(end_offset)
            moved[hosted] = None
            if appender is not None:
                acked[appender, hosted] = request_id
                appender.settled(size_bytes)
        self._answer(acked, moved)
        self.wal.kick()

    def _answer(self, acked: dict[tuple[AppendClient, HostedReplica], int], moved: dict[HostedReplica, None]) -> None:
        appenders: dict[AppendClient, None] = {}
        for (appender, hosted), request_id in acked.items():
            appender.acked(hosted, request_id)
            appenders[appender] = None
        for appender in appenders:
            appender.send_acks()
        for hosted in moved:
            (self.grown if hosted.core.sealed_end_offset is None else self.changed)[hosted.key] = None
            if hosted.core.trust is not hosted.written_trust:
                self._note_health(hosted)
            if hosted.waiters:
                hosted.wake()
        acked.clear()
        moved.clear()

    # ---- dropping and freeing

    def drop(self, stream_id: int, range_index: int, done: Callable[[], None]) -> None:
        """Drop a replica for good, as the placement driver directs; `done` is called once it is durable. Raises StorageFull."""
        hosted = self.replicas.get((stream_id, range_index))
        if hosted is None:
            self.after(done)
            return
        epoch = hosted.core.epoch
        self.space.keep_floor(hosted.key, epoch)
        as_of = self.wal.log_end
        payload = pack_tombstone(as_of, epoch)
        lsn = self.wal.submit(Kind.TOMBSTONE, stream_id, range_index, payload, payload, 0, done)
        del self.replicas[hosted.key]
        hosted.dropped = True
        self.read_faults.forget(hosted.key)
        self.space.dropped(hosted, as_of, lsn)
        self.changed[hosted.key] = None
        hosted.wake()

    def reclaim(self) -> int:
        """Free full segments without live data; return how many become free at the next flush. Raises StorageFull."""
        return self.space.reclaim()

    # ---- reading

    def cached(self, hosted: HostedReplica, first: int, last: int) -> list[bytes] | None:
        """Return the batches [first, last) if all of them are still in memory."""
        found: list[bytes] = []
        for number in range(first, last):
            batch = self.cache.get(hosted.places[number])
            if batch is None:
                return None
            found.append(batch)
        return found

    def check_readable(self, hosted: HostedReplica) -> None:
        """Raise Corruption when the replica is quarantined, so that none of its records may be served."""
        if hosted.core.trust is DiskTrust.QUARANTINED:
            raise Corruption(f"the replica of range {hosted} is quarantined: {hosted.core.problem}")
