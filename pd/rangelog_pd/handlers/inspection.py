"""Calls by which operators read ranges, offsets, tasks and members. They read what the leader has; no range server is asked.

What holds: a page of ranges is bounded; what a copy holds is its server's last report, and a copy without one is shown as such.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.metadata import version
from itertools import islice

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, OffsetTrimmed, PreconditionFailed
from rangelog_core.net.principals import ADMINS
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import Call
from rangelog_pd.handlers.servers import describe_servers
from rangelog_pd.handlers.streams import shown
from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.health import range_problem
from rangelog_pd.reconcile.repack_queue import KIND
from rangelog_pd.reconcile.task_board import CANCELLED
from rangelog_pd.reconcile.topic_tasks import topic_tasks
from rangelog_pd.reconcile.view import put_off_name
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from rangelog_proto.v1 import inspection_pb2 as pb

RANGES_PAGE_MAX = 1_000
TASKS_FOUND_MAX = 10_000
TASK_ID_LENGTH_MAX = 300
PUT_OFF_MS = 3_600_000.0
"""How long a cancelled upload or copy is not asked for again."""
_REPACK = "repack-"


async def inspect_ranges(driver: Driver, request: pb.InspectRangesRequest) -> pb.InspectRangesResponse:
    """Return one page of a stream's ranges with what is known of each copy. Raises StreamNotFound."""
    await driver.barrier()
    size = min(request.page_size or RANGES_PAGE_MAX, RANGES_PAGE_MAX)
    with driver.state() as state:
        stream = state.stream(request.name)
        ranges = state.ranges.of(stream.stream_id)
        found = [ranges[index] for index in islice(ranges.indexes_from(request.from_index), size + 1)]
        inspected = [_inspected(driver, state, stream, each) for each in found[:size]]
        return pb.InspectRangesResponse(stream=shown(state, stream), ranges=inspected, more=len(found) > size)


async def locate_offset(driver: Driver, request: pb.LocateOffsetRequest) -> pb.LocateOffsetResponse:
    """Return the range and the object of an offset. Raises StreamNotFound, OffsetTrimmed, OffsetOutOfRange.

    Whether an open range holds the offset is known to its replicas only.
    """
    await driver.barrier()
    offset = request.offset
    with driver.state() as state:
        stream = state.stream(request.name)
        if offset < stream.trim_offset:
            raise OffsetTrimmed(
                f"offset {offset} was trimmed; what is left of stream {stream.name!r} starts at {stream.trim_offset}",
                offset=stream.trim_offset,
            )
        ranges = state.ranges.of(stream.stream_id)
        index = next(iter(ranges.indexes_from(ranges.index_beyond(offset))), None)
        of = ranges[index] if index is not None else None
        if of is None or (of.state == common_pb2.RANGE_STATE_SEALED and offset >= of.end_offset):
            raise OffsetOutOfRange(
                f"offset {offset} of {stream.name!r} is not written yet: its ranges end at {stream.next_offset}",
                offset=stream.next_offset,
            )
        holder = of.packed_in if of.HasField("packed_in") else of.index
        found = [
            each
            for each in state.objects_of(stream.stream_id, holder)
            if each.state == common_pb2.OBJECT_STATE_COMMITTED and each.start_offset <= offset < each.end_offset
        ]
        names = {each.server for each in of.replicas}
        return pb.LocateOffsetResponse(
            stream=shown(state, stream),
            range=_inspected(driver, state, stream, of),
            object=found[0] if found else None,
            servers=[each for each in describe_servers(driver, state) if each.name in names],
        )


def _inspected(driver: Driver, state: State, stream: common_pb2.Stream, of: common_pb2.Range) -> pb.InspectedRange:
    now_ms = driver.now_ms()
    (filled,) = driver.view.fill_in(state, [of], now_ms)
    key = (of.stream_id, of.index)
    copies = []
    for replica in filled.replicas:
        report = driver.view.report(replica.server, replica.incarnation, key)
        copies.append(_copy(replica, report, whole=_is_whole(of, replica, report)))
    if of.state == common_pb2.RANGE_STATE_SEALED:
        copies += _replaced(driver, state, of, {each.replica.server for each in copies})
    wanted = 0 if of.hot_dropped or of.lost else stream.config.replicas
    blocked = key in driver.view.upkeep.repairs.blocked
    return pb.InspectedRange(
        range=filled,
        copies=copies,
        wanted=wanted,
        tiered_bytes=state.tiered_bytes(of),
        blocked=blocked,
        problem=range_problem(of, copies, wanted, blocked=blocked),
    )


