"""The state of the placement driver, and its invariants. Pure data; the modules beside this one change it.

What holds: after every command (`validate` asserts it),

* The ranges of a stream tile its offsets: each starts where the one before ended. Only the last can be open.
* A sealed range's end never changes, and is not below the floor that was put under it while it was open.
* An empty sealed range is the last one of its stream, or was made at a cluster version below 3: the next range takes its place
  under an index of its own. Indexes rise and are not reused.
* A stream's epoch never falls, and a range's epoch is at most its stream's.
* Time does not decrease. Changes while it is provisional are dated 0, and dated once it is confirmed: never too early.
* Committed objects tile [start, tiered end) of each range, but for what is below the trim offset; one may hold the records of
  several ranges, and is kept with the last of them. Ids of streams and objects are never reused.
* A stream that is sealed for good has no open range, and none follows.
* A cursor goes with its stream.
* Every index follows from the rows. No operation reads a whole table: its cost depends on its own changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from rangelog_core.errors import InvalidArgument, RangeNotFound, StreamNotFound, WriterFenced
from rangelog_core.ids import INTERNAL_NAME_START
from rangelog_core.name_errors import no_stream
from rangelog_pd.state.audit_table import AuditTable
from rangelog_pd.state.changes import Changes
from rangelog_pd.state.cursor_table import CursorTable
from rangelog_pd.state.cut_tables import CutTables
from rangelog_pd.state.due import DueTimes
from rangelog_pd.state.indexes import HostedRanges, Hosting, Names, RangeObjects
from rangelog_pd.state.owner_tables import OwnerTables
from rangelog_pd.state.quota_table import QuotaTable
from rangelog_pd.state.rights_table import RightsTable
from rangelog_pd.state.server_indexes import ServerModes
from rangelog_pd.state.tables import RangeKey, RangeTable, Table, mark, row_of
from rangelog_pd.state.token_tables import TokenTables
from rangelog_pd.state.topic_checks import validate_topics
from rangelog_pd.state.topic_tables import TopicTables
from rangelog_proto.v1 import common_pb2, pd_state_pb2, restore_pb2, tier_pb2

__all__ = ["Hosting", "RangeKey", "State"]

CLUSTER_VERSION_FIRST = 1
RESTORE_STEP_BITS = 20
"""After a restore the indexes of a stream's ranges go on at a multiple of 2^20 (rangelog_tier.restore)."""


