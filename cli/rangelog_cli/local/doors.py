"""The doors of a local cluster's brokers: which are served, and where.

What holds: a door keeps its port from start to start, unless the cluster moves to other ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points

from rangelog_cli.local.plan import BrokerPlan, ClusterPlan
from rangelog_cli.local.ports import free_ports, is_free
from rangelog_core.errors import ConfigInvalid, InvalidArgument

NONE = "none"
PORT_MAX = 65_535
_PORTS_AT = {"http": 990}
"""Above the cluster's first port, for the first broker: 8090 of 7100."""


def installed_doors() -> tuple[str, ...]:
    """Return the doors that a local cluster can serve; REST has an option of its own."""
    return tuple(sorted({each.name for each in entry_points(group="rangelog.doors")} & _PORTS_AT.keys()))


def chosen_doors(text: str | None, *, fresh: bool) -> tuple[str, ...] | None:
    """Return the doors of "http,…" or "none"; None: those that the cluster has. Raises InvalidArgument.

    Without a text a fresh cluster has all that are installed.

    >>> chosen_doors("none", fresh=True)
    ()
    """
    if text is None:
        return installed_doors() if fresh else None
    names = tuple(sorted({each.strip() for each in text.split(",") if each.strip()} - {NONE}))
    for name in names:
        if name not in installed_doors():
            raise InvalidArgument(
                f"--doors: {name[:40]!r} is not installed: there are {', '.join((*installed_doors(), NONE))}; "
                f"pip install 'rangelog[{name[:40]}]' where it is one"
            )
    return names


def with_doors(plan: ClusterPlan, names: Sequence[str] | None) -> ClusterPlan:
    """Return the same cluster with these doors at each broker; None: with those that it has."""
    if names is None:
        names = sorted({name for broker in plan.brokers for name in broker.doors})
    for name in set(names) - _PORTS_AT.keys():
        raise ConfigInvalid(f"cluster.json has a door {name[:40]!r}, which this version does not know: pass --doors")
    if names and plan.base_port + max(_PORTS_AT.values()) + len(plan.brokers) > PORT_MAX:
        raise InvalidArgument(f"--port {plan.base_port} leaves no room for doors below {PORT_MAX}: pass --doors none")
    taken = set(replace(plan, brokers=tuple(replace(each, doors={}) for each in plan.brokers)).ports().values())
    brokers: list[BrokerPlan] = []
    for index, broker in enumerate(plan.brokers):
        ports: dict[str, int] = {}
        for name in names:
            kept = broker.doors.get(name, 0)
            if plan.base_port:
                ports[name] = plan.base_port + _PORTS_AT[name] + index
            else:
                fits = kept and kept not in taken and is_free(kept)
                ports[name] = kept if fits else free_ports(1, taken=taken)[0]
            taken.add(ports[name])
        brokers.append(replace(broker, doors=ports))
    return replace(plan, brokers=tuple(brokers))


def door_lines(plan: ClusterPlan) -> list[str]:
    """Return what the start says of doors."""
    scheme = "https" if plan.tls else "http"
    return [
        f"  {name:<13}  {', '.join(f'{scheme}://{broker.host}:{broker.doors[name]}' for broker in plan.brokers)}"
        for name in (plan.brokers[0].doors if plan.brokers else ())
    ]


def door_tries(plan: ClusterPlan) -> list[str]:
    """Return a command to try for each door, where it needs no certificate."""
    if not plan.brokers or plan.tls or "http" not in plan.brokers[0].doors:
        return []
    topic = f"http://{plan.brokers[0].host}:{plan.brokers[0].doors['http']}/v1/topics/default/news"
    return [f"    curl -X PUT {topic}; curl -d first {topic}/records; curl {topic}/records"]
