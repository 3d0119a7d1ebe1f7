"""Objects: prepare, commit, abandon, collect.

What holds: at most one upload of a span is in progress; an object counts once it is committed with size and digest, right
after the one before it; an abandoned or trimmed object stays as a dated tombstone until it is removed from the store.
"""

from __future__ import annotations

import re

from rangelog_core.errors import InvalidArgument, ObjectNotFound, PreconditionFailed
from rangelog_core.limits import ENCRYPTION_KEY_ID_LENGTH_MAX
from rangelog_core.object_keys import object_key
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.tier_stores import tier_id_now
from rangelog_pd.state.versions import LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

ROW_GROUPS_MAX = 512
"""A commit must fit in one Raft command."""

CommitRequest = pd_pb2.CommitObjectRequest | pd_pb2.CommitRepackRequest
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


def prepare_object(state: State, command: pd_state_pb2.TimedPrepareObject, now_ms: int) -> pd_pb2.PrepareObjectResponse:
    """Assign a key for [start, end). Raises RangeNotFound, PreconditionFailed."""
    request = command.request
    source = state.range(request.stream_id, request.range_index)
    if source.state != common_pb2.RANGE_STATE_SEALED:
        raise PreconditionFailed(f"range {source.index} is open: only sealed ranges are uploaded")
    if request.start_offset != source.tiered_end_offset or not request.start_offset < request.end_offset:
        raise PreconditionFailed(f"the next object of range {source.index} starts at {source.tiered_end_offset}")
    if request.end_offset > source.end_offset:
        raise PreconditionFailed(f"range {source.index} ends at {source.end_offset}")
    if not any((each.server, each.incarnation) == (request.server, request.incarnation) for each in source.replicas):
        raise PreconditionFailed(f"range server {request.server} holds no replica of range {source.index}")
    for other in state.objects_of(request.stream_id, request.range_index):
        if other.state != common_pb2.OBJECT_STATE_PREPARED:
            continue
        mine = (other.server, other.incarnation) == (request.server, request.incarnation)
        same = (other.start_offset, other.end_offset) == (request.start_offset, request.end_offset)
        if mine and same and other.object_id != request.spoiled_object_id:
            extended = copy_of(other)
            extended.prepare_deadline_ms = command.deadline_ms
            state.put_object(extended)
            return pd_pb2.PrepareObjectResponse(object=extended)
        if not mine and other.prepare_deadline_ms > now_ms:
            raise PreconditionFailed(f"range {source.index} is being uploaded by {other.server}")
        state.bury(other.object_id)
    prepared = common_pb2.Object(
        object_id=state.next_object_id,
        stream_id=request.stream_id,
        range_index=request.range_index,
        epoch=source.epoch,
        start_offset=request.start_offset,
        end_offset=request.end_offset,
        key=object_key(
            request.stream_id, request.range_index, request.start_offset, request.end_offset, state.next_object_id
        ),
        state=common_pb2.OBJECT_STATE_PREPARED,
        server=request.server,
        incarnation=request.incarnation,
        prepare_deadline_ms=command.deadline_ms,
        tier_id=tier_id_now(state),
    )
    state.next_object_id += 1
    state.put_object(prepared)
    return pd_pb2.PrepareObjectResponse(object=prepared)


def commit_object(state: State, request: pd_pb2.CommitObjectRequest, now_ms: int) -> pd_pb2.CommitObjectResponse:
    """Commit an uploaded and verified object. Raises ObjectNotFound, PreconditionFailed, InvalidArgument."""
    found = state.objects.find(request.object_id)
    if found is None:
        raise ObjectNotFound(f"object {request.object_id} was never prepared, or is collected")
    if is_repeated(found, request):
        return pd_pb2.CommitObjectResponse(object=without_row_groups(found))
    if found.state != common_pb2.OBJECT_STATE_PREPARED or found.replaces:
        raise PreconditionFailed(f"object {request.object_id} was given up: prepare a new one")
    if (found.server, found.incarnation) != (request.server, request.incarnation):
        raise PreconditionFailed(f"object {request.object_id} was prepared for {found.server}")
    source = state.range(found.stream_id, found.range_index)
    if request.epoch != source.epoch or found.start_offset != source.tiered_end_offset:
        raise PreconditionFailed(f"the next object of range {source.index} starts at {source.tiered_end_offset}")
    found = committed(found, request, now_ms)
    state.put_object(found)
    source = copy_of(source)
    source.tiered_end_offset = found.end_offset
    source.tiered_ms = state.date()
    state.put_range(source)
    if state.cluster_version >= LEVEL_PACKING:
        state.bury_trimmed(state.streams[source.stream_id])  # all of it was trimmed while it was uploaded, perhaps
    return pd_pb2.CommitObjectResponse(object=without_row_groups(found))


