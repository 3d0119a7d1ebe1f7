"""A floor under an open range: who may put it there, what it holds, and what a seal is told."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, RangeNotFound, SealBelowFloor, StreamNotFound
from rangelog_proto.v1 import common_pb2, pd_pb2


@pytest.fixture
def opened(pd: Any) -> Any:
    """A stream with an open range on three of four servers."""
    for name in ("s1", "s2", "s3", "s4"):
        pd.register(name)
    pd.create_stream()
    return pd


def open_range(pd: Any) -> common_pb2.Range:
    """The stream's open range."""
    stream = pd.open_writer().stream
    created: common_pb2.Range = pd.create_range(stream.stream_id, stream.epoch, 0, "s1", "s2", "s3")
    return created


def prove(pd: Any, source: common_pb2.Range, end_offset: int, holders: list[common_pb2.Replica]) -> common_pb2.Range:
    """Ask for a floor."""
    request = pd_pb2.ProveEndRequest(
        stream_id=source.stream_id, range_index=source.index, end_offset=end_offset, holders=holders
    )
    proved: common_pb2.Range = pd.do(pd_pb2.ProveEndResponse, prove_end=request).range
    return proved


def seal(pd: Any, source: common_pb2.Range, end_offset: int, request_id: str = "") -> common_pb2.Range:
    """Seal the range."""
    sealed: common_pb2.Range = pd.seal(
        source.stream_id, source.index, source.epoch, end_offset, request_id=request_id
    ).range
    return sealed


def test_no_seal_ends_below_the_floor(opened: Any) -> None:
    """A seal below it is refused and told the floor; one at the floor or beyond is taken."""
    source = open_range(opened)
    assert prove(opened, source, 7, list(source.replicas[:2])).floor_offset == 7
    with pytest.raises(SealBelowFloor) as refused:
        seal(opened, source, 5)
    assert refused.value.offset == 7
    assert seal(opened, source, 7).end_offset == 7


def test_a_stream_in_memory_is_not_blocked_by_its_floor(opened: Any) -> None:
    """All power went and took what was proved: the next writer seals what is left. An active seal still respects the floor."""
    opened.create_stream("m", durability=common_pb2.DURABILITY_MEMORY)
    stream = opened.open_writer("m").stream
    source = opened.create_range(stream.stream_id, stream.epoch, 0, "s1", "s2", "s3")
    prove(opened, source, 7, list(source.replicas[:2]))
    with pytest.raises(SealBelowFloor):
        opened.seal(stream.stream_id, 0, stream.epoch, 5, "s2", "s3", "s4")
    assert seal(opened, source, 5).end_offset == 5


def test_a_range_keeps_the_durability_it_was_made_with(opened: Any) -> None:
    """What the stream is changed to concerns later ranges: the floor of an open one binds as it did, or did not."""
    opened.create_stream("m", durability=common_pb2.DURABILITY_MEMORY)
    stream = opened.open_writer("m").stream
    source = opened.create_range(stream.stream_id, stream.epoch, 0, "s1", "s2", "s3")
    prove(opened, source, 7, list(source.replicas[:2]))
    flushed = common_pb2.StreamConfig(durability=common_pb2.DURABILITY_FLUSHED)
    request = pd_pb2.UpdateStreamRequest(name="m", config=flushed, fields=["durability"])
    opened.do(pd_pb2.UpdateStreamResponse, update_stream=request)
    assert seal(opened, source, 5).end_offset == 5


def test_the_floor_only_rises(opened: Any) -> None:
    """A proof of less is answered with what holds already."""
    source = open_range(opened)
    prove(opened, source, 7, list(source.replicas[:2]))
    assert prove(opened, source, 3, list(source.replicas[1:])).floor_offset == 7
    assert prove(opened, source, 9, list(source.replicas)).floor_offset == 9


def test_a_seal_that_was_applied_first_decides(opened: Any) -> None:
    """A proof that comes after the seal changes nothing: its answer is the committed end."""
    source = open_range(opened)
    seal(opened, source, 5)
    told = prove(opened, source, 7, list(source.replicas[:2]))
    assert (told.state, told.end_offset, told.floor_offset) == (common_pb2.RANGE_STATE_SEALED, 5, 0)


def test_a_refused_seal_stays_refused_under_its_request_id(opened: Any) -> None:
    """A late copy of a refused seal does not seal: its writer went on to ask for another end under another id."""
    source = open_range(opened)
    prove(opened, source, 7, list(source.replicas[:2]))
    for _ in range(2):
        with pytest.raises(SealBelowFloor):
            seal(opened, source, 5, request_id="one")
    assert seal(opened, source, 7, request_id="two").end_offset == 7


def test_a_proof_needs_enough_members(opened: Any) -> None:
    """One replica, strangers, or members of another incarnation prove nothing, and nothing changes."""
    source = open_range(opened)
    stranger = common_pb2.Replica(server="s9", incarnation=1)
    older = common_pb2.Replica(server=source.replicas[1].server, incarnation=source.replicas[1].incarnation + 1)
    one = source.replicas[0]
    for holders in ([one], [one, one], [one, stranger], [one, older], []):
        with pytest.raises(PreconditionFailed):
            prove(opened, source, 7, holders)
    assert opened.state.ranges.of(source.stream_id)[source.index].floor_offset == 0


def test_bad_proofs_are_refused(opened: Any) -> None:
    """An end that cannot be one, a range or a stream that is not there."""
    source = open_range(opened)
    two = list(source.replicas[:2])
    with pytest.raises(InvalidArgument):
        prove(opened, source, 1 << 63, two)
    with pytest.raises(RangeNotFound):
        prove(opened, common_pb2.Range(stream_id=source.stream_id, index=9), 7, two)
    with pytest.raises(StreamNotFound):
        prove(opened, common_pb2.Range(stream_id=99), 7, two)


def test_a_floor_is_in_the_snapshot(opened: Any) -> None:
    """A member that starts from a snapshot refuses the same seals."""
    source = open_range(opened)
    prove(opened, source, 7, list(source.replicas[:2]))
    opened.machine.restore(opened.machine.snapshot())
    with pytest.raises(SealBelowFloor):
        seal(opened, source, 5)
