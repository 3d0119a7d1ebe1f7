"""Repacks: one object takes the place of those of neighbouring ranges, if all of them still count."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, ObjectNotFound, PreconditionFailed, StreamNotFound
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import LEVEL_OPERATIONS, LEVEL_PACKING, LEVEL_REPACKS
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

DIGEST = "sha256:" + "ab" * 32
TTL_MS = 60_000


class Repacks:
    """A stream of five sealed ranges of ten records, each with an object of 1,000 bytes, and an open one."""

    def __init__(self, pd: Any, **config: Any) -> None:
        self.pd = pd
        self.stream_id = pd.create_stream(tiered=True, **config).stream_id
        pd.open_writer()
        pd.create_range(self.stream_id, 1, 0, "rs1", "rs2", "rs3")
        for index in range(5):
            pd.seal(self.stream_id, index, 1, 10 * index + 10, "rs1", "rs2", "rs3")
            pd.tier(self.stream_id, index, "rs1")

    def live(self) -> list[tuple[int, int, int]]:
        """Range, start and end of all objects that count."""
        found = [each for each in self.pd.state.objects.values() if each.state == common_pb2.OBJECT_STATE_COMMITTED]
        return sorted((each.range_index, each.start_offset, each.end_offset) for each in found)

    def ids(self, low: int, high: int) -> list[int]:
        """The live objects within offsets, by offset."""
        found = [
            each
            for each in self.pd.state.objects.values()
            if each.state == common_pb2.OBJECT_STATE_COMMITTED and low <= each.start_offset and each.end_offset <= high
        ]
        return [each.object_id for each in sorted(found, key=lambda each: each.start_offset)]

    def prepare(self, ids: list[int], packer: str = "p", stream_id: int = 0, **more: Any) -> common_pb2.Object:
        """Ask for a key."""
        request = pd_pb2.PrepareRepackRequest(
            stream_id=stream_id or self.stream_id, object_ids=ids, packer=packer, **more
        )
        timed = pd_state_pb2.TimedPrepareRepack(request=request, deadline_ms=self.pd.wall_ms + TTL_MS)
        found: common_pb2.Object = self.pd.do(pd_pb2.PrepareRepackResponse, prepare_repack=timed).object
        return found

    def commit(self, prepared: common_pb2.Object, **changes: Any) -> common_pb2.Object:
        """Say that it is stored."""
        fields: dict[str, Any] = {
            "object_id": prepared.object_id,
            "packer": prepared.server,
            "size_bytes": 2_500,
            "digest": DIGEST,
        }
        request = pd_pb2.CommitRepackRequest(**(fields | changes))
        found: common_pb2.Object = self.pd.do(pd_pb2.CommitRepackResponse, commit_repack=request).object
        return found

    def repack(self, low: int, high: int) -> common_pb2.Object:
        """Replace all objects of [low, high)."""
        return self.commit(self.prepare(self.ids(low, high)))


@pytest.fixture
def repacks(pd: Any) -> Repacks:
    """See Repacks."""
    return Repacks(pd)


def test_one_object_replaces_those_of_neighbouring_ranges(repacks: Repacks) -> None:
    """It is kept with the last of them; the earlier ones become tombstones; the stream counts it."""
    made = repacks.repack(10, 40)
    assert repacks.live() == [(0, 0, 10), (3, 10, 40), (4, 40, 50)]
    assert (made.range_index, made.size_bytes, list(made.replaces)) == (3, 2_500, [])
    state = repacks.pd.state
    assert [each.state for each in state.objects.values()].count(common_pb2.OBJECT_STATE_DELETED) == 3
    assert state.streams[repacks.stream_id].repack_count == 1
    repacks.pd.reload()
    assert repacks.live() == [(0, 0, 10), (3, 10, 40), (4, 40, 50)]


def test_a_repacked_object_is_repacked(repacks: Repacks) -> None:
    """With its neighbours, or as the last one."""
    repacks.repack(0, 20)
    repacks.repack(20, 40)
    repacks.repack(0, 40)
    assert repacks.live() == [(3, 0, 40), (4, 40, 50)]
    repacks.repack(0, 50)
    assert repacks.live() == [(4, 0, 50)]
    ranges = repacks.pd.state.ranges.of(repacks.stream_id)
    assert [ranges[index].packed_in for index in range(4)] == [4] * 4
    assert not ranges[4].HasField("packed_in")


def test_the_parts_of_an_object_count_with_their_ranges(repacks: Repacks) -> None:
    """So a bound on bytes trims ranges as it did before."""
    state = repacks.pd.state
    repacks.repack(10, 40)
    sizes = [state.tiered_bytes(state.range(repacks.stream_id, index)) for index in range(5)]
    assert sizes == [1_000, 833, 833, 833, 1_000]


def test_an_object_stays_while_one_of_its_ranges_does(repacks: Repacks) -> None:
    """A trim of the earlier ranges leaves it; that of the last one takes it."""
    made = repacks.repack(0, 30)
    repacks.pd.trim(20)
    assert repacks.live()[0] == (2, 0, 30)
    repacks.repack(0, 40)
    assert repacks.live()[0] == (3, 0, 40), "with records that are trimmed, as any object may have"
    repacks.pd.trim(40)
    assert repacks.live() == [(4, 40, 50)]
    assert repacks.pd.state.objects[made.object_id].state == common_pb2.OBJECT_STATE_DELETED


def test_nothing_is_replaced_that_does_not_count(repacks: Repacks) -> None:
    """Compare-and-set: a trim, or another repack, since the preparation ends it, and changes nothing."""
    first = repacks.prepare(repacks.ids(0, 30), "p")
    other = repacks.prepare(repacks.ids(20, 40), "q")
    late = repacks.prepare(repacks.ids(30, 50), "r")
    repacks.commit(other)
    for prepared in (first, late):
        with pytest.raises(PreconditionFailed, match="not live any more"):
            repacks.commit(prepared)
    assert repacks.live() == [(0, 0, 10), (1, 10, 20), (3, 20, 40), (4, 40, 50)]
    trimmed = repacks.prepare(repacks.ids(0, 40), "p")
    repacks.pd.trim(10)
    with pytest.raises(PreconditionFailed, match="not live any more"):
        repacks.commit(trimmed)
    assert repacks.live() == [(1, 10, 20), (3, 20, 40), (4, 40, 50)]
    assert repacks.pd.state.streams[repacks.stream_id].repack_count == 1


def test_a_stream_that_is_deleted_meanwhile(repacks: Repacks) -> None:
    """Its objects become tombstones, that of the repack as well."""
    prepared = repacks.prepare(repacks.ids(0, 50))
    repacks.pd.delete_stream()
    with pytest.raises(PreconditionFailed):
        repacks.commit(prepared)
    assert {each.state for each in repacks.pd.state.objects.values()} == {common_pb2.OBJECT_STATE_DELETED}
    with pytest.raises(StreamNotFound):
        repacks.prepare([1, 2])


def test_a_commit_may_be_repeated(repacks: Repacks) -> None:
    """With the same bytes it changes nothing; with others it is refused."""
    prepared = repacks.prepare(repacks.ids(0, 30))
    assert repacks.commit(prepared) == repacks.commit(prepared)
    with pytest.raises(PreconditionFailed, match="other bytes"):
        repacks.commit(prepared, size_bytes=1)
    assert repacks.pd.state.streams[repacks.stream_id].repack_count == 1


def test_only_whole_ranges_are_repacked(repacks: Repacks) -> None:
    """All their objects, contiguous, in order, live, of this stream; of ranges that are wholly in the tier."""
    pd, ids = repacks.pd, repacks.ids(0, 50)
    for wrong in ([], ids[:1], [ids[1], ids[0]], [ids[0], ids[2]], [ids[0]] * 2, ids[:1] * 1_001):
        with pytest.raises(InvalidArgument):
            repacks.prepare(wrong)
    with pytest.raises(InvalidArgument, match="packer"):
        repacks.prepare(ids, packer="")
    with pytest.raises(PreconditionFailed, match="no live object"):
        repacks.prepare([*ids[:2], 99])
    other = pd.create_stream("t").stream_id
    with pytest.raises(PreconditionFailed, match="no live object"):
        repacks.prepare(ids, stream_id=other)
    pd.seal(repacks.stream_id, 5, 1, 70)
    pd.commit(pd.prepare(repacks.stream_id, 5, 50, 60, "rs1"))
    half = repacks.ids(40, 60)
    with pytest.raises(PreconditionFailed, match="whole ranges"):
        repacks.prepare(half)
    pd.commit(pd.prepare(repacks.stream_id, 5, 60, 70, "rs1"))
    with pytest.raises(PreconditionFailed, match="whole ranges"):
        repacks.prepare(half)
    repacks.commit(repacks.prepare(repacks.ids(40, 70)))
    assert repacks.live()[-1] == (5, 40, 70)


def test_one_packer_at_a_time_has_a_range(repacks: Repacks) -> None:
    """Until its deadline; it may ask again, and gets more time; with other objects it gets another key."""
    pd, ids = repacks.pd, repacks.ids(0, 30)
    first = repacks.prepare(ids, "p")
    with pytest.raises(PreconditionFailed, match="being repacked by p"):
        repacks.prepare(ids, "q")
    pd.pass_ms(TTL_MS - 1)
    again = repacks.prepare(ids, "p")
    assert (again.key, again.prepare_deadline_ms) == (first.key, first.prepare_deadline_ms + TTL_MS - 1)
    pd.pass_ms(TTL_MS + 1)
    second = repacks.prepare(ids, "q")
    assert second.key != first.key
    with pytest.raises(PreconditionFailed, match="given up"):
        repacks.commit(first)
    smaller = repacks.prepare(ids[1:], "q")
    with pytest.raises(PreconditionFailed, match="given up"):
        repacks.commit(second)
    repacks.commit(smaller)
    assert repacks.live()[:2] == [(0, 0, 10), (2, 10, 30)]


def test_wrong_commits(repacks: Repacks) -> None:
    """Of another packer, of an upload, without content, with row groups that do not tile, of an object that never was."""
    pd = repacks.pd
    prepared = repacks.prepare(repacks.ids(0, 30))
    with pytest.raises(PreconditionFailed, match="prepared for p"):
        repacks.commit(prepared, packer="q")
    with pytest.raises(PreconditionFailed):
        pd.commit(prepared, epoch=1)
    for wrong in ({"size_bytes": 0}, {"digest": "x"}, {"row_groups": [common_pb2.RowGroup(start_offset=1, count=3)]}):
        with pytest.raises(InvalidArgument):
            repacks.commit(prepared, **wrong)
    with pytest.raises(ObjectNotFound):
        repacks.commit(prepared, object_id=999)
    pd.seal(repacks.stream_id, 5, 1, 60)
    upload = pd.prepare(repacks.stream_id, 5, 50, 60, "rs1")
    with pytest.raises(PreconditionFailed):
        repacks.commit(upload, packer="rs1")
    assert repacks.live()[0] == (0, 0, 10)


def test_a_repack_that_nobody_ends_becomes_a_tombstone(repacks: Repacks) -> None:
    """After its deadline, and not because its packer is no server that anybody has heard of."""
    pd = repacks.pd
    prepared = repacks.prepare(repacks.ids(0, 30))
    pd.beat_all()
    assert "abandon_object" not in pd.reconcile()
    pd.pass_ms(TTL_MS + 1)
    pd.beat_all()
    assert "abandon_object" in pd.reconcile()
    assert pd.state.objects[prepared.object_id].state == common_pb2.OBJECT_STATE_DELETED
    assert len(repacks.live()) == 5


def test_the_manifest_is_written_again(pd: Any) -> None:
    """A server is told to: none of them has committed anything."""
    for name in ("rs1", "rs2", "rs3", "rs4"):
        pd.state.servers[name].server.formats.append(common_pb2.FormatVersions(format="manifest", lowest=1, highest=2))
    repacks = Repacks(pd)
    assert "write_manifests" not in pd.directives("rs1")
    repacks.repack(0, 50)
    told = pd.directives("rs1")["write_manifests"].write_manifests
    assert list(told.stream_ids) == [repacks.stream_id]


def test_all_placement_drivers_know_of_repacks_first() -> None:
    """The commands need a level of their own."""
    for action in ("prepare_repack", "commit_repack"):
        command = pd_state_pb2.Command()
        getattr(command, action).SetInParent()
        assert needed_level(command) == LEVEL_REPACKS


# ---- by range servers: trimmed rows are left out


def test_a_repack_may_leave_out_what_is_trimmed(repacks: Repacks) -> None:
    """Of one object as of many; the ranges count as tiered as before, and the stream's manifest gets another revision."""
    pd, stream_id = repacks.pd, repacks.stream_id
    pd.trim(4)
    made = repacks.commit(repacks.prepare(repacks.ids(0, 10), drops_trimmed=True))
    assert (made.start_offset, made.end_offset) == (4, 10) and "/00000000000000000004-" in made.key
    assert repacks.live()[0] == (0, 4, 10)
    assert pd.state.range(stream_id, 0).tiered_end_offset == 10
    assert pd.state.streams[stream_id].repack_count == 1
    pd.trim(7)
    repacks.commit(repacks.prepare(repacks.ids(4, 30), drops_trimmed=True))
    assert repacks.live()[0] == (2, 7, 30)
    pd.reload()
    repacks.repack(7, 40)  # by a packer that does not know of it
    assert repacks.live() == [(3, 7, 40), (4, 40, 50)]