def _replaced(driver: Driver, state: State, of: common_pb2.Range, members: Collection[str]) -> list[pb.Copy]:
    """Return the whole copies of replaced members, which stay until those that follow them have the range."""
    holders = driver.view.holders(state, of, driver.now_ms())
    others = common_pb2.Range(replicas=[each for each in holders if each.server not in members])
    (filled,) = driver.view.fill_in(state, [others], driver.now_ms())
    key = (of.stream_id, of.index)
    reports = ((each, driver.view.report(each.server, each.incarnation, key)) for each in filled.replicas)
    return [_copy(replica, report, whole=True) for replica, report in reports if report is not None]


def _copy(replica: common_pb2.Replica, report: pd_pb2.ReplicaReport | None, *, whole: bool) -> pb.Copy:
    """Return a copy as its server reports it; without a report, as it is named."""
    if report is None:
        return pb.Copy(replica=replica, whole=whole)
    return pb.Copy(
        replica=replica,
        state=report.state,
        durable_offset=report.durable_offset,
        size_bytes=report.size_bytes,
        problem=report.problem,
        whole=whole,
    )


def _is_whole(of: common_pb2.Range, replica: common_pb2.Replica, report: pd_pb2.ReplicaReport | None) -> bool:
    """Whether a member counts as a copy: an open range's before its first report, too, since its writer chose it."""
    if replica.health == common_pb2.SERVER_HEALTH_DEAD:
        return False
    if of.state == common_pb2.RANGE_STATE_SEALED:
        return report is not None and report.state == pd_pb2.REPLICA_STATE_SEALED
    return report is None or report.state in (pd_pb2.REPLICA_STATE_OPEN, pd_pb2.REPLICA_STATE_FENCED)


async def find_tasks(driver: Driver, request: pb.FindTasksRequest) -> pb.FindTasksResponse:
    """Return one task by its id, or those of a kind, stream and server."""
    _check_id(request.task_id)
    await driver.barrier()
    wall_ms = driver.wall_ms()
    current = driver.tasks.listing(wall_ms, failing_only=False)
    with driver.state() as state:
        put_off = driver.view.upkeep.repacks.tasks(state, driver.time_ms())
        current = [*topic_tasks(state, driver.time_ms()), *_repacks(state), *put_off, *current]
        settled = _is_settled(driver, state)
    ended = driver.tasks.ended(wall_ms) if request.include_done or request.task_id else []
    if request.task_id:
        found = [each for each in (*current, *ended) if each.task_id == request.task_id][:1]
    else:
        found = [each for each in (*current, *ended) if _fits(each, request)][:TASKS_FOUND_MAX]
    return pb.FindTasksResponse(tasks=found, settled=settled)


async def cancel_task(driver: Driver, request: pb.CancelTaskRequest) -> pb.CancelTaskResponse:
    """Cancel an upload, a copy or a repack. Raises PreconditionFailed for what cannot be cancelled, or is not there."""
    _check_id(request.task_id)
    await driver.barrier()
    task_id, wall_ms, now_ms = request.task_id, driver.wall_ms(), driver.now_ms()
    with driver.state() as state:
        candidates = [*topic_tasks(state, driver.time_ms()), *_repacks(state)]
    board = driver.tasks.find(task_id, wall_ms)
    task = board if board is not None else next((each for each in candidates if each.task_id == task_id), None)
    if task is None:
        raise PreconditionFailed(f"there is no task {task_id!r}: see `pdctl task list`")
    if task.done:
        raise PreconditionFailed(f"task {task_id!r} has ended already: {task.result}")
    if not task.can_be_cancelled:
        raise PreconditionFailed(_why_not(task))
    if task.kind == "repack":
        object_id = int(task_id.removeprefix(_REPACK))
        await driver.propose(
            pd_pb2.ListTasksResponse, "", abandon_object=pd_state_pb2.AbandonObject(object_id=object_id)
        )
        task.done, task.result, task.done_ms = True, CANCELLED, wall_ms
        return pb.CancelTaskResponse(
            task=task, effect="the repack is abandoned; the objects that it read stay in force"
        )
    if task.kind == KIND:
        driver.view.upkeep.repacks.put_off(task_id, now_ms + PUT_OFF_MS)
        return pb.CancelTaskResponse(
            task=driver.tasks.cancel(task_id, wall_ms),
            effect="the objects stay as they are for an hour, or until another placement driver leads",
        )
    name = put_off_name(task.kind, task.stream_id, task.range_index, task.server)
    driver.view.put_off_until(name, now_ms + PUT_OFF_MS, now_ms)
    ended = driver.tasks.cancel(task_id, wall_ms)
    where = f"range {task.stream_name}/{task.range_index}"
    what = f"{where} is not uploaded" if task.kind == "upload-range" else f"{where} is not copied to {task.server}"
    effect = f"{what} for an hour, or until another placement driver leads; the server ends what it has begun in some seconds"
    return pb.CancelTaskResponse(task=ended, effect=effect)


