"""Every caller against every port of a real cluster, and every role against every call: what is expected, and what happens.

A call is made with a request that does not decode: who may make it is told so, who may not is refused before; nothing changes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from rangelog_cli.local.metrics_ports import roles
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import HandshakeFailed, ProtocolViolation, RoleForbids, Unauthorized
from rangelog_core.frame import Opcode, encode_frame
from rangelog_core.net.channels import open_channel
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_proto.v1 import data_pb2
from tests.support.certificates import TestCertificates

TIMEOUT_S = 5.0
ROLES_OF_PORTS = {
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
HTTP_PATHS = {
    Port.BROKER_REST: "/v1/streams",
    Port.BROKER_HTTP: "/v1/topics/default/matrix/records",
    Port.METRICS: "/livez",
    Port.PD_PAGE: "/streams",
}
USERS, PRODUCERS, ADMIN, BROKER, SERVER = (
    "range-server broker client admin",
    "broker client admin",
    "admin",
    "broker",
    "range-server",
)
WRITES_AUDIT = (
    "CreateRange", "DescribeStream", "ListObjects", "ListRanges", "ListServers", "OpenWriter", "OpenWriters", "ProveEnd",
    "SealRange", "SealRanges", "Watch",
)  # fmt: skip
"""What the leading placement driver calls to write the audit log to its stream."""
CALLS: dict[Port, dict[str, tuple[str, dict[str, str]]]] = {
    Port.PD_API: {
        "PlacementDriver": (
            USERS,
            {
                "RegisterServer": SERVER, "Heartbeat": SERVER, "PrepareObject": SERVER, "CommitObject": SERVER,
                "PrepareRepack": "range-server client admin", "CommitRepack": "range-server client admin", "ListTasks": ADMIN,
                "DescribeCluster": f"pd {USERS}",
            }
            | dict.fromkeys(WRITES_AUDIT, f"pd {USERS}"),
        ),
        "Topics": (USERS, dict.fromkeys(("CommitScale", "EndShard", "EnsureLog", "ReportConsumed"), BROKER)),
        "Cursors": (USERS, {}),
        "Brokers": (USERS, {"MoveShard": ADMIN, "RegisterBroker": BROKER, "BrokerHeartbeat": BROKER}),
        "Members": (ADMIN, {"ListMembers": f"pd {USERS}", "TransferLeadership": "pd admin"}),
        "Operations": (ADMIN, {"CheckImpact": "pd range-server admin"}),
        "Inspection": (ADMIN, {}),
        "Logs": (ADMIN, {}),
        "Placement": (ADMIN, {}),
        "Repairs": (ADMIN, {}),
        "Restore": (ADMIN, {}),
        "Tier": (ADMIN, {"DescribeTier": f"pd {USERS}", "FindObjects": "range-server admin"}),
        "Rights": (ADMIN, {"CheckRights": "range-server broker admin"}),
        "Audit": (ADMIN, {}),
        "Tokens": (ADMIN, {"GetTokenTrust": "range-server broker admin"}),
        "Quotas": (ADMIN, {"ListQuotas": "range-server broker admin"}),
    },
    Port.RANGE_CONTROL: {"RangeServer": ("pd admin", {}), "Logs": (ADMIN, {})},
    Port.BROKER_CONTROL: {
        "Groups": (PRODUCERS, {"MergePositions": BROKER}),
        "Tables": (PRODUCERS, {}),
        "Transactions": (PRODUCERS, {}),
        "Shards": (BROKER, {}),
        "Watermarks": (PRODUCERS, {}),
        "Logs": (ADMIN, {}),
    },
}  # fmt: skip
"""By service: who may call it, and the methods for which that differs."""


@dataclass(frozen=True)
class Target:
    """One port of the cluster."""

    port: Port
    process: str
    host: str
    number: int
    server_role: Role

    @property
    def address(self) -> str:
        """As host:port."""
        return f"{self.host}:{self.number}"


@dataclass
class Outcome:
    """What was found."""

    cells: int = 0
    wrong: list[str] = field(default_factory=list)
    plaintext_ports: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the line of figures."""
        return f"security: cells={self.cells} wrong={len(self.wrong)} plaintext_ports={len(self.plaintext_ports)}"

    def expect(self, what: str, expected: str, seen: str) -> None:
        """Count one cell."""
        self.cells += 1
        if seen != expected:
            self.wrong.append(f"{what}: {seen}, not {expected}")