def test_a_trim_meanwhile_brings_no_row_back(repacks: Repacks) -> None:
    """The new object starts where the stream did as it was prepared; what is trimmed wholly ends the repack."""
    pd = repacks.pd
    pd.trim(3)
    prepared = repacks.prepare(repacks.ids(0, 20), drops_trimmed=True)
    pd.trim(6)
    assert repacks.prepare(repacks.ids(0, 20), drops_trimmed=True) == prepared, "whose rows may be written already"
    assert repacks.commit(prepared).start_offset == 3
    assert pd.state.streams[repacks.stream_id].trim_offset == 6
    again = repacks.prepare(repacks.ids(3, 20), drops_trimmed=True)
    pd.trim(20)
    with pytest.raises(PreconditionFailed, match="given up"):
        repacks.commit(again)
    assert repacks.live()[0] == (2, 20, 30)


def test_one_object_alone_is_repacked_for_its_trimmed_rows_only(repacks: Repacks) -> None:
    """Whoever keeps all rows names two at least; nobody gets a key for no row."""
    with pytest.raises(InvalidArgument, match="2 to"):
        repacks.prepare(repacks.ids(0, 10))
    with pytest.raises(InvalidArgument, match="0 objects"):
        repacks.prepare([], drops_trimmed=True)
    repacks.pd.trim(20)
    with pytest.raises(PreconditionFailed, match="no live object"):
        repacks.prepare([1], drops_trimmed=True)


