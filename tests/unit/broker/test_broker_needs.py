"""Which rights calls on a broker need: that no call and no path of the REST interface was forgotten."""

from __future__ import annotations

import pytest

from rangelog_broker.kinds import needs_of_call
from rangelog_broker.rest.app import bare_app
from rangelog_broker.rest.needs import needs_of_path
from rangelog_core.net.principals import Role
from rangelog_core.rights import ANY, KINDS, Verb
from rangelog_pd.handlers.service import RULES
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as groups
from rangelog_proto.v1 import transaction_service_pb2 as transactions
from tests.unit.core.net.test_principals import SERVICES

EVERYTHING = [(Verb.ADMIN, KINDS["namespace"], "*", 0)]


def test_every_call_that_a_client_may_make_needs_something_known() -> None:
    """A call in no table needs the right to administer everything."""

    class Anything:
        group, topic_id, transactional_id, prefix, join = "g", 1, "x", "", group_pb2.GroupJoin()
        reset, stage = group_pb2.GroupReset(), group_pb2.GroupStage()

    for service in ("Groups", "Tables", "Transactions", "Watermarks"):
        for method in SERVICES[f"rangelog.v1.{service}"]:
            full = f"/rangelog.v1.{service}/{method}"
            if Role.CLIENT in RULES.roles_of(full):
                assert needs_of_call(full, Anything()) != EVERYTHING, full
    assert needs_of_call("/rangelog.v1.Shards/MergeTransaction", Anything()) == EVERYTHING
    joining = groups.JoinGroupRequest(group="g", join=group_pb2.GroupJoin(topic_ids=[3, 4]))
    assert needs_of_call("/rangelog.v1.Groups/JoinGroup", joining) == [
        (Verb.READ, KINDS["group"], "g", 0),
        *((Verb.READ, KINDS["topic"], "", topic_id) for topic_id in (3, 4)),
    ]
    shards = [group_pb2.GroupShard(topic_id=each) for each in (4, 3, 4)]
    reset = group_pb2.GroupReset(positions=[group_pb2.GroupPosition(shard=each) for each in shards])
    assert needs_of_call("/rangelog.v1.Groups/ResetGroup", groups.ResetGroupRequest(group="g", reset=reset)) == [
        (Verb.ADMIN, KINDS["group"], "g", 0),
        *((Verb.READ, KINDS["topic"], "", topic_id) for topic_id in (3, 4)),
    ]
    staging = groups.StagePositionsRequest(group="g", stage=group_pb2.GroupStage(transactional_id="x"))
    assert needs_of_call("/rangelog.v1.Groups/StagePositions", staging) == [
        (Verb.READ, KINDS["group"], "g", 0),
        (Verb.APPEND, KINDS["transaction"], "x", 0),
    ]
    for call, request, need in (
        ("Groups/OpenGroupSession", groups.OpenGroupSessionRequest(group="g"), (ANY, KINDS["group"], "g", 0)),
        ("Groups/OpenGroupSession", groups.OpenGroupSessionRequest(), (ANY, KINDS["group"], "*", 0)),
        (
            "Transactions/OpenTransactionSession",
            transactions.OpenTransactionSessionRequest(transactional_id="x"),
            (Verb.APPEND, KINDS["transaction"], "x", 0),
        ),
        (
            "Transactions/OpenTransactionSession",
            transactions.OpenTransactionSessionRequest(),
            (Verb.APPEND, KINDS["transaction"], "*", 0),
        ),
    ):
        assert needs_of_call(f"/rangelog.v1.{call}", request) == [need]
    listed = groups.ListGroupsRequest(prefix="or")
    assert needs_of_call("/rangelog.v1.Groups/ListGroups", listed) == [(ANY, KINDS["group"], "or*", 0)]


def test_every_path_of_the_rest_interface_has_its_resource() -> None:
    """What changes something never needs a look only; unknown paths are for who administers everything."""
    count = 0
    for path, operations in bare_app().openapi()["paths"].items():
        for method in operations:
            count += 1
            needs = needs_of_path(method.upper(), path.replace("{", "x").replace("}", ""))
            assert needs != EVERYTHING or path == "/v1/namespaces", (method, path)
            if method != "get":
                assert all(verbs != ANY for verbs, *_ in needs) and needs, (method, path)
    assert count > 30
    for path in ("/v2/streams", "/v1/streams/", "//v1/streams/s", "/v1", "", "/metrics"):
        assert needs_of_path("GET", path) != [], path


@pytest.mark.parametrize(
    ("method", "path", "need"),
    [
        ("GET", "/v1/streams/s", (ANY, "stream", "s")),
        ("DELETE", "/v1/streams/s", (Verb.ADMIN, "stream", "s")),
        ("POST", "/v1/streams", (Verb.ADMIN, "stream", "*")),
        ("POST", "/v1/streams/s/trim", (Verb.TRIM, "stream", "s")),
        ("POST", "/v1/streams/s/trim/x", (Verb.ADMIN, "stream", "s")),
        ("POST", "/v1/namespaces/n/topics", (Verb.ADMIN, "topic", "n/*")),
        ("POST", "/v1/namespaces/n/topics/t/truncate", (Verb.TRIM, "topic", "n/t")),
        ("GET", "/v1/namespaces/n/topics/t/cut", (ANY, "topic", "n/t")),
        ("DELETE", "/v1/namespaces/n/tables/t", (Verb.ADMIN, "topic", "n/t")),
        ("POST", "/v1/groups/g/reset", (Verb.ADMIN, "group", "g")),
        ("HEAD", "/v1/streams/s", (Verb.ADMIN, "stream", "s")),
    ],
)
def test_needs_of_paths(method: str, path: str, need: tuple[Verb, str, str]) -> None:
    """Verbs, kind and name."""
    verbs, kind, name = need
    assert needs_of_path(method, path) == [(verbs, KINDS[kind], name, 0)]