def targets_of(cluster: Cluster) -> Iterator[Target]:
    """Yield every port of the plan, and those of metrics and of the page."""
    plan = cluster.plan
    servers = {name: Role(role) for name, role in roles(plan).items()}
    for file in sorted(cluster.directory.glob("*/endpoint.json")):
        told = json.loads(file.read_text())
        for key, kind in (("metrics_address", Port.METRICS), ("page_address", Port.PD_PAGE)):
            if told.get(key):
                host, _, port = told[key].rpartition(":")
                yield Target(kind, file.parent.name, host, int(port), servers[file.parent.name])
    for pd in plan.pds:
        yield Target(Port.PD_API, pd.name, pd.host, pd.api_port, Role.PD)
        if len(plan.pds) > 1:
            yield Target(Port.PD_RAFT, pd.name, pd.host, pd.raft_port, Role.PD)
    for server in plan.range_servers:
        yield Target(Port.RANGE_DATA, server.name, server.host, server.data_port, Role.RANGE_SERVER)
        yield Target(Port.RANGE_CONTROL, server.name, server.host, server.control_port, Role.RANGE_SERVER)
    for broker in plan.brokers:
        yield Target(Port.BROKER_DATA, broker.name, broker.host, broker.port, Role.BROKER)
        yield Target(Port.BROKER_CONTROL, broker.name, broker.host, broker.control_port, Role.BROKER)
        yield Target(Port.BROKER_REST, broker.name, broker.host, broker.rest_port, Role.BROKER)
        for port in broker.doors.values():
            yield Target(Port.BROKER_HTTP, broker.name, broker.host, port, Role.BROKER)


async def check(cluster: Cluster, certificates: TestCertificates) -> Outcome:
    """Check every cell. `certificates`: of the cluster's own authority."""
    outcome = Outcome()
    targets = list(targets_of(cluster))
    for name in sorted(cluster.members):
        known = {each.number for each in targets if each.process == name}
        outcome.expect(
            f"{name}: ports that are listened on",
            str(sorted(known)),
            str(sorted(listened_on(cluster.members[name].pid))),
        )
    for target in targets:
        for role in Role:
            expected = "admitted" if role in ROLES_OF_PORTS[target.port].split() else "refused"
            met = await asyncio.to_thread(knock, target, certificates.tls(role, "m"))
            outcome.expect(f"{role} at the {target.port} {target.process}", expected, met)
        may = ROLES_OF_PORTS[target.port].split()[-1]
        for kind in ("expired", "foreign", "self_signed"):
            met = await asyncio.to_thread(knock, target, getattr(certificates, kind)(may, "m"))
            outcome.expect(f"{kind} {may} at the {target.port} {target.process}", "refused", met)
        nobody = await asyncio.to_thread(knock, target, None, Path(certificates.tls("client").ca))
        outcome.expect(f"nobody at the {target.port} {target.process}", "refused", nobody)
        plain = await asyncio.to_thread(knock, target, None)
        outcome.expect(f"plaintext at the {target.port} {target.process}", "refused", plain)
        if plain != "refused":
            outcome.plaintext_ports.append(f"{target.process} {target.address}")
    for port, services in CALLS.items():
        target = next(each for each in targets if each.port is port)
        await _check_calls(target, services, certificates, outcome)
    return outcome


async def _check_calls(
    target: Target, services: dict[str, tuple[str, dict[str, str]]], certificates: TestCertificates, outcome: Outcome
) -> None:
    for role in Role:
        channel = open_channel(target.address, certificates.tls(role, "m"), target.server_role)
        for method, allowed in methods_of(services):
            if role not in ROLES_OF_PORTS[target.port].split():
                allowed = ""
            seen = await call(channel, method)
            outcome.expect(f"{role} calls {method}", "admitted" if role in allowed.split() else "refused", seen)
        await channel.close()