async def inspect_member(driver: Driver, request: pb.InspectMemberRequest) -> pb.InspectMemberResponse:
    """Describe this member: version, clock, room on its disk. Answered by every member, leader or not."""
    response = pb.InspectMemberResponse(
        name=driver.settings.name,
        version=version("rangelog"),
        wall_ms=driver.wall_ms(),
        leader=driver.consensus.is_leader(),
        feature_level=driver.settings.feature_level_max,
        auto_finalize=driver.settings.auto_finalize,
    )
    try:
        disk = os.statvfs(driver.settings.data_dir)
    except OSError:
        return response
    response.disk_free_bytes, response.disk_total_bytes = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    return response


def _check_id(task_id: str) -> None:
    if len(task_id) > TASK_ID_LENGTH_MAX:
        raise InvalidArgument(f"a task's id has at most {TASK_ID_LENGTH_MAX} characters")


def _fits(task: pd_pb2.Task, request: pb.FindTasksRequest) -> bool:
    pairs = ((request.kind, task.kind), (request.stream_name, task.stream_name), (request.server, task.server))
    return all(not wanted or wanted == has for wanted, has in pairs)


def _repacks(state: State) -> list[pd_pb2.Task]:
    """Return the repacks that somebody started by hand: objects that are prepared to replace others, by no server."""
    found = []
    for object_id in state.range_objects.prepared:
        each = state.objects[object_id]
        if each.replaces and not each.incarnation:
            stream = state.streams.find(each.stream_id)
            found.append(
                pd_pb2.Task(
                    task_id=f"{_REPACK}{object_id}",
                    kind="repack",
                    stream_id=each.stream_id,
                    stream_name=stream.name if stream is not None else "",
                    range_index=each.range_index,
                    server=each.server,
                    detail=f"{len(each.replaces)} objects become one",
                    can_be_cancelled=True,
                )
            )
    return found


def _is_settled(driver: Driver, state: State) -> bool:
    """Whether all living servers have reported, and no range is left to look at: then no task is about to appear."""
    if driver.view.upkeep.repairs.waiting:
        return False
    for name, registered in state.servers.items():
        incarnation = registered.server.incarnation
        if driver.view.health(state, name, incarnation, driver.now_ms()) is not ServerHealth.ALIVE:
            continue
        view = driver.view.of(name, incarnation)
        if view is None or not view.complete or view.attention.fresh:
            return False
    return True


def _why_not(task: pd_pb2.Task) -> str:
    reasons = {
        "recover-range": "the writer is gone, and what it left open is neither repaired nor tiered",
        "seal-replica": "the range is sealed already, and its replica has to know",
        "drop-replica": "the replica belongs to no range any more",
        "delete-objects": "the objects are gone from the state: within the delete grace they can be saved by hand",
        "write-manifests": "a manifest that is behind misleads its readers",
    }
    why = reasons.get(task.kind, "it carries out what was decided: change the topic instead")
    return f"task {task.task_id!r} cannot be cancelled: {why}"


CALLS = (
    Call("InspectRanges", inspect_ranges, ADMINS),
    Call("LocateOffset", locate_offset, ADMINS),
    Call("FindTasks", find_tasks, ADMINS),
    Call("CancelTask", cancel_task, ADMINS, audit=audited.named("task", "task_id")),
    Call("InspectMember", inspect_member, ADMINS),
)
