"""Probes of groups: commits that are refused or late, silent members, shards that wait for what precedes them, takeovers."""

from __future__ import annotations

from typing import Any

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.groups.group import Group
from rangelog_broker.groups.group_owner import GroupOwner
from rangelog_broker.hosting.journals import OwnedJournals
from rangelog_core.errors import MemberNotFound
from rangelog_proto.v1 import group_pb2
from tests.simulation.virtual_cluster import VirtualCluster

CORNER_CASES = (
    "a member of a group was killed",
    "a member of a group stood still",
    "a member of a group was cut off",
    "an earlier instance of a member was taken out",
    "a silent member was taken out",
    "a commit of a member that was taken out was refused",
    "a commit under an earlier generation was refused",
    "a commit came behind a later one",
    "a shard was given back for another member",
    "a shard waited for what precedes it to be committed",
    "a shard was handed out when all that precedes it was committed",
    "a journal with groups was taken over",
    "a checkpoint of a group was complete",
    "a group was moved back",
    "a reader of a topic began at a saved cut",
    "a reader of a topic went on to a shard's successors",
)


def watch_groups(watch: Any, cluster: VirtualCluster) -> None:
    """Count what matters. A journal's replay counts again."""
    note = cluster.note

    def commit(self: Group, inner: Any, member: str, position: group_pb2.GroupPosition) -> Any:
        shard = self.shards.get(ShardKey(position.shard.topic_id, position.shard.shard_id))
        before = shard.offset if shard is not None else None
        found = inner(self, member, position)
        if found == group_pb2.GROUP_REFUSAL_NOT_ASSIGNED:
            note("a commit under an earlier generation was refused")
        elif not found and before is not None and position.offset < before:
            note("a commit came behind a later one")
        return found

    def hear(self: Group, inner: Any, member: str, *args: Any) -> None:
        try:
            inner(self, member, *args)
        except MemberNotFound:
            note("a commit of a member that was taken out was refused")
            raise

    def expire(self: Group, inner: Any, member: str, *args: Any) -> None:
        was_there = member in self.members
        inner(self, member, *args)
        if was_there and member not in self.members:
            note("a silent member was taken out")

    def release(self: Group, inner: Any, member: str, key: ShardKey, since: int) -> None:
        had = key in self.shards and self.shards[key].member == member
        inner(self, member, key, since)
        if had and self.shards[key].since != since:
            note("a shard was given back for another member")

    def hand_out(self: Group, inner: Any) -> None:
        before = {key for key, shard in self.shards.items() if shard.member}
        inner(self)
        readable = set(self._readable())
        for key, shard in self.shards.items():
            if shard.facts is None or not shard.facts.predecessors:
                continue
            if shard.member and key not in before:
                note("a shard was handed out when all that precedes it was committed")
            elif key not in readable and not self.finished(shard):
                note("a shard waited for what precedes it to be committed")

    def opened(self: GroupOwner, inner: Any, journal: Any, *args: Any) -> None:
        inner(self, journal, *args)
        if journal.machine.groups:
            note("a journal with groups was taken over")

    watch(Group, "commit", commit)
    watch(Group, "hear", hear)
    watch(Group, "expire", expire)
    watch(Group, "release", release)
    watch(Group, "_hand_out", hand_out)
    watch(GroupOwner, "__init__", opened)
    _watch_coordinators(watch, cluster)


def _watch_coordinators(watch: Any, cluster: VirtualCluster) -> None:
    async def open_coordinator(self: OwnedJournals, inner: Any, key: tuple[int, int]) -> Any:
        waiting = await inner(self, key)
        cluster.coordinators[key[1]] = self.coordinator(key[1]).journal.machine
        return waiting

    watch(OwnedJournals, "open_coordinator", open_coordinator)
