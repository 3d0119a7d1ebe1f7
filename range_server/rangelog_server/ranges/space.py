"""The log's space: segments without live data are freed, and batches of sparse segments are moved. Pure, except that it
submits entries to the log. The invariants C1 to C8 are in docs/decisions/2026-11-22-log-compaction.md.

What holds: a segment is freed after all its current metadata was written again, and a server state without the segment, and
all of that was flushed. A batch is read from its old place until its copy is flushed. The work of one call is bounded: of
many entries it processes some, and the next call continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rangelog_core.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from rangelog_core.batch import TRAILER_BYTES as BATCH_TRAILER_BYTES
from rangelog_core.errors import StorageFull
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import ReadPlan, count_current, is_current
from rangelog_server.ranges.replay import DropFloor, Tombstone
from rangelog_server.ranges.state import ServerState, pack_epoch, pack_tombstone
from rangelog_server.ranges.usage import Key, SegmentUsage
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, Kind, batch_heads, split_lsn
from rangelog_server.wal.log import Wal

SEGMENTS_AT_ONCE = 4
SLICE_ENTRIES = 1_000
"""Entries that one call examines: about 10 ms when each of them must be written again."""


class Records(Protocol):
    """The records of the store that this module reads and writes."""

    wal: Wal
    replicas: dict[Key, HostedReplica]
    floors: dict[int, DropFloor]
    tombstones: dict[Key, Tombstone]
    server: ServerState

    def write_state(self, hosted: HostedReplica) -> None:
        """Write a replica's metadata. Raises StorageFull."""

    def write_server(self, done: Callable[[], None] | None = None) -> None:
        """Write the server's state. Raises StorageFull."""


