"""What a broker calls for those who ask its REST interface: recorded, limited and counted as theirs. Over TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import rangelog
from rangelog._consume.group_calls import GroupCalls
from rangelog_broker.rest.app import make_app
from rangelog_core.audit import parse_line
from rangelog_core.errors import RightMissing, RoleForbids, StreamNotFound
from rangelog_core.net.acting import acting_for
from rangelog_core.net.principals import Port, Principal, Role
from rangelog_core.quotas import Measure
from rangelog_core.rights import ANY, KINDS, Verb, right_missing, wire_verbs
from rangelog_core.tokens import Bounds
from rangelog_pd.handlers import audit, quotas, rights, service
from rangelog_pd.state.versions import LEVEL_BROKERS, LEVEL_QUOTAS
from rangelog_proto.v1 import audit_pb2, broker_pb2, group_pb2, group_service_pb2, quotas_pb2, rights_pb2
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.http_server import PRINCIPAL
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.tokens.verifier import TokenPrincipal
from tests.support.certificates import TestCertificates
from tests.support.rest_caller import Answer, RestCaller

ALICE, OPS = Principal(Role.CLIENT, "a"), Principal(Role.ADMIN, "ops")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return TestCertificates(tmp_path_factory.mktemp("certificates"))


class Acting:
    """A leader behind TLS, and programs that call it."""

    def __init__(self, api: Any, address: str, certificates: TestCertificates) -> None:
        self.api = api
        self._address = address
        self._certificates = certificates
        self.clients: dict[str, rangelog.Client] = {}

    def client(self, role: Role, name: str) -> rangelog.Client:
        """A program with a certificate."""
        if f"{role}:{name}" not in self.clients:
            tls = self._certificates.tls(role, name)
            self.clients[f"{role}:{name}"] = rangelog.Client([self._address], token=None, tls=tls, tier_url=None)
        return self.clients[f"{role}:{name}"]

    async def rest(self, caller: Principal, method: str, path: str, body: Any = None) -> Answer:
        """Ask the REST interface of broker b1."""
        app = make_app(self.client(Role.BROKER, "b1"), token=None)

        async def known(scope: Any, receive: Any, send: Any) -> None:
            await app(scope | {"state": {PRINCIPAL: caller}}, receive, send)

        return await RestCaller(known)(method, path, body)

    async def entries(self) -> list[tuple[Any, ...]]:
        """What the audit log has: principal, broker, call, outcome."""
        await self.api.driver.reconcile()
        lines = [parse_line(each.line) for each in self.api.machine.state.audit.pending.values()][1:]
        return [(each["principal"], each.get("through"), each["call"], each["outcome"]) for each in lines]

    async def grant(self, verbs: Verb, kind: str, name: str) -> None:
        """Give client:a a right, with rights enforced."""
        rule = rights_pb2.AccessRule(principal="client:a", kind=KINDS[kind], name=name, verbs=wire_verbs(verbs))
        await rights.grant_rights(self.api.driver, rights_pb2.GrantRightsRequest(request_id=f"g{name}", rule=rule))
        command = rights_pb2.EnforceRightsRequest(request_id="e", enforced=True)
        await self.api.driver.propose_request(rights_pb2.EnforceRightsResponse, "e", enforce_rights=command)


@pytest.fixture
async def acting(api: Any, certificates: TestCertificates, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Acting]:
    """A leader whose audit log is on."""
    monkeypatch.setattr(type(api.driver.settings), "tls", object())
    api.machine.state.cluster_version = LEVEL_BROKERS
    await audit.set_audit(api.driver, audit_pb2.SetAuditRequest(request_id="a", enabled=True))
    await api.driver.barrier()  # it leads, and notes refusals
    tls = certificates.tls(Role.PD, "pd1")
    server = GrpcServer(tls=tls, port=Port.PD_API, refused=api.driver.note_refusal, rules=service.RULES)
    names = service.add_services(api.driver, server.server)
    server.hold_by(api.driver.quotas.hold_call)
    made = Acting(api, f"127.0.0.1:{await server.start('127.0.0.1:0', names)}", certificates)
    try:
        yield made
    finally:
        for client in made.clients.values():
            await client.close()
        await server.stop(0)


async def test_a_change_over_rest_is_recorded_as_of_who_asked(acting: Acting) -> None:
    """With the broker; what the broker does for itself is not recorded, before and after it."""
    own = acting.client(Role.BROKER, "b1")
    await own.create_stream("own-1")
    assert (await acting.rest(ALICE, "POST", "/v1/streams", {"name": "s"})).status == 201
    assert (await acting.rest(OPS, "DELETE", "/v1/streams/s")).status == 204
    await own.create_stream("own-2")
    through = "broker:b1"
    assert await acting.entries() == [
        ("client:a", through, "CreateStream", "begun"),
        ("admin:ops", through, "DeleteStream", "begun"),
        ("client:a", through, "CreateStream", "OK"),
        ("admin:ops", through, "DeleteStream", "OK"),
    ]


async def test_an_earlier_member_would_make_another_line(acting: Acting) -> None:
    """While one may follow, the broker is named nowhere: the chains of all members are to be the same."""
    acting.api.machine.state.cluster_version = LEVEL_QUOTAS
    assert (await acting.rest(ALICE, "POST", "/v1/streams", {"name": "s"})).status == 201
    assert await acting.entries() == [("client:a", None, "CreateStream", each) for each in ("begun", "OK")]


async def test_the_rights_of_who_asked_count_at_the_placement_driver(acting: Acting) -> None:
    """Behind the broker's own check, which this test leaves out; a refusal is recorded as of who asked."""
    await acting.client(Role.BROKER, "b1").create_stream("theirs")
    await acting.grant(Verb.ADMIN, "stream", "mine")
    assert (await acting.rest(ALICE, "POST", "/v1/streams", {"name": "mine"})).status == 201
    for method, path in (("GET", "/v1/streams/theirs"), ("DELETE", "/v1/streams/theirs")):
        refused = await acting.rest(ALICE, method, path)
        assert (refused.status, refused.body["code"]) == (403, "RIGHT_MISSING")
        assert "client:a may not" in refused.body["message"]
    assert (await acting.rest(OPS, "GET", "/v1/streams/theirs")).status == 200
    assert ("client:a", "broker:b1", "DeleteStream", "RIGHT_MISSING") in await acting.entries()


