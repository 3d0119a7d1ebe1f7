"""Which rights a call on a broker needs: services by their method, the REST interface by method and path. No I/O.

What holds: a call that is in no table, and a path that is unknown, need the right to administer every namespace. Servers and
administrators are not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_core.rights import ANY, Verb
from rangelog_proto.v1 import rights_pb2 as pb

Need = tuple[Verb, int, str, int]
"""One of the verbs, on a resource by kind, and name or id."""

_EVERYTHING: Need = (Verb.ADMIN, pb.RESOURCE_KIND_NAMESPACE, "*", 0)


def _group(verbs: Verb) -> Callable[[Any], list[Need]]:
    return lambda request: [(verbs, pb.RESOURCE_KIND_GROUP, request.group, 0)]


def _joining(request: Any) -> list[Need]:
    """Who joins learns of the topics' shards, and the group may hold up what is trimmed of them."""
    topics = ((Verb.READ, pb.RESOURCE_KIND_TOPIC, "", topic_id) for topic_id in request.join.topic_ids)
    return [(Verb.READ, pb.RESOURCE_KIND_GROUP, request.group, 0), *topics]


def _staging_positions(request: Any) -> list[Need]:
    """They are of the transaction as well, as what a STAGE frame stages is."""
    by = request.stage.transactional_id
    return [(Verb.READ, pb.RESOURCE_KIND_GROUP, request.group, 0), (Verb.APPEND, pb.RESOURCE_KIND_TRANSACTION, by, 0)]


def _resetting(request: Any) -> list[Need]:
    """A position that moves back holds up what is trimmed of its topic, as a member does that joins."""
    topics = sorted({each.shard.topic_id for each in request.reset.positions})
    return [
        (Verb.ADMIN, pb.RESOURCE_KIND_GROUP, request.group, 0),
        *((Verb.READ, pb.RESOURCE_KIND_TOPIC, "", topic_id) for topic_id in topics),
    ]


def _group_session(request: Any) -> list[Need]:
    return [(ANY, pb.RESOURCE_KIND_GROUP, request.group or "*", 0)]


def _transactions(verbs: Verb) -> Callable[[Any], list[Need]]:
    """Of one transactional id, or of all where none is named."""
    return lambda request: [(verbs, pb.RESOURCE_KIND_TRANSACTION, request.transactional_id or "*", 0)]


def _topic(verbs: Verb) -> Callable[[Any], list[Need]]:
    return lambda request: [(verbs, pb.RESOURCE_KIND_TOPIC, "", request.topic_id)]


def _transaction(request: Any) -> list[Need]:
    name = request.name.transactional_id if hasattr(request, "name") else request.transactional_id
    return [(Verb.APPEND, pb.RESOURCE_KIND_TRANSACTION, name, 0)]


_CALLS: dict[str, Callable[[Any], list[Need]]] = {
    **dict.fromkeys(
        (
            "Groups/HeartbeatGroup", "Groups/LeaveGroup", "Groups/CommitPositions", "Groups/ReleaseShards",
            "Groups/ReachCheckpoint",
        ),
        _group(Verb.READ),
    ),
    "Groups/JoinGroup": _joining,
    "Groups/StagePositions": _staging_positions,
    "Groups/ResetGroup": _resetting,
    **dict.fromkeys(("Groups/DescribeGroup", "Groups/DescribeCheckpoint"), _group(ANY)),
    **dict.fromkeys(
        (
            "Groups/DeleteGroup", "Groups/UnsubscribeGroup", "Groups/RetainGroup", "Groups/RequestCheckpoint",
            "Groups/DeleteCheckpoint",
        ),
        _group(Verb.ADMIN),
    ),
    "Groups/ListGroups": lambda request: [(ANY, pb.RESOURCE_KIND_GROUP, f"{request.prefix}*", 0)],
    "Groups/OpenGroupSession": _group_session,
    "Transactions/OpenTransactionSession": _transactions(Verb.APPEND),
    **dict.fromkeys(("Tables/Get", "Tables/Scan", "Tables/Watch"), _topic(Verb.READ)),
    **dict.fromkeys(("Tables/OpenSession", "Tables/Apply"), _topic(Verb.APPEND)),
    **dict.fromkeys(
        (
            "Transactions/InitTransactions", "Transactions/BeginTransaction", "Transactions/PingTransaction",
            "Transactions/CommitTransaction", "Transactions/AbortTransaction", "Transactions/DescribeTransaction",
        ),
        _transaction,
    ),
    "Transactions/ListTransactions": _transactions(ANY),
    **dict.fromkeys(("Watermarks/NoteTime", "Watermarks/EndTimeNotes"), _topic(Verb.APPEND)),
    "Watermarks/ListWatermarks": _topic(Verb.READ),
}  # fmt: skip


def needs_of_call(method: str, request: Any) -> list[Need]:
    """Return what a call by its full name, "/package.Service/Method", needs."""
    if method.startswith(("/grpc.health.", "/grpc.reflection.")):
        return []
    known = _CALLS.get(method.rpartition(".")[2])
    return known(request) if known is not None else [_EVERYTHING]


def needs_of_path(method: str, path: str) -> list[Need]:
    """Return what a request to the REST interface needs.

    >>> needs_of_path("POST", "/v1/streams/s/trim")
    [(<Verb.TRIM: 8>, 1, 's', 0)]
    """
    reads = method == "GET"
    looks = ANY if reads else Verb.ADMIN
    match path.split("/")[1:]:
        case ["v1", "brokers"] | ["openapi.json"] if reads:
            return []
        case ["v1", "streams", *rest]:
            return [_of_stream(looks, rest)]
        case ["v1", "groups", *rest]:
            return [(looks, pb.RESOURCE_KIND_GROUP, rest[0] if rest else "*", 0)]
        case ["v1", "transactions", *rest]:
            verbs = Verb.APPEND if rest[1:] == ["abort"] else looks
            return [(verbs, pb.RESOURCE_KIND_TRANSACTION, rest[0] if rest else "*", 0)]
        case ["v1", "topics" | "tables"] if reads:
            return [(ANY, pb.RESOURCE_KIND_TOPIC, "*", 0)]
        case ["v1", "namespaces"]:
            return [(looks, pb.RESOURCE_KIND_NAMESPACE, "*", 0)]
        case ["v1", "namespaces", namespace]:
            return [(looks, pb.RESOURCE_KIND_NAMESPACE, namespace, 0)]
        case ["v1", "namespaces", namespace, "topics" | "tables", *rest]:
            return [_of_topic(looks, namespace, rest)]
    return [_EVERYTHING]


def _of_stream(looks: Verb, rest: list[str]) -> Need:
    verbs = {"trim": Verb.TRIM, "seal": Verb.SEAL | Verb.APPEND}.get("".join(rest[1:]), looks)
    return verbs, pb.RESOURCE_KIND_STREAM, rest[0] if rest else "*", 0


def _of_topic(looks: Verb, namespace: str, rest: list[str]) -> Need:
    verbs = {"truncate": Verb.TRIM, "seal": Verb.SEAL}.get("".join(rest[1:]), looks)
    return verbs, pb.RESOURCE_KIND_TOPIC, f"{namespace}/{rest[0] if rest else '*'}", 0
