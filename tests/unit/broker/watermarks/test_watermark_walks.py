"""Watermarks against a naive model: a topic that splits and merges; producers that send, note, repeat, fall silent and close.

The model keeps each record with its key, and who was live at each watermark. What a watermark promises is checked of every
record that such a producer has behind the cut, those that it sends later too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_broker.watermarks.topic_times import KeptWatermark
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import watermark_pb2 as pb
from tests.support.journal_machines import restored

TOPIC = 3
KEYS = 16
EXPIRY_MS = 100
PRODUCERS = st.integers(0, 3)


@dataclass
class Shard:
    """A shard of the model: keys from low to below high."""

    low: int
    high: int
    predecessors: list[int]
    end: int = 0
    is_ended: bool = False


@dataclass
class Record:
    """A record of the model."""

    shard_id: int
    offset: int
    key: int
    time_ms: int


@dataclass
class Producer:
    """An instance of a producer. `promised_ms`: by its last note, whether it has arrived or not."""

    producer_id: int
    promised_ms: int = 0
    number: int = 0
    heard_ms: int | None = None
    taken_ms: int = 0
    """The last time that the coordinator was noted."""
    is_closed: bool = False
    records: list[Record] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    sent_notes: list[pb.TimeNote] = field(default_factory=list)


class WatermarkWalk(RuleBasedStateMachine):
    """One walk."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = WatermarkCoordinator()
        self.now_ms = 1_000
        self.shards: list[Shard] = []
        self.map_version = 0
        self.producers: dict[int, Producer] = {}
        self.instances = 0
        self.marks: list[tuple[KeptWatermark, list[Producer]]] = []

    # ---- the topic

    @initialize(count=st.sampled_from([1, 2, 4]))
    def create(self, count: int) -> None:
        """Begin with shards of equal parts."""
        width = KEYS // count
        self.shards = [Shard(each * width, (each + 1) * width, []) for each in range(count)]
        self.list_shards()

    @rule(pick=st.integers(0, 99))
    def split(self, pick: int) -> None:
        """Split a current shard in halves."""
        wide = [each for each in self.current() if self.shards[each].high - self.shards[each].low > 1]
        if wide:
            shard_id = wide[pick % len(wide)]
            low, high = self.shards[shard_id].low, self.shards[shard_id].high
            self.scale([shard_id], [(low, (low + high) // 2), ((low + high) // 2, high)])

    @rule(pick=st.integers(0, 99))
    def merge(self, pick: int) -> None:
        """Merge two current neighbours."""
        current = self.current()
        if len(current) > 1:
            at = pick % (len(current) - 1)
            one, other = current[at], current[at + 1]
            self.scale([one, other], [(self.shards[one].low, self.shards[other].high)])

    @rule(pick=st.integers(0, 99), bound=st.integers(1, KEYS - 1))
    def shift(self, pick: int, bound: int) -> None:
        """Divide the keys of two current neighbours anew: one of the new shards follows both, the other one only one."""
        current = self.current()
        if len(current) > 1:
            at = pick % (len(current) - 1)
            low, high = self.shards[current[at]].low, self.shards[current[at + 1]].high
            if low < bound < high:
                self.scale(current[at : at + 2], [(low, bound), (bound, high)])

    def current(self) -> list[int]:
        """The current shards, by key."""
        found = [number for number, shard in enumerate(self.shards) if not shard.is_ended]
        return sorted(found, key=lambda each: self.shards[each].low)

    def scale(self, ended: list[int], ranges: list[tuple[int, int]]) -> None:
        """End shards, and make others current in their place."""
        for each in ended:
            self.shards[each].is_ended = True
        for low, high in ranges:
            overlapping = [each for each in ended if self.shards[each].low < high and low < self.shards[each].high]
            self.shards.append(Shard(low, high, overlapping))
        self.list_shards()

    def list_shards(self) -> None:
        """The owner reads the shards."""
        self.map_version += 1
        facts = [
            group_pb2.GroupShardFacts(
                shard_id=number,
                predecessors=shard.predecessors,
                ended=shard.is_ended,
                end_offset=shard.end if shard.is_ended else 0,
            )
            for number, shard in enumerate(self.shards)
        ]
        self.apply(pb.WatermarkCommand(shards=pb.WatermarkShards(map_version=self.map_version, shards=facts)))

    # ---- producers

    @rule(which=PRODUCERS, key=st.integers(0, KEYS - 1), late_ms=st.integers(0, 30))
    def send(self, which: int, key: int, late_ms: int) -> None:
        """A producer sends a record: with the time that it promised, or a later one."""
        producer = self.producer(which)
        shard_id = next(each for each in self.current() if self.shards[each].low <= key < self.shards[each].high)
        shard = self.shards[shard_id]
        record = Record(shard_id, shard.end, key, producer.promised_ms + late_ms)
        shard.end += 1
        producer.records.append(record)
        producer.ends[shard_id] = record.offset + 1
        for mark, live in self.marks:
            if producer in live:
                self.check(mark, record)

    @rule(which=PRODUCERS, later_ms=st.integers(0, 40), arrives=st.booleans())
    def note(self, which: int, later_ms: int, arrives: bool) -> None:
        """A producer notes a time, which may be lost or delayed."""
        producer = self.producer(which)
        producer.promised_ms += later_ms
        producer.number += 1
        note = pb.TimeNote(
            producer_id=producer.producer_id,
            number=producer.number,
            time_ms=producer.promised_ms,
            positions=[pb.NotedPosition(shard_id=shard, offset=end) for shard, end in producer.ends.items()],
        )
        producer.sent_notes.append(note)
        if arrives:
            self.take(producer, note)

    @rule(which=PRODUCERS, pick=st.integers(0, 99))
    def arrive_late(self, which: int, pick: int) -> None:
        """An earlier note arrives, perhaps once more."""
        producer = self.producer(which)
        if producer.sent_notes:
            self.take(producer, producer.sent_notes[pick % len(producer.sent_notes)])

    def take(self, producer: Producer, note: pb.TimeNote) -> None:
        """The coordinator takes a note; what is not the newest counts for nothing."""
        known = self.machine.topics[TOPIC].producers.get(producer.producer_id)
        is_new = known is None or note.number > known.number
        self.apply(pb.WatermarkCommand(note=note))
        if is_new:
            producer.heard_ms, producer.taken_ms = self.now_ms, note.time_ms

    @rule(which=PRODUCERS)
    def close(self, which: int) -> None:
        """A producer closes; the next one under the same number of the test is another instance, and may begin earlier."""
        producer = self.producer(which)
        end = pb.TimeNoteEnd(producer_id=producer.producer_id, number=producer.number + 1)
        self.apply(pb.WatermarkCommand(end=end))
        producer.is_closed = True
        for note in producer.sent_notes:
            self.apply(pb.WatermarkCommand(note=note))
        del self.producers[which]

    def producer(self, which: int) -> Producer:
        """The instance that runs now."""
        if which not in self.producers:
            self.instances += 1
            began_ms = 20 * which + 7 * (self.instances % 5)
            self.producers[which] = Producer(self.instances, promised_ms=began_ms)
        return self.producers[which]

    # ---- time and watermarks

    @rule(ms=st.sampled_from([1, 10, EXPIRY_MS - 1, EXPIRY_MS, 3 * EXPIRY_MS]))
    def pass_time(self, ms: int) -> None:
        """Time passes."""
        self.now_ms += ms

    @precondition(lambda self: self.machine.topics)
    @rule()
    def compute(self) -> None:
        """The owner computes: there is a later watermark exactly if the model has one, and it keeps its promise so far."""
        topic = self.machine.topics[TOPIC]
        last = topic.watermarks[-1] if topic.watermarks else None
        live = [
            each
            for each in self.producers.values()
            if each.heard_ms is not None and self.now_ms - each.heard_ms < EXPIRY_MS
        ]
        for each in self.producers.values():
            if each not in live:
                each.heard_ms = None
        self.apply(pb.WatermarkCommand(compute=pb.WatermarkCompute(expiry_ms=EXPIRY_MS)))
        found = topic.watermarks[-1] if topic.watermarks else None
        times = [each.taken_ms for each in live]
        if not times or (last is not None and min(times) < last.lower_ms):
            assert found is last
            return
        assert found is not None
        upper_ms = max([*times, last.upper_ms if last is not None else times[0]])
        assert (found.lower_ms, found.upper_ms) == (min(times), upper_ms)
        if found is last:
            return
        self.marks.append((found, live))
        self.check_cut(found, last)
        for producer in live:
            for record in producer.records:
                self.check(found, record)

    @rule()
    def restore(self) -> None:
        """Another owner takes over."""
        pieces = list(self.machine.snapshot())
        self.machine = WatermarkCoordinator()
        restored(self.machine, pieces)
        assert list(self.machine.snapshot()) == pieces

    def apply(self, command: pb.WatermarkCommand) -> None:
        """Apply a command."""
        command.topic_id = TOPIC
        self.machine.apply(command.SerializeToString(), self.now_ms)

    # ---- what is promised

    def check_cut(self, mark: KeptWatermark, last: KeptWatermark | None) -> None:
        """The cut is consistent, and not before the last one for any key."""
        ranges = sorted((self.shards[each].low, self.shards[each].high) for each in mark.cut)
        assert [low for low, _ in ranges] == [0, *(high for _, high in ranges[:-1])]
        assert ranges[-1][1] == KEYS
        for key in range(KEYS):
            assert last is None or self.place(last, key) <= self.place(mark, key)

    def check(self, mark: KeptWatermark, record: Record) -> None:
        """A record behind the cut has the lower time or a later one."""
        if (record.shard_id, record.offset) >= self.place(mark, record.key):
            assert record.time_ms >= mark.lower_ms, (record, mark)

    def place(self, mark: KeptWatermark, key: int) -> tuple[int, int]:
        """Return shard and offset of a cut for a key; of the shards that hold a key, later ones have larger ids."""
        shard_id = next(each for each in mark.cut if self.shards[each].low <= key < self.shards[each].high)
        return shard_id, mark.cut[shard_id]


WatermarkWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWatermarkWalk = WatermarkWalk.TestCase
