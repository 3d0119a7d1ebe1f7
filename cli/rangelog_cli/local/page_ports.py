"""Where the placement drivers of a local cluster serve the page for browsers.

What holds: each has the same port as long as the supervisor runs, also after it was started again; the ports follow from the
cluster's first port where it has one.
"""

from __future__ import annotations

from rangelog_cli.local.certificates import PAGE
from rangelog_cli.local.metrics_ports import addresses_from
from rangelog_cli.local.processes import Cluster
from rangelog_cli.servers import PD_ENV_PREFIX

_PORTS_AT = 150
"""From the first port of the cluster on: between those of 32 range servers and those of metrics."""


def enable_page(cluster: Cluster) -> list[str]:
    """Let every placement driver serve the page from its next start on; return the URLs. Raises Unavailable (no free port)."""
    names = [each.name for each in cluster.plan.pds]
    addresses = addresses_from(cluster.plan, names, _PORTS_AT)
    files = cluster.certificates.files(PAGE) if cluster.certificates is not None else None
    for name, address in addresses.items():
        env = cluster.placement_drivers[name].env
        env[f"{PD_ENV_PREFIX}PAGE_LISTEN"] = address
        if files is not None:
            env[f"{PD_ENV_PREFIX}PAGE_CERT"], env[f"{PD_ENV_PREFIX}PAGE_KEY"] = files.cert, files.key
    return [f"{'https' if files is not None else 'http'}://{address}/" for address in addresses.values()]