class State:
    """The replicated tables, and the indexes that follow from them."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.cluster_version = CLUSTER_VERSION_FIRST
        self.time_ms = 0
        self.provisional = False  # the time of the current command is not confirmed
        self.next_stream_id = 1
        self.next_object_id = 1
        self.restore = restore_pb2.RestoreMark()
        """Replaced, never changed."""
        self.lost_streams = (0, 0)
        """Ids (the second one excluded) that a lost group may have given: see restored.py."""
        self.changes = Changes()
        self.names = Names(_stream_name, _stream_id, hidden=INTERNAL_NAME_START)
        self.hosted = HostedRanges()
        self.range_objects = RangeObjects()
        self.due = DueTimes(self)
        self.short: dict[RangeKey, None] = {}
        """Sealed ranges with fewer replicas than their stream wants, and not in the tier."""
        self.open_short: dict[RangeKey, None] = {}
        """Open ranges with fewer replicas than their stream wants."""
        self.bounded: dict[int, None] = {}
        """Streams with a bound on their bytes."""
        self.retained: dict[int, None] = {}
        """Streams whose retention depends on their cursors."""
        self.undated: dict[int, None] = {}
        """Tombstones without a date."""
        self.undated_ranges: dict[RangeKey, None] = {}
        note = self.changes.note
        self.streams: Table[int, common_pb2.Stream] = Table(self.names.changed, self._stream_changed, note)
        self.ranges = RangeTable(self.hosted.changed, self._range_changed, self.due.range_changed, note)
        self.objects: Table[int, common_pb2.Object] = Table(self.range_objects.changed, self._object_changed)
        self.modes = ServerModes()
        self.servers: Table[str, pd_state_pb2.RegisteredServer] = Table(self.modes.changed, note)
        self.removed: Table[str, pd_state_pb2.RegisteredServer] = Table()
        """Names of removed servers, with the incarnations that never come back; oldest first."""
        self.owners = OwnerTables(note)
        self.topics = TopicTables(note, self.owners.shard_changed)
        self.cuts = CutTables()
        self.tier_stores: Table[int, tier_pb2.TierStore] = Table()
        """Stores that the tier got since, by the first object in each."""
        self.cursors = CursorTable()
        self.rights = RightsTable()
        self.audit = AuditTable()
        self.tokens = TokenTables()
        self.quotas = QuotaTable()

    # ---- finding

    def stream(self, name: str) -> common_pb2.Stream:
        """Return a stream by name. Raises StreamNotFound."""
        stream_id = self.names.get(name)
        if stream_id is None:
            raise no_stream(name)
        return self.streams[stream_id]

    def stream_by_id(self, stream_id: int) -> common_pb2.Stream:
        """Return a stream by id. Raises StreamNotFound."""
        stream = self.streams.find(stream_id)
        if stream is None:
            raise StreamNotFound(f"no stream with id {stream_id}: it was deleted")
        return stream

    def range(self, stream_id: int, index: int) -> common_pb2.Range:
        """Return a range. Raises StreamNotFound, RangeNotFound."""
        self.stream_by_id(stream_id)
        found = self.ranges.find((stream_id, index))
        if found is None:
            raise RangeNotFound(f"stream {stream_id} has no range {index}: it was trimmed, or never was")
        return found

    def is_from_before_restore(self, key: RangeKey) -> bool:
        """Whether a replica is that of the cluster that this one was restored from: no range of today has its index."""
        stream_id, index = key
        stream = self.streams.find(stream_id)
        if stream is None or stream_id >= self.restore.first_stream_id:
            return stream_id < self.restore.first_stream_id
        return index < stream.range_count >> RESTORE_STEP_BITS << RESTORE_STEP_BITS

    def check_epoch(self, stream: common_pb2.Stream, epoch: int) -> None:
        """Check an epoch. Raises WriterFenced unless it is the stream's current one, InvalidArgument for 0."""
        if not epoch:
            raise InvalidArgument("an epoch is missing: open a writer to get one")
        if epoch != stream.epoch:
            raise WriterFenced(
                f"epoch {epoch} is not the current one of stream {stream.name!r}, which is {stream.epoch}",
                epoch=stream.epoch,
            )

    def objects_of(self, stream_id: int, index: int) -> list[common_pb2.Object]:
        """Return the objects of one range, oldest first, tombstones included."""
        return [self.objects[object_id] for object_id in self.range_objects.of((stream_id, index))]

    def tiered_bytes(self, of: common_pb2.Range) -> int:
        """Return the size of a range's part of the committed objects; of one with records of other ranges, by estimate."""
        total = 0
        for each in self.objects_of(of.stream_id, of.packed_in if of.HasField("packed_in") else of.index):
            shared = min(of.end_offset, each.end_offset) - max(of.start_offset, each.start_offset)
            if each.state == common_pb2.OBJECT_STATE_COMMITTED and shared > 0:
                total += each.size_bytes * shared // (each.end_offset - each.start_offset)
        return total

    # ---- time

    def advance(self, now_ms: int, *, provisional: bool) -> None:
        """Set the time of the next command."""
        self.time_ms = max(self.time_ms, now_ms)
        self.provisional = provisional
        if not provisional and self.has_undated:
            self._date_all()

    @property
    def has_undated(self) -> bool:
        """Whether rows wait for their date."""
        return bool(self.undated or self.undated_ranges or self.cursors.undated)

    def date(self) -> int:
        """Return the date for changes; 0: not known yet."""
        return 0 if self.provisional else self.time_ms

    def _date_all(self) -> None:
        for object_id in list(self.undated):
            tombstone = self.objects.copy(object_id)
            tombstone.deleted_ms = self.time_ms
            self.objects.put(object_id, tombstone)
        for key in list(self.undated_ranges):
            of = self.ranges.copy(key)
            of.sealed_ms = of.sealed_ms or self.time_ms
            if of.tiered_end_offset > of.start_offset:
                of.tiered_ms = of.tiered_ms or self.time_ms
            self.ranges.put(key, of)
        for stream_id in self.cursors.date_all(self.time_ms):
            self.changes.note_again(self.streams[stream_id])

    def latest_date(self) -> int:
        """Return the latest date of any row: the time of a state whose program did not store it."""
        dates = [date for each in self.ranges.values() for date in (each.created_ms, each.sealed_ms, each.tiered_ms)]
        return max(chain([0], dates, (each.committed_ms for each in self.objects.values())))

    # ---- changing

    def put_stream(self, changed: common_pb2.Stream) -> None:
        """Insert or replace a stream."""
        self.streams.put(changed.stream_id, changed)

    def remove_stream(self, stream_id: int) -> None:
        """Remove a stream with its ranges. Its id is not used again."""
        for each in self.ranges.of(stream_id).values():
            self.remove_range(each)
        self.cursors.remove_stream(stream_id)
        self.streams.remove(stream_id)

    def put_range(self, changed: common_pb2.Range) -> None:
        """Add the next range of its stream, or replace one."""
        self.ranges.put((changed.stream_id, changed.index), changed)

    def put_object(self, changed: common_pb2.Object) -> None:
        """Insert or replace an object."""
        self.objects.put(changed.object_id, changed)

    def bury(self, object_id: int) -> None:
        """Turn an object into a tombstone."""
        tombstone = self.objects.copy(object_id)
        tombstone.state = common_pb2.OBJECT_STATE_DELETED
        tombstone.deleted_ms = self.date()
        self.put_object(tombstone)

    def remove_range(self, removed: common_pb2.Range) -> None:
        """Remove a range: its objects become tombstones, its replicas belong to no range."""
        for found in self.objects_of(removed.stream_id, removed.index):
            if found.state != common_pb2.OBJECT_STATE_DELETED:
                self.bury(found.object_id)
        self.ranges.remove((removed.stream_id, removed.index))

    def forget_trimmed(self, stream: common_pb2.Stream) -> None:
        """Remove the ranges that are wholly below the trim offset, but never the last one."""
        ranges = self.ranges.of(stream.stream_id)
        beyond = ranges.index_beyond(stream.trim_offset)
        for index in ranges:
            if index >= beyond or index == stream.range_count - 1:
                return
            self.remove_range(ranges[index])

    def bury_trimmed(self, stream: common_pb2.Stream) -> None:
        """Turn objects of the first range that is left into tombstones where all of their rows are below the trim offset."""
        first = self.ranges.of(stream.stream_id).first_from(0)
        for each in self.objects_of(stream.stream_id, first.index) if first is not None else ():
            if each.state == common_pb2.OBJECT_STATE_COMMITTED and each.end_offset <= stream.trim_offset:
                self.bury(each.object_id)

    def forget_empty(self, stream_id: int) -> None:
        """Forget the last ranges of a stream that are sealed and empty: the next one is about to start where they do."""
        while (last := self.ranges.of(stream_id).last()) is not None:
            if last.state != common_pb2.RANGE_STATE_SEALED or last.start_offset != last.end_offset:
                return
            self.remove_range(last)

    # ---- indexes that need more than one table

    def _stream_changed(self, before: common_pb2.Stream | None, after: common_pb2.Stream | None) -> None:
        stream_id = row_of(before, after).stream_id
        if before is not None and after is not None and before.config != after.config:
            for each in self.ranges.of(stream_id).values():
                self._note_short(each)
        mark(self.bounded, stream_id, present=after is not None and bool(after.config.retention_bytes))
        mark(self.retained, stream_id, present=after is not None and bool(after.config.cursor_retention))
        self.due.stream_changed(before, after)

    def _range_changed(self, before: common_pb2.Range | None, after: common_pb2.Range | None) -> None:
        row = row_of(before, after)
        key = (row.stream_id, row.index)
        if after is None:
            for index in (self.undated_ranges, self.short, self.open_short):
                index.pop(key, None)
            return
        self._note_short(after)
        tiered = after.tiered_end_offset > after.start_offset
        dated = after.sealed_ms and (after.tiered_ms or not tiered)
        mark(self.undated_ranges, key, present=after.state == common_pb2.RANGE_STATE_SEALED and not dated)

    def _note_short(self, of: common_pb2.Range) -> None:
        stream = self.streams.find(of.stream_id)
        lacks = stream is not None and 0 < len(of.replicas) < stream.config.replicas and not of.lost
        is_open = of.state != common_pb2.RANGE_STATE_SEALED
        key = (of.stream_id, of.index)
        mark(self.short, key, present=lacks and not is_open and of.tiered_end_offset != of.end_offset)
        mark(self.open_short, key, present=lacks and is_open)

    def _object_changed(self, before: common_pb2.Object | None, after: common_pb2.Object | None) -> None:
        is_undated = after is not None and after.state == common_pb2.OBJECT_STATE_DELETED and not after.deleted_ms
        mark(self.undated, row_of(before, after).object_id, present=is_undated)

    # ---- checking

    def validate(self) -> None:
        """Assert the invariants; for tests and the simulator. The rows of a restore in progress are not whole."""
        if self.restore.phase == restore_pb2.RESTORE_PHASE_RUNNING:
            return
        assert sorted(self.names.ids().values()) == sorted(self.streams)
        assert sum(len(self.ranges.of(stream_id)) for stream_id in self.streams) == len(self.ranges)
        for stream_id, stream in self.streams.items():
            ranges = list(self.ranges.of(stream_id).values())
            ends = not ranges or ranges[-1].state == common_pb2.RANGE_STATE_SEALED
            assert ends or not stream.sealed_for_good, "no range follows the end of a shard"
            for number, each in enumerate(ranges):
                assert each.epoch <= stream.epoch
                if each.state == common_pb2.RANGE_STATE_OPEN:
                    assert number == len(ranges) - 1, "only the last range can be open"
                else:
                    assert each.start_offset <= each.end_offset
                    assert each.floor_offset <= each.end_offset, "a reader was shown more"
                if number:
                    assert each.start_offset == ranges[number - 1].end_offset, "ranges tile"
                    assert each.index > ranges[number - 1].index
            self._validate_objects(ranges, stream.trim_offset)
        assert not self.removed.keys() & self.servers.keys(), "a removed server is not registered"
        validate_topics(self)
        self.cursors.validate(self.streams)

    def _validate_objects(self, ranges: Sequence[common_pb2.Range], trim_offset: int) -> None:
        """Each offset of the tier is in exactly one committed object, kept with the last of the object's ranges; one below the
        trim offset in at most one."""
        committed = [
            found
            for of in ranges
            for found in self.objects_of(of.stream_id, of.index)
            if found.state == common_pb2.OBJECT_STATE_COMMITTED
        ]
        for before, after in pairwise(committed):
            assert before.end_offset <= after.start_offset, "objects do not overlap"
        number = 0
        for of in ranges:
            position = of.start_offset
            holder = of.packed_in if of.HasField("packed_in") else of.index
            while position < of.tiered_end_offset:
                begins = committed[number].start_offset if number < len(committed) else of.tiered_end_offset
                if position < min(begins, trim_offset):
                    position = min(begins, trim_offset, of.tiered_end_offset)
                    continue
                each = committed[number]
                assert each.start_offset <= position < each.end_offset, "objects tile"
                assert each.range_index == holder, "an object is found with the last of its ranges"
                position = min(each.end_offset, of.end_offset)
                number += each.end_offset <= of.end_offset
            assert position == max(of.tiered_end_offset, of.start_offset)
        assert number == len(committed), "no object is of no range"

    def validate_indexes(self) -> None:
        """Assert that every index follows from the rows; for tests and the simulator."""
        rebuilt = State()
        servers = chain(self.servers.values(), self.removed.values())
        rebuilt.load(self.streams.values(), self.ranges.values(), self.objects.values(), servers)
        topics = self.topics
        rebuilt.topics.load(
            topics.namespaces.values(), topics.topics.values(), topics.shards.values(), topics.work.values()
        )
        rebuilt.owners.load(self.owners.brokers.values(), self.owners.assignments.values())
        rebuilt.cuts.load(self.cuts.cuts.values(), self.cuts.consumed.values())
        rebuilt.cursors.load(self.cursors.rows.values(), self.cursors.next_version)
        assert rebuilt.indexes() == self.indexes(), "an index is not what the rows make it"

    def load(
        self,
        streams: Iterable[common_pb2.Stream],
        ranges: Iterable[common_pb2.Range],
        objects: Iterable[common_pb2.Object],
        servers: Iterable[pd_state_pb2.RegisteredServer],
    ) -> None:
        """Put all rows of a snapshot."""
        for stream in streams:
            self.put_stream(stream)
        for each in ranges:
            self.put_range(each)
        for found in objects:
            self.put_object(found)
        self.range_objects.sort_tombstones(self.objects)
        for server in servers:
            is_removed = server.mode == common_pb2.SERVER_MODE_REMOVED
            (self.removed if is_removed else self.servers).put(server.server.name, server)

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        hosted = {key: (each.open, each.sealed) for key, each in self.hosted.hostings().items()}
        objects = self.range_objects
        return [
            hosted,
            self.hosted.open_count,
            self.names.ids(),
            objects.all(),
            objects.prepared,
            objects.tombstones,
            objects.committed_count,
            objects.encrypted_count,
            self.due.hot_drops,
            self.due.trims,
            self.due.open_ages,
            self.short,
            self.open_short,
            self.bounded,
            self.retained,
            self.undated,
            self.undated_ranges,
            list(self.removed),
            *self.modes.indexes(),
            *self.topics.indexes(),
            *self.owners.indexes(),
            *self.cuts.indexes(),
            *self.cursors.indexes(),
        ]


def _stream_name(stream: common_pb2.Stream) -> str:
    return stream.name


def _stream_id(stream: common_pb2.Stream) -> int:
    return stream.stream_id
