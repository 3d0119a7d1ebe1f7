"""The health of a local cluster by its placement drivers, without an event loop: for the supervisor and for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangelog_core.errors import RequestTimeout, Unavailable

if TYPE_CHECKING:
    import grpc

    from rangelog_cli.local.processes import Cluster
    from rangelog_core.net.tls import TlsConfig
    from rangelog_proto.v1 import pd_pb2

_CALL_TIMEOUT_S = 2.0
_POLL_S = 0.05


def describe(pd_addresses: Sequence[str], tls: TlsConfig | None = None) -> pd_pb2.DescribeClusterResponse:
    """Return the reply of the first member that answers; raises Unavailable when none does."""
    import grpc

    from rangelog_proto.v1 import pd_pb2, pd_pb2_grpc

    reason = "no address"
    for address in pd_addresses:
        with _channel(address, tls) as channel:
            stub = pd_pb2_grpc.PlacementDriverStub(channel)  # type: ignore[no-untyped-call]
            try:
                answer: pd_pb2.DescribeClusterResponse = stub.DescribeCluster(
                    pd_pb2.DescribeClusterRequest(), timeout=_CALL_TIMEOUT_S
                )
            except grpc.RpcError as error:
                reason = f"{address}: {error.code().name}"
                continue
            return answer
    raise Unavailable(f"no placement driver answers ({reason}): see the logs of the placement drivers")


def _channel(address: str, tls: TlsConfig | None) -> grpc.Channel:
    import grpc

    from rangelog_core.net.principals import Role, server_dns_name
    from rangelog_core.net.tls import certificates_of

    options = [("grpc.enable_http_proxy", 0)]
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    credentials = certificates_of(tls).now.channel_credentials()
    return grpc.secure_channel(
        address, credentials, options=[*options, ("grpc.ssl_target_name_override", server_dns_name(Role.PD))]
    )


def leader(pd_addresses: Sequence[str], tls: TlsConfig | None = None) -> str:
    """Name of the placement driver that leads; raises Unavailable when none does."""
    for member in describe(pd_addresses, tls).members:
        if member.leader:
            return member.name
    raise Unavailable("no placement driver leads: wait for the election")


def wait_healthy(cluster: Cluster, timeout_s: float = 30.0) -> None:
    """Return once a placement driver leads and every running range server reports to it; raises RequestTimeout."""
    from rangelog_proto.v1 import common_pb2

    deadline = time.monotonic() + timeout_s
    wanted = {name for name, each in cluster.range_servers.items() if each.running and name not in cluster.left_out}
    while True:
        try:
            described = describe(cluster.pd_addresses, cluster.tls)
            alive = {each.name for each in described.servers if each.health == common_pb2.SERVER_HEALTH_ALIVE}
            missing = wanted - alive
            if not missing:
                return
            why = "; ".join([f"range servers {', '.join(sorted(missing))} do not report", *described.reasons])
        except Unavailable as error:
            why = error.message
        if time.monotonic() > deadline:
            raise RequestTimeout(f"the cluster is not healthy after {timeout_s:g} s: {why}")
        time.sleep(_POLL_S)
