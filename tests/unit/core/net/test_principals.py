"""Names in certificates, and what each role may use: a table of its own beside the code's."""

from __future__ import annotations

import pytest

from rangelog_core.errors import HandshakeFailed, RoleForbids
from rangelog_core.net import principals
from rangelog_core.net.principals import Port, Principal, Role, check_port, principal_of
from rangelog_pd.handlers.service import RULES
from rangelog_proto.v1 import (
    audit_pb2,
    broker_pb2,
    cursor_pb2,
    group_service_pb2,
    inspection_pb2,
    logs_pb2,
    members_pb2,
    operations_pb2,
    pd_pb2,
    placement_pb2,
    quotas_pb2,
    range_server_pb2,
    repair_pb2,
    restore_pb2,
    rights_pb2,
    table_service_pb2,
    tier_pb2,
    tokens_pb2,
    topic_pb2,
    transaction_service_pb2,
    watermark_service_pb2,
)  # fmt: skip

MODULES = (
    audit_pb2, broker_pb2, cursor_pb2, group_service_pb2, inspection_pb2, logs_pb2, members_pb2, operations_pb2, pd_pb2,
    placement_pb2, range_server_pb2, repair_pb2, restore_pb2, rights_pb2, table_service_pb2, tier_pb2, tokens_pb2, topic_pb2,
    quotas_pb2, transaction_service_pb2, watermark_service_pb2,
)  # fmt: skip
SERVICES = {
    service.full_name: sorted(method.name for method in service.methods)
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
}

ALLOWED = {
    Port.PD_API: "pd range-server broker client admin",
    Port.PD_RAFT: "pd",
    Port.RANGE_DATA: "pd range-server broker client admin",
    Port.RANGE_CONTROL: "pd admin",
    Port.BROKER_DATA: "broker client admin",
    Port.BROKER_CONTROL: "broker client admin",
    Port.BROKER_REST: "client admin",
    Port.BROKER_HTTP: "client admin",
    Port.METRICS: "pd range-server broker client admin",
    Port.PD_PAGE: "client admin",
}


@pytest.mark.parametrize("port", list(Port))
@pytest.mark.parametrize("role", list(Role))
def test_roles_and_ports(role: Role, port: Port) -> None:
    """Each role may use the ports of its row and no others; a refusal names both, and the roles that may."""
    principal = Principal(role, "x")
    if role in ALLOWED[port].split():
        check_port(principal, port)
        return
    with pytest.raises(RoleForbids, match=f"{role}:x may not use the {port}: take a certificate of role "):
        check_port(principal, port)


def test_every_service_has_its_roles() -> None:
    """A method that is added is in the tables, and so is each that the tables name."""
    methods = {f"{service}/{name}" for service, names in SERVICES.items() for name in names}
    assert set(RULES.roles) <= methods | set(SERVICES)
    assert [method for method in methods if not RULES.roles_of(f"/{method}")] == []


@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        ("PlacementDriver/CreateStream", "admin broker client range-server"),
        ("PlacementDriver/OpenWriter", "admin broker client pd range-server"),
        ("Audit/SetAudit", "admin"),
        ("Audit/DescribeAudit", "admin"),
        ("PlacementDriver/RegisterServer", "range-server"),
        ("PlacementDriver/Heartbeat", "range-server"),
        ("PlacementDriver/CommitObject", "range-server"),
        ("PlacementDriver/CommitRepack", "admin client range-server"),
        ("PlacementDriver/DescribeCluster", "admin broker client pd range-server"),
        ("Brokers/RegisterBroker", "broker"),
        ("Brokers/FindOwners", "admin broker client range-server"),
        ("Brokers/MoveShard", "admin"),
        ("Topics/CommitScale", "broker"),
        ("Topics/CreateTopic", "admin broker client range-server"),
        ("Operations/RemoveServer", "admin"),
        ("Operations/CheckImpact", "admin pd range-server"),
        ("Members/RemoveMember", "admin"),
        ("Members/ListMembers", "admin broker client pd range-server"),
        ("Members/TransferLeadership", "admin pd"),
        ("Members/SaveState", "admin"),
        ("Restore/BeginRestore", "admin"),
        ("Repairs/AcceptLoss", "admin"),
        ("Tier/SetTier", "admin"),
        ("Tier/FindObjects", "admin range-server"),
        ("Rights/GrantRights", "admin"),
        ("Rights/ListRights", "admin"),
        ("Rights/CheckRights", "admin broker range-server"),
        ("Inspection/CancelTask", "admin"),
        ("Shards/MergeTransaction", "broker"),
        ("Groups/MergePositions", "broker"),
        ("Groups/JoinGroup", "admin broker client"),
        ("RangeServer/ListReplicas", "admin pd"),
    ],
)
def test_roles_and_calls(method: str, allowed: str) -> None:
    """What a role is refused, and what not."""
    for role in Role:
        if role in allowed.split():
            RULES.check(Principal(role, "x"), f"/rangelog.v1.{method}")
        else:
            with pytest.raises(RoleForbids, match=method.replace("/", r"\.")):
                RULES.check(Principal(role, "x"), f"/rangelog.v1.{method}")


