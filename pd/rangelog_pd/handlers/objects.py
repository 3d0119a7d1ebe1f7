"""Calls on objects."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rangelog_core.errors import EncryptionKeyMissing, InvalidArgument, PreconditionFailed, UnsupportedVersion
from rangelog_core.limits import OBJECT_PAGE_SIZE_MAX
from rangelog_core.net.principals import USERS, WITH_PD
from rangelog_core.rights import Verb
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import needs
from rangelog_pd.handlers.call import BROKERS, RANGE_SERVERS, Call
from rangelog_pd.state.objects import ROW_GROUPS_MAX
from rangelog_pd.state.repacks import check_count
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb

GIVEN_ROW_GROUPS_MAX = 65_536
"""The number of row groups in a commit; the stored index is coarser."""
_COUNT_MAX = (1 << 32) - 1


async def prepare_object(driver: Driver, request: pb.PrepareObjectRequest) -> pb.PrepareObjectResponse:
    """Return the key for an upload. Raises RangeNotFound, PreconditionFailed, EncryptionKeyMissing."""
    _check_encryption(driver, request.server, encrypted=request.encrypted)
    command = pd_state_pb2.TimedPrepareObject(
        request=request, deadline_ms=driver.time_ms() + driver.settings.tier_prepare_ttl_ms
    )
    return await driver.propose(pb.PrepareObjectResponse, request.request_id, prepare_object=command)


async def commit_object(driver: Driver, request: pb.CommitObjectRequest) -> pb.CommitObjectResponse:
    """Commit an uploaded object. Raises ObjectNotFound, PreconditionFailed, InvalidArgument."""
    _fit_row_groups(request)
    return await driver.propose(pb.CommitObjectResponse, request.request_id, commit_object=request)


async def prepare_repack(driver: Driver, request: pb.PrepareRepackRequest) -> pb.PrepareRepackResponse:
    """Return the key of an object that will replace others. Raises StreamNotFound, PreconditionFailed, InvalidArgument,
    EncryptionKeyMissing."""
    check_count(request)
    _check_encryption(driver, request.packer, encrypted=request.encrypted)
    command = pd_state_pb2.TimedPrepareRepack(
        request=request, deadline_ms=driver.time_ms() + driver.settings.tier_prepare_ttl_ms
    )
    return await driver.propose(pb.PrepareRepackResponse, request.request_id, prepare_repack=command)


async def commit_repack(driver: Driver, request: pb.CommitRepackRequest) -> pb.CommitRepackResponse:
    """Put an uploaded object in the place of others. Raises ObjectNotFound, PreconditionFailed, InvalidArgument."""
    _fit_row_groups(request)
    return await driver.propose(pb.CommitRepackResponse, request.request_id, commit_repack=request)


def _check_encryption(driver: Driver, who: str, *, encrypted: bool) -> None:
    """Refuse an object in clear where objects are to be encrypted, and an encrypted one that a range server could not read."""
    if not encrypted:
        if driver.encryption_keys is not None:
            raise EncryptionKeyMissing(
                f"this cluster encrypts its objects, and {who} would write one in clear: set its encryption_keys_dir or "
                "encryption_kms_key_id as on the placement drivers (docs/encryption.md)"
            )
        return
    with driver.state() as state:
        name = next(iter(state.modes.without_encryption), None)
    if name is not None:
        raise PreconditionFailed(
            f"range server {name} is of a version that does not read encrypted objects: upgrade all range servers first"
        )


def _fit_row_groups(request: pb.CommitObjectRequest | pb.CommitRepackRequest) -> None:
    """Make the index of row groups fit in one command."""
    if len(request.row_groups) > GIVEN_ROW_GROUPS_MAX:
        raise InvalidArgument(f"{len(request.row_groups)} row groups; the limit is {GIVEN_ROW_GROUPS_MAX}")
    if len(request.row_groups) > ROW_GROUPS_MAX:
        coarse = _coarser(request.row_groups)
        del request.row_groups[:]
        request.row_groups.extend(coarse)


def _coarser(groups: Sequence[common_pb2.RowGroup]) -> list[common_pb2.RowGroup]:
    """Join adjacent row groups until the index fits in one command. Readers then skip fewer bytes."""
    step = -(-len(groups) // ROW_GROUPS_MAX)
    joined: list[common_pb2.RowGroup] = []
    for first in range(0, len(groups), step):
        some = groups[first : first + step]
        for before, after in itertools.pairwise(some):
            if after.start_offset != before.start_offset + before.count:
                raise InvalidArgument(f"a row group starts at {after.start_offset}, not where the one before ends")
        count = sum(each.count for each in some)
        if count > _COUNT_MAX:
            raise InvalidArgument(f"{len(some)} row groups of {count} records together")
        joined.append(
            common_pb2.RowGroup(
                start_offset=some[0].start_offset,
                count=count,
                timestamp_ms_min=min(each.timestamp_ms_min for each in some),
                timestamp_ms_max=max(each.timestamp_ms_max for each in some),
            )
        )
    return joined


async def list_objects(driver: Driver, request: pb.ListObjectsRequest) -> pb.ListObjectsResponse:
    """Return one page of a stream's objects by start offset; committed ones by default.

    Raises StreamNotFound, UnsupportedVersion (the caller does not know that objects may be encrypted).
    """
    await driver.barrier()
    size = min(request.page_size or OBJECT_PAGE_SIZE_MAX, OBJECT_PAGE_SIZE_MAX)
    wanted = request.state or common_pb2.OBJECT_STATE_COMMITTED
    with driver.state() as state:
        stream = state.stream(request.name) if request.name else state.stream_by_id(request.stream_id)
        found = []
        ranges = state.ranges.of(stream.stream_id)
        for index in ranges.indexes_from(ranges.index_beyond(request.from_offset)):
            each = ranges[index]
            objects = state.objects_of(stream.stream_id, each.index)
            found += [one for one in objects if one.state == wanted and one.end_offset > request.from_offset]
            if len(found) > size:
                break
        found.sort(key=lambda one: one.start_offset)
        if not request.knows_encryption and any(each.encryption_key_id for each in found[:size]):
            raise UnsupportedVersion(
                f"objects of stream {stream.name!r} are encrypted, and this client is of a version that does not read them: "
                "upgrade it"
            )
        return pb.ListObjectsResponse(objects=found[:size], more=len(found) > size)


CALLS = (
    Call("PrepareObject", prepare_object, RANGE_SERVERS, caller_field="server"),
    Call("CommitObject", commit_object, RANGE_SERVERS, caller_field="server"),
    Call("ListObjects", list_objects, WITH_PD, needs=needs.of_stream(Verb.READ | Verb.ADMIN), hidden_by_restore=True),
    Call("PrepareRepack", prepare_repack, USERS - BROKERS, needs=needs.of_stream(Verb.ADMIN)),
    Call("CommitRepack", commit_repack, USERS - BROKERS, needs=needs.of_object),
)
