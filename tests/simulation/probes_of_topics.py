"""Probes of topics: what owners of shards answer, what becomes of their tables, what producers are told of ended shards.

Whether the ends of shards that a cut was made of are exact is put into the list in `EXACT`.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any
from unittest import mock

import rangelog._topics.cuts
import rangelog_broker.hosting.covering
import rangelog_broker.hosting.host
import rangelog_broker.serving.connection
import rangelog_broker.shards.scaling
import rangelog_broker.shards.shard
import rangelog_broker.shards.shard_snapshots
import rangelog_broker.verbs.produce
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.shards.finished import FinishedShards
from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.side_log import SideLog
from rangelog_core.batch_extension import Submission
from rangelog_core.errors import Overloaded
from tests.simulation import (
    probes_of_groups,
    probes_of_transactions,
    virtual_consuming,
    virtual_fetching,
    virtual_forger,
    virtual_programs,
    virtual_retaining,
    virtual_sealing,
    virtual_sending,
    virtual_trimmed_group,
    virtual_versions,
)
from tests.simulation.virtual_cluster import VirtualCluster

EXACT: contextvars.ContextVar[list[bool] | None] = contextvars.ContextVar("EXACT", default=None)
"""Of the role that runs, since it put an empty list here."""
SNAPSHOT_BATCHES = 12
ANSWERS = {
    Standing.HELD: "a batch sent again got its first answer",
    Standing.GAP: "a batch came before those that it follows",
    Standing.FENCED: "a batch of a fenced producer was refused",
    Standing.FORGOTTEN: "a batch was asked for long after its ack",
}
RARE = (
    "a batch was refused by a shard that is closed",
    "a scale that nobody carried out was cancelled",
    "a truncation waited for a snapshot",
    "a truncation went on once snapshots covered it",
    "a shard was fenced under its owner",
    "a shard that has ended held a batch in doubt",
    "a commit of a member that was taken out was refused",
    "a commit under an earlier generation was refused",
    "a step of a pipeline was committed",
    "a step of a pipeline was aborted, and made again",
    "a program of a pipeline was killed",
    "a checkpoint of a group was complete",
    "a group was moved back",
    *probes_of_transactions.RARE,
    *virtual_retaining.CORNER_CASES,
    *virtual_programs.RARE,
    *virtual_versions.RARE,
    *virtual_trimmed_group.RARE,
    *virtual_fetching.RARE,
    *virtual_sending.RARE,
    *virtual_consuming.RARE,
)
"""Corner cases that one seed in some hundred reaches: a run of fewer than two thousand seeds need not."""
CORNER_CASES = (
    "a record of a topic was acked",
    "a batch sent again got its first answer",
    "a batch sent again joined the one in flight",
    "a batch came before those that it follows",
    "a batch was refused by a shard that is closed",
    "a batch was refused, and those behind it were not",
    "a shard that has ended held a batch in doubt",
    "a shard that has ended lacked a batch in doubt",
    "a table of producers was written",
    "a table of producers was restored from a snapshot",
    "a shard was taken over",
    "a shard was fenced under its owner",
    "a scale was committed",
    "a scale was cancelled",
    "a broker handed over",
    "a Spark plan of a topic read twice",
    *probes_of_groups.CORNER_CASES,
    *probes_of_transactions.CORNER_CASES,
    *virtual_sealing.CORNER_CASES,
    *virtual_retaining.CORNER_CASES,
    *virtual_programs.CORNER_CASES,
    *virtual_programs.RARE,
    *virtual_fetching.CORNER_CASES,
    *virtual_sending.CORNER_CASES,
    *virtual_consuming.CORNER_CASES,
    *virtual_forger.CORNER_CASES,
    *virtual_trimmed_group.CORNER_CASES,
    *virtual_versions.CORNER_CASES,
    *virtual_versions.RARE,
    "a watermark was seen",
    "a program of a pipeline was killed",
    "a step of a pipeline was committed",
    "a step of a pipeline was aborted, and made again",
    "a topic scaled by itself",
    "a scale by itself merged shards",
    "a scale that nobody carried out was cancelled",
    "a truncation waited for a snapshot",
    "a truncation went on once snapshots covered it",
    "a topic was trimmed by its retention",
    "a cut was taken for a retention set",
    "an ended shard got its last snapshot",
    "a shard was trimmed",
    "a reader heard that a part of a shard is trimmed",
)


JOINED = ("a batch sent again joined the one in flight", "a submission was repeated while it was in flight")


def watch_topics(watch: Any, stack: contextlib.ExitStack, cluster: VirtualCluster, listener: Any) -> None:
    """Count what matters; what brokers log with a stack trace is a defect."""
    note = cluster.note
    for module in (
        rangelog_broker.hosting.covering,
        rangelog_broker.hosting.host,
        rangelog_broker.serving.connection,
        rangelog_broker.shards.scaling,
        rangelog_broker.shards.shard,
        rangelog_broker.shards.shard_snapshots,
        rangelog_broker.verbs.produce,
    ):
        stack.enter_context(mock.patch.object(module, "_log", listener))
    stack.enter_context(mock.patch.object(rangelog_broker.shards.shard_snapshots, "SNAPSHOT_BATCHES", SNAPSHOT_BATCHES))
    _watch_ends(stack)

    def offer(self: ShardOwner, inner: Any, *args: Any) -> Any:
        found = inner(self, *args)
        if isinstance(found, InFlight):
            note(JOINED[isinstance(args[0], Submission)])
        elif isinstance(found, list):
            note("a submission was repeated")
        elif found.standing in ANSWERS:
            note(ANSWERS[found.standing])
        return found

    def produce(self: OwnedShard, inner: Any, *args: Any) -> None:
        if self._closing or self.closed is not None:
            note("a batch was refused by a shard that is closed")
        elif cluster.batches_refused and cluster.chance.random() < cluster.batches_refused:
            note("a batch was refused, and those behind it were not")
            raise Overloaded("too much is in flight")
        inner(self, *args)

    def end(self: OwnedShard, inner: Any, error: Any) -> None:
        if self.closed is None and "lost its writer" in str(error):
            note("a shard was fenced under its owner")
        inner(self, error)

    async def find_batch(self: OwnedShards, inner: Any, *args: Any) -> int | None:
        offset: int | None = await inner(self, *args)
        held = "lacked" if offset is None else "held"
        note(f"a shard that has ended {held} a batch in doubt")
        return offset

    virtual_programs.watch_programs(watch, stack, note)
    watch(ShardOwner, "offer", offer)
    watch(OwnedShard, "produce", produce)
    watch(OwnedShard, "_end", end)
    watch(OwnedShards, "find_batch", find_batch)
    _watch_snapshots(watch, cluster)
    probes_of_groups.watch_groups(watch, cluster)
    probes_of_transactions.watch_transactions(watch, cluster)
    virtual_versions.watch_versions(watch, stack, cluster)
    virtual_fetching.watch_fetches(watch, cluster)
    virtual_sending.watch_sends(watch, cluster)
    virtual_consuming.watch_consumers(watch, cluster)
    virtual_fetching.watch_proofs(stack, cluster)


def _watch_snapshots(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note

    async def write_snapshot(self: SideLog, inner: Any, *args: Any) -> None:
        await inner(self, *args)
        note("a table of producers was written")

    async def restore(self: OwnedShard, inner: Any, *args: Any) -> None:
        await inner(self, *args)
        if self._side.snapshot is not None:
            note("a table of producers was restored from a snapshot")
        if self._owner.next_offset:
            note("a shard was taken over")

    async def cover(self: FinishedShards, inner: Any, *args: Any) -> int:
        reached: int = await inner(self, *args)
        note("an ended shard got its last snapshot")
        return reached

    watch(FinishedShards, "cover", cover)
    watch(SideLog, "write_snapshot", write_snapshot)
    watch(OwnedShard, "_restore", restore)


def _watch_ends(stack: contextlib.ExitStack) -> None:
    confirmed_end = rangelog._topics.cuts.confirmed_end

    async def told_end(*args: Any) -> Any:
        end = await confirmed_end(*args)
        if (exact := EXACT.get()) is not None:
            exact.append(end.exact)
        return end

    stack.enter_context(mock.patch.object(rangelog._topics.cuts, "confirmed_end", told_end))
