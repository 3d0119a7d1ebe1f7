"""Name the placement driver that leads a cluster of processes; ask again during an election."""

from __future__ import annotations

import time

from rangelog_cli.local import health
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import Unavailable

_TIMEOUT_S = 20.0
_POLL_S = 0.1


def leader_of(cluster: Cluster) -> str:
    """Return the name of the placement driver that leads, once a member that answers names one. A pause of half a second begins
    an election. Raises Unavailable when nobody leads for 20 s."""
    end_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return health.leader(cluster.pd_addresses, cluster.tls)
        except Unavailable:
            if time.monotonic() > end_s:
                raise
            time.sleep(_POLL_S)
