"""Who a certificate stands for, and what that one may use: roles, ports, calls. No I/O.

A certificate names its principal in a URI among its subject alternative names, `rangelog://ROLE/NAME`, or, where there is no
such URI, in its common name, `ROLE:NAME`. The name `*` stands for every process of the role. Certificates of servers also have
the DNS name `ROLE.rangelog`: clients ask for it, so that a process is known by its role, wherever it runs.

What holds: a certificate with no role, an unknown one, or two has no principal; what no table allows is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import unquote

from rangelog_core.errors import HandshakeFailed, InvalidArgument, RoleForbids
from rangelog_core.ids import check_name

SCHEME = "rangelog://"
ANY_NAME = "*"


class Role(StrEnum):
    """The role of a process in a cluster."""

    PD = "pd"
    RANGE_SERVER = "range-server"
    BROKER = "broker"
    CLIENT = "client"
    ADMIN = "admin"


SERVER_ROLES = (Role.PD, Role.RANGE_SERVER, Role.BROKER)


class Port(StrEnum):
    """The ports of a cluster, as messages call them."""

    PD_API = "API of a placement driver"
    PD_RAFT = "Raft port of a placement driver"
    RANGE_DATA = "data port of a range server"
    RANGE_CONTROL = "control port of a range server"
    BROKER_DATA = "producers' port of a broker"
    BROKER_CONTROL = "services of a broker"
    BROKER_REST = "REST interface of a broker"
    BROKER_HTTP = "HTTP door of a broker"
    METRICS = "port of metrics"
    PD_PAGE = "page of a placement driver"


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a certificate, or the one that a certificate must be of."""

    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"

    def is_called(self, role: Role, name: str) -> bool:
        """Whether this is the process of that role and name."""
        return self.role is role and self.name in (name, ANY_NAME)


def server_dns_name(role: Role) -> str:
    """Return the DNS name that the certificate of a server of this role has."""
    return f"{role}.rangelog"


def principal_uri(principal: Principal) -> str:
    """Return the URI that names a principal in its certificate."""
    return f"{SCHEME}{principal.role}/{principal.name}"


def principal_of(uris: Iterable[str], common_names: Iterable[str]) -> Principal:
    """Return the principal of a certificate with these names. Raises HandshakeFailed where it names none, or several."""
    ours = [each for each in uris if each.startswith(SCHEME)]
    if ours:
        found = [each.removeprefix(SCHEME).partition("/") for each in ours]
    else:
        found = [each.partition(":") for each in common_names]
    if len(found) != 1:
        raise HandshakeFailed(f"its certificate names {len(found)} principals: it needs one URI {SCHEME}ROLE/NAME")
    role, _, name = found[0]
    if role not in tuple(Role):
        raise HandshakeFailed(
            f"its certificate is of no role of rangelog ({role[:60]!r}): it needs one URI {SCHEME}ROLE/NAME, with a role of "
            + ", ".join(Role)
        )
    name = unquote(name)
    try:
        return Principal(Role(role), name if name == ANY_NAME else check_name("principal", name))
    except InvalidArgument as error:
        raise HandshakeFailed(f"its certificate names no principal: {error.message}") from error


def principal_of_certificate(certificate: Mapping[str, object]) -> Principal:
    """Return the principal of a certificate as `ssl.SSLSocket.getpeercert` returns it. Raises HandshakeFailed."""
    alternative: Iterable[tuple[str, str]] = certificate.get("subjectAltName") or ()  # type: ignore[assignment]
    subject: Iterable[Iterable[tuple[str, str]]] = certificate.get("subject") or ()  # type: ignore[assignment]
    return principal_of(
        [value for kind, value in alternative if kind == "URI"],
        [value for part in subject for kind, value in part if kind == "commonName"],
    )


# ---- which roles may use what

USERS = frozenset({Role.CLIENT, Role.BROKER, Role.RANGE_SERVER, Role.ADMIN})
"""Range servers are among them: they recover and copy ranges."""
PRODUCERS = frozenset({Role.CLIENT, Role.BROKER, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
ALL = frozenset(Role)
WITH_PD = USERS | {Role.PD}
"""The leading placement driver writes the audit log to its stream."""

PORT_ROLES: Mapping[Port, frozenset[Role]] = {
    Port.PD_API: ALL,
    Port.PD_RAFT: frozenset({Role.PD}),
    Port.RANGE_DATA: WITH_PD,
    Port.RANGE_CONTROL: frozenset({Role.PD, Role.ADMIN}),
    Port.BROKER_DATA: PRODUCERS,
    Port.BROKER_CONTROL: PRODUCERS,
    Port.BROKER_REST: frozenset({Role.CLIENT, Role.ADMIN}),
    Port.BROKER_HTTP: frozenset({Role.CLIENT, Role.ADMIN}),
    Port.METRICS: ALL,  # a process's own certificate is enough for its probes
    Port.PD_PAGE: frozenset({Role.CLIENT, Role.ADMIN}),
}

OPEN_SERVICES = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")
"""Of every gRPC port, for all who may connect."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """Who may make the gRPC calls of some services; calls are named "package.Service/Method".

    Args:
        roles: who may make a call, by its name, or by that of its service.
        caller_fields: by call: the field of a request by which the caller says who it is.
    """

    roles: Mapping[str, frozenset[Role]]
    caller_fields: Mapping[str, str] = field(default_factory=dict)

    def roles_of(self, method: str) -> frozenset[Role]:
        """Return who may make the call "/package.Service/Method"."""
        called = method.removeprefix("/")
        service, _, _ = called.partition("/")
        if service in OPEN_SERVICES:
            return ALL
        return self.roles.get(called) or self.roles.get(service, frozenset())

    def check(self, principal: Principal, method: str) -> None:
        """Raise RoleForbids where the principal may not make the call "/package.Service/Method"."""
        _check(principal, self.roles_of(method), method.rpartition(".")[2].replace("/", "."))

    def check_caller(self, principal: Principal, method: str, request: object) -> None:
        """Raise RoleForbids where a request says that it is from another process than its certificate."""
        caller_field = self.caller_fields.get(method.removeprefix("/"))
        if caller_field is None or principal.name == ANY_NAME:
            return
        said = getattr(request, caller_field)
        if said != principal.name:
            raise RoleForbids(
                f"the caller says that it is {said[:100]!r}, with the certificate of {principal}: give each process its own"
            )


RULES = CallRules(
    {
        "rangelog.v1.Logs": ADMINS,
        "rangelog.v1.RangeServer": frozenset({Role.PD, Role.ADMIN}),
        "rangelog.v1.Groups": PRODUCERS,
        "rangelog.v1.Groups/MergePositions": frozenset({Role.BROKER}),
        "rangelog.v1.Tables": PRODUCERS,
        "rangelog.v1.Transactions": PRODUCERS,
        "rangelog.v1.Shards": frozenset({Role.BROKER}),
        "rangelog.v1.Watermarks": PRODUCERS,
    }
)
"""Of range servers and brokers, and of what all servers have."""


def check_port(principal: Principal, port: Port) -> None:
    """Raise RoleForbids where the principal may not use the port."""
    _check(principal, PORT_ROLES[port], f"the {port}")


def _check(principal: Principal, allowed: frozenset[Role], what: str) -> None:
    if principal.role not in allowed:
        roles = " or ".join(sorted(allowed)) or "no role"
        raise RoleForbids(f"{principal} may not use {what}: take a certificate of role {roles}")
