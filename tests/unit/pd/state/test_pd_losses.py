"""The acceptance of a loss, and the opening of a writer that expects an epoch."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.limits import OFFSET_MAX, OFFSETS_GIVEN_UP
from rangelog_pd.state.losses import has_no_end, may_be_lost
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import FEATURE_LEVEL_MIN, LEVEL_BROKERS, LEVEL_OPERATIONS, LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, repair_pb2


def accept(pd: Any, stream_id: int, index: int = 0) -> repair_pb2.AcceptLossResponse:
    request = repair_pb2.AcceptLossRequest(stream_id=stream_id, range_index=index)
    return pd.do(repair_pb2.AcceptLossResponse, accept_loss=request)  # type: ignore[no-any-return]


def wipe(pd: Any, *names: str) -> None:
    for name in names:
        pd.register(name, incarnation=77)
        pd.beat(name)


def test_a_loss_is_accepted_once_no_member_can_return(pd: Any, whole: int) -> None:
    """While one member may come back the loss is refused, and names it; afterwards the range says that it is lost."""
    wipe(pd, "rs1", "rs2")
    assert not may_be_lost(pd.state, pd.state.ranges.of(whole)[0])
    with pytest.raises(PreconditionFailed, match="rs3"):
        accept(pd, whole)
    wipe(pd, "rs3")
    assert may_be_lost(pd.state, pd.state.ranges.of(whole)[0])
    found = accept(pd, whole).range
    assert found.lost
    assert not found.replicas
    assert found.end_offset == 10
    assert accept(pd, whole).range == found, "a repeat changes nothing"
    pd.state.validate()


def test_a_member_without_a_copy_is_given_up_with_the_range(pd: Any, whole: int) -> None:
    """Where the leader says that it has none; another one that is left is not."""
    wipe(pd, "rs1")
    found = pd.state.ranges.of(whole)[0]
    request = repair_pb2.AcceptLossRequest(stream_id=whole, lacking_servers=["rs2"])
    assert needed_level(pd_state_pb2.Command(accept_loss=request)) == LEVEL_BROKERS
    assert not may_be_lost(pd.state, found, ["rs2"])
    with pytest.raises(PreconditionFailed, match="on rs3"):
        pd.do(repair_pb2.AcceptLossResponse, accept_loss=request)
    wipe(pd, "rs3")
    assert may_be_lost(pd.state, pd.state.ranges.of(whole)[0], ["rs2"])
    assert pd.do(repair_pb2.AcceptLossResponse, accept_loss=request).range.lost
    pd.state.validate()


def test_what_the_tier_has_is_not_lost(pd: Any, whole: int) -> None:
    """A range that is wholly in the tier needs no acceptance, whatever became of its members."""
    pd.tier(whole, 0, "rs1")
    wipe(pd, "rs1", "rs2", "rs3")
    with pytest.raises(PreconditionFailed, match="tier"):
        accept(pd, whole)


def open_loss(pd: Any, stream_id: int, end_offset: int | None = None, index: int = 0) -> repair_pb2.AcceptLossResponse:
    request = repair_pb2.AcceptLossRequest(stream_id=stream_id, range_index=index, survivor_end_offset=end_offset)
    return pd.do(repair_pb2.AcceptLossResponse, accept_loss=request)  # type: ignore[no-any-return]


def test_an_open_range_with_enough_members_is_not_lost(pd: Any, stream: int) -> None:
    """Two of three can say where it ends: one of them has each acked record."""
    wipe(pd, "rs1")
    assert not has_no_end(pd.state, pd.state.ranges.of(stream)[0])
    with pytest.raises(PreconditionFailed, match="rs2, rs3 can say where it ends"):
        open_loss(pd, stream, 7)


def test_what_one_member_has_of_an_open_range_is_kept(pd: Any, stream: int) -> None:
    """A sealed range with its records, a lost one beyond every offset that was acked, and a new epoch; then it goes on."""
    wipe(pd, "rs1", "rs3")
    assert has_no_end(pd.state, pd.state.ranges.of(stream)[0])
    with pytest.raises(PreconditionFailed, match="nobody has said"):
        open_loss(pd, stream)
    epoch = pd.state.streams[stream].epoch
    done = open_loss(pd, stream, 7)
    kept, lost = pd.state.ranges.of(stream).values()
    assert (done.kept, done.range) == (kept, lost)
    assert (kept.start_offset, kept.end_offset, kept.lost) == (0, 7, False)
    assert [each.server for each in kept.replicas] == ["rs1", "rs2", "rs3"]
    assert (lost.start_offset, lost.end_offset, lost.lost) == (7, 7 + OFFSETS_GIVEN_UP, True)
    assert not lost.replicas
    assert pd.state.streams[stream].epoch == epoch + 1
    pd.state.validate()
    pd.create_range(stream, epoch + 1, lost.end_offset, "rs1", "rs2", "rs4")
    assert [each.start_offset for each in pd.state.ranges.of(stream).values()] == [0, 7, lost.end_offset]
    pd.state.validate()


def test_an_open_range_of_which_nothing_is_left(pd: Any, stream: int) -> None:
    """It is lost itself: no range is left empty, and a repeat changes nothing."""
    wipe(pd, "rs1", "rs2", "rs3")
    done = open_loss(pd, stream, 7)
    assert not done.HasField("kept")
    assert list(pd.state.ranges.of(stream).values()) == [done.range]
    assert (done.range.start_offset, done.range.end_offset) == (0, OFFSETS_GIVEN_UP)
    assert open_loss(pd, stream).range == done.range
    pd.state.validate()


def test_readers_were_shown_more_than_a_member_has(pd: Any, stream: int) -> None:
    """What it has counts, and the stream goes on above what was shown."""
    members = list(pd.state.ranges.of(stream)[0].replicas)[:2]
    prove = pd_pb2.ProveEndRequest(stream_id=stream, range_index=0, end_offset=9, holders=members)
    pd.do(pd_pb2.ProveEndResponse, prove_end=prove)
    wipe(pd, "rs1", "rs2")
    done = open_loss(pd, stream, 4)
    assert (done.kept.end_offset, done.range.end_offset) == (4, 9 + OFFSETS_GIVEN_UP)
    pd.state.validate()


@pytest.mark.parametrize("end", [OFFSET_MAX, OFFSET_MAX - OFFSETS_GIVEN_UP + 1])
def test_an_end_that_leaves_no_room_is_refused(pd: Any, stream: int, end: int) -> None:
    """Nothing is changed."""
    wipe(pd, "rs1", "rs2")
    with pytest.raises(InvalidArgument, match="an end of"):
        open_loss(pd, stream, end)
    assert pd.state.ranges.of(stream)[0].state == common_pb2.RANGE_STATE_OPEN


def test_a_lost_range_is_repaired_no_more_and_trimmed_as_others(pd: Any, whole: int) -> None:
    """It has no members to replace; a trim removes it."""
    wipe(pd, "rs1", "rs2", "rs3")
    accept(pd, whole)
    assert pd.reconcile() == []
    assert pd.state.short == {}
    pd.create_range(whole, 1, 10, "rs1", "rs2", "rs4")
    pd.trim(10)
    assert list(pd.state.ranges.of(whole)) == [1]


def test_an_opening_may_expect_stream_and_epoch(pd: Any, stream: int) -> None:
    """Somebody who decided to seal a stream does nothing to one that was opened meanwhile, or to its namesake."""

    def open_writer(**expected: int) -> pd_pb2.OpenWriterResponse:
        request = pd_pb2.OpenWriterRequest(name="s", writer="w", **expected)
        return pd.do(pd_pb2.OpenWriterResponse, open_writer=request)  # type: ignore[no-any-return]

    with pytest.raises(PreconditionFailed, match="opened meanwhile"):
        open_writer(stream_id=stream, expected_epoch=2)
    with pytest.raises(PreconditionFailed, match="another stream"):
        open_writer(stream_id=stream + 1, expected_epoch=1)
    assert pd.state.streams[stream].epoch == 1
    assert open_writer(stream_id=stream, expected_epoch=1).stream.epoch == 2


def test_what_an_opening_expects_needs_a_level() -> None:
    """An earlier program would ignore it; alone or among others, such an opening is held back until all members know it."""
    plain, guarded = pd_pb2.OpenWriterRequest(name="s"), pd_pb2.OpenWriterRequest(name="s", expected_epoch=3)
    assert needed_level(pd_state_pb2.Command(open_writer=plain)) == FEATURE_LEVEL_MIN
    assert needed_level(pd_state_pb2.Command(open_writer=guarded)) == LEVEL_OPERATIONS
    many = pd_pb2.OpenWritersRequest(writers=[plain, guarded])
    assert needed_level(pd_state_pb2.Command(open_writers=many)) == LEVEL_OPERATIONS
    assert needed_level(pd_state_pb2.Command(open_writers=pd_pb2.OpenWritersRequest(writers=[plain]))) == 2


def test_the_loss_of_an_open_range_needs_a_level() -> None:
    """An earlier program would refuse it, and members would differ."""
    plain = repair_pb2.AcceptLossRequest(stream_id=1)
    assert needed_level(pd_state_pb2.Command(accept_loss=plain)) == LEVEL_OPERATIONS
    told = repair_pb2.AcceptLossRequest(stream_id=1, survivor_end_offset=0)
    assert needed_level(pd_state_pb2.Command(accept_loss=told)) == LEVEL_PACKING


def test_the_last_hot_copies_of_a_tiered_range_may_go_for_good(pd: Any, whole: int) -> None:
    """With no member left, a range that is wholly in the tier is served from there: nothing is copied, nothing is lost."""
    pd.tier(whole, 0, "rs1")
    wipe(pd, "rs1", "rs2", "rs3")
    assert "drop_hot" in pd.reconcile()
    assert pd.state.ranges.of(whole)[0].hot_dropped
