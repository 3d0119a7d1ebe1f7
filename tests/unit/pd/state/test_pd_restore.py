"""The commands of a restore: into an empty cluster only, row by row, each once; nothing else happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, Unavailable, WriterFenced
from rangelog_core.ids import journal_stream_name
from rangelog_pd.state.restored_rows import put_row
from rangelog_proto.v1 import common_pb2, cursor_pb2, pd_pb2, restore_pb2, topic_pb2
from rangelog_tier.restore.applying import requests
from rangelog_tier.restore.plan import RestorePlan
from tests.support.lost_clusters import LostCluster, begin_of, put, restored
from tests.unit.pd.conftest import Pd


def small() -> RestorePlan:
    """The plan of a cluster with two streams: one with 10 tiered records of 15, one with none."""
    lost = LostCluster()
    first, _ = lost.create("flights"), lost.create("empty")
    lost.upload(lost.append(first, 10), 10)
    lost.append(first, 5)
    lost.take_snapshot()
    return lost.plan()


def rows(plan: RestorePlan, first: int, count: int) -> restore_pb2.RestoreRowsRequest:
    """A request with some rows of a plan."""
    request = restore_pb2.RestoreRowsRequest(plan_id=plan.plan_id(), first_row=first)
    for kind, row in list(plan.rows())[first : first + count]:
        getattr(request, kind).append(row)
    return request


def end(plan: RestorePlan) -> restore_pb2.EndRestoreRequest:
    """The request that ends a plan."""
    return restore_pb2.EndRestoreRequest(plan_id=plan.plan_id())


def begun(plan: RestorePlan) -> Pd:
    """An empty cluster in which the restore has begun."""
    pd = Pd()
    put(pd, begin_restore=begin_of(plan))
    return pd


def test_a_restored_cluster_goes_on_behind_the_tiered_part() -> None:
    """Rows come back, and the next writer appends at the end of them, on servers of today, under an epoch of its own."""
    plan = small()
    pd = restored(plan)
    assert pd.state.restore.phase == restore_pb2.RESTORE_PHASE_DONE
    assert pd.state.restore.rows_put == plan.row_count == 4
    for name in ("rs1", "rs2", "rs3"):
        pd.register(name)
    opened = pd.open_writer("flights")
    assert opened.stream.next_offset == opened.last_range.end_offset == 10
    made = pd.create_range(opened.stream.stream_id, opened.stream.epoch, 10, "rs1", "rs2", "rs3")
    sealed = pd.seal(made.stream_id, made.index, made.epoch, 12).range
    pd.commit(pd.prepare(made.stream_id, made.index, 10, 12, "rs1"))
    assert (sealed.start_offset, sealed.end_offset) == (10, 12)
    pd.reload()
    assert pd.state.restore.phase == restore_pb2.RESTORE_PHASE_DONE


def test_a_writer_of_the_former_cluster_cannot_go_on() -> None:
    """Its epoch is below that of every writer of the restored stream, whatever writers came after the snapshot."""
    lost = LostCluster()
    stream_id = lost.create("flights")
    lost.upload(lost.append(stream_id, 10), 10)
    lost.take_snapshot()
    for _ in range(5):
        epoch = lost.pd.open_writer("flights").stream.epoch
    pd = restored(lost.plan())
    for name in ("rs1", "rs2", "rs3"):
        pd.register(name)
    for _ in range(8):
        with pytest.raises(WriterFenced):
            pd.create_range(stream_id, epoch, 10, "rs1", "rs2", "rs3")
        assert pd.open_writer("flights").stream.epoch > epoch


def test_objects_get_ids_that_the_former_cluster_did_not_give_out() -> None:
    """An object that was prepared after the snapshot, and is not in the bucket yet, keeps its key for itself."""
    lost = LostCluster()
    stream_id = lost.create("flights")
    lost.upload(lost.append(stream_id, 10), 10)
    lost.take_snapshot()
    of = lost.append(stream_id, 5)
    late = lost.pd.prepare(stream_id, of.index, 10, 15, "rs1")
    pd = restored(lost.plan())
    for name in ("rs1", "rs2", "rs3"):
        pd.register(name)
    epoch = pd.open_writer("flights").stream.epoch
    made = pd.create_range(stream_id, epoch, 10, "rs1", "rs2", "rs3")
    pd.seal(stream_id, made.index, epoch, 15)
    again = pd.prepare(stream_id, made.index, 10, 15, "rs1")
    assert again.object_id > late.object_id
    assert again.key != late.key


def test_a_cluster_that_is_not_empty_is_not_restored() -> None:
    """A stream, a topic or an object that waits to be deleted: each is a reason, and nothing is changed."""
    plan = small()
    pd = Pd()
    pd.create_stream("mine")
    with pytest.raises(PreconditionFailed, match="not empty: it has 1 streams"):
        put(pd, begin_restore=begin_of(plan))
    assert list(pd.state.names.ids()) == ["mine"]
    assert pd.state.next_stream_id == 2
    done = restored(plan)
    with pytest.raises(PreconditionFailed, match="it was restored from cluster gone before"):
        put(done, begin_restore=begin_of(plan))


def test_journals_of_brokers_that_started_first_make_way(pd: Pd) -> None:
    """Brokers make them at their start; they are empty, and made again after the restore."""
    plan = small()
    pd = Pd()
    ensured = topic_pb2.EnsureLogRequest(shard_id=3)
    pd.do(topic_pb2.EnsureLogResponse, ensure_log=ensured)
    restored(plan, pd)
    assert journal_stream_name(3) not in pd.state.names
    made = pd.do(topic_pb2.EnsureLogResponse, ensure_log=ensured).stream
    assert made.stream_id >= plan.next_stream_id


def test_nothing_else_happens_during_a_restore() -> None:
    """Other commands get a retriable error that says how far it is, and can succeed later; servers can register."""
    plan = small()
    pd = begun(plan)
    pd.register("rs1")
    request = pd_pb2.CreateStreamRequest(name="mine", config=common_pb2.StreamConfig())
    with pytest.raises(Unavailable, match="0 of 4 rows"):
        pd.do(pd_pb2.CreateStreamResponse, "r1", create_stream=request)
    pd.reload()
    with pytest.raises(Unavailable, match="being restored"):
        pd.open_writer("flights")
    for each in requests(plan, plan.plan_id(), 0):
        put(pd, restore_rows=each)
    put(pd, end_restore=end(plan))
    assert pd.do(pd_pb2.CreateStreamResponse, "r1", create_stream=request).stream.name == "mine"


def test_rows_come_once_and_in_order() -> None:
    """A repeat changes nothing, rows that are missing are noticed, and the end waits for all."""
    plan = small()
    pd = begun(plan)
    assert put(pd, restore_rows=rows(plan, 0, 2)).rows_put == 2
    before = pd.machine.snapshot()
    assert put(pd, restore_rows=rows(plan, 0, 2)).rows_put == 2
    assert put(pd, begin_restore=begin_of(plan)).rows_put == 2
    assert pd.machine.snapshot() == before
    with pytest.raises(PreconditionFailed, match="2 rows are there"):
        put(pd, restore_rows=rows(plan, 3, 1))
    with pytest.raises(PreconditionFailed, match="2 of 4 rows"):
        put(pd, end_restore=end(plan))
    assert put(pd, restore_rows=rows(plan, 2, 2)).rows_put == 4
    mark = put(pd, end_restore=end(plan))
    assert put(pd, end_restore=end(plan)) == mark


def test_another_plan_waits_until_the_first_is_taken_back() -> None:
    """What the first had put is removed, and none of its objects waits to be deleted from the bucket."""
    plan, other = small(), small()
    other.next_topic_id += 1
    pd = begun(plan)
    put(pd, restore_rows=rows(plan, 0, 4))
    with pytest.raises(PreconditionFailed, match="take it back first"):
        put(pd, begin_restore=begin_of(other))
    with pytest.raises(PreconditionFailed, match="another plan"):
        put(pd, restore_rows=rows(other, 0, 1))
    mark = put(pd, restore_rows=restore_pb2.RestoreRowsRequest(plan_id=plan.plan_id(), clear=True))
    assert mark.phase == restore_pb2.RESTORE_PHASE_UNSPECIFIED
    assert not pd.state.streams
    assert not pd.state.objects
    restored(other, pd)


def test_cursors_come_back_at_or_before_the_end_of_their_stream() -> None:
    """One that was behind it is moved, and named; versions go on beyond the former ones."""
    lost = LostCluster()
    stream_id = lost.create("flights")
    lost.upload(lost.append(stream_id, 10), 10)
    lost.append(stream_id, 5)
    for name, offset in (("near", 4), ("far", 15)):
        sets = cursor_pb2.SetCursorsRequest(sets=[cursor_pb2.CursorSet(stream_id=stream_id, name=name, offset=offset)])
        lost.pd.do(cursor_pb2.SetCursorsResponse, set_cursors=sets)
    lost.take_snapshot()
    plan = lost.plan()
    pd = restored(plan)
    assert {each.name: each.offset for each in pd.state.cursors.of(stream_id)} == {"near": 4, "far": 10}
    assert plan.moved_cursors == ["far of flights, from 15 to 10"]
    assert pd.state.cursors.next_version > lost.pd.state.cursors.next_version
    assert plan.left_out == {}


def test_the_expiry_of_a_restored_cursor_begins_anew() -> None:
    """Its consumer could not set it while the cluster was lost, and it would keep nothing from the first moment on."""
    lost = LostCluster()
    stream_id = lost.create("flights")
    row = cursor_pb2.Cursor(stream_id=stream_id, name="near", version=1, set_ms=5)
    put_row(lost.pd.state, "cursors", row)
    assert (stream_id, "near") in lost.pd.state.cursors.undated


def _wrong(kind: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    return kind, changes


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        _wrong("streams", stream_id=1 << 30),
        _wrong("streams", name="_journal-1"),
        _wrong("streams", name="a b"),
        _wrong("streams", name="_topic-9-shard-0"),
        _wrong("streams", trim_offset=11),
        _wrong("streams", sealed_for_good=True),
        _wrong("streams", epoch=1 << 63),
        _wrong("ranges", end_offset=11),
        _wrong("ranges", state=common_pb2.RANGE_STATE_OPEN),
        _wrong("ranges", hot_dropped=False),
        _wrong("ranges", start_offset=1),
        _wrong("ranges", epoch=1 << 50),
        _wrong("ranges", stream_id=77),
        _wrong("ranges", packed_in=4),
        _wrong("objects", object_id=1 << 40),
        _wrong("objects", key="streams/1/x"),
        _wrong("objects", digest="sha256:"),
        _wrong("objects", size_bytes=0),
        _wrong("objects", state=common_pb2.OBJECT_STATE_DELETED),
        _wrong("objects", range_index=5),
    ],
)
def test_a_row_that_does_not_fit_is_refused_whole(kind: str, changes: dict[str, Any]) -> None:
    """The command that has it changes nothing: not even by the rows before it."""
    plan = small()
    row = getattr(plan, kind)[0]
    for name, value in changes.items():
        setattr(row, name, value)
    pd = begun(plan)
    before = pd.machine.snapshot()
    with pytest.raises(InvalidArgument, match=r"a row of a restore"):
        put(pd, restore_rows=rows(plan, 0, 4))
    assert pd.machine.snapshot() == before
    assert not pd.state.objects


def test_an_id_that_is_behind_this_clusters_own_is_refused() -> None:
    """A restore cannot make a cluster give out an id again."""
    request = begin_of(small())
    request.next_object_id = 0
    with pytest.raises(InvalidArgument, match="next id 0"):
        put(Pd(), begin_restore=request)
