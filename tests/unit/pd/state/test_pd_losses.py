"""The acceptance of a loss, and the opening of a writer that expects an epoch."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.state.losses import may_be_lost
from rangelog_pd.state.versions import FEATURE_LEVEL_MIN, LEVEL_OPERATIONS, needed_level
from rangelog_proto.v1 import pd_pb2, pd_state_pb2, repair_pb2


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


def test_what_the_tier_has_is_not_lost(pd: Any, whole: int) -> None:
    """A range that is wholly in the tier needs no acceptance, whatever became of its members."""
    pd.tier(whole, 0, "rs1")
    wipe(pd, "rs1", "rs2", "rs3")
    with pytest.raises(PreconditionFailed, match="tier"):
        accept(pd, whole)


def test_an_open_range_is_sealed_first(pd: Any, stream: int) -> None:
    """Where it ends is not decided yet."""
    wipe(pd, "rs1", "rs2", "rs3")
    with pytest.raises(PreconditionFailed, match="seal"):
        accept(pd, stream)


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


def test_the_last_hot_copies_of_a_tiered_range_may_go_for_good(pd: Any, whole: int) -> None:
    """With no member left, a range that is wholly in the tier is served from there: nothing is copied, nothing is lost."""
    pd.tier(whole, 0, "rs1")
    wipe(pd, "rs1", "rs2", "rs3")
    assert "drop_hot" in pd.reconcile()
    assert pd.state.ranges.of(whole)[0].hot_dropped
