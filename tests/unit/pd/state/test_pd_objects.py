"""The placement driver's commands on objects and on the replicas of sealed ranges."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

ABC = ("rs1", "rs2", "rs3")


def opened(pd: Any, **config: Any) -> common_pb2.Range:
    """A stream `s`, its writer at epoch 1, its first range on rs1 to rs3."""
    stream = pd.create_stream(**config)
    pd.open_writer()
    found: common_pb2.Range = pd.create_range(stream.stream_id, 1, 0, *ABC)
    return found


# ---- objects


def sealed(pd: Any, end: int = 10) -> common_pb2.Range:
    """A sealed range [0, end) on rs1 to rs3."""
    found = opened(pd)
    result: common_pb2.Range = pd.seal(found.stream_id, 0, 1, end).range
    return result


def test_only_one_uploads_a_span_at_a_time(pd: Any) -> None:
    """A second uploader is refused until the first one's time is over; the first may ask again."""
    found = sealed(pd)
    first = pd.prepare(found.stream_id, 0, 0, 10, "rs1")
    assert pd.prepare(found.stream_id, 0, 0, 10, "rs1").object_id == first.object_id
    with pytest.raises(PreconditionFailed, match="rs1"):
        pd.prepare(found.stream_id, 0, 0, 10, "rs2")
    pd.pass_ms(60_001)
    second = pd.prepare(found.stream_id, 0, 0, 10, "rs2")
    assert second.key != first.key
    with pytest.raises(PreconditionFailed, match="given up"):
        pd.commit(first)
    pd.commit(second)


def test_a_spoiled_object_is_given_up_for_another_key(pd: Any) -> None:
    """What lies under a key cannot be written again: who found something else there gets a new key at once."""
    found = sealed(pd)
    first = pd.prepare(found.stream_id, 0, 0, 10, "rs1")
    second = pd.prepare(found.stream_id, 0, 0, 10, "rs1", spoiled_object_id=first.object_id)
    assert second.key != first.key
    assert pd.state.objects[first.object_id].state == common_pb2.OBJECT_STATE_DELETED
    with pytest.raises(PreconditionFailed, match="given up"):
        pd.commit(first)
    pd.commit(second)


def test_who_holds_no_replica_uploads_nothing(pd: Any) -> None:
    """An uploader is a member of the range's replica set, in its registered incarnation."""
    found = sealed(pd)
    with pytest.raises(PreconditionFailed):
        pd.prepare(found.stream_id, 0, 0, 10, "rs4")


def test_objects_tile_their_range(pd: Any) -> None:
    """An object starts where the one before ended and stays within the range."""
    found = sealed(pd)
    for start, end in ((1, 10), (0, 0), (0, 11)):
        with pytest.raises(PreconditionFailed):
            pd.prepare(found.stream_id, 0, start, end, "rs1")
    pd.commit(pd.prepare(found.stream_id, 0, 0, 4, "rs1"))
    pd.commit(pd.prepare(found.stream_id, 0, 4, 10, "rs1"))
    assert pd.state.ranges.of(found.stream_id)[0].tiered_end_offset == 10


def test_an_open_range_is_not_uploaded(pd: Any) -> None:
    """Only what is sealed goes to the tier."""
    found = opened(pd)
    with pytest.raises(PreconditionFailed, match="open"):
        pd.prepare(found.stream_id, 0, 0, 5, "rs1")


def test_a_commit_is_done_once_and_checks_what_it_is_told(pd: Any) -> None:
    """A repeated commit is the same commit; other bytes, another server, epoch or digest are refused."""
    found = sealed(pd)
    prepared = pd.prepare(found.stream_id, 0, 0, 10, "rs1")
    for changes in ({"server": "rs2"}, {"incarnation": 1}, {"epoch": 9}):
        with pytest.raises(PreconditionFailed):
            pd.commit(prepared, **changes)
    for changes in ({"size_bytes": 0}, {"digest": "sha256:zz"}, {"digest": ""}):
        with pytest.raises(InvalidArgument):
            pd.commit(prepared, **changes)
    assert pd.commit(prepared) == pd.commit(prepared)
    with pytest.raises(PreconditionFailed, match="other bytes"):
        pd.commit(prepared, size_bytes=7)


@pytest.mark.parametrize("groups", [[(0, 4), (5, 5)], [(0, 4), (4, 5)], [(1, 9)], [(0, 0), (0, 10)]])
def test_row_groups_tile_their_object(pd: Any, groups: list[tuple[int, int]]) -> None:
    """An index with a hole, an overlap or a short end would misdirect readers: it is refused."""
    found = sealed(pd)
    prepared = pd.prepare(found.stream_id, 0, 0, 10, "rs1")
    rows = [common_pb2.RowGroup(start_offset=start, count=count) for start, count in groups]
    with pytest.raises(InvalidArgument):
        pd.commit(prepared, row_groups=rows)


def test_hot_copies_go_only_when_objects_cover_the_range(pd: Any) -> None:
    """A range that is not wholly tiered keeps its replicas, whoever asks."""
    found = sealed(pd)
    drop = pd_state_pb2.DropHot(stream_id=found.stream_id, range_index=0)
    pd.commit(pd.prepare(found.stream_id, 0, 0, 4, "rs1"))
    with pytest.raises(PreconditionFailed):
        pd.do(pd_pb2.ListTasksResponse, drop_hot=drop)
    pd.commit(pd.prepare(found.stream_id, 0, 4, 10, "rs1"))
    pd.do(pd_pb2.ListTasksResponse, drop_hot=drop)
    assert pd.state.ranges.of(found.stream_id)[0].hot_dropped


# ---- repair


def replace(pd: Any, lost: str, new: str, stream_id: int = 1, index: int = 0) -> None:
    """Propose a replacement."""
    command = pd_state_pb2.ReplaceReplica(
        stream_id=stream_id,
        range_index=index,
        lost=pd.members(lost)[0] if lost else None,
        replacement=pd.members(new)[0],
    )
    pd.do(pd_pb2.ListTasksResponse, replace_replica=command)


def test_a_replacement_takes_the_place_of_the_lost(pd: Any) -> None:
    """A sealed range's lost replica gives its place to another server, once."""
    sealed(pd)
    replace(pd, "rs3", "rs4")
    assert [each.server for each in pd.state.ranges.of(1)[0].replicas] == [
        "rs1",
        "rs2",
        "rs4",
    ]
    with pytest.raises(PreconditionFailed):
        replace(pd, "rs3", "rs4")
    with pytest.raises(PreconditionFailed):
        replace(pd, "rs1", "rs2")


def test_an_open_range_is_never_mended(pd: Any) -> None:
    """An open range's replica set is what its writer counts acks in: it is sealed and left."""
    opened(pd)
    with pytest.raises(PreconditionFailed):
        replace(pd, "rs3", "rs4")


def test_a_free_place_can_be_filled_but_no_more(pd: Any) -> None:
    """A range made when servers were few gets its missing replica, and not one beyond the stream's number."""
    stream = pd.create_stream()
    pd.open_writer()
    pd.create_range(stream.stream_id, 1, 0, "rs1", "rs2")
    pd.seal(stream.stream_id, 0, 1, 10)
    replace(pd, "", "rs3")
    with pytest.raises(PreconditionFailed):
        replace(pd, "", "rs4")
    assert [each.server for each in pd.state.ranges.of(1)[0].replicas] == [
        "rs1",
        "rs2",
        "rs3",
    ]
