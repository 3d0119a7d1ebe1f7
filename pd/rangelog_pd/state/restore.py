"""Restores: the rows of a plan are put into an empty cluster, in order and in bounded parts (docs/OPERATIONS.md).

What holds:

* A restore begins in an empty cluster only. From its first entry to its last no other command changes anything but who the
  servers and brokers are (`refusal`), so the rows are those of the plan and no others.
* A command names the plan and the number of its first row: a repeat changes nothing, and a part that is missing is refused.
* Ids are kept, and later ones are beyond all that the source can have given out, so no key of an object is used again. Nothing
  that a restore takes back becomes a tombstone: the objects of the source are never deleted by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from google.protobuf.message import Message

from rangelog_core.errors import InvalidArgument, PreconditionFailed, RangelogError, Unavailable
from rangelog_core.ids import journal_stream_name
from rangelog_pd.state.owner_tables import JOURNALS
from rangelog_pd.state.restored_rows import KINDS, check_row, put_row
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import restore_pb2 as pb

CLEARED_PER_ENTRY = 10_000
ROWS_PER_ENTRY_MAX = 10_000
ID_LENGTH_MAX = 200

_GO_ON = (
    "begin_restore", "restore_rows", "end_restore", "name_cluster", "set_cluster_version", "register_server", "mark_log_end",
    "mark_log_ends", "register_broker", "mark_broker_lost", "grant_rights", "revoke_rights", "enforce_rights",
    "set_audit", "note_audit", "mark_audit_written", "create_token", "revoke_token",
)  # fmt: skip
"""What is applied during a restore."""


def refusal(state: State, action: str) -> RangelogError | None:
    """Return the error of a command that a restore in progress does not let through."""
    if state.restore.phase != pb.RESTORE_PHASE_RUNNING or action in _GO_ON:
        return None
    return being_restored(state.restore)


def being_restored(mark: pb.RestoreMark) -> Unavailable:
    """Return the error for who calls during a restore."""
    return Unavailable(
        f"the cluster is being restored from the tier: {mark.rows_put:,} of {mark.row_count:,} rows are there; "
        "where nobody goes on with it, run `pdctl restore` again"
    )


def begin_restore(state: State, request: pb.BeginRestoreRequest, now_ms: int) -> pb.RestoreResponse:
    """Begin a restore, or return how far the same one is. Raises InvalidArgument, PreconditionFailed."""
    mark = state.restore
    if mark.phase == pb.RESTORE_PHASE_RUNNING and mark.plan_id == request.plan_id:
        return pb.RestoreResponse(mark=mark)
    if mark.phase == pb.RESTORE_PHASE_RUNNING:
        raise PreconditionFailed(
            f"a restore by another plan is in progress ({mark.rows_put:,} of {mark.row_count:,} rows): take it back first"
        )
    longest = max(map(len, (request.plan_id, request.source_cluster_id, request.snapshot_id)))
    if not request.plan_id or longest > ID_LENGTH_MAX:
        raise InvalidArgument(f"a restore names its plan, in at most {ID_LENGTH_MAX} characters")
    _check_empty(state)
    for given, known in (
        (request.next_stream_id, state.next_stream_id),
        (request.next_object_id, state.next_object_id),
        (request.next_topic_id, state.topics.next_topic_id),
        (request.next_cursor_version, state.cursors.next_version),
    ):
        if not known <= given < 1 << 63:
            raise InvalidArgument(f"a restore cannot begin with the next id {given}: this cluster is at {known}")
    for number in range(JOURNALS):  # brokers made them at their start, and make them again: nothing is in them yet
        stream_id = state.names.get(journal_stream_name(number))
        if stream_id is not None:
            state.remove_stream(stream_id)
    state.next_stream_id, state.next_object_id = request.next_stream_id, request.next_object_id
    state.topics.next_topic_id = request.next_topic_id
    state.cursors.next_version = request.next_cursor_version
    state.restore = pb.RestoreMark(
        phase=pb.RESTORE_PHASE_RUNNING,
        plan_id=request.plan_id,
        source_cluster_id=request.source_cluster_id,
        snapshot_id=request.snapshot_id,
        row_count=request.row_count,
        began_ms=now_ms,
        first_stream_id=request.next_stream_id,
    )
    return pb.RestoreResponse(mark=state.restore)


def was_never_used(state: State) -> bool:
    """Whether the cluster never had a stream but those of journals: nothing of it is worth a snapshot in the tier."""
    return state.next_stream_id == 1 + _journals(state) and state.topics.next_topic_id == 1


def _journals(state: State) -> int:
    return sum(state.names.get(journal_stream_name(number)) is not None for number in range(JOURNALS))


def _check_empty(state: State) -> None:
    """Raise PreconditionFailed for a cluster that has, or had, streams or topics of its own."""
    streams, topics = len(state.streams) - _journals(state), len(state.topics.topics)
    if not streams and not topics and not state.objects:
        return
    text = f"the cluster is not empty: it has {streams} streams, {topics} topics and {len(state.objects)} objects"
    if state.restore.phase == pb.RESTORE_PHASE_DONE:
        text += f"; it was restored from cluster {state.restore.source_cluster_id} before"
    raise PreconditionFailed(
        f"{text}. A restore goes into an empty one: start placement drivers with empty directories"
    )


def restore_rows(state: State, request: pb.RestoreRowsRequest, now_ms: int) -> pb.RestoreResponse:
    """Put the next rows, or take back some. Raises PreconditionFailed, InvalidArgument: then nothing is changed."""
    mark = copy_of(_running(state, request.plan_id))
    if request.clear:
        mark.rows_put -= min(mark.rows_put, _clear(state))
        if not any(kind.table(state) for kind in KINDS.values()):
            mark = pb.RestoreMark()
        state.restore = mark
        return pb.RestoreResponse(mark=mark)
    rows: list[tuple[str, Message]] = [(kind, row) for kind in KINDS for row in getattr(request, kind)]
    end = request.first_row + len(rows)
    if end <= mark.rows_put:
        return pb.RestoreResponse(mark=mark)
    if request.first_row != mark.rows_put or end > mark.row_count:
        raise PreconditionFailed(
            f"rows {request.first_row} to {end} of {mark.row_count} cannot follow: {mark.rows_put} rows are there"
        )
    if len(rows) > ROWS_PER_ENTRY_MAX:
        raise InvalidArgument(f"{len(rows)} rows in one command; the limit is {ROWS_PER_ENTRY_MAX}")
    _put(state, rows)
    mark.rows_put = end
    state.restore = mark
    return pb.RestoreResponse(mark=mark)


def _put(state: State, rows: Sequence[tuple[str, Message]]) -> None:
    """Put all rows, or none: a row is checked against those before it. Raises InvalidArgument."""
    done: list[tuple[str, Message]] = []
    try:
        for kind, row in rows:
            check_row(state, kind, row)
            put_row(state, kind, row)
            done.append((kind, row))
    except RangelogError:
        for kind, row in reversed(done):
            put_row(state, kind, row, remove=True)
        raise


def end_restore(state: State, request: pb.EndRestoreRequest, now_ms: int) -> pb.RestoreResponse:
    """End a restore once all its rows are there; a repeat changes nothing. Raises PreconditionFailed."""
    if state.restore.phase == pb.RESTORE_PHASE_DONE and state.restore.plan_id == request.plan_id:
        return pb.RestoreResponse(mark=state.restore)
    mark = copy_of(_running(state, request.plan_id))
    if mark.rows_put != mark.row_count:
        raise PreconditionFailed(f"{mark.rows_put} of {mark.row_count} rows are there: the restore is not at its end")
    mark.phase, mark.ended_ms = pb.RESTORE_PHASE_DONE, now_ms
    state.restore = mark
    return pb.RestoreResponse(mark=mark)


def _running(state: State, plan_id: str) -> pb.RestoreMark:
    """Return the mark of the restore in progress. Raises PreconditionFailed unless it is that of this plan."""
    if state.restore.phase != pb.RESTORE_PHASE_RUNNING:
        raise PreconditionFailed("no restore is in progress: begin one")
    if state.restore.plan_id != plan_id:
        raise PreconditionFailed("the restore in progress is that of another plan")
    return state.restore


def _clear(state: State) -> int:
    """Remove the next rows, those that name others first; no object becomes a tombstone. Return how many."""
    left = CLEARED_PER_ENTRY
    for table in [kind.table(state) for kind in reversed(KINDS.values())]:
        for key in list(islice(table, left)):
            table.remove(key)
            left -= 1
        if not left:
            break
    return CLEARED_PER_ENTRY - left
