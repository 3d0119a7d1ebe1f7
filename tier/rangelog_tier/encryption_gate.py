"""Whether a cluster may get encrypted objects already: programs of an earlier level would take them for damaged ones."""

from __future__ import annotations

from rangelog_core.errors import Unavailable
from rangelog_core.net.pd_client import PdClient
from rangelog_core.versions import LEVEL_ENCRYPTION
from rangelog_proto.v1 import pd_pb2


async def check_cluster_encrypts(pd: PdClient, *, timeout_s: float) -> None:
    """Raise Unavailable below the cluster version of encrypted objects; it never falls, so one success is enough.

    An earlier placement driver would drop the fields about keys, so this is asked before an object is prepared.
    """
    version = (
        await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=timeout_s)
    ).cluster_version
    if version < LEVEL_ENCRYPTION:
        raise Unavailable(
            f"objects are encrypted from cluster version {LEVEL_ENCRYPTION} on, and this cluster is at {version}: nothing is "
            "stored in clear meanwhile; finish the upgrade (`pdctl upgrade check`)"
        )
