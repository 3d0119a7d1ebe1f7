"""Commands on the audit log: it is switched, gets entries, and entries reach its stream.

What holds: an entry has the time of its command and the hash of the one before it, so all members make the same line. While
PENDING_MAX entries wait for the stream, nothing new may be begun: a change that no entry would record is not made. Outcomes
of what has begun always have room.
"""

from __future__ import annotations

from rangelog_core.audit import encode_line
from rangelog_core.errors import Overloaded
from rangelog_core.ids import AUDIT_STREAM_NAME
from rangelog_core.stream_defaults import with_defaults
from rangelog_pd.state.store import State
from rangelog_proto.v1 import audit_pb2 as pb
from rangelog_proto.v1 import common_pb2

PENDING_MAX = 2_000
NOTES_MAX = 1_000
"""In one command."""
TEXT_LENGTH_MAX = 500
"""Of one field; more of it is cut."""
BEGUN = "begun"


def set_audit(state: State, command: pb.PlacedSetAudit, now_ms: int) -> pb.SetAuditResponse:
    """Switch the log on or off, which is an entry of its own. The stream is made when it is first enabled."""
    audit = state.audit
    if command.request.enabled and not audit.stream_id:
        config = with_defaults(common_pb2.StreamConfig(tiered=command.tiered))
        audit.stream_id = state.next_stream_id
        state.put_stream(
            common_pb2.Stream(
                stream_id=audit.stream_id, name=AUDIT_STREAM_NAME, config=config, created_ms=now_ms, version=1
            )
        )
        state.next_stream_id += 1
    if audit.enabled != command.request.enabled:
        audit.enabled = command.request.enabled
        _add(state, command.note, now_ms)
    return pb.SetAuditResponse(state=audit.row())


def note_audit(state: State, command: pb.NoteAudit, now_ms: int) -> pb.NoteAuditResponse:
    """Add entries; none where the log is off. Raises Overloaded where something would begin, and too many entries wait."""
    audit = state.audit
    if not audit.enabled:
        return pb.NoteAuditResponse()
    begins = any(each.outcome == BEGUN for each in command.notes)
    if begins and len(audit.pending) >= PENDING_MAX:
        raise Overloaded(
            f"{len(audit.pending):,} entries of the audit log wait for its stream, and no change is made without one: "
            "see `pdctl audit status`"
        )
    return pb.NoteAuditResponse(sequences=[_add(state, each, now_ms) for each in command.notes[:NOTES_MAX]])


def mark_audit_written(state: State, command: pb.MarkAuditWritten, now_ms: int) -> None:
    """Forget the entries that are in the stream."""
    state.audit.written(command.sequence)


def _add(state: State, note: pb.AuditNote, now_ms: int) -> int:
    audit = state.audit
    fields: dict[str, str | int] = {
        "principal": note.principal[:TEXT_LENGTH_MAX],
        "peer": note.peer[:TEXT_LENGTH_MAX],
        "through": note.through[:TEXT_LENGTH_MAX],
        "call": note.call[:TEXT_LENGTH_MAX],
        "resource": note.resource[:TEXT_LENGTH_MAX],
        "outcome": note.outcome[:TEXT_LENGTH_MAX],
        "detail": note.detail[:TEXT_LENGTH_MAX],
        "of": note.of_sequence,
        "count": note.count,
        "dropped": note.dropped_count,
    }
    return audit.add(encode_line(audit.last_sequence + 1, now_ms, audit.last_hash, fields))
