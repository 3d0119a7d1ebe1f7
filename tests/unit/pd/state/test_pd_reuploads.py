"""Objects that the store has lost are given up for a new upload, if the hot copies are there, and only while they count."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import ObjectNotFound, PreconditionFailed
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, tier_pb2
from tests.unit.pd.state.test_pd_repacks import Repacks


@pytest.fixture
def tiered(pd: Any) -> Repacks:
    """Five sealed ranges of ten records, each with an object, whose hot copies stay."""
    return Repacks(pd)


def reupload(pd: Any, object_id: int, request_id: str = "") -> tier_pb2.ReuploadObjectResponse:
    """Give an object up."""
    request = tier_pb2.ReuploadObjectRequest(object_id=object_id)
    answer: tier_pb2.ReuploadObjectResponse = pd.do(
        tier_pb2.ReuploadObjectResponse, request_id, reupload_object=request
    )
    return answer


def test_a_given_up_object_is_uploaded_again_under_another_key(tiered: Repacks) -> None:
    """Its range counts as not tiered, its object is a tombstone, and the next upload has a key of its own."""
    pd, (lost,) = tiered.pd, tiered.ids(20, 30)
    before = pd.state.objects[lost]
    answer = reupload(pd, lost)
    assert [each.object_id for each in answer.objects] == [lost]
    assert pd.state.objects[lost].state == common_pb2.OBJECT_STATE_DELETED
    of = pd.state.range(tiered.stream_id, 2)
    assert (of.tiered_end_offset, of.tiered_ms) == (20, 0)
    assert (tiered.stream_id, 2) not in pd.state.due.hot_drops, "the hot copies stay until the records are tiered again"
    pd.reload()
    pd.tier(tiered.stream_id, 2, "rs2")
    (again,) = tiered.ids(20, 30)
    assert pd.state.objects[again].key != before.key
    assert (tiered.stream_id, 2) in pd.state.due.hot_drops


def test_the_later_objects_of_the_range_go_with_it(pd: Any) -> None:
    """What a range has in the tier is a prefix of it."""
    stream_id = pd.create_stream(tiered=True).stream_id
    pd.open_writer()
    pd.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
    pd.seal(stream_id, 0, 1, 30, "rs1", "rs2", "rs3")
    ids = [pd.commit(pd.prepare(stream_id, 0, start, start + 10, "rs1")).object_id for start in (0, 10, 20)]
    assert [each.object_id for each in reupload(pd, ids[1]).objects] == ids[1:]
    assert pd.state.range(stream_id, 0).tiered_end_offset == 10
    assert pd.state.range(stream_id, 0).tiered_ms
    assert pd.state.objects[ids[0]].state == common_pb2.OBJECT_STATE_COMMITTED


def test_a_repacked_object_is_given_up_for_all_its_ranges(tiered: Repacks) -> None:
    """Each of them is uploaded for itself again."""
    made = tiered.repack(10, 40)
    reupload(tiered.pd, made.object_id)
    ranges = tiered.pd.state.ranges.of(tiered.stream_id)
    assert [ranges[index].tiered_end_offset for index in range(5)] == [10, 10, 20, 30, 50]
    assert not any(ranges[index].HasField("packed_in") for index in range(5))
    tiered.pd.reload()
    for index in (1, 2, 3):
        tiered.pd.tier(tiered.stream_id, index, "rs1")
    assert tiered.live() == [(index, 10 * index, 10 * index + 10) for index in range(5)]


def test_the_last_copy_is_never_given_up(tiered: Repacks) -> None:
    """Without hot copies of all its ranges an object stays, damaged as it may be."""
    pd = tiered.pd
    made = tiered.repack(10, 40)
    drop = pd_state_pb2.DropHot(stream_id=tiered.stream_id, range_index=2)
    pd.do(pd_pb2.ListTasksResponse, drop_hot=drop)
    with pytest.raises(PreconditionFailed, match="no hot copies"):
        reupload(pd, made.object_id)
    assert pd.state.objects[made.object_id].state == common_pb2.OBJECT_STATE_COMMITTED
    assert tiered.live() == [(0, 0, 10), (3, 10, 40), (4, 40, 50)]


def test_only_an_object_that_counts_is_given_up(tiered: Repacks) -> None:
    """Compare-and-set on the object: after a trim, a repack, or another one's repair it is refused."""
    pd = tiered.pd
    repacked, trimmed, twice = tiered.ids(10, 20)[0], tiered.ids(0, 10)[0], tiered.ids(40, 50)[0]
    tiered.repack(10, 30)
    pd.trim(10)
    reupload(pd, twice)
    for gone in (repacked, trimmed, twice):
        with pytest.raises(PreconditionFailed, match="does not count"):
            reupload(pd, gone)
    with pytest.raises(ObjectNotFound):
        reupload(pd, 999)


def test_a_repeat_of_the_request_gets_its_result(tiered: Repacks) -> None:
    """A retry has no second effect: what was uploaded meanwhile stays."""
    (lost,) = tiered.ids(0, 10)
    first = reupload(tiered.pd, lost, "r1")
    tiered.pd.tier(tiered.stream_id, 0, "rs1")
    assert reupload(tiered.pd, lost, "r1") == first
    assert tiered.live()[0] == (0, 0, 10)


def test_the_manifest_is_written_again_with_a_higher_revision(tiered: Repacks) -> None:
    """Fewer records are in the tier, and still the later manifest is known as the later one."""
    pd, stream_id = tiered.pd, tiered.stream_id
    before = pd.state.streams[stream_id].repack_count
    reupload(pd, tiered.ids(0, 10)[0])
    assert pd.state.streams[stream_id].repack_count > before + 10


def test_an_untiered_stream_has_nothing_to_upload(pd: Any) -> None:
    """A stream that is tiered no more would lose the object and get none."""
    repacks = Repacks(pd)
    request = pd_pb2.UpdateStreamRequest(name="s", config=common_pb2.StreamConfig(tiered=False), fields=["tiered"])
    pd.do(pd_pb2.UpdateStreamResponse, update_stream=request)
    with pytest.raises(PreconditionFailed, match="not tiered"):
        reupload(pd, repacks.ids(0, 10)[0])


def test_earlier_members_are_not_sent_the_command() -> None:
    """It needs the level of operations."""
    command = pd_state_pb2.Command(reupload_object=tier_pb2.ReuploadObjectRequest(object_id=1))
    assert needed_level(command) == LEVEL_OPERATIONS
