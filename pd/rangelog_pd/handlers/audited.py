"""The calls that the audit log records, and what it says of each: an entry before anything is done, and one with the outcome.

What holds: where the log is on, nothing of these calls is carried out before an entry that says so is committed. Each call of
every service says whether it is one of them (call.py). Calls of servers for themselves are not recorded; what a
broker calls for a principal is recorded as that one's, and names the broker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict

from rangelog_core.errors import OutcomeUnknown, Overloaded, RangelogError, Unavailable
from rangelog_core.net.principals import SERVER_ROLES, Principal
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.call import Call, Handler
from rangelog_pd.state.audit import BEGUN, TEXT_LENGTH_MAX
from rangelog_proto.v1 import audit_pb2 as pb

Resource = Callable[[Any], str]


def named(kind: str, field: str = "name") -> Resource:
    """Of the kind, by a field of the request."""
    return lambda request: f"{kind} {getattr(request, field)}"


def of_topic(request: Any) -> str:
    """Of a topic, by its reference."""
    topic = request.topic
    return f"topic {topic.namespace}/{topic.name}" if topic.name else f"topic id {topic.topic_id}"


def of_shard(request: Any) -> str:
    """Of a shard, by the ids."""
    return f"shard {request.shard_id} of topic id {request.topic_id}"


def of_stream(request: Any) -> str:
    """Of a stream, by name or id."""
    name = getattr(request, "name", "")
    return f"stream {name}" if name else f"stream id {getattr(request, 'stream_id', 0)}"


def of_rule(request: Any) -> str:
    """Of a rule of rights."""
    return f"rule of {request.rule.principal}"


def of_quota(request: Any) -> str:
    """Of a quota."""
    return f"quota of {request.principal or request.prefix}"


def cluster(_request: Any) -> str:
    """The cluster itself."""
    return "cluster"


def recorded(call: Call, handler: Handler, caller: Principal | None, peer: str) -> Handler:
    """Return a handler that records what it does, if the call is recorded."""
    resource = call.audit
    if resource is None or (caller is not None and caller.role in SERVER_ROLES):
        return handler

    async def audited(driver: Driver, request: Any) -> Any:
        if getattr(request, "dry_run", False) or getattr(request, "save_id", "") or not await driver.audits():
            return await handler(driver, request)
        note = pb.AuditNote(
            principal=str(caller) if caller is not None else "",
            peer=peer,
            call=call.name,
            resource=resource(request),
            through=driver.through(caller),
        )
        begun = pb.AuditNote(outcome=BEGUN, detail=_detail(call, request))
        begun.MergeFrom(note)
        note.of_sequence = await _begin(driver, begun)
        try:
            answer = await handler(driver, request)
        except RangelogError as error:
            note.outcome, note.detail = error.code, error.message
            raise
        except (Exception, asyncio.CancelledError):
            note.outcome = OutcomeUnknown.code
            raise
        else:
            note.outcome = "OK"
            return answer
        finally:
            driver.audit.ended(note)

    return audited


async def _begin(driver: Driver, note: pb.AuditNote) -> int:
    """Commit the entry of what is about to begin; return its sequence number. Raises Overloaded, NotLeader, Unavailable."""
    try:
        answer = await driver.propose(pb.NoteAuditResponse, "", note_audit=pb.NoteAudit(notes=[note]))
    except Overloaded:
        raise
    except OutcomeUnknown as error:
        raise Unavailable("the audit log could not be written, so nothing was done: try again") from error
    return answer.sequences[0] if answer.sequences else 0


def _detail(call: Call, request: Any) -> str:
    """Return what is asked for, as JSON, without what only the protocol needs."""
    if call.secret:
        return ""
    content = MessageToDict(request, preserving_proto_field_name=True)
    content.pop("request_id", None)
    return json.dumps(content, sort_keys=True, separators=(",", ":"))[:TEXT_LENGTH_MAX]
