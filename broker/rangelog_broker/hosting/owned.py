"""What this broker owns and has open: shards by their keys, and the answers about shards that have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from rangelog import Client
from rangelog.errors import NotOwner, OutcomeUnknown, ProducerFenced, ShardEnded
from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_broker.hosting.covering import Covering
from rangelog_broker.hosting.rates import MINUTE_S, MovingRates, decay, rounded
from rangelog_broker.shards.finished import FinishedShards, PlacementRows
from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.scaling import Scaling
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.transactional import Verify
from rangelog_core.batch_extension import Producer
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2, topic_pb2

LOAD_INTERVAL_S = 1.0
"""Rates are averages over at least so long, or over a minute of the moving averages if that is less."""
_BY_RATE = (topic_pb2.SCALING_KIND_EVENTS, topic_pb2.SCALING_KIND_BYTES)


class OwnedShards:
    """See serving.connection.Shards, shards.scaling.Owned and hosting.registration.Reported."""

    def __init__(
        self,
        client: Client,
        topics: PdClient,
        is_assigned: Callable[[OwnedKey], bool],
        open_table: Callable[[OwnedKey], Awaitable[Awaitable[None]]],
    ) -> None:
        self.is_assigned = is_assigned
        self._open_table = open_table
        self.on_staged: Callable[[OwnedShard], object] = lambda shard: None
        self.broker_version: Callable[[], int] = lambda: 0
        self.verify: Verify | None = None
        """Asks the coordinators of transactions; None: there are none."""
        self._client = client
        self._topics = topics
        self.rows = PlacementRows(topics)
        self._open: dict[OwnedKey, OwnedShard] = {}
        self._ended: dict[OwnedKey, None] = {}
        self._changing: dict[OwnedKey, asyncio.Future[None]] = {}  # of shards that batches wait for
        self.finished = FinishedShards(client, topics, self.rows)
        self.scaling = Scaling(client, topics, self.finished, self)
        self.covering = Covering(self.finished, self)
        self.minute_s = MINUTE_S
        self._scaled_topics: dict[int, None] = {}  # by a policy
        self._rates: dict[OwnedKey, MovingRates] = {}
        self._counted_s = time.monotonic()
        self._loads: dict[OwnedKey, broker_pb2.ShardLoad] = {}

    async def open_one(self, key: OwnedKey) -> Awaitable[None] | None:
        """Open a shard, or a table's partition; return what waits until it is closed. See host.Opening.

        Raises as OwnedShard.open, Journal.open.
        """
        topic, row = await self.rows.topic_and_shard(*key)
        if topic.config.kind == topic_pb2.TOPIC_KIND_TABLE:
            return await self._open_table(key)
        if row.ended_version:
            self.note_end(key)
            return None
        shard = await OwnedShard.open(self._client, self._topics, self.finished, row)
        self._open[key] = shard
        shard.broker_version = lambda: self.broker_version()
        shard.transactions.verify = self.verify
        shard.transactions.on_staged = partial(self.on_staged, shard)
        if shard.transactions.staged():
            self.on_staged(shard)
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note_closed(_: OwnedShard) -> None:
            if not closed.done():
                closed.set_result(None)

        shard.on_closed = note_closed
        self.scaling.opened(key)
        self._changed(key)
        return self._until(shard, closed)

    async def _until(self, shard: OwnedShard, closed: asyncio.Future[None]) -> None:
        try:
            await closed
        finally:
            if self._open.get(shard.key) is shard:
                del self._open[shard.key]
                self._rates.pop(shard.key, None)
            await shard.close()

    def note_end(self, key: OwnedKey) -> None:
        """See Owned."""
        self._ended[key] = None
        self._changed(key)
        if len(self._ended) > 10_000:
            del self._ended[next(iter(self._ended))]

    def _changed(self, key: OwnedKey) -> None:
        changing = self._changing.pop(key, None)
        if changing is not None and not changing.done():
            changing.set_result(None)

    @property
    def open_count(self) -> int:
        """Shards that are open here."""
        return len(self._open)

    # ---- serving.connection.Shards

    def changing(self, topic_id: int, shard_id: int) -> asyncio.Future[None] | None:
        """See Shards."""
        key = (topic_id, shard_id)
        shard = self._open.get(key)
        if (shard is not None and shard.takes_batches) or key in self._ended:
            return None
        if not self.is_assigned(key):
            self._changed(key)  # nobody opens it here any more
            return None
        changing = self._changing.get(key)
        if changing is None:
            changing = self._changing[key] = asyncio.get_running_loop().create_future()
        return changing

    def owned(self, topic_id: int, shard_id: int) -> OwnedShard:
        """See Shards."""
        shard = self._open.get((topic_id, shard_id))
        if shard is None:
            if (topic_id, shard_id) in self._ended:
                raise ShardEnded(f"shard {shard_id} of topic {topic_id} has ended: read the shard map again")
            raise NotOwner(f"shard {shard_id} of topic {topic_id} is not open at this broker")
        return shard

    async def find_batch(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """See Shards."""
        found = (await self.finished.table((topic_id, shard_id))).find(producer)
        if found.standing is Standing.HELD:
            return found.offset
        if found.standing is Standing.FORGOTTEN:
            raise OutcomeUnknown("the batch is there; it was acked too long ago to say where")
        if (
            found.standing is Standing.FENCED
        ):  # batches of its epoch may be there: the table knows the latest epoch only
            raise ProducerFenced(
                f"epoch {found.epoch} of the producer was here, or it was silent for long",
                epoch=found.epoch,
                outcome_unknown=True,
            )
        return None

    async def find_staged(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """See Shards."""
        standing = (await self.finished.staging((topic_id, shard_id))).offer(producer)
        if standing is Standing.FENCED:
            raise ProducerFenced("a later instance of the transactional id was here", outcome_unknown=True)
        return 0 if standing is Standing.HELD else None

    # ---- shards.scaling.Owned

    def open_shard(self, key: OwnedKey) -> OwnedShard | None:
        """See Owned."""
        return self._open.get(key)

    def open_shards(self, topic_id: int) -> list[OwnedShard]:
        """See Owned."""
        return [shard for key, shard in self._open.items() if key[0] == topic_id]

    # ---- topics

    def topic_changed(self, topic: topic_pb2.Topic) -> None:
        """Take over a topic's row."""
        if topic.config.scaling.kind in _BY_RATE:
            self._scaled_topics[topic.topic_id] = None
        else:
            self._scaled_topics.pop(topic.topic_id, None)
        self.scaling.changed(topic)

    def topic_gone(self, topic_id: int) -> None:
        """Nothing of the topic is assigned to this broker any more."""
        self._scaled_topics.pop(topic_id, None)
        self.scaling.forget(topic_id)
        for key in [each for each in self._changing if each[0] == topic_id]:
            self._changed(key)

    # ---- hosting.registration.Reported

    def loads(self) -> Mapping[OwnedKey, broker_pb2.ShardLoad]:
        """See Reported. Of topics that are scaled by a policy idle shards are reported, too."""
        now_s = time.monotonic()
        passed_s = now_s - self._counted_s
        if passed_s < min(LOAD_INTERVAL_S, self.minute_s):
            return self._loads
        self._counted_s = now_s
        after = decay(passed_s, self.minute_s)
        loads: dict[OwnedKey, broker_pb2.ShardLoad] = {}
        for key, shard in self._open.items():
            rates = self._rates.get(key)
            if rates is None:
                rates = self._rates[key] = MovingRates()
            rates.count(shard.load.events, shard.load.bytes, after)
            by_rate = key[0] in self._scaled_topics
            if rates.events_per_s or rates.bytes_per_s or by_rate:
                load = loads[key] = broker_pb2.ShardLoad(
                    topic_id=key[0],
                    shard_id=key[1],
                    events_per_s=rounded(rates.events_per_s),
                    bytes_per_s=rounded(rates.bytes_per_s),
                )
                if by_rate:
                    load.events_averages.extend(rates.events_averages)
                    load.bytes_averages.extend(rates.bytes_averages)
                    load.mature = rates.mature
        self._loads = loads
        return loads

    def covered(self) -> Sequence[broker_pb2.ShardCover]:
        """See Reported."""
        return self.covering.reached()

    def cover(self, wanted: Sequence[broker_pb2.ShardCover]) -> None:
        """See Reported."""
        self.covering.want(wanted)
