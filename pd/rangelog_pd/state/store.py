"""What the placement driver knows, and its invariants. Pure data; the operations beside it change it.

What holds after every command (`validate` asserts it):

* The ranges of a stream tile its offsets: each starts where the one before ended. Only the last can be open.
* A sealed range's end never changes, and is not below the floor that was put under it while it was open.
* A stream's epoch never falls, and a range's epoch is at most its stream's.
* Time does not go back. What happens while it is provisional is dated 0, and again once it is confirmed: never too early.
* Committed objects tile [start, tiered end) of their range; ids of streams and objects are never reused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from rangelog_core.errors import InvalidArgument, RangeNotFound, StreamNotFound, WriterFenced
from rangelog_proto.v1 import common_pb2, pd_state_pb2

Hosting = tuple[str, int]
"""A server in one incarnation."""


@dataclass(slots=True)
class State:
    """Everything that is replicated."""

    cluster_id: str = ""
    time_ms: int = 0
    provisional: bool = False  # the command under way does not know whether the time is right
    next_stream_id: int = 1
    next_object_id: int = 1
    streams: dict[int, common_pb2.Stream] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    ranges: dict[int, dict[int, common_pb2.Range]] = field(default_factory=dict)
    objects: dict[int, common_pb2.Object] = field(default_factory=dict)
    range_objects: dict[tuple[int, int], dict[int, None]] = field(default_factory=dict)
    servers: dict[str, pd_state_pb2.RegisteredServer] = field(default_factory=dict)
    hosted: dict[Hosting, dict[tuple[int, int], None]] = field(default_factory=dict)
    undated: dict[int, None] = field(default_factory=dict)  # tombstones
    undated_ranges: dict[tuple[int, int], None] = field(default_factory=dict)

    # ---- finding

    def stream(self, name: str) -> common_pb2.Stream:
        """Raises StreamNotFound."""
        stream_id = self.names.get(name)
        if stream_id is None:
            raise StreamNotFound(f"no stream {name!r}: `pdctl stream list` shows what there is")
        return self.streams[stream_id]

    def stream_by_id(self, stream_id: int) -> common_pb2.Stream:
        """Raises StreamNotFound."""
        stream = self.streams.get(stream_id)
        if stream is None:
            raise StreamNotFound(f"no stream with id {stream_id}: it was deleted")
        return stream

    def range(self, stream_id: int, index: int) -> common_pb2.Range:
        """Raises StreamNotFound, RangeNotFound."""
        self.stream_by_id(stream_id)
        found = self.ranges[stream_id].get(index)
        if found is None:
            raise RangeNotFound(f"stream {stream_id} has no range {index}: it was trimmed, or never was")
        return found

    def last_range(self, stream_id: int) -> common_pb2.Range | None:
        """Return the last range of a stream, or None."""
        ranges = self.ranges[stream_id]
        return ranges[next(reversed(ranges))] if ranges else None

    def check_epoch(self, stream: common_pb2.Stream, epoch: int) -> None:
        """Raises WriterFenced unless `epoch` is the stream's current one, InvalidArgument when it is none at all."""
        if not epoch:
            raise InvalidArgument("an epoch is missing: open a writer to get one")
        if epoch != stream.epoch:
            raise WriterFenced(
                f"epoch {epoch} is not the current one of stream {stream.name!r}, which is {stream.epoch}",
                epoch=stream.epoch,
            )

    def objects_of(self, stream_id: int, index: int) -> list[common_pb2.Object]:
        """Return the objects of one range, oldest first, tombstones included."""
        return [self.objects[object_id] for object_id in self.range_objects.get((stream_id, index), {})]

    # ---- time

    def advance(self, now_ms: int, *, provisional: bool) -> None:
        """The next command is of this time."""
        self.time_ms = max(self.time_ms, now_ms)
        self.provisional = provisional
        if not provisional and (self.undated or self.undated_ranges):
            self._date_all()

    def date(self) -> int:
        """Return what to date things with; 0: not known yet."""
        return 0 if self.provisional else self.time_ms

    def note_dates(self, of: common_pb2.Range) -> None:
        """A range was sealed, or tiered a bit further: note whether it is dated."""
        tiered = of.tiered_end_offset > of.start_offset
        if of.state == common_pb2.RANGE_STATE_SEALED and not (of.sealed_ms and (of.tiered_ms or not tiered)):
            self.undated_ranges[of.stream_id, of.index] = None

    def bury(self, found: common_pb2.Object) -> None:
        """An object becomes a tombstone."""
        found.state = common_pb2.OBJECT_STATE_DELETED
        found.deleted_ms = self.date()
        if not found.deleted_ms:
            self.undated[found.object_id] = None

    def _date_all(self) -> None:
        for object_id in self.undated:
            self.objects[object_id].deleted_ms = self.time_ms
        for stream_id, index in self.undated_ranges:
            of = self.ranges[stream_id][index]
            of.sealed_ms = of.sealed_ms or self.time_ms
            if of.tiered_end_offset > of.start_offset:
                of.tiered_ms = of.tiered_ms or self.time_ms
        self.undated.clear()
        self.undated_ranges.clear()

    def latest_date(self) -> int:
        """Return the latest date on anything: the time, where an early version did not write it down."""
        ranges = chain.from_iterable(each.values() for each in self.ranges.values())
        dates = [date for each in ranges for date in (each.created_ms, each.sealed_ms, each.tiered_ms)]
        return max([0, *dates, *(each.committed_ms for each in self.objects.values())])

    # ---- changing, with the indexes kept in step

    def add_range(self, added: common_pb2.Range) -> None:
        """Add the next range of its stream."""
        self.ranges[added.stream_id][added.index] = added
        for replica in added.replicas:
            self.host(replica, added)

    def remove_range(self, removed: common_pb2.Range) -> None:
        """Forget a range: its objects become tombstones, its replicas are nobody's."""
        for replica in removed.replicas:
            self.unhost(replica, removed)
        for found in self.objects_of(removed.stream_id, removed.index):
            if found.state != common_pb2.OBJECT_STATE_DELETED:
                self.bury(found)
        self.range_objects.pop((removed.stream_id, removed.index), None)
        self.undated_ranges.pop((removed.stream_id, removed.index), None)
        del self.ranges[removed.stream_id][removed.index]

    def forget_trimmed(self, stream: common_pb2.Stream) -> None:
        """Forget the ranges that lie wholly below the trim offset, but never the last one."""
        for each in list(self.ranges[stream.stream_id].values())[:-1]:
            if each.end_offset > stream.trim_offset:
                return
            self.remove_range(each)

    def host(self, replica: common_pb2.Replica, of: common_pb2.Range) -> None:
        """Note that a server holds a replica."""
        self.hosted.setdefault((replica.server, replica.incarnation), {})[of.stream_id, of.index] = None

    def unhost(self, replica: common_pb2.Replica, of: common_pb2.Range) -> None:
        """Note that it does not any more."""
        self.hosted.get((replica.server, replica.incarnation), {}).pop((of.stream_id, of.index), None)

    def add_object(self, added: common_pb2.Object) -> None:
        """Add a prepared object."""
        self.objects[added.object_id] = added
        self.range_objects.setdefault((added.stream_id, added.range_index), {})[added.object_id] = None

    def remove_object(self, object_id: int) -> None:
        """Forget an object that is gone from the store."""
        removed = self.objects.pop(object_id, None)
        self.undated.pop(object_id, None)
        if removed is not None:
            self.range_objects.get((removed.stream_id, removed.range_index), {}).pop(object_id, None)

    # ---- checking

    def validate(self) -> None:
        """Assert the invariants; for tests and the simulator."""
        assert sorted(self.names.values()) == sorted(self.streams)
        for stream_id, stream in self.streams.items():
            ranges = list(self.ranges[stream_id].values())
            for number, each in enumerate(ranges):
                assert each.epoch <= stream.epoch
                if each.state == common_pb2.RANGE_STATE_OPEN:
                    assert number == len(ranges) - 1, "only the last range can be open"
                else:
                    assert each.start_offset <= each.end_offset
                    assert each.floor_offset <= each.end_offset, "a reader was shown more"
                if number:
                    assert each.start_offset == ranges[number - 1].end_offset, "ranges tile"
                    assert each.index == ranges[number - 1].index + 1
                self._validate_objects(each)
        for (server, incarnation), hosted in self.hosted.items():
            for stream_id, index in hosted:
                replicas = self.ranges[stream_id][index].replicas
                assert any(r.server == server and r.incarnation == incarnation for r in replicas)

    def _validate_objects(self, of: common_pb2.Range) -> None:
        committed = [
            each for each in self.objects_of(of.stream_id, of.index) if each.state == common_pb2.OBJECT_STATE_COMMITTED
        ]
        position = of.start_offset
        for each in sorted(committed, key=lambda found: found.start_offset):
            assert each.start_offset == position, "objects tile"
            position = each.end_offset
        assert position == max(of.tiered_end_offset, of.start_offset)
