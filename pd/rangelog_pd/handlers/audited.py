"""The calls that the audit log records, and what it says of each: an entry before anything is done, and one with the outcome.

What holds: where the log is on, nothing of these calls is carried out before an entry that says so is committed. Each call of
every service is either here or in NOT_AUDITED, so none is forgotten. Calls of servers for themselves are not recorded; what a
broker calls for a principal is recorded as that one's, and names the broker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.json_format import MessageToDict

from rangelog_core.errors import OutcomeUnknown, Overloaded, RangelogError, Unavailable
from rangelog_core.net.principals import SERVER_ROLES, Principal
from rangelog_pd.driver import Driver
from rangelog_pd.state.audit import BEGUN, TEXT_LENGTH_MAX
from rangelog_proto.v1 import audit_pb2 as pb

Handler = Callable[[Driver, Any], Awaitable[Any]]
Resource = Callable[[Any], str]


def _named(kind: str, field: str = "name") -> Resource:
    return lambda request: f"{kind} {getattr(request, field)}"


def _of_topic(request: Any) -> str:
    topic = request.topic
    return f"topic {topic.namespace}/{topic.name}" if topic.name else f"topic id {topic.topic_id}"


def _of_stream(request: Any) -> str:
    name = getattr(request, "name", "")
    return f"stream {name}" if name else f"stream id {getattr(request, 'stream_id', 0)}"


def _of_rule(request: Any) -> str:
    return f"rule of {request.rule.principal}"


def _of_quota(request: Any) -> str:
    return f"quota of {request.principal or request.prefix}"


def _cluster(_request: Any) -> str:
    return "cluster"


AUDITED: dict[str, Resource] = {
    "CreateStream": _of_stream,
    "UpdateStream": _of_stream,
    "DeleteStream": _of_stream,
    "TrimStream": _of_stream,
    "CreateNamespace": _named("namespace"),
    "DeleteNamespace": _named("namespace"),
    "CreateTopic": lambda request: f"topic {request.namespace}/{request.name}",
    "UpdateTopic": _of_topic,
    "TruncateTopic": _of_topic,
    "SealTopic": _of_topic,
    "DeleteTopic": _of_topic,
    "StartScale": _of_topic,
    "CancelScale": lambda request: f"topic id {request.topic_id}",
    "DeleteCursor": lambda request: f"cursor {request.name} of stream id {request.stream_id}",
    "AcceptLoss": _of_stream,
    "CancelTask": _named("task", "task_id"),
    "ReuploadObject": lambda request: f"object {request.object_id}",
    "SetTier": _cluster,
    "SetServerMode": _named("server", "server"),
    "RemoveServer": _named("server", "server"),
    "FinalizeUpgrade": _cluster,
    "ApplyRebalance": _cluster,
    "BeginRestore": _cluster,
    "EndRestore": _cluster,
    "GrantRights": _of_rule,
    "RevokeRights": _of_rule,
    "EnforceRights": _cluster,
    "CreateToken": _named("token"),
    "RevokeToken": _named("token"),
    "SetQuota": _of_quota,
    "RemoveQuota": _of_quota,
    "AddMember": _named("placement driver"),
    "RemoveMember": _named("placement driver"),
    "TransferLeadership": _named("placement driver"),
    "SaveState": _cluster,
}
"""What each call changes. `SaveState` gives the caller all of the state, in pieces, of which the first is recorded."""

NOT_AUDITED = frozenset(
    {
        # reads
        "DescribeStream", "ListStreams", "ListRanges", "Watch", "ListObjects", "ListServers", "DescribeCluster", "ListTasks",
        "ListNamespaces", "DescribeTopic", "ListTopics", "ListShards", "ListBrokers", "FindOwners", "ListRepairs",
        "InspectRanges", "LocateOffset", "FindTasks", "InspectMember", "DescribeTier", "FindObjects", "DescribeDrain",
        "CheckImpact", "GetCursor", "ListCursors", "ExplainPlacement", "PlanRebalance", "DescribeRebalance", "DescribeRestore",
        "ListRights", "CheckRights", "ListMembers", "DescribeAudit", "ListTokens", "GetTokenTrust", "ListQuotas",
        # the work of writers, readers and servers
        "OpenWriter", "CreateRange", "SealRange", "OpenWriters", "SealRanges", "ProveEnd", "PrepareObject", "CommitObject",
        "PrepareRepack", "CommitRepack", "RegisterServer", "Heartbeat", "CommitScale", "EndShard", "EnsureLog",
        "ReportConsumed", "RegisterBroker", "BrokerHeartbeat", "ReportBrokerLost", "SetCursors",
        "RestoreRows",  # between BeginRestore and EndRestore
        "SetAudit",  # its command makes the entry, whether the log is on or not
    }
)  # fmt: skip
_SECRET = frozenset({"SetTier"})
"""Their requests may hold a secret in a URL."""


def recorded(call: str, handler: Handler, caller: Principal | None, peer: str) -> Handler:
    """Return a handler that records what it does, if the call is one of those."""
    resource = AUDITED.get(call)
    if resource is None or (caller is not None and caller.role in SERVER_ROLES):
        return handler

    async def audited(driver: Driver, request: Any) -> Any:
        if getattr(request, "dry_run", False) or getattr(request, "save_id", "") or not await driver.audits():
            return await handler(driver, request)
        note = pb.AuditNote(
            principal=str(caller) if caller is not None else "",
            peer=peer,
            call=call,
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


def _detail(call: str, request: Any) -> str:
    """Return what is asked for, as JSON, without what only the protocol needs."""
    if call in _SECRET:
        return ""
    content = MessageToDict(request, preserving_proto_field_name=True)
    content.pop("request_id", None)
    return json.dumps(content, sort_keys=True, separators=(",", ":"))[:TEXT_LENGTH_MAX]
