"""Corner cases of repairs, and of open ranges whose writer is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.reconcile.repair_progress import RepairProgress
from rangelog_proto.v1 import pd_pb2
from rangelog_server.agent.directives.leave import Leaver
from rangelog_server.agent.directives.recover import Recoverer, WriterAnswers
from tests.simulation.virtual_cluster import VirtualCluster

RARE = ("a repair waited for a server that has a copy",)
CORNER_CASES = (
    "a range whose writer was gone was sealed by a server",
    "a replica got all of a range that it lacked",
    "a server was drained",
    "a server was draining to the end",
    "a server that is to be left sent a writer away",
    "a writer was asked to leave a range that lacks members",
    "a server that is to be left sent a writer away that had not appended",
    *RARE,
)

Watch = Callable[[Any, str, Callable[..., Any]], None]


def watch_repairs(watch: Watch, cluster: VirtualCluster) -> None:
    """Count what the repairs of this run meet."""

    async def recover(self: Recoverer, inner: Any, directive: pd_pb2.Directive) -> None:
        try:
            await inner(self, directive)
        except WriterAnswers:
            cluster.note("an idle writer kept its range")
            raise
        except PreconditionFailed:
            cluster.note("a range was opened meanwhile")
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
        key = (directive.stream_id, directive.range_index)
        hosted = self._store.replicas.get(key)
        if directive.leave_range.only_asks:
            if hosted is not None and hosted.writing() is not None:
                cluster.note("a writer was asked to leave a range that lacks members")
            await inner(self, directive)
            return
        if hosted is not None and hosted.writing() is not None:
            cluster.note("a server that is to be left sent a writer away")
        if hosted is None and self._store.idle.of(key) is not None:
            cluster.note("a server that is to be left sent a writer away that had not appended")
        await inner(self, directive)

    watch(Leaver, "leave_range", leave)
    watch(Recoverer, "recover_range", recover)
    watch(RepairProgress, "has", has)
    watch(RepairProgress, "block", block)
