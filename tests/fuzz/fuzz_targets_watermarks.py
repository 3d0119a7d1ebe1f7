"""The coordinator of watermarks: its commands, and the pieces of its snapshots."""

from __future__ import annotations

from random import Random

from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import watermark_pb2 as pb
from tests.fuzz.fuzz_engine import Target
from tests.fuzz.fuzz_mutation import encoded_changed
from tests.fuzz.fuzz_targets_tables import framed, pieces_of
from tests.support.journal_machines import restored

KNOWN = (0, 1, 2, 5, 9, 100, 200)


def command(**action: object) -> bytes:
    """One encoded command."""
    return pb.WatermarkCommand(topic_id=1, **action).SerializeToString()  # type: ignore[arg-type]


def note(producer: int, number: int, time_ms: int, shard_id: int, offset: int) -> bytes:
    """A producer's note."""
    positions = [pb.NotedPosition(shard_id=shard_id, offset=offset)]
    return command(note=pb.TimeNote(producer_id=producer, number=number, time_ms=time_ms, positions=positions))


def filled() -> WatermarkCoordinator:
    """A topic that was split, with two producers and a watermark."""
    machine = WatermarkCoordinator()
    shards = [
        group_pb2.GroupShardFacts(shard_id=0, ended=True, end_offset=9),
        group_pb2.GroupShardFacts(shard_id=1, predecessors=[0]),
        group_pb2.GroupShardFacts(shard_id=2, predecessors=[0]),
    ]
    for each in (
        command(shards=pb.WatermarkShards(map_version=2, shards=shards)),
        note(1, 1, 100, 0, 9),
        note(2, 1, 200, 2, 5),
        command(compute=pb.WatermarkCompute(expiry_ms=1_000)),
        note(1, 2, 150, 1, 5),
    ):
        machine.apply(each, 10)
    return machine


def state_of(machine: WatermarkCoordinator) -> list[bytes]:
    """All of it."""
    return list(machine.snapshot())


def command_seeds() -> list[bytes]:
    """Commands that the coordinator above takes."""
    facts = [group_pb2.GroupShardFacts(shard_id=5), group_pb2.GroupShardFacts(shard_id=9, predecessors=[5])]
    return [
        note(2, 2, 300, 2, 9),
        command(end=pb.TimeNoteEnd(producer_id=1, number=9)),
        command(compute=pb.WatermarkCompute(expiry_ms=5, opened_ms=1)),
        command(shards=pb.WatermarkShards(map_version=5, shards=facts)),
        command(forget=pb.WatermarkForget()),
    ]


def check(machine: WatermarkCoordinator) -> None:
    """It computes, and a copy has the same state and size."""
    for topic_id in list(machine.topics):
        compute = pb.WatermarkCommand(topic_id=topic_id, compute=pb.WatermarkCompute(expiry_ms=1 << 40))
        machine.apply(compute.SerializeToString(), 20)
    copy = WatermarkCoordinator()
    restored(copy, state_of(machine))
    assert state_of(copy) == state_of(machine)
    assert copy.size_bytes == machine.size_bytes


def run_command(data: bytes) -> bool:
    """A refused command changes nothing; after one that is taken the coordinator goes on."""
    machine = filled()
    before = state_of(machine)
    try:
        machine.apply(data, 10)
    except RangelogError:
        assert state_of(machine) == before, "a refused command left a trace"
        raise
    check(machine)
    return True


def run_snapshot(data: bytes) -> bool:
    """What is restored computes, and can be taken as a snapshot again."""
    machine = WatermarkCoordinator()
    restored(machine, pieces_of(data))
    check(machine)
    return True


def change_command(data: bytes, random: Random) -> bytes:
    """Another command."""
    return encoded_changed(data, pb.WatermarkCommand, random, KNOWN)


def change_piece(data: bytes, random: Random) -> bytes:
    """Another message in one of the pieces."""
    pieces = pieces_of(data)
    if not pieces:
        return data
    place = random.randrange(len(pieces))
    pieces[place] = encoded_changed(pieces[place], pb.WatermarkTopicState, random, KNOWN)
    return framed(pieces)


TARGETS = (
    Target("watermark-command", command_seeds, run_command, None, (change_command,)),
    Target("watermark-snapshot", lambda: [framed(state_of(filled())), framed([])], run_snapshot, None, (change_piece,)),
)