async def test_a_bound_token_gives_no_more_over_rest(acting: Acting) -> None:
    """The broker says what it is bound to: the placement driver is not shown the token itself."""
    await acting.client(Role.ADMIN, "ops").create_stream("theirs")
    await acting.grant(Verb.ADMIN, "stream", "*")
    rule = rights_pb2.AccessRule(principal="*", kind=KINDS["stream"], name="mine", verbs=wire_verbs(Verb.ADMIN))
    bound = TokenPrincipal(Role.CLIENT, "a", Bounds([rule]))
    assert (await acting.rest(bound, "POST", "/v1/streams", {"name": "mine"})).status == 201
    refused = await acting.rest(bound, "GET", "/v1/streams/theirs")
    assert refused.status == 403 and "the token of client:a is bound to other things" in refused.body["message"]
    assert (await acting.rest(ALICE, "GET", "/v1/streams/theirs")).status == 200


async def test_what_a_group_tells_of_a_topic_needs_a_right_on_the_topic(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SDK and over REST in the same words, whoever has asked the broker before; what was deleted is nobody's."""
    ops = acting.client(Role.ADMIN, "ops")
    mine, theirs = [await ops.topics.create(name) for name in ("mine", "theirs")]
    ids = [mine.topic_id, theirs.topic_id, 99]
    shards = [group_pb2.GroupShardState(shard={"topic_id": each}, facts={"ended": True}) for each in ids]
    state = group_pb2.GroupState(topics=[{"topic_id": each} for each in ids], shards=shards)
    state.checkpoints.add(name="c")
    positions = [group_pb2.GroupPosition(shard=each.shard) for each in shards]
    checkpoint = group_pb2.GroupCheckpointState(name="c", positions=positions)

    async def describe(*_: Any) -> Any:
        return group_service_pb2.DescribeGroupResponse(state=state)

    async def describe_checkpoint(*_: Any) -> Any:
        return checkpoint

    monkeypatch.setattr(GroupCalls, "describe", describe)
    monkeypatch.setattr(GroupCalls, "checkpoint", describe_checkpoint)
    for path in ("", "/lag"):
        assert (await acting.rest(OPS, "GET", f"/v1/groups/g{path}")).status == 200
    await acting.grant(Verb.READ, "topic", "default/mine")
    words = right_missing("client:a", ANY, KINDS["topic"], "default/theirs").message
    for path in ("", "/lag", "/checkpoints"):
        refused = await acting.rest(ALICE, "GET", f"/v1/groups/g{path}")
        assert (refused.status, refused.body["message"]) == (403, words), path
    groups = acting.client(Role.CLIENT, "a").groups
    for call in (
        groups.describe("g"),
        groups.lag("g"),
        groups.checkpoint("g", "d"),
        groups.checkpoint_positions("g", "c"),
    ):
        with pytest.raises(RightMissing) as told:
            await call
        assert told.value.message == words
    await acting.grant(Verb.APPEND, "topic", "default/theirs")
    assert len(await groups.checkpoint_positions("g", "c")) == 3
    assert await groups.lag("g") == []
    for path in ("", "/lag"):
        assert (await acting.rest(ALICE, "GET", f"/v1/groups/g{path}")).status == 200


async def test_the_quota_of_who_asked_counts(acting: Acting) -> None:
    """At each placement driver, as that client's own calls do; those of the broker's own work do not."""
    request = quotas_pb2.SetQuotaRequest(request_id="q", principal="client:a", calls_per_s=1)
    await quotas.set_quota(acting.api.driver, request)
    held: list[str] = []

    async def noted(who: str, *_: Any) -> None:
        held.append(who)

    acting.api.driver.quotas.hold = noted
    with pytest.raises(StreamNotFound):
        await acting.client(Role.BROKER, "b1").describe_stream("s")
    assert held == []
    assert (await acting.rest(ALICE, "GET", "/v1/streams/s")).status == 404
    assert (await acting.rest(OPS, "GET", "/v1/streams/s")).status == 404
    assert held == ["client:a"]


async def test_a_request_counts_once_at_each_server(acting: Acting) -> None:
    """At the broker, and at the placement driver for the one call that is made: each has a figure of its own."""
    request = quotas_pb2.SetQuotaRequest(request_id="q", principal="client:a", calls_per_s=1_000)
    await quotas.set_quota(acting.api.driver, request)
    of_broker, of_driver = QuotaGuard(), acting.api.driver.quotas
    of_broker.book.load([quotas_pb2.Quota(principal="client:a", calls_per_s=1_000)], 1)
    held: list[tuple[str, str, Measure]] = []

    def noting(server: str) -> Any:
        async def hold(who: str, measure: Measure, *_: Any) -> None:
            held.append((server, who, measure))

        return hold

    of_broker.hold, of_driver.hold = noting("broker"), noting("pd")  # type: ignore[method-assign]
    app = make_app(acting.client(Role.BROKER, "b1"), token=None, quotas=of_broker)

    async def known(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"state": {PRINCIPAL: ALICE}}, receive, send)

    assert (await RestCaller(known)("GET", "/v1/streams/s", None)).status == 404
    calls = [(server, who) for server, who, measure in held if measure is Measure.CALLS]
    assert calls == [("broker", "client:a"), ("pd", "client:a")]