class LogSpace:
    """The space of one server's log."""

    def __init__(self, store: Records) -> None:
        self.store = store
        self.usage = SegmentUsage(store.wal.segment_bytes)
        self._looked_at = 0  # full segments up to this one were noted
        self._carried: dict[int, int] = {}  # segments about to be freed, with the number of residents that are done
        self._releasing: dict[int, None] = {}  # to be freed at the next flush
        self._forgetting: list[tuple[int, list[Key]]] = []  # freed segments, with their residents
        self._moving = 0  # copies that are not flushed yet
        self._when_moved: list[Callable[[], None]] = []

    def open(self) -> None:
        """Count the recovered replicas. Raises StorageFull where a floor must be written that no entry holds alone."""
        store, usage = self.store, self.usage
        for key, hosted in store.replicas.items():
            for sequence, size_bytes in hosted.segments.items():
                usage.reside(key, sequence)
                usage.placed(sequence, size_bytes)
            if hosted.state_lsn:
                usage.wrote_metadata(split_lsn(hosted.state_lsn)[0])
        for key, tombstone in list(store.tombstones.items()):
            if not tombstone.segments:
                del store.tombstones[key]
                continue
            where = split_lsn(tombstone.lsn)[0]
            for sequence in {*tombstone.segments, where}:
                usage.reside(key, sequence)
            usage.wrote_metadata(where)
        for stream_id, floor in store.floors.items():
            if floor.lsn:
                self._floor_written(stream_id, floor)
            else:
                self._write_floor(stream_id, floor)

    # ---- what the store writes

    def placed(self, hosted: HostedReplica, lsn: int, size_bytes: int) -> None:
        """Note that batches of a replica were submitted."""
        sequence = split_lsn(lsn)[0]
        if hosted.weigh(sequence, size_bytes):
            self.usage.reside(hosted.key, sequence)
        self.usage.placed(sequence, size_bytes)

    def state_written(self, hosted: HostedReplica, before_lsn: int) -> None:
        """Note that a replica's state was submitted in place of an earlier one (0: of none)."""
        sequence = split_lsn(hosted.state_lsn)[0]
        if hosted.weigh(sequence, 0):
            self.usage.reside(hosted.key, sequence)
        self.usage.wrote_metadata(sequence)
        if before_lsn:
            self.usage.replaced_metadata(split_lsn(before_lsn)[0])

    def cut(self, hosted: HostedReplica) -> None:
        """Free the places of batches that a replica has cut."""
        self.usage.freed(hosted.follow_cut())

    def dropped(self, hosted: HostedReplica, as_of: int, lsn: int) -> None:
        """Note that a replica was dropped: its tombstone, at `lsn`, stays until no segment has an entry of the replica."""
        store, key, epoch = self.store, hosted.key, hosted.core.epoch
        before = store.tombstones.get(key)
        segments = {*hosted.segments, *(before.segments if before is not None else ())}
        if before is not None:
            self.usage.replaced_metadata(split_lsn(before.lsn)[0])
        store.tombstones[key] = Tombstone(as_of, epoch, lsn, segments)
        self._tombstone_written(key, lsn)
        self.usage.freed(hosted.segments)
        self.usage.replaced_metadata(split_lsn(hosted.state_lsn)[0])
        self._raise_floor(key, epoch, lsn)

    def keep_floor(self, key: Key, epoch: int) -> None:
        """Write the stream's floor before a drop whose tombstone would hold only part of it. Raises StorageFull."""
        floor = self.store.floors.get(key[0])
        if floor is not None and (key[1] - floor.index) * (epoch - floor.epoch) < 0:
            raised = DropFloor(max(floor.index, key[1]), max(floor.epoch, epoch), 0)
            self._write_floor(key[0], raised)
            self.usage.replaced_metadata(split_lsn(floor.lsn)[0])
            self.store.floors[key[0]] = raised

    def _raise_floor(self, key: Key, epoch: int, lsn: int) -> None:
        """Raise the stream's floor to a dropped range, whose tombstone is at `lsn`."""
        floor = self.store.floors.setdefault(key[0], DropFloor(key[1], epoch, 0))
        before_lsn = floor.lsn
        if floor.raise_to(key[1], epoch, lsn):
            if before_lsn:
                self.usage.replaced_metadata(split_lsn(before_lsn)[0])
            self._floor_written(key[0], floor)

    def _write_floor(self, stream_id: int, floor: DropFloor) -> None:
        payload = pack_epoch(floor.epoch)
        floor.lsn = self.store.wal.submit(Kind.FLOOR, stream_id, floor.index, payload, payload)
        self._floor_written(stream_id, floor)

    def _tombstone_written(self, key: Key, lsn: int) -> None:
        self.usage.reside(key, split_lsn(lsn)[0])
        self.usage.wrote_metadata(split_lsn(lsn)[0])

    def _floor_written(self, stream_id: int, floor: DropFloor) -> None:
        sequence = split_lsn(floor.lsn)[0]
        self.usage.floors.setdefault(sequence, []).append(stream_id)
        self.usage.wrote_metadata(sequence)

    # ---- freeing

    def reclaim(self, segments_max: int = SEGMENTS_AT_ONCE) -> int:
        """Free full segments in which no batch is placed; return how many become free at the next flush. Raises StorageFull.

        Call it regularly; while `is_busy`, again soon.
        """
        left = self._forget(SLICE_ENTRIES)
        done: list[int] = []
        for sequence in self._idle()[:segments_max]:
            left = self._carry_forward(sequence, left)
            if sequence in self._carried:
                break  # more remains
            done.append(sequence)
        if done:
            self._leave(done)
        return len(done)

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do at once."""
        return bool(self._carried or self._forgetting)

    def look_at_closed(self) -> None:
        """Note the segments that became full."""
        wal = self.store.wal
        last = wal.last_full_sequence
        if last > self._looked_at:
            self.usage.closed(sequence for sequence in wal.segments if self._looked_at < sequence <= last)
            self._looked_at = last

    def sparse_segments(self) -> list[int]:
        """Return the full segments that are sparse and not being freed, oldest first."""
        self.look_at_closed()
        usage, last = self.usage, self.store.wal.last_full_sequence
        found: list[int] = []
        for sequence in sorted(usage.sparse):
            if sequence > last or sequence in self._releasing:
                continue
            if usage.is_sparse(sequence):
                found.append(sequence)
            else:
                del usage.sparse[sequence]
        return found

    def _idle(self) -> list[int]:
        return [sequence for sequence in self.sparse_segments() if not self.usage.batches.get(sequence)]

    def _carry_forward(self, sequence: int, entries_max: int) -> int:
        """Write the current metadata of a segment again, or some of it; return the number of residents that remain."""
        store = self.store
        residents = self.usage.residents.get(sequence, [])
        position = self._carried.setdefault(sequence, 0)
        stop = min(len(residents), position + entries_max)
        for number in range(position, stop):
            key = residents[number]
            hosted, tombstone = store.replicas.get(key), store.tombstones.get(key)
            if hosted is not None and split_lsn(hosted.state_lsn)[0] == sequence:
                store.write_state(hosted)
            if tombstone is not None and split_lsn(tombstone.lsn)[0] == sequence and tombstone.segments != {sequence}:
                payload = pack_tombstone(tombstone.as_of_lsn, tombstone.epoch)
                tombstone.lsn = store.wal.submit(Kind.TOMBSTONE, *key, payload, payload)
                self._tombstone_written(key, tombstone.lsn)
                self.usage.replaced_metadata(sequence)
            self._carried[sequence] = number + 1
        if stop == len(residents):
            self._carry_floors(sequence)
            del self._carried[sequence]
        return entries_max - (stop - position)

    def _carry_floors(self, sequence: int) -> None:
        for stream_id in self.usage.floors.get(sequence, ()):
            floor = self.store.floors[stream_id]
            if split_lsn(floor.lsn)[0] == sequence:
                self._write_floor(stream_id, floor)
                self.usage.replaced_metadata(sequence)

    def _leave(self, sequences: list[int]) -> None:
        server, wal = self.store.server, self.store.wal
        before, gone = server.live, {*sequences, *self._releasing}
        current = wal.current_sequence
        server.live = sorted(each for each in wal.segments if each not in gone and each <= current)
        try:
            self.store.write_server(lambda: self._release(sequences))
        except BaseException:
            server.live = before
            raise
        self._releasing.update(dict.fromkeys(sequences))
        wal.kick()

    def _release(self, sequences: list[int]) -> None:
        for sequence in sequences:
            if sequence in self.store.wal.segments:
                self.store.wal.release(sequence)
            self._releasing.pop(sequence, None)
            self._forgetting.append((sequence, self.usage.forget(sequence)))

    def _forget(self, entries_max: int) -> int:
        """Remove the notes of freed segments, or some of them; return the number that remain."""
        store = self.store
        while self._forgetting and entries_max > 0:
            sequence, residents = self._forgetting[0]
            some = residents[-entries_max:]
            del residents[-entries_max:]
            for key in some:
                hosted, tombstone = store.replicas.get(key), store.tombstones.get(key)
                if hosted is not None:
                    hosted.segments.pop(sequence, None)
                if tombstone is not None:
                    tombstone.segments.discard(sequence)
                    if not tombstone.segments:
                        del store.tombstones[key]
                        self.usage.replaced_metadata(split_lsn(tombstone.lsn)[0])
            entries_max -= len(some)
            if not residents:
                self._forgetting.pop(0)
        return entries_max

    # ---- moving

    def move(self, hosted: HostedReplica, plan: ReadPlan, batches: Sequence[bytes]) -> bool:
        """Write batches again that were read from their places and checked; sent with the next kick. Raises StorageFull.

        They are read from the new place once it is flushed, if the replica still has them then. Returns whether
        anything was written: False if the batches were cut, dropped or moved meanwhile.
        """
        if not is_current(hosted, plan):
            return False
        wal = self.store.wal
        if sum([len(batch) + wal.extra_bytes for batch in batches]) > wal.room_bytes:
            raise StorageFull("no room in the log to move batches")
        places: list[int] = []
        groups = [[batch] for batch in batches] if wal.encrypts else [batches]
        for group in groups:
            last = group is groups[-1]
            moved = (lambda: self._moved(hosted, plan, places)) if last else None
            self._submit_moved(hosted, plan.wanted[len(places)].crc, group, places, moved)
        self._moving += 1
        return True

    def _submit_moved(
        self,
        hosted: HostedReplica,
        crc: int,
        batches: Sequence[bytes],
        places: list[int],
        moved: Callable[[], None] | None,
    ) -> None:
        """Submit copies as one entry and add their places; `crc`: of the first of them."""
        core, wal = hosted.core, self.store.wal
        payload = b"".join(batches)
        one = len(batches) == 1
        digest = payload[:BATCH_HEADER_BYTES] + payload[-BATCH_TRAILER_BYTES:] if one else batch_heads(payload)
        place = (core.stream_id, core.range_index)
        lsn = wal.submit(Kind.MOVED, *place, payload, digest, core.confirm_offset, moved, crc if one else None)
        self.placed(hosted, lsn, 0)  # a tombstone that comes before the flush covers the copy
        self.usage.placed(split_lsn(lsn)[0], len(payload))
        skip = lsn + ENTRY_HEADER_BYTES
        for batch in batches:
            places.append(skip)
            skip += len(batch)

    def when_moved(self, done: Callable[[], None]) -> None:
        """Call `done` once all copies so far are flushed and in use, at once if they are."""
        if self._moving:
            self._when_moved.append(done)
        else:
            done()

    def _moved(self, hosted: HostedReplica, plan: ReadPlan, places: list[int]) -> None:
        """Use the durable copy of all batches that were not cut, dropped or moved meanwhile."""
        wanted = plan.wanted
        count = count_current(hosted, plan)  # batches are cut at the end only
        first = hosted.core.batch_number(wanted[0].base_offset) if count else 0
        begin = 0
        while begin < count:  # copies of one entry each may lie in two segments
            end = begin + 1
            while end < count and split_lsn(places[end])[0] == split_lsn(places[begin])[0]:
                end += 1
            moved = hosted.move(first + begin, places[begin:end])
            self.usage.freed({split_lsn(wanted[begin].place)[0]: moved})
            begin = end
        for one, place in zip(wanted[count:], places[count:], strict=True):
            self.usage.freed({split_lsn(place)[0]: one.length})
        self._moving -= 1
        if not self._moving:
            waiting, self._when_moved = self._when_moved, []
            for done in waiting:
                done()

    def validate(self) -> None:
        """Assert that the counters are right; for tests and the simulator, while no copy is unflushed."""
        store, usage = self.store, self.usage
        batches: dict[int, int] = {}
        metadata: dict[int, int] = {}
        gone = [sequence for sequence, _ in self._forgetting]
        for key, hosted in store.replicas.items():
            placed: dict[int, int] = {}
            for place, length in zip(hosted.places, hosted.lengths, strict=True):
                sequence = split_lsn(place)[0]
                placed[sequence] = placed.get(sequence, 0) + length
            assert placed == {each: size for each, size in hosted.segments.items() if size}
            for sequence, size in placed.items():
                batches[sequence] = batches.get(sequence, 0) + size
                assert sequence in store.wal.segments
            for sequence in hosted.segments:
                assert key in usage.residents.get(sequence, ()) or sequence in gone
        assert batches == {each: size for each, size in usage.batches.items() if size}
        assert usage.batch_bytes == sum(batches.values())
        written = [hosted.state_lsn for hosted in store.replicas.values()]
        # A tombstone may have been freed with all entries that it covered.
        written += [each.lsn for each in store.tombstones.values() if split_lsn(each.lsn)[0] not in gone]
        written += [floor.lsn for floor in store.floors.values()]
        for lsn in written:
            assert split_lsn(lsn)[0] in store.wal.segments
            metadata[split_lsn(lsn)[0]] = metadata.get(split_lsn(lsn)[0], 0) + 1
        assert metadata == {each: count for each, count in usage.metadata.items() if count}