def test_objects_go_with_the_last_of_their_rows(pd: Any) -> None:
    """Also those of a range that stays: a range of many objects, and the last one of its stream."""
    stream_id = pd.create_stream(tiered=True).stream_id
    pd.open_writer()
    pd.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
    pd.seal(stream_id, 0, 1, 30)
    for start in (0, 10, 20):
        pd.commit(pd.prepare(stream_id, 0, start, start + 10, "rs1"))

    def live() -> list[int]:
        return [
            each.start_offset for each in pd.state.objects.values() if each.state == common_pb2.OBJECT_STATE_COMMITTED
        ]

    pd.do(pd_pb2.ListTasksResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=LEVEL_OPERATIONS))
    pd.trim(10)
    assert live() == [0, 10, 20], "as long as not all placement drivers do so"
    pd.do(pd_pb2.ListTasksResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=LEVEL_PACKING))
    pd.trim(19)
    assert live() == [10, 20]
    pd.trim(30)
    assert live() == []
    assert pd.state.range(stream_id, 0).tiered_end_offset == 30
    pd.reload()


def test_an_object_that_was_trimmed_while_it_was_uploaded(pd: Any) -> None:
    """It goes at once; so does one that was trimmed before all placement drivers knew how, with the next upload."""
    stream_id = pd.create_stream(tiered=True).stream_id
    pd.open_writer()
    pd.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
    pd.seal(stream_id, 0, 1, 30)
    pd.commit(pd.prepare(stream_id, 0, 0, 10, "rs1"))
    pd.do(pd_pb2.ListTasksResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=LEVEL_OPERATIONS))
    pd.trim(15)
    pd.do(pd_pb2.ListTasksResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=LEVEL_PACKING))
    pd.commit(pd.prepare(stream_id, 0, 10, 15, "rs1"))
    states = [each.state for each in pd.state.objects.values()]
    assert common_pb2.OBJECT_STATE_COMMITTED not in states
    pd.commit(pd.prepare(stream_id, 0, 15, 30, "rs1"))
    assert [
        each.start_offset for each in pd.state.objects.values() if each.state == common_pb2.OBJECT_STATE_COMMITTED
    ] == [15]
    pd.reload()