def methods_of(services: dict[str, tuple[str, dict[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the full names of the methods of services, and who may call each."""
    from tests.unit.core.net.test_principals import SERVICES

    for service, (default, others) in services.items():
        for method in SERVICES[f"rangelog.v1.{service}"]:
            yield f"/rangelog.v1.{service}/{method}", others.get(method, default)


async def call(channel: grpc.aio.Channel, method: str, token: str = "") -> str:
    """Whether a call is "admitted" or "refused"; else what was answered."""
    shown = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        await channel.unary_unary(method)(b"\xff", timeout=TIMEOUT_S, metadata=shown)
    except grpc.RpcError as error:
        found = from_rpc_error(error, "it")
        if isinstance(found, RoleForbids | Unauthorized | HandshakeFailed):
            return "refused"
        return "admitted" if isinstance(found, ProtocolViolation) else f"{found.code} ({found.message})"
    return "answered"


def knock(target: Target, tls: TlsConfig | None, ca: Path | None = None, token: str = "") -> str:
    """Whether a caller is "admitted" to a port: its first request, in the port's own protocol, is answered, not refused.

    With `ca` and no `tls`: by TLS without a certificate; with a token, gRPC by what a client without one presents.
    """
    if token and ca is not None and target.port in CALLS:
        return asyncio.run(_grpc_answer(target, TlsConfig(str(ca)), token))
    try:
        answer = _first_answer(target, tls, ca, token)
    except OSError:
        return "refused"
    if not answer or (answer[0] == 0x15 and len(answer) < 16):  # closed, or an alert of TLS
        return "refused"
    if target.port in (Port.RANGE_DATA, Port.BROKER_DATA):
        return "refused" if b"ROLE_FORBIDS" in answer or b"UNAUTHORIZED" in answer else "admitted"
    if target.port in HTTP_PATHS:
        return "refused" if answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 401")) else "admitted"
    if target.port is Port.PD_RAFT or tls is None:
        return "admitted"
    return asyncio.run(_grpc_answer(target, tls))


async def _grpc_answer(target: Target, tls: TlsConfig, token: str = "") -> str:
    """With gRPC the connection is of all roles, each call has its own answer."""
    channel = open_channel(target.address, tls, target.server_role)
    try:
        service = {Port.PD_API: "PlacementDriver/DescribeCluster", Port.RANGE_CONTROL: "RangeServer/GetStatus"}
        return await call(channel, f"/rangelog.v1.{service.get(target.port, 'Groups/ListGroups')}", token)
    finally:
        await channel.close()


def _first_answer(target: Target, tls: TlsConfig | None, ca: Path | None, token: str) -> bytes:
    with socket.create_connection((target.host, target.number), TIMEOUT_S) as plain:
        sock: socket.socket = plain
        if tls is not None or ca is not None:
            context = ssl.create_default_context(cafile=str(ca) if ca is not None else tls.ca)  # type: ignore[union-attr]
            context.check_hostname = False
            context.set_alpn_protocols(["h2"] if target.port in CALLS else ["http/1.1"])
            if tls is not None:
                context.load_cert_chain(tls.cert, tls.key)
            sock = context.wrap_socket(plain)
        sock.settimeout(TIMEOUT_S)
        sock.sendall(_greeting(target, token))
        return sock.recv(4096)


def _greeting(target: Target, token: str) -> bytes:
    if target.port in CALLS:
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
    if target.port in HTTP_PATHS:
        return f"GET {HTTP_PATHS[target.port]} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    if target.port is Port.PD_RAFT:  # a hello as of a member, with a digest and a nonce of zeros
        name, wanted = b"m", target.process.encode()
        return struct.pack("<8sBB", b"RLRAFT01", len(name), len(wanted)) + name + wanted + bytes(64)
    hello = data_pb2.Hello(protocol_version=1, protocol_version_min=1, server=target.process, token=token)
    return encode_frame(Opcode.HELLO, 1, hello.SerializeToString())


def listened_on(pid: int) -> set[int]:
    """Return the TCP ports that a process of this machine listens on."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            to = str(entry.readlink())
        except OSError:
            continue
        if to.startswith("socket:["):
            inodes.add(to.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found
