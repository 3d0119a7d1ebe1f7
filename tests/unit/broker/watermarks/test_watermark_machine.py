"""The machine of watermarks: notes, expiry, splits and merges, bounds, snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rangelog_broker.watermarks import topic_times
from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_broker.watermarks.topic_times import KeptWatermark
from rangelog_core.errors import (
    Corruption,
    InvalidArgument,
    OffsetOutOfRange,
    Overloaded,
    ShardNotFound,
    TopicNotFound,
    UnsupportedVersion,
)
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import watermark_pb2 as pb
from tests.support.journal_machines import restored

TOPIC = 7
EXPIRY_MS = 1_000
NO_POSITIONS: Mapping[int, int] = {}


class Coordinator:
    """A machine, and commands in few words."""

    def __init__(self) -> None:
        self.machine = WatermarkCoordinator()
        self.now_ms = 0
        self.map_version = 0

    def apply(self, command: pb.WatermarkCommand) -> None:
        """Apply a command of the topic."""
        command.topic_id = TOPIC
        self.machine.apply(command.SerializeToString(), self.now_ms)

    def shards(self, *shards: tuple[int, Sequence[int], int | None]) -> None:
        """List shards: id, predecessors, end."""
        self.map_version += 1
        facts = [
            group_pb2.GroupShardFacts(
                shard_id=shard_id, predecessors=before, ended=end is not None, end_offset=end or 0
            )
            for shard_id, before, end in shards
        ]
        self.apply(pb.WatermarkCommand(shards=pb.WatermarkShards(map_version=self.map_version, shards=facts)))

    def note(
        self, producer: int, number: int, time_ms: int, positions: Mapping[int, int] = NO_POSITIONS, epoch: int = 0
    ) -> None:
        """Note a time."""
        found = [pb.NotedPosition(shard_id=shard, offset=offset) for shard, offset in positions.items()]
        note = pb.TimeNote(producer_id=producer, producer_epoch=epoch, number=number, time_ms=time_ms, positions=found)
        self.apply(pb.WatermarkCommand(note=note))

    def end(self, producer: int, number: int, epoch: int = 0) -> None:
        """Close a producer."""
        self.apply(pb.WatermarkCommand(end=pb.TimeNoteEnd(producer_id=producer, producer_epoch=epoch, number=number)))

    def compute(self, opened_ms: int = 0) -> KeptWatermark | None:
        """Compute; return the newest watermark."""
        self.apply(pb.WatermarkCommand(compute=pb.WatermarkCompute(expiry_ms=EXPIRY_MS, opened_ms=opened_ms)))
        kept = self.machine.topics[TOPIC].watermarks
        return kept[-1] if kept else None

    def state(self) -> list[bytes]:
        """All of it."""
        return list(self.machine.snapshot())


@pytest.fixture
def one() -> Coordinator:
    """A topic of one shard."""
    made = Coordinator()
    made.shards((0, (), None))
    return made


def test_lower_is_the_least_and_upper_the_largest_time(one: Coordinator) -> None:
    """The watermark has the least and the largest time that producers noted, and a cut behind the positions of both."""
    one.note(1, 1, 100, {0: 5})
    one.note(2, 1, 300, {0: 9})
    assert one.compute() == KeptWatermark(1, 100, 300, {0: 9})


def test_without_a_change_there_is_no_new_watermark(one: Coordinator) -> None:
    """A computation without another time keeps the last watermark, also if records went on."""
    one.note(1, 1, 100, {0: 5})
    first = one.compute()
    one.note(1, 2, 100, {0: 8})
    assert one.compute() == first


def test_a_producer_that_is_slow_holds_the_lower_time(one: Coordinator) -> None:
    """The lower time waits for the slowest live producer; the upper one goes on."""
    one.note(1, 1, 100)
    one.note(2, 1, 100)
    one.compute()
    one.note(2, 2, 500, {0: 3})
    assert one.compute() == KeptWatermark(2, 100, 500, {0: 3})


def test_a_silent_producer_expires_and_cannot_pull_the_watermark_back(one: Coordinator) -> None:
    """After the expiry time the others decide; when the producer comes back with an earlier time, the watermark stays."""
    one.note(1, 1, 100)
    one.now_ms = EXPIRY_MS
    one.note(2, 1, 500)
    assert one.compute() == KeptWatermark(1, 500, 500, {0: 0})
    one.note(1, 2, 110)
    one.note(2, 2, 600)
    assert one.compute() == KeptWatermark(1, 500, 500, {0: 0})
    one.note(1, 3, 550)
    assert one.compute() == KeptWatermark(2, 550, 600, {0: 0})


def test_nobody_is_silent_before_the_owner_has_been_there_for_the_expiry_time(one: Coordinator) -> None:
    """A producer that could not reach an owner keeps its place for the whole expiry time of the next owner."""
    one.note(1, 1, 100)
    one.now_ms = 5 * EXPIRY_MS
    one.note(2, 1, 500)
    mark = one.compute(opened_ms=5 * EXPIRY_MS - 1)
    assert mark is not None
    assert mark.lower_ms == 100


def test_a_closed_producer_holds_nothing_back_and_a_delayed_note_changes_nothing(one: Coordinator) -> None:
    """A producer that ended is not live, and its notes with lower numbers come too late."""
    one.note(1, 1, 100)
    one.note(2, 1, 500)
    one.end(1, 3)
    one.note(1, 2, 120)
    assert one.compute() == KeptWatermark(1, 500, 500, {0: 0})


def test_an_end_that_comes_before_the_note_keeps_it_out(one: Coordinator) -> None:
    """The note of a producer that has already ended changes nothing, although the note was not known before."""
    one.end(1, 2)
    one.note(1, 1, 100)
    one.note(2, 1, 500)
    mark = one.compute()
    assert mark is not None
    assert mark.lower_ms == 500


def test_a_later_instance_of_a_producer_takes_its_place(one: Coordinator) -> None:
    """A higher epoch begins numbers anew, and the earlier instance's notes change nothing any more."""
    one.note(1, 9, 100, epoch=1)
    one.note(1, 1, 80, epoch=2)
    one.note(1, 10, 900, epoch=1)
    mark = one.compute()
    assert mark is not None
    assert (mark.lower_ms, mark.upper_ms) == (80, 80)


