"""The calls of inspection, and the refusal of more replicas than there are servers, through the API's handlers."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import OffsetOutOfRange, OffsetTrimmed, PreconditionFailed, StreamNotFound
from rangelog_pd.handlers import cluster, inspection, streams, topics
from rangelog_pd.reconcile.repack_queue import OrderedRepack
from rangelog_proto.v1 import common_pb2, pd_pb2, topic_pb2
from rangelog_proto.v1 import inspection_pb2 as pb
from tests.support.pd_topics import refer


def _report(state: str, end: int, size: int = 700) -> pd_pb2.ReplicaReport:
    return pd_pb2.ReplicaReport(
        stream_id=1, range_index=0, state=f"REPLICA_STATE_{state}", durable_offset=end, size_bytes=size
    )


async def _inspect(ready: Any) -> pb.InspectedRange:
    page = await inspection.inspect_ranges(ready.driver, pb.InspectRangesRequest(name="s"))
    return page.ranges[0]


async def test_more_replicas_than_servers_are_refused(ready: Any) -> None:
    """Five on four servers: refused at creation and at update, with what to do; the default is always taken."""
    with pytest.raises(PreconditionFailed, match="5 replicas need 5 range servers, and 4 range servers are registered"):
        await ready.create("t", request_id="five", replicas=5)
    await ready.create("t", request_id="four", replicas=4)
    request = pd_pb2.UpdateStreamRequest(
        request_id="u", name="t", fields=["replicas"], config=common_pb2.StreamConfig(replicas=6)
    )
    with pytest.raises(PreconditionFailed, match="6 replicas need 6"):
        await streams.update_stream(ready.driver, request)
    config = topic_pb2.TopicConfig(stream=common_pb2.StreamConfig(replicas=6))
    update = topic_pb2.UpdateTopicRequest(request_id="v", topic=refer(1), fields=["stream.replicas"], config=config)
    with pytest.raises(PreconditionFailed, match="6 replicas need 6"):
        await topics.update_topic(ready.driver, update)


async def test_before_the_first_server_any_number_is_taken(api: Any) -> None:
    """Nothing is known then; and a repeat of the request gets its first result although servers have come meanwhile."""
    made = await api.create("t", request_id="five", replicas=5)
    await api.register("rs1")
    assert (await api.create("t", request_id="five", replicas=5)).stream_id == made.stream_id
    with pytest.raises(PreconditionFailed, match="1 range server is registered"):
        await api.create("v", request_id="other", replicas=5)


async def test_the_default_on_too_few_servers_is_shown_as_degraded(api: Any) -> None:
    """Three replicas on two servers work and are never called healthy, neither the cluster nor the range."""
    await api.create()
    await api.open()
    await api.register("rs1", "rs2")
    await api.make_range()
    described = await cluster.describe_cluster(api.driver, pd_pb2.DescribeClusterRequest())
    assert described.health == "degraded" and described.under_replicated_range_count == 1
    assert any(each.startswith("under-replicated: 1 of 1 range, 1 of them open") for each in described.reasons)
    assert (await _inspect(api)).problem == "2 of 3 copies: 1 more wanted"


async def test_a_range_says_which_copy_is_not_whole(ready: Any) -> None:
    """Whole is what a living server reports as sealed: an incomplete, a damaged and a silent copy are none."""
    await ready.seal(10)
    names = [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]
    for name in names:
        await ready.beat(name, _report("SEALED", 10))
    healthy = await _inspect(ready)
    assert healthy.problem == "" and [each.whole for each in healthy.copies] == [True] * 3
    assert [each.size_bytes for each in healthy.copies] == [700] * 3 and healthy.wanted == 3
    await ready.beat(names[0], _report("INCOMPLETE", 4))
    ready.silence(60_000)
    for name in names[:2]:
        await ready.beat(name, complete=False)
    assert (await _inspect(ready)).problem == f"1 of 3 copies: {names[0]} is incomplete at 4, {names[2]} is dead"


async def test_an_offset_is_located(ready: Any) -> None:
    """In the open range, as far as its replicas know; not below the trim offset, not beyond a sealed end."""
    found = await inspection.locate_offset(ready.driver, pb.LocateOffsetRequest(name="s", offset=7))
    assert found.range.range.index == 0 and not found.HasField("object") and len(found.servers) == 3
    await ready.seal(10)
    with pytest.raises(OffsetOutOfRange, match="not written yet"):
        await inspection.locate_offset(ready.driver, pb.LocateOffsetRequest(name="s", offset=10))
    await streams.trim_stream(ready.driver, pd_pb2.TrimStreamRequest(request_id="t", name="s", trim_offset=5))
    with pytest.raises(OffsetTrimmed, match="was trimmed"):
        await inspection.locate_offset(ready.driver, pb.LocateOffsetRequest(name="s", offset=4))
    with pytest.raises(StreamNotFound):
        await inspection.locate_offset(ready.driver, pb.LocateOffsetRequest(name="nobody"))


async def _upload_task(ready: Any) -> tuple[str, pd_pb2.Task]:
    """Seal and report whole; return the uploading server and its task."""
    for name in [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]:
        await ready.beat(name, _report("SEALED", 10))
    for name in [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]:
        told = await ready.beat(name, complete=False)
        if any(each.HasField("upload_range") for each in told.directives):
            found = await inspection.find_tasks(ready.driver, pb.FindTasksRequest(kind="upload-range"))
            return name, found.tasks[0]
    raise AssertionError("nobody uploads")


async def test_a_cancelled_upload_is_put_off_for_an_hour(ready: Any) -> None:
    """The server is not told of it any more, then it is again; a second cancel says how it ended."""
    await ready.seal(10)
    server, task = await _upload_task(ready)
    answer = await inspection.cancel_task(ready.driver, pb.CancelTaskRequest(task_id=task.task_id))
    assert answer.task.result == "cancelled" and "for an hour" in answer.effect
    assert (await ready.beat(server, complete=False)).directives == []
    with pytest.raises(PreconditionFailed, match="has ended already: cancelled"):
        await inspection.cancel_task(ready.driver, pb.CancelTaskRequest(task_id=task.task_id))
    ready.silence(3_600_001)
    for name in ("rs1", "rs2", "rs3", "rs4"):
        await ready.beat(name, complete=False)
    assert any(each.HasField("upload_range") for each in (await ready.beat(server, complete=False)).directives)


async def test_a_repack_is_a_task_of_its_server(ready: Any) -> None:
    """It is listed with its error, makes the cluster degraded once it is put off, and may be cancelled for an hour."""
    await ready.beat_all()
    queue = ready.driver.view.upkeep.repacks
    await ready.beat("rs1", complete=False)
    incarnation = ready.machine.state.servers["rs1"].server.incarnation
    queue._put(OrderedRepack(1, 0, (7, 8), "rs1", incarnation))
    directives = (await ready.beat("rs1", complete=False)).directives
    (told,) = [each for each in directives if each.HasField("repack_objects")]
    assert (told.repack_objects.stream_name, list(told.repack_objects.object_ids)) == ("s", [7, 8])
    (task,) = (await inspection.find_tasks(ready.driver, pb.FindTasksRequest(kind="repack-objects"))).tasks
    assert (task.task_id, task.stream_name, task.server, task.can_be_cancelled) == (told.task_id, "s", "rs1", True)
    queue.reported(told.task_id, error="CORRUPTION: damaged", now_ms=0.0)
    answer = await inspection.cancel_task(ready.driver, pb.CancelTaskRequest(task_id=told.task_id))
    assert answer.task.result == "cancelled" and "for an hour" in answer.effect
    assert not (await ready.beat("rs1", complete=False)).directives
    (task,) = (await inspection.find_tasks(ready.driver, pb.FindTasksRequest(kind="repack-objects"))).tasks
    assert task.last_error == "CORRUPTION: damaged"
    described = await cluster.describe_cluster(ready.driver, pd_pb2.DescribeClusterRequest())
    assert described.failing_task_count == 1 and any("damaged" in each for each in described.reasons)


async def test_what_cannot_be_cancelled_says_why(ready: Any) -> None:
    """A seal has been decided; an unknown id is named."""
    await ready.seal(10)
    name = ready.machine.state.ranges.of(1)[0].replicas[0].server
    await ready.beat(name, _report("OPEN", 10))
    (directive,) = (await ready.beat(name, complete=False)).directives
    with pytest.raises(PreconditionFailed, match="cannot be cancelled: the range is sealed already"):
        await inspection.cancel_task(ready.driver, pb.CancelTaskRequest(task_id=directive.task_id))
    with pytest.raises(PreconditionFailed, match="there is no task 'x'"):
        await inspection.cancel_task(ready.driver, pb.CancelTaskRequest(task_id="x"))


async def test_a_new_leader_has_not_settled(ready: Any) -> None:
    """Until every living server has reported, an empty list of tasks proves nothing."""
    await ready.beat_all()
    for name in ("rs1", "rs2", "rs3", "rs4"):
        await ready.beat(name, complete=False)
    assert (await inspection.find_tasks(ready.driver, pb.FindTasksRequest())).settled
    ready.change_leader()
    assert not (await inspection.find_tasks(ready.driver, pb.FindTasksRequest())).settled


async def test_a_member_describes_itself(ready: Any) -> None:
    """Its clock, version and disk, without the group."""
    told = await inspection.inspect_member(ready.driver, pb.InspectMemberRequest())
    assert told.name == "pd1" and told.wall_ms and told.version and 0 < told.disk_free_bytes <= told.disk_total_bytes
