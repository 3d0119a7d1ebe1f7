"""Which calls are recorded, when, and what of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rangelog_core.audit import parse_line
from rangelog_core.errors import OutcomeUnknown, Overloaded, StreamExists, Unavailable
from rangelog_core.net.principals import Principal, Role
from rangelog_pd.handlers import audit, audited, service, streams
from rangelog_pd.state.versions import LEVEL_AUDIT
from rangelog_proto.v1 import audit_pb2 as pb
from rangelog_proto.v1 import pd_pb2, tier_pb2

OPS = Principal(Role.ADMIN, "ops")


@pytest.fixture
async def on(api: Any) -> Any:
    """A leader whose audit log is on."""
    api.machine.state.cluster_version = LEVEL_AUDIT
    await audit.set_audit(api.driver, pb.SetAuditRequest(request_id="a", enabled=True))
    return api


def entries(api: Any) -> list[dict[str, Any]]:
    return [parse_line(each.line) for each in api.machine.state.audit.pending.values()][1:]


async def create(
    api: Any, name: str = "s", caller: Principal | None = OPS, handler: Any = streams.create_stream
) -> Any:
    request = pd_pb2.CreateStreamRequest(request_id=f"c{name}", name=name)
    return await audited.recorded(service.CALLS["CreateStream"], handler, caller, "10.0.0.1")(api.driver, request)


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


def test_every_call_is_known() -> None:
    """One that is neither recorded nor listed above may have been forgotten."""
    recorded = {made.name for made in service.CALLS.values() if made.audit is not None}
    assert not recorded & NOT_AUDITED
    assert recorded | NOT_AUDITED == set(service.CALLS)
    assert len(service.CALLS) == sum(len(each.calls) for each in service.SERVICES), "two calls of one name"


def test_every_recorded_call_names_what_it_changes() -> None:
    """For an empty request of its type too: a field that does not exist would be an error in production only."""
    for each in service.SERVICES:
        for made in each.calls:
            if made.audit is not None:
                assert made.audit(request_of(each, made.name)), made.name


def request_of(of: Any, name: str) -> Any:
    """An empty request of a call."""
    from google.protobuf import descriptor_pool, message_factory

    method = descriptor_pool.Default().FindServiceByName(of.full_name).FindMethodByName(name)
    return message_factory.GetMessageClass(method.input_type)()


async def test_a_change_has_an_entry_before_it_is_made_and_one_after(on: Any) -> None:
    """The second names the first."""
    seen: list[int] = []

    async def handler(driver: Any, request: Any) -> Any:
        seen.append(len(entries(on)))
        return await streams.create_stream(driver, request)

    await create(on, handler=handler)
    assert seen == [1]
    await on.driver.reconcile()
    begun, ended = entries(on)
    assert (begun["principal"], begun["peer"], begun["call"]) == ("admin:ops", "10.0.0.1", "CreateStream")
    assert (begun["resource"], begun["outcome"]) == ("stream s", "begun")
    assert json.loads(begun["detail"])["name"] == "s" and "request_id" not in begun["detail"]
    assert (ended["outcome"], ended["of"]) == ("OK", begun["sequence"])


@pytest.mark.parametrize(
    ("error", "said"), [(StreamExists("no"), "STREAM_EXISTS"), (ValueError("defect"), "OUTCOME_UNKNOWN")]
)
async def test_a_failure_is_the_outcome(on: Any, error: Exception, said: str) -> None:
    """What an internal error came to, nobody knows."""

    async def handler(driver: Any, request: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        await create(on, handler=handler)
    await on.driver.reconcile()
    assert [each["outcome"] for each in entries(on)] == ["begun", said]


async def test_nothing_is_done_where_it_cannot_be_recorded(on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody knows whether it was; the caller may try again."""
    made: list[Any] = []

    async def handler(driver: Any, request: Any) -> Any:
        made.append(request)

    for error, shown in ((OutcomeUnknown("?"), Unavailable), (Overloaded("full"), Overloaded)):

        async def propose(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(on.driver, "propose", propose)
        with pytest.raises(shown):
            await create(on, handler=handler)
    assert made == []


async def test_servers_and_dry_runs_are_not_recorded(on: Any) -> None:
    """Brokers trim their tables all the time; a dry run changes nothing."""
    await create(on, caller=Principal(Role.BROKER, "b1"))
    request = pd_pb2.CreateStreamRequest()

    async def handler(driver: Any, request: Any) -> None:
        return None

    class Dry:
        dry_run = True

    await audited.recorded(service.CALLS["FinalizeUpgrade"], handler, OPS, "h")(on.driver, Dry())
    assert entries(on) == []
    assert audited.recorded(service.CALLS["ListStreams"], handler, OPS, "h") is handler
    assert request is not None


async def test_a_secret_of_the_tier_is_not_recorded(on: Any) -> None:
    """Its URL may hold one."""

    async def handler(driver: Any, request: Any) -> None:
        return None

    request = tier_pb2.SetTierRequest(url="s3://bucket?secret=hunter2")
    await audited.recorded(service.CALLS["SetTier"], handler, OPS, "h")(on.driver, request)
    assert "hunter2" not in str(entries(on)) and len(entries(on)) == 1


async def test_a_new_leader_knows_that_the_log_is_on(on: Any) -> None:
    """It waits for what earlier leaders acknowledged before it says that nothing is recorded."""
    on.change_leader()
    waited: list[None] = []
    barrier = on.driver.barrier

    async def noted() -> None:
        waited.append(None)
        await barrier()

    on.driver.barrier = noted
    assert await on.driver.audits()
    assert waited


async def test_refusals_are_recorded(on: Any) -> None:
    """Of whoever is known, with the next round of the leader."""
    await on.driver.barrier()
    on.driver.note_refusal(Principal(Role.CLIENT, "a"), "10.0.0.2", "DeleteStream", StreamExists("x"))
    await on.driver.reconcile()
    (found,) = entries(on)
    assert (found["principal"], found["peer"], found["call"]) == ("client:a", "10.0.0.2", "DeleteStream")


async def test_the_end_of_the_log_and_what_waits_are_told(on: Any) -> None:
    """From the entry that the caller wants."""
    await create(on)
    answer = await audit.describe_audit(on.driver, pb.DescribeAuditRequest(pending_from=2))
    assert [each.sequence for each in answer.pending] == [2]
    assert answer.state.last_sequence == 2 and answer.state.enabled
