"""Where the members of a local cluster serve metrics, and the file by which a Prometheus on the same machine finds them.

What holds: each member has the same port as long as the supervisor runs, also after it was started again; the ports follow from
the cluster's first port where it has one. Prometheus reads the file again when it changes (file_sd_configs).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from rangelog_cli.local.plan import ClusterPlan
from rangelog_cli.local.ports import LOOPBACK, free_ports, is_free
from rangelog_cli.local.processes import Cluster
from rangelog_cli.servers import BROKER_ENV_PREFIX, PD_ENV_PREFIX, SERVER_ENV_PREFIX

TARGETS_FILE = "metrics-targets.json"
_PORTS_AT = 160
"""From the first port of the cluster on: above those of 32 range servers."""
_ENV_PREFIXES = {"pd": PD_ENV_PREFIX, "range-server": SERVER_ENV_PREFIX, "broker": BROKER_ENV_PREFIX}


def roles(plan: ClusterPlan) -> dict[str, str]:
    """Return what each member is, by name: pd, range-server or broker."""
    return (
        dict.fromkeys((each.name for each in plan.pds), "pd")
        | dict.fromkeys((each.name for each in plan.range_servers), "range-server")
        | dict.fromkeys((each.name for each in plan.brokers), "broker")
    )


def choose_addresses(plan: ClusterPlan) -> dict[str, str]:
    """Return an address for the metrics of each member, by name. A port that follows from the plan is left where it is busy."""
    return addresses_from(plan, list(roles(plan)), _PORTS_AT)


def addresses_from(plan: ClusterPlan, names: Sequence[str], ports_at: int) -> dict[str, str]:
    """Return an address for each name: ports from `ports_at` behind the cluster's first one on, where they are free."""
    wanted = [plan.base_port + ports_at + number if plan.base_port else 0 for number in range(len(names))]
    free = iter(free_ports(len(names), taken=plan.ports().values()))
    chosen = [port if 0 < port <= 65_535 and is_free(port) else next(free) for port in wanted]
    return {name: f"{LOOPBACK}:{port}" for name, port in zip(names, chosen, strict=True)}


def enable_metrics(cluster: Cluster) -> dict[str, str]:
    """Let every member serve metrics from its next start on, and write the file for Prometheus; return the addresses by name.

    Raises OSError, Unavailable (no free port).
    """
    plan, addresses = cluster.plan, choose_addresses(cluster.plan)
    targets = []
    for name, role in roles(plan).items():
        cluster.members[name].env[f"{_ENV_PREFIXES[role]}METRICS_LISTEN"] = addresses[name]
        labels = {"role": role, "name": name}
        if cluster.client_tls is not None:
            labels["__scheme__"] = "https"
        targets.append({"targets": [addresses[name]], "labels": labels})
    path = cluster.directory / TARGETS_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(targets, indent=2) + "\n")
    os.replace(temporary, path)
    return addresses
