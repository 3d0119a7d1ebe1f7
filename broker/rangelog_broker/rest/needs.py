"""Which rights a request to the REST interface needs, by method and path. No I/O.

What holds: a path that is unknown needs the right to administer every namespace.
"""

from __future__ import annotations

from rangelog_broker.kind import EVERYTHING, Need
from rangelog_core.rights import ANY, Verb
from rangelog_proto.v1 import rights_pb2 as pb


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
    return [EVERYTHING]


def _of_stream(looks: Verb, rest: list[str]) -> Need:
    verbs = {"trim": Verb.TRIM, "seal": Verb.SEAL | Verb.APPEND}.get("".join(rest[1:]), looks)
    return verbs, pb.RESOURCE_KIND_STREAM, rest[0] if rest else "*", 0


def _of_topic(looks: Verb, namespace: str, rest: list[str]) -> Need:
    verbs = {"truncate": Verb.TRIM, "seal": Verb.SEAL}.get("".join(rest[1:]), looks)
    return verbs, pb.RESOURCE_KIND_TOPIC, f"{namespace}/{rest[0] if rest else '*'}", 0
