"""Corner cases of repairs, and of open ranges whose writer is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.reconcile.repair_progress import RepairProgress
from rangelog_proto.v1 import pd_pb2
from rangelog_server.agent.directives.leave import Leaver
from rangelog_server.agent.directives.recover import Recoverer
from tests.simulation.virtual_cluster import VirtualCluster

RARE = ("a repair waited for a server that has a copy",)
CORNER_CASES = (
    "a range whose writer was gone was sealed by a server",
    "a replica got all of a range that it lacked",
    "a server was drained",
    "a server that is to be left sent a writer away",
    *RARE,
)

Watch = Callable[[Any, str, Callable[..., Any]], None]


def watch_repairs(watch: Watch, cluster: VirtualCluster) -> None:
    """Count what the repairs of this run meet."""

    async def recover(self: Recoverer, inner: Any, directive: pd_pb2.Directive) -> None:
        try:
            await inner(self, directive)
        except PreconditionFailed as error:
            cluster.note(
                "an idle writer kept its range" if "alive" in error.message else "a range was opened meanwhile"
            )
            raise
        cluster.note("a range whose writer was gone was sealed by a server")

    def has(self: RepairProgress, inner: Any, key: Any, server: str, size_bytes: int) -> None:
        before = self.done_count
        inner(self, key, server, size_bytes)
        if self.done_count != before:
            cluster.note("a replica got all of a range that it lacked")

    def block(self: RepairProgress, inner: Any, key: Any, reason: str, **more: Any) -> None:
        inner(self, key, reason, **more)
        if "at hand" in reason:
            cluster.note("a repair waited for a server that has a copy")

    async def leave(self: Leaver, inner: Any, directive: pd_pb2.Directive) -> None:
        hosted = self._store.replicas.get((directive.stream_id, directive.range_index))
        if hosted is not None and hosted.writing() is not None:
            cluster.note("a server that is to be left sent a writer away")
        await inner(self, directive)

    watch(Leaver, "leave_range", leave)
    watch(Recoverer, "recover_range", recover)
    watch(RepairProgress, "has", has)
    watch(RepairProgress, "block", block)
