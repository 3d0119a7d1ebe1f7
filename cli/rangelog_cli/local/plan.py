"""The plan of a cluster on one machine: names, ports, secret. Written once into its directory.

With the same plan at each start a restart finds its data: members keep their names, directories and addresses.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path

from rangelog_cli.local.ports import LOOPBACK, free_ports
from rangelog_core.errors import ConfigInvalid, InvalidArgument

PLAN_FILE = "cluster.json"
MEMBERS_MAX = 32
BROKERS_MAX = 15
_FORMAT = 1
_BROKER_PORTS = 3
_REST_PORTS_AT = 60


@dataclass(frozen=True)
class PdPlan:
    """One placement driver."""

    name: str
    api_port: int
    raft_port: int
    host: str = LOOPBACK

    @property
    def api_address(self) -> str:
        """The address for clients and range servers."""
        return f"{self.host}:{self.api_port}"

    @property
    def raft_address(self) -> str:
        """The address for the other placement drivers."""
        return f"{self.host}:{self.raft_port}"


@dataclass(frozen=True)
class ServerPlan:
    """One range server."""

    name: str
    data_port: int
    control_port: int
    zone: str
    host: str = LOOPBACK


@dataclass(frozen=True)
class BrokerPlan:
    """One broker. It keeps no data: its directory holds only where it listens."""

    name: str
    port: int
    control_port: int
    zone: str
    host: str = LOOPBACK
    rest_port: int = 0
    """0, of plans that are older than the REST interface: any free port at each start."""
    doors: dict[str, int] = field(default_factory=dict)
    """Ports by name of the door."""


@dataclass(frozen=True)
class ClusterPlan:
    """The values that must be the same at every start of a cluster in one directory."""

    pds: tuple[PdPlan, ...]
    range_servers: tuple[ServerPlan, ...]
    tier_url: str
    raft_secret: str
    base_port: int
    brokers: tuple[BrokerPlan, ...] = ()
    tls: bool = False
    encrypted: bool = False
    tokens: bool = False

    @property
    def pd_addresses(self) -> list[str]:
        """Every placement driver's API."""
        return [pd.api_address for pd in self.pds]

    def ports(self) -> dict[str, int]:
        """Every port, with its purpose."""
        found: dict[str, int] = {}
        for pd in self.pds:
            found[f"{pd.name}, API"] = pd.api_port
            found[f"{pd.name}, Raft"] = pd.raft_port
        for server in self.range_servers:
            found[f"{server.name}, data"] = server.data_port
            found[f"{server.name}, control"] = server.control_port
        for broker in self.brokers:
            found[f"{broker.name}, producers"] = broker.port
            found[f"{broker.name}, services"] = broker.control_port
            if broker.rest_port:
                found[f"{broker.name}, REST"] = broker.rest_port
            found |= {f"{broker.name}, door {name}": port for name, port in broker.doors.items()}
        return found


def make_plan(*, pds: int, range_servers: int, tier_url: str, base_port: int, brokers: int = 0) -> ClusterPlan:
    """A new plan. `base_port` 0 chooses free ports; otherwise PD APIs listen from it on and the rest above them."""
    _check_counts(pds, range_servers, brokers)
    empty = ClusterPlan(
        pds=tuple(PdPlan(f"pd{number}", 0, 0) for number in range(1, pds + 1)),
        range_servers=_servers(1, range_servers),
        tier_url=tier_url,
        raft_secret=secrets.token_hex(32),
        base_port=base_port,
        brokers=_brokers(brokers),
    )
    return with_ports(empty, base_port)


def with_ports(plan: ClusterPlan, base_port: int) -> ClusterPlan:
    """The same cluster on other ports."""
    pds, servers, brokers = len(plan.pds), len(plan.range_servers), len(plan.brokers)
    if base_port:
        numbers = _ports_from(base_port, pds, servers) + _broker_ports_from(base_port, brokers)
    else:
        numbers = free_ports(2 * pds + 2 * servers + _BROKER_PORTS * brokers)
    apis, rafts = numbers[:pds], numbers[pds : 2 * pds]
    rest = numbers[2 * pds :]
    last = rest[2 * servers :]
    return replace(
        plan,
        base_port=base_port,
        pds=tuple(
            replace(pd, api_port=api, raft_port=raft) for pd, api, raft in zip(plan.pds, apis, rafts, strict=True)
        ),
        range_servers=tuple(
            replace(server, data_port=rest[2 * i], control_port=rest[2 * i + 1])
            for i, server in enumerate(plan.range_servers)
        ),
        brokers=_with_ports(plan.brokers, last),
    )


def with_hosts(plan: ClusterPlan, hosts: Mapping[str, str]) -> ClusterPlan:
    """The same cluster with members, by name, on other addresses of this machine."""
    return replace(
        plan,
        pds=tuple(replace(pd, host=hosts.get(pd.name, pd.host)) for pd in plan.pds),
        range_servers=tuple(replace(each, host=hosts.get(each.name, each.host)) for each in plan.range_servers),
        brokers=tuple(replace(each, host=hosts.get(each.name, each.host)) for each in plan.brokers),
    )


def with_brokers(plan: ClusterPlan, count: int) -> ClusterPlan:
    """The same cluster with so many brokers; those that stay keep their ports."""
    _check_counts(len(plan.pds), len(plan.range_servers), count)
    kept = plan.brokers[:count]
    added = count - len(kept)
    if plan.base_port:
        fresh = _broker_ports_from(plan.base_port, count)[_BROKER_PORTS * len(kept) :]
    else:
        fresh = free_ports(_BROKER_PORTS * added, taken=plan.ports().values()) if added else []
    return replace(plan, brokers=kept + _with_ports(_brokers(count)[len(kept) :], fresh))