def is_repeated(found: common_pb2.Object, request: CommitRequest) -> bool:
    """Whether this commit was carried out before. Raises PreconditionFailed: the object was committed with other bytes."""
    if found.state != common_pb2.OBJECT_STATE_COMMITTED:
        return False
    if (found.digest, found.size_bytes) != (request.digest, request.size_bytes):
        raise PreconditionFailed(f"object {request.object_id} was committed with other bytes")
    return True


def committed(found: common_pb2.Object, request: CommitRequest, now_ms: int) -> common_pb2.Object:
    """Return a prepared object as it is once it is committed with this content. Raises InvalidArgument."""
    _check_content(found, request)
    after = copy_of(found)
    del after.replaces[:]
    after.state = common_pb2.OBJECT_STATE_COMMITTED
    after.size_bytes = request.size_bytes
    after.digest = request.digest
    after.footer_size_bytes = request.footer_size_bytes
    after.footer_crc = request.footer_crc
    after.encryption_key_id = request.encryption_key_id
    after.committed_ms = now_ms
    after.row_groups.extend(request.row_groups)
    if request.row_groups:
        after.timestamp_ms_min = min(group.timestamp_ms_min for group in request.row_groups)
        after.timestamp_ms_max = max(group.timestamp_ms_max for group in request.row_groups)
    return after


def _check_content(found: common_pb2.Object, request: CommitRequest) -> None:
    """Check size, digest, and that the row groups tile the object."""
    if not request.size_bytes or not _DIGEST.match(request.digest):
        raise InvalidArgument("an object is committed with its size and its digest, sha256:<64 hex digits>")
    if len(request.encryption_key_id) > ENCRYPTION_KEY_ID_LENGTH_MAX:
        raise InvalidArgument(f"the id of an encryption key has at most {ENCRYPTION_KEY_ID_LENGTH_MAX:,} characters")
    if len(request.row_groups) > ROW_GROUPS_MAX:
        raise InvalidArgument(f"{len(request.row_groups)} row groups; the limit is {ROW_GROUPS_MAX}")
    position = found.start_offset
    for group in request.row_groups:
        if group.start_offset != position or not group.count:
            raise InvalidArgument(f"a row group starts at {group.start_offset}, expected {position}")
        position += group.count
    if request.row_groups and position != found.end_offset:
        raise InvalidArgument(f"the row groups end at {position}, the object at {found.end_offset}")


def without_row_groups(found: common_pb2.Object) -> common_pb2.Object:
    """Return a committed object without its row groups: the caller has them, and results are kept."""
    copy = copy_of(found)
    del copy.row_groups[:]
    return copy


def abandon_object(state: State, command: pd_state_pb2.AbandonObject, now_ms: int) -> None:
    """Abandon an expired upload. Its object may be in the store, so it becomes a tombstone."""
    found = state.objects.find(command.object_id)
    if found is not None and found.state == common_pb2.OBJECT_STATE_PREPARED:
        state.bury(found.object_id)


def collect_objects(state: State, command: pd_state_pb2.CollectObjects, now_ms: int) -> None:
    """Remove the tombstones of objects that were removed from the store."""
    for object_id in command.object_ids:
        found = state.objects.find(object_id)
        if found is not None and found.state == common_pb2.OBJECT_STATE_DELETED:
            state.objects.remove(object_id)