def test_what_a_server_spoiled_gets_another_key(repacks: Repacks) -> None:
    """The same server has the same key again, unless it says that other bytes are stored there; another incarnation waits."""
    ids = repacks.ids(0, 20)
    first = repacks.prepare(ids, "rs1", incarnation=7)
    assert repacks.prepare(ids, "rs1", incarnation=7).key == first.key
    with pytest.raises(PreconditionFailed, match="being repacked by rs1"):
        repacks.prepare(ids, "rs1", incarnation=8)
    second = repacks.prepare(ids, "rs1", incarnation=7, spoiled_object_id=first.object_id)
    assert second.key != first.key
    assert repacks.pd.state.objects[first.object_id].state == common_pb2.OBJECT_STATE_DELETED
    repacks.commit(second)
    assert repacks.live()[0] == (1, 0, 20)


@pytest.mark.parametrize(("field", "value"), [("incarnation", 7), ("spoiled_object_id", 7), ("drops_trimmed", True)])
def test_new_fields_need_all_placement_drivers(field: str, value: Any) -> None:
    """Earlier ones would do something else."""
    request = pd_pb2.PrepareRepackRequest(packer="p", **{field: value})
    command = pd_state_pb2.Command(prepare_repack=pd_state_pb2.TimedPrepareRepack(request=request))
    assert needed_level(command) == LEVEL_PACKING
    command.prepare_repack.request.ClearField(field)  # type: ignore[arg-type]
    assert needed_level(command) == LEVEL_REPACKS
