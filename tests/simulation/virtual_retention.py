"""What may be missing of a topic at the end: what its age, a truncation, or all subscribed groups allow, and nothing else.

Truncations and groups note each cut before they send it. A record that is trimmed is excused by its age (from when it is sent
to the trim, by the simulated time: it may be appended long before its ack), by a truncation behind it, or by a cut behind it of
every group.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog import Client
from rangelog.errors import OffsetTrimmed, RangelogError
from rangelog_broker.shards.side_log import read_side_log
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2
from tests.simulation.virtual_retaining import Retaining
from tests.simulation.virtual_trimmed_group import TrimmedGroup

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

GROUPS = ("g1", "g2")
KINDS = (
    *("nothing", "age", "nothing", "truncation"),
    *("nothing", "consumption", "nothing", "age, consumption, truncation"),
)
KIND_EVERY = 24
"""Most topics are in the seeds 17 + 24 k."""
SKEW_S = 0.05
"""Cluster time may run that much faster within the age of a record."""


@dataclass
class Trims:
    """The retention of one topic, and what has asked for trims."""

    clients: Clients
    retention: topic_pb2.Retention
    truncates: bool
    topic_id: int = 0
    truncated: list[dict[int, int]] = field(default_factory=list)
    retaining: Retaining | None = None
    """A real group that retains, beside those that report by hand."""
    group: TrimmedGroup | None = None
    """One that does not, where something is trimmed."""
    consumed: dict[str, list[dict[int, int]]] = field(default_factory=lambda: {group: [] for group in GROUPS})

    @classmethod
    def draw(cls, clients: Clients) -> Trims:
        """What topics lose follows from the seed, so that each kind is there in few seeds already."""
        kind = KINDS[clients.cluster.seed // KIND_EVERY % len(KINDS)]
        retention = topic_pb2.Retention(consumed="consumption" in kind)
        if "age" in kind:
            retention.age_ms = clients.chance.choice([1_500, 4_000])
        return cls(clients, retention, truncates="truncation" in kind)

    @property
    def keeps_all(self) -> bool:
        """Whether nothing may be missing."""
        return not self.truncates and self.retention == topic_pb2.Retention()

    @property
    def range_age_ms(self) -> int:
        """Only what is sealed can be trimmed."""
        return 0 if self.keeps_all else 400

    async def trouble(self) -> None:
        """Truncate and consume, all the while."""
        clients, chance = self.clients, self.clients.chance
        client = await clients.client()
        calls = client.metadata.pd
        subscribed = not self.retention.consumed
        while not clients.stopping:
            await asyncio.sleep(chance.expovariate(1 / 0.4))
            if self.retaining is not None:
                self.retaining.may_begin = subscribed  # otherwise it would be the only one that keeps something
                if subscribed and self.retaining.heard_s is None:
                    continue  # what the others have consumed before is trimmed, whatever this one has
            with contextlib.suppress(RangelogError):
                if not subscribed:
                    for group in GROUPS:
                        await self._report(calls, group, await self._cut(client, calls, 0.0))
                    subscribed = True
                elif self.retention.consumed and chance.random() < 0.7:
                    await self._report(calls, chance.choice(GROUPS), await self._cut(client, calls, chance.random()))
                elif self.truncates:
                    await self._truncate(calls, await self._cut(client, calls, chance.random()))

    async def _cut(self, client: Client, calls: PdClient, part: float) -> dict[int, int]:
        """The current shards, each at a part of what is sealed."""
        request = topic_pb2.ListShardsRequest(topic=topic_pb2.TopicReference(topic_id=self.topic_id))
        found = await calls.call(request, topic_pb2.ListShardsResponse, timeout_s=5.0)
        cut: dict[int, int] = {}
        for shard in found.shards:
            stream = await client.metadata.describe_stream(shard_stream_name(self.topic_id, shard.shard_id))
            cut[shard.shard_id] = round(stream.next_offset * part)
        return cut

    async def _truncate(self, calls: PdClient, cut: dict[int, int]) -> None:
        self.truncated.append(cut)
        request = topic_pb2.TruncateTopicRequest(
            request_id=uuid.uuid4().hex, topic=topic_pb2.TopicReference(topic_id=self.topic_id), cut=_positions(cut)
        )
        answer = await calls.call(request, topic_pb2.TruncateTopicResponse, timeout_s=5.0)
        if answer.topic.state == topic_pb2.TOPIC_STATE_TRUNCATING:
            self.clients.cluster.note("a truncation waited for a snapshot")

    async def _report(self, calls: PdClient, group: str, cut: dict[int, int]) -> None:
        self.consumed[group].append(cut)
        request = topic_pb2.ReportConsumedRequest(
            request_id=uuid.uuid4().hex,
            topic=topic_pb2.TopicReference(topic_id=self.topic_id),
            group=group,
            cut=_positions(cut),
        )
        await calls.call(request, topic_pb2.ReportConsumedResponse, timeout_s=5.0)

    def start(self, topic: str) -> None:
        """Start what trims, and a group that retains where nothing else than consumption excuses a loss."""
        if self.retention.consumed and not self.retention.age_ms and not self.truncates:
            self.retaining = Retaining(self.clients, topic)
            self.clients.start(f"r-{topic}", self.retaining.supervise())
        self.clients.start(f"t-{topic}", self.trouble())
        if not self.keeps_all:
            self.group = TrimmedGroup(self.clients, topic)
            self.clients.start(f"l-{topic}", self.group.supervise())

    # ---- the end

    async def settle(self) -> None:
        """Wait until some of what was written is old enough, and nothing is consumed any more."""
        if self.retaining is not None:
            await self.retaining.settle()
        if self.retention.age_ms:
            await asyncio.sleep(self.retention.age_ms / 2_000 + 2.0)

    def gone_s(self, shards: Mapping[int, topic_pb2.Shard], shard_id: int, offset: int) -> float | None:
        """Return when a record was trimmed; None: it is there."""
        trims = self.clients.cluster.trims.get(shards[shard_id].stream_id, ())
        return next((at_s for at_s, trim_offset in trims if trim_offset > offset), None)

    def excuse(self, shards: Mapping[int, topic_pb2.Shard], shard_id: int, offset: int, sent_s: float) -> bool:
        """Whether a record may be gone."""
        gone_s = self.gone_s(shards, shard_id, offset)
        if gone_s is None:
            return False
        if self.retention.age_ms and (gone_s - sent_s + SKEW_S) * 1.1 >= self.retention.age_ms / 1000:
            return True
        if any(is_before(shards, cut, shard_id, offset) for cut in self.truncated):
            return True
        if self.retaining is not None and not self.retaining.allows(shard_id, offset, gone_s):
            return False
        return self.retention.consumed and all(
            any(is_before(shards, cut, shard_id, offset) for cut in cuts) for cuts in self.consumed.values()
        )

    async def check_covered(self, client: Client, shard: topic_pb2.Shard) -> None:
        """What was trimmed of a shard is in a snapshot of its producers, and who reads it hears that it is gone."""
        name = shard_stream_name(self.topic_id, shard.shard_id)
        trim_offset = (await client.metadata.describe_stream(name)).trim_offset
        if not trim_offset:
            return
        self.clients.cluster.note("a shard was trimmed")
        snapshot = (await read_side_log(client, self.topic_id, shard.shard_id)).best
        if snapshot is None or snapshot.offset < trim_offset:
            self.clients.cluster.fail(
                f"{name} is trimmed to {trim_offset}, and its snapshot reaches {snapshot and snapshot.offset}"
            )
        try:
            async for _ in client.internal.records(name, shard.stream_id, 0, trim_offset):
                pass
            self.clients.cluster.fail(f"{name} was read from 0 without a word that it is trimmed to {trim_offset}")
        except OffsetTrimmed:
            self.clients.cluster.note("a reader heard that a part of a shard is trimmed")


def _positions(cut: dict[int, int]) -> list[topic_pb2.ShardPosition]:
    return [topic_pb2.ShardPosition(shard_id=each, offset=offset) for each, offset in cut.items()]


def is_before(shards: Mapping[int, topic_pb2.Shard], cut: Mapping[int, int], shard_id: int, offset: int) -> bool:
    """Whether a record lies before a cut: in one of its shards, or in one that precedes them."""
    if shard_id in cut:
        return offset < cut[shard_id]
    seen: set[int] = set()
    pending = list(cut)
    while pending:
        for each in shards[pending.pop()].predecessors:
            if each == shard_id:
                return True
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return False