@pytest.mark.parametrize("role", [each for each in Role if each is not Role.BROKER])
async def test_nobody_but_a_broker_speaks_for_others(acting: Acting, role: Role) -> None:
    """Whoever else tries is refused before anything is done, and recorded as who it is."""
    client = acting.client(role, "x")
    with acting_for(OPS), pytest.raises(RoleForbids, match=f"{role}:x may not"):
        await client.create_stream("s")
    with pytest.raises(StreamNotFound):
        await acting.client(Role.ADMIN, "ops").describe_stream("s")
    assert await acting.entries() == [(f"{role}:x", None, "CreateStream", "ROLE_FORBIDS")]


async def test_a_broker_does_for_others_what_both_may(acting: Acting) -> None:
    """Neither a call for brokers alone, nor one for administrators that a broker may not make."""
    pd = acting.client(Role.BROKER, "b1").metadata.pd
    with acting_for(ALICE):
        beat = broker_pb2.BrokerHeartbeatRequest(name="b1")
        with pytest.raises(RoleForbids, match=r"client:a may not use Brokers\.BrokerHeartbeat"):
            await pd.call(beat, broker_pb2.BrokerHeartbeatResponse, timeout_s=5.0)
    with acting_for(OPS):
        off = audit_pb2.SetAuditRequest(request_id="x")
        with pytest.raises(RoleForbids, match=r"broker:b1 may not use Audit\.SetAudit"):
            await pd.call(off, audit_pb2.SetAuditResponse, timeout_s=5.0)
