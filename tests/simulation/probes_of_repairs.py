"""Corner cases of repairs, and of open ranges whose writer is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.reconcile.repair_progress import RepairProgress
from rangelog_proto.v1 import pd_pb2
from rangelog_server.agent.directives.recover import Recoverer
from tests.simulation.virtual_cluster import VirtualCluster

RARE = ("an idle writer kept its range", "a repair waited for a server that has a copy")
CORNER_CASES = (
    "a range whose writer was gone was sealed by a server",
    "a replica got all of a range that it lacked",
    *RARE,
)

Watch = Callable[[Any, str, Callable[..., Any]], None]


def watch_repairs(watch: Watch, cluster: VirtualCluster) -> None:
    """Count what the repairs of this run meet."""

    async def recover(self: Recoverer, inner: Any, directive: pd_pb2.Directive) -> None:
        try:
            await inner(self, directive)
        except PreconditionFailed as error:
            if "alive" in error.message:
                cluster.note("an idle writer kept its range")
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

    watch(Recoverer, "recover_range", recover)
    watch(RepairProgress, "has", has)
    watch(RepairProgress, "block", block)