def test_what_no_table_names_is_refused() -> None:
    """An unknown service is nobody's; health and reflection are everybody's."""
    assert not RULES.roles_of("/rangelog.v1.Secrets/Read")
    for service in principals.OPEN_SERVICES:
        assert RULES.roles_of(f"/{service}/Check") == set(Role)


def test_a_server_speaks_for_itself_alone() -> None:
    """A certificate of rs2 neither registers rs1 nor reports for it; one for all of the role does."""
    for method, field in RULES.caller_fields.items():
        service, _, name = method.removeprefix("rangelog.v1.").partition("/")
        module = {"PlacementDriver": pd_pb2, "Brokers": broker_pb2}[service]
        request = getattr(module, f"{name}Request")(**{field: "m1"})
        role = next(iter(RULES.roles_of(f"/{method}")))
        RULES.check_caller(Principal(role, "m1"), f"/{method}", request)
        RULES.check_caller(Principal(role, "*"), f"/{method}", request)
        with pytest.raises(RoleForbids, match=f"says that it is 'm1', with the certificate of {role}:m2"):
            RULES.check_caller(Principal(role, "m2"), f"/{method}", request)
    only_servers = {method for method, roles in RULES.roles.items() if roles == {Role.RANGE_SERVER}}
    assert only_servers <= set(RULES.caller_fields)
    RULES.check_caller(Principal(Role.CLIENT, "c"), "/rangelog.v1.PlacementDriver/ListStreams", object())


@pytest.mark.parametrize(
    ("uris", "names", "expected"),
    [
        (["rangelog://pd/pd1"], ["whatever"], Principal(Role.PD, "pd1")),
        (["spiffe://example.org/x", "rangelog://client/orders.svc-1"], [], Principal(Role.CLIENT, "orders.svc-1")),
        (["rangelog://range-server/*"], [], Principal(Role.RANGE_SERVER, "*")),
        ([], ["broker:broker1"], Principal(Role.BROKER, "broker1")),
        (["spiffe://example.org/x"], ["admin:alice"], Principal(Role.ADMIN, "alice")),
    ],
)
def test_names(uris: list[str], names: list[str], expected: Principal) -> None:
    """The URI counts; without one, the common name."""
    assert principal_of(uris, names) == expected


@pytest.mark.parametrize(
    ("uris", "names", "said"),
    [
        ([], [], "names 0 principals"),
        (["rangelog://client/a", "rangelog://admin/a"], [], "names 2 principals"),
        (["rangelog://operator/a"], [], "of no role of rangelog"),
        (["rangelog://ADMIN/a"], [], "of no role of rangelog"),
        (["rangelog://admin/"], [], "names no principal"),
        (["rangelog://admin"], [], "names no principal"),
        (["rangelog://admin/a/b"], [], "names no principal"),
        (["rangelog://admin/a%0a"], [], "names no principal"),
        ([f"rangelog://admin/{'x' * 300}"], [], "names no principal"),
        (["rangelog://client/a"] * 2, [], "names 2 principals"),
        ([], ["admin"], "names no principal"),
        ([], ["admin:a", "client:a"], "names 2 principals"),
        (["rangelog://nobody/a"], ["admin:alice"], "of no role of rangelog"),
    ],
)
def test_names_of_nobody(uris: list[str], names: list[str], said: str) -> None:
    """A certificate that does not name exactly one principal is of nobody."""
    with pytest.raises(HandshakeFailed, match=said):
        principal_of(uris, names)


def test_a_server_is_called_by_its_name_or_any() -> None:
    """A certificate of one server is not that of another, nor one of another role."""
    assert Principal(Role.RANGE_SERVER, "rs1").is_called(Role.RANGE_SERVER, "rs1")
    assert Principal(Role.RANGE_SERVER, "*").is_called(Role.RANGE_SERVER, "rs1")
    assert not Principal(Role.RANGE_SERVER, "rs2").is_called(Role.RANGE_SERVER, "rs1")
    assert not Principal(Role.BROKER, "rs1").is_called(Role.RANGE_SERVER, "rs1")
    assert not Principal(Role.BROKER, "*").is_called(Role.RANGE_SERVER, "rs1")