def test_a_cut_over_a_split_is_consistent(one: Coordinator) -> None:
    """Once a producer has records in a successor, the ended shard lies wholly before the cut, whatever others noted there."""
    one.note(1, 1, 100, {0: 5})
    one.shards((0, (), 9), (1, (0,), None), (2, (0,), None))
    one.note(2, 1, 100, {0: 9, 2: 4})
    assert one.compute() == KeptWatermark(1, 100, 100, {1: 0, 2: 4})
    one.note(1, 2, 200, {0: 7})
    one.note(2, 2, 200)
    assert one.compute() == KeptWatermark(2, 200, 200, {1: 0, 2: 4})


def test_a_cut_over_a_merge_has_no_shard_beside_its_successor() -> None:
    """A merged shard's predecessors leave the cut together."""
    made = Coordinator()
    made.shards((0, (), 3), (1, (), 8), (2, (), None), (3, (0, 1), None))
    made.note(1, 1, 100, {0: 3, 2: 6, 3: 1})
    assert made.compute() == KeptWatermark(1, 100, 100, {2: 6, 3: 1})


def test_a_cut_never_has_half_of_a_succession() -> None:
    """Shards that end together leave the cut together, although only one of the shards behind them was noted."""
    made = Coordinator()
    made.shards((0, (), 3), (1, (), 8), (2, (0,), None), (3, (0, 1), None))
    made.note(1, 1, 100, {2: 4})
    assert made.compute() == KeptWatermark(1, 100, 100, {2: 4, 3: 0})