def with_range_servers(plan: ClusterPlan, count: int) -> ClusterPlan:
    """The same cluster with more range servers; those that exist keep their ports."""
    have = len(plan.range_servers)
    if count < have:
        raise InvalidArgument(
            f"this directory holds {have} range servers and {count} were asked for: "
            f"leave out --range-servers, or pass {have} or more"
        )
    _check_counts(len(plan.pds), count, len(plan.brokers))
    grown = replace(plan, range_servers=plan.range_servers + _servers(have + 1, count))
    numbers = _ports_from(plan.base_port, len(plan.pds), count) if plan.base_port else []
    fresh = numbers[2 * len(plan.pds) + 2 * have :] or free_ports(2 * (count - have), taken=plan.ports().values())
    added = tuple(
        replace(server, data_port=fresh[2 * i], control_port=fresh[2 * i + 1])
        for i, server in enumerate(grown.range_servers[have:])
    )
    return replace(grown, range_servers=plan.range_servers + added)


def read_plan(directory: Path) -> ClusterPlan | None:
    """The plan in `directory`, None when there is none; raises ConfigInvalid for one that cannot be read."""
    path = directory / PLAN_FILE
    try:
        fields = json.loads(path.read_text())
        if fields.pop("format") != _FORMAT:
            raise ValueError("unknown format")
        plan = ClusterPlan(
            pds=tuple(PdPlan(**pd) for pd in fields.pop("pds")),
            range_servers=tuple(ServerPlan(**server) for server in fields.pop("range_servers")),
            brokers=tuple(BrokerPlan(**broker) for broker in fields.pop("brokers", ())),
            **fields,
        )
        parts: tuple[_Part, ...] = (plan, *plan.pds, *plan.range_servers, *plan.brokers)
        for part in parts:
            _check_kinds(part)
        return plan
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigInvalid(f"{path} is damaged ({error}): restore it, or choose another --data-dir") from None


_Part = ClusterPlan | PdPlan | ServerPlan | BrokerPlan


def _check_kinds(part: _Part) -> None:
    """Check the types of all fields. Raises TypeError for a field of another type than declared."""
    for each in dataclass_fields(part):
        wanted = {"str": str, "int": int, "bool": bool}.get(str(each.type))
        if wanted is not None and type(getattr(part, each.name)) is not wanted:
            raise TypeError(f"{each.name} is not of type {each.type}")
    if isinstance(part, BrokerPlan) and not all(type(port) is int for port in part.doors.values()):
        raise TypeError("doors has ports that are no numbers")


def write_plan(directory: Path, plan: ClusterPlan) -> None:
    """Write the plan, readable by its owner only, since it contains the Raft secret."""
    path = directory / PLAN_FILE
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"format": _FORMAT} | asdict(plan), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _servers(first: int, last: int) -> tuple[ServerPlan, ...]:
    return tuple(ServerPlan(f"rs{number}", 0, 0, f"zone{(number - 1) % 3 + 1}") for number in range(first, last + 1))


def _brokers(count: int) -> tuple[BrokerPlan, ...]:
    return tuple(BrokerPlan(f"broker{number}", 0, 0, f"zone{(number - 1) % 3 + 1}") for number in range(1, count + 1))


def _broker_ports_from(base_port: int, brokers: int) -> list[int]:
    """Of each broker a pair between the APIs and the Raft ports, and one for REST between these and the range servers'."""
    return [
        port
        for i in range(brokers)
        for port in (base_port + 10 + 2 * i, base_port + 11 + 2 * i, base_port + _REST_PORTS_AT + i)
    ]


def _with_ports(brokers: tuple[BrokerPlan, ...], numbers: list[int]) -> tuple[BrokerPlan, ...]:
    threes = [numbers[at : at + _BROKER_PORTS] for at in range(0, len(numbers), _BROKER_PORTS)]
    return tuple(
        replace(broker, port=port, control_port=control_port, rest_port=rest_port)
        for broker, (port, control_port, rest_port) in zip(brokers, threes, strict=True)
    )


def _ports_from(base_port: int, pds: int, servers: int) -> list[int]:
    """APIs at base, Raft at base + 40, range servers from base + 80 in pairs: stable when servers are added."""
    highest = base_port + 80 + 2 * servers
    if base_port < 1 or highest > 65_535:
        raise InvalidArgument(f"--port {base_port} leaves no room below 65536: choose one between 1024 and 65000")
    apis = [base_port + i for i in range(pds)]
    rafts = [base_port + 40 + i for i in range(pds)]
    return apis + rafts + [base_port + 80 + i for i in range(2 * servers)]


def _check_counts(pds: int, range_servers: int, brokers: int) -> None:
    if pds not in (1, 3):
        raise InvalidArgument(f"--pds {pds}: a group of placement drivers has 1 or 3 members")
    if not 1 <= range_servers <= MEMBERS_MAX:
        raise InvalidArgument(f"--range-servers {range_servers}: choose between 1 and {MEMBERS_MAX}")
    if not 0 <= brokers <= BROKERS_MAX:
        raise InvalidArgument(f"--brokers {brokers}: choose between 0 and {BROKERS_MAX}")
