"""Puts the rows of a plan into a cluster, in bounded commands, from wherever an earlier attempt has got to.

What holds: a plan that is begun is ended by the same plan only; where the bucket has changed meanwhile, what was put is taken
back first. A command that is repeated changes nothing, so an attempt that was killed is repeated as a whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import islice

from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import COMMAND_BYTES_MAX, KIB
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import restore_pb2 as pb
from rangelog_tier.restore.plan import RestorePlan

ROWS_PER_CALL = 500
BYTES_PER_CALL = 40 * KIB
"""A single row may be larger: that of a cut of a very large topic."""


def requests(plan: RestorePlan, plan_id: str, first_row: int) -> Iterator[pb.RestoreRowsRequest]:
    """Yield the rows from a number on, in requests of one command each. Raises InvalidArgument for a row that fits in none."""
    number, size = first_row, 0
    request = pb.RestoreRowsRequest(request_id=uuid.uuid4().hex, plan_id=plan_id, first_row=number)
    for kind, row in islice(plan.rows(), first_row, None):
        added = row.ByteSize() + 8
        if added + KIB > COMMAND_BYTES_MAX:
            raise InvalidArgument(f"a row of {kind} has {added} bytes, which no command can have")
        if number > request.first_row and (
            number - request.first_row >= ROWS_PER_CALL or size + added > BYTES_PER_CALL
        ):
            yield request
            request = pb.RestoreRowsRequest(request_id=uuid.uuid4().hex, plan_id=plan_id, first_row=number)
            size = 0
        getattr(request, kind).append(row)
        number += 1
        size += added
    if number > request.first_row:
        yield request


async def apply_plan(
    pd: PdClient,
    plan: RestorePlan,
    *,
    source_cluster_id: str,
    snapshot_id: str,
    timeout_s: float,
    show: Callable[[int], None] = lambda _: None,
) -> pb.RestoreMark:
    """Restore the cluster by the plan; return the mark of the restore. `show` gets the number of rows that are there.

    Raises PreconditionFailed (the cluster is not empty), Unavailable, OutcomeUnknown: then it may be called again.
    """
    client, plan_id = pd, plan.plan_id()
    described = await client.call(pb.DescribeRestoreRequest(), pb.RestoreResponse, timeout_s=timeout_s)
    mark = described.mark
    if mark.phase == pb.RESTORE_PHASE_RUNNING and mark.plan_id != plan_id:
        await _take_back(client, mark.plan_id, timeout_s)
    begin = pb.BeginRestoreRequest(
        request_id=uuid.uuid4().hex,
        plan_id=plan_id,
        source_cluster_id=source_cluster_id,
        snapshot_id=snapshot_id,
        row_count=plan.row_count,
        next_stream_id=plan.next_stream_id,
        next_object_id=plan.next_object_id,
        next_topic_id=plan.next_topic_id,
        next_cursor_version=plan.next_cursor_version,
    )
    mark = (await client.call(begin, pb.RestoreResponse, timeout_s=timeout_s)).mark
    for request in requests(plan, plan_id, mark.rows_put):
        mark = (await client.call(request, pb.RestoreResponse, timeout_s=timeout_s)).mark
        show(mark.rows_put)
    end = pb.EndRestoreRequest(request_id=uuid.uuid4().hex, plan_id=plan_id)
    return (await client.call(end, pb.RestoreResponse, timeout_s=timeout_s)).mark


async def _take_back(client: PdClient, plan_id: str, timeout_s: float) -> None:
    """Remove what an earlier plan has put."""
    while True:
        request = pb.RestoreRowsRequest(request_id=uuid.uuid4().hex, plan_id=plan_id, clear=True)
        mark = (await client.call(request, pb.RestoreResponse, timeout_s=timeout_s)).mark
        if mark.phase != pb.RESTORE_PHASE_RUNNING:
            return
