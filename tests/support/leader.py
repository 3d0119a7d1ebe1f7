"""Name the placement driver that leads a cluster of processes; ask again during an election."""

from __future__ import annotations

from rangelog_cli.local import health
from rangelog_cli.local.processes import Cluster
from tests.support.waiting import eventually


def leader_of(cluster: Cluster) -> str:
    """Return the name of the placement driver that leads, once a member that answers names one."""
    return eventually(lambda: health.leader(cluster.pd_addresses, cluster.tls), "nobody leads")