def test_bad_notes_are_refused_without_a_trace(one: Coordinator) -> None:
    """A note that names an unknown shard, lies beyond an end or has no number changes nothing."""
    one.shards((0, (), 9), (1, (0,), None))
    before = one.state()
    for number, positions, error in (
        (1, {5: 1}, ShardNotFound),
        (1, {0: 10}, OffsetOutOfRange),
        (0, {0: 1}, InvalidArgument),
    ):
        with pytest.raises(error):
            one.note(1, number, 100, positions)
    assert one.state() == before


def test_a_topic_without_shards_is_not_known() -> None:
    """Notes and computations need the shards of the topic first."""
    made = Coordinator()
    with pytest.raises(TopicNotFound):
        made.note(1, 1, 100)
    with pytest.raises(TopicNotFound):
        made.compute()


@pytest.mark.parametrize(
    "shards", [[(1, (), None), (0, (), None)], [(0, (1,), 3), (1, (), None)], [(0, (0,), None)], []]
)
def test_shards_out_of_order_are_refused(shards: list[tuple[int, Sequence[int], int | None]]) -> None:
    """What is no list of shards in the order of their ids is refused: no loop gets into the graph."""
    with pytest.raises(InvalidArgument):
        Coordinator().shards(*shards)


def test_a_deleted_topic_is_forgotten(one: Coordinator) -> None:
    """Nothing of a forgotten topic is left in the state."""
    one.note(1, 1, 100, {0: 2})
    one.compute()
    one.apply(pb.WatermarkCommand(forget=pb.WatermarkForget()))
    assert one.state() == []
    assert one.machine.size_bytes == 0


def test_kept_watermarks_and_producers_are_bounded(one: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest watermarks go; a producer too many is refused, and those that are known still note."""
    monkeypatch.setattr(topic_times, "WATERMARKS_MAX", 3)
    monkeypatch.setattr(topic_times, "PRODUCERS_MAX", 2)
    one.note(2, 1, 1_000)
    for time_ms in range(1, 6):
        one.note(1, time_ms, time_ms)
        one.compute()
    assert [each.number for each in one.machine.topics[TOPIC].watermarks] == [3, 4, 5]
    with pytest.raises(Overloaded):
        one.note(3, 1, 10)
    one.note(2, 2, 2_000)


def test_watermarks_of_trimmed_records_go() -> None:
    """A watermark goes when the next one lies before the head of the topic too."""
    made = Coordinator()
    made.shards((0, (), None))
    for number in (1, 2):
        made.note(1, number, number, {0: number})
        made.compute()
    facts = [
        group_pb2.GroupShardFacts(shard_id=0, ended=True, end_offset=5, start_offset=5),
        group_pb2.GroupShardFacts(shard_id=1, predecessors=[0]),
    ]
    made.apply(pb.WatermarkCommand(shards=pb.WatermarkShards(map_version=9, shards=facts)))
    assert [each.number for each in made.machine.topics[TOPIC].watermarks] == [2]


def test_a_snapshot_holds_the_whole_state_in_bounded_pieces(one: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that restored the pieces is equal, and later commands do not change what a snapshot yields."""
    monkeypatch.setattr("rangelog_broker.watermarks.snapshots._PIECE_BYTES", 5)
    one.note(1, 1, 100, {0: 5})
    one.compute()
    one.note(2, 1, 200)
    one.end(3, 4)
    pieces = one.machine.snapshot()
    whole = one.state()
    one.note(2, 2, 300, {0: 50})
    captured = list(pieces)
    assert captured == whole
    assert len(captured) > 3
    copy = WatermarkCoordinator()
    restored(copy, captured)
    assert list(copy.snapshot()) == captured


def test_what_does_not_decode_is_refused() -> None:
    """Garbage is a typed error, as a command and as a piece; an action that this program does not know is no refusal."""
    machine = WatermarkCoordinator()
    no_topic = pb.WatermarkCommand(forget=pb.WatermarkForget())
    for data in (b"\xff", no_topic.SerializeToString()):
        with pytest.raises(InvalidArgument):
            machine.apply(data, 0)
    with pytest.raises(UnsupportedVersion):
        machine.apply(pb.WatermarkCommand(topic_id=1).SerializeToString(), 0)
    with pytest.raises(Corruption):
        restored(machine, [b"\xff"])
