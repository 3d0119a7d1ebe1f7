"""What holds whenever a range server is given a directive: disks have what the placement driver takes them to have.

A replica is copied from such as are whole, and uploaded by one that is: they have all of the sealed range, and its end. One
that was replaced is dropped when `acks` members are whole, a damaged one when another disk has all of the range. A disk that
fails had it until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_pd.reconcile.directives import Planner
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.simulation.virtual_cluster import VirtualCluster

Watch = Callable[[Any, str, Callable[..., Any]], None]


def watch_directives(watch: Watch, cluster: VirtualCluster) -> None:
    """Check each directive as it is given."""

    def directives(self: Planner, inner: Any, server: str, incarnation: int) -> list[pd_pb2.Directive]:
        given: list[pd_pb2.Directive] = inner(self, server, incarnation)
        for each in given:
            found = self.state.ranges.find((each.stream_id, each.range_index))
            if found is not None and found.state == common_pb2.RANGE_STATE_SEALED and not found.hot_dropped:
                _check(cluster, each, found, common_pb2.Replica(server=server, incarnation=incarnation))
            cluster.on_step(each.WhichOneof("action") or "")
        return given

    watch(Planner, "directives", directives)


def _check(
    cluster: VirtualCluster, directive: pd_pb2.Directive, found: common_pb2.Range, receiver: common_pb2.Replica
) -> None:
    what = f"of range {found.stream_id}/{found.index}"
    for source in directive.copy_replica.sources:
        if not _is_whole(cluster, found, source):
            _report(cluster, f"a copy {what} is to be made from {source.server}, which is not whole")
    if directive.HasField("upload_range") and not _is_whole(cluster, found, receiver):
        _report(cluster, f"an upload {what} is asked of {receiver.server}, which is not whole")
    if directive.HasField("drop_replica"):
        members = [(each.server, each.incarnation) for each in found.replicas]
        if (receiver.server, receiver.incarnation) in members:
            _check_damaged(cluster, found, receiver, what)
        elif sum(_is_whole(cluster, found, each) for each in found.replicas) < found.acks:
            _report(
                cluster,
                f"{receiver.server} is to drop its replica {what}, and fewer than {found.acks} members are whole",
            )


def _report(cluster: VirtualCluster, problem: str) -> None:
    """Note a violation. To raise it here would end as an error of the heartbeat that asked."""
    cluster.loop.problems.append(problem)


def _check_damaged(cluster: VirtualCluster, found: common_pb2.Range, receiver: common_pb2.Replica, what: str) -> None:
    others = [each for name, each in cluster.servers.items() if name != receiver.server]
    disks = [disk for each in others for disk in (each.disk, *each.old_disks)]
    if not any(_has_all(disk, found) for disk in disks):
        _report(cluster, f"{receiver.server} is to drop its damaged replica {what}, and no other is whole")


def _is_whole(cluster: VirtualCluster, found: common_pb2.Range, replica: common_pb2.Replica) -> bool:
    server = cluster.servers[replica.server]
    disks = server.disks_of(replica.incarnation)
    hosted = server.store.replicas.get((found.stream_id, found.index)) if server.store is not None else None
    if hosted is not None and disks and disks[0] is server.disk and hosted.core.sealed_end_offset is None:
        return False
    return any(_has_all(disk, found) for disk in disks)


def _has_all(disk: Any, found: common_pb2.Range) -> bool:
    span = ((found.stream_id, found.index), found.start_offset, found.end_offset)
    return bool(disk.durable_span(*span) >= found.end_offset)
