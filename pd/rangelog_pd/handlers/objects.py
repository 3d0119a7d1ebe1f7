"""Calls on objects."""

from __future__ import annotations

from rangelog.errors import InvalidArgument
from rangelog.limits import OBJECT_PAGE_SIZE_MAX
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb

from rangelog_pd.driver import Driver
from rangelog_pd.state.objects import ROW_GROUPS_MAX


async def prepare_object(driver: Driver, request: pb.PrepareObjectRequest) -> pb.PrepareObjectResponse:
    """Raises RangeNotFound, PreconditionFailed."""
    command = pd_state_pb2.TimedPrepareObject(
        request=request, deadline_ms=driver.wall_ms() + driver.settings.tier_prepare_ttl_ms
    )
    return await driver.propose(pb.PrepareObjectResponse, request.request_id, prepare_object=command)


async def commit_object(driver: Driver, request: pb.CommitObjectRequest) -> pb.CommitObjectResponse:
    """Raises ObjectNotFound, PreconditionFailed, InvalidArgument."""
    if len(request.row_groups) > ROW_GROUPS_MAX:
        raise InvalidArgument(f"{len(request.row_groups)} row groups; the limit is {ROW_GROUPS_MAX}")
    return await driver.propose(pb.CommitObjectResponse, request.request_id, commit_object=request)


async def list_objects(driver: Driver, request: pb.ListObjectsRequest) -> pb.ListObjectsResponse:
    """By start offset, a page at a time; committed ones unless asked otherwise. Raises StreamNotFound."""
    await driver.barrier()
    size = min(request.page_size or OBJECT_PAGE_SIZE_MAX, OBJECT_PAGE_SIZE_MAX)
    wanted = request.state or common_pb2.OBJECT_STATE_COMMITTED
    with driver.state() as state:
        stream = state.stream(request.name) if request.name else state.stream_by_id(request.stream_id)
        found = []
        for each in state.ranges[stream.stream_id].values():
            if each.state == common_pb2.RANGE_STATE_SEALED and each.end_offset <= request.from_offset:
                continue
            objects = state.objects_of(stream.stream_id, each.index)
            found += [one for one in objects if one.state == wanted and one.end_offset > request.from_offset]
            if len(found) > size:
                break
        found.sort(key=lambda one: one.start_offset)
        return pb.ListObjectsResponse(objects=found[:size], more=len(found) > size)
