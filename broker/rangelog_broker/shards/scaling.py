"""Carries out what the placement driver keeps of a topic's scale: ends the parents that this broker owns, and commits.

What holds:
- A parent takes no batch once it is being ended. It is opened again when the plan is gone and the shard has not ended, and
  where its end could not be settled or was undone by another opening: then it is ended again.
- The owner of the plan's first parent commits, with the ends of all parents as the placement driver has them. The commit holds
  only if they are all still true, so whoever makes it, and how often, at most one takes effect.
- A plan outlives each broker: the next owner of a parent ends it, the next owner of the first parent commits.
- A topic that is sealed ends its shards once nothing is to be merged into them: transactions are merged, or aborted.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from rangelog import Client
from rangelog.errors import PreconditionFailed, RangelogError, TopicStateForbids, Unavailable, WriterFenced
from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_broker.shards.finished import FinishedShards, PlacementRows, StagedNames
from rangelog_broker.shards.settling import settle
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.staging import TransactionKey
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, topic_pb2

CALL_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 30.0
POLL_S = (0.005, 0.5)
"""How often the ends of parents that other brokers own are looked at."""
_LOOKS = 5

EndTransaction = Callable[[TransactionKey, str], Awaitable[bool]]
"""Aborts a transaction, by its key and transactional id, if it is open; returns whether nothing of it is to be merged."""

_log = logging.getLogger("rangelog.broker")


async def _nobody(key: TransactionKey, transactional_id: str) -> bool:
    raise Unavailable(f"the outcome of transaction {key.number} of {transactional_id!r} is unknown")


class Owned(Protocol):
    """What this broker owns now."""

    def open_shard(self, key: OwnedKey) -> OwnedShard | None:
        """Return an open shard."""

    def is_assigned(self, key: OwnedKey) -> bool:
        """Return whether a shard is assigned to this broker."""

    def open_shards(self, topic_id: int) -> list[OwnedShard]:
        """Return the open shards of a topic."""

    def note_end(self, key: OwnedKey) -> None:
        """A shard has ended for good."""


class Scaling:
    """The scales and sealings of all topics of this broker. For one event loop; `close` it."""

    def __init__(self, client: Client, topics: PdClient, finished: FinishedShards, owned: Owned) -> None:
        self._client = client
        self._topics = topics
        self._finished = finished
        self._owned = owned
        self._rows = PlacementRows(topics)
        self._states: dict[int, topic_pb2.TopicState] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self.end_transaction: EndTransaction = _nobody
        self._decided: dict[
            int, set[int]
        ] = {}  # of topics that are sealed: ended shards that have nothing to be merged
        self._ending: dict[OwnedKey, asyncio.Future[None]] = {}  # until the topic is not scaling any more

    async def close(self) -> None:
        """End all tasks."""
        for task in list(self._tasks.values()):
            task.cancel()

    def changed(self, topic: topic_pb2.Topic) -> None:
        """Take over a topic's row."""
        self._states[topic.topic_id] = topic.state
        if topic.state in (topic_pb2.TOPIC_STATE_SCALING, topic_pb2.TOPIC_STATE_SEALING):
            self._start(topic.topic_id)
        else:
            self._release(topic.topic_id)

    def forget(self, topic_id: int) -> None:
        """Nothing of the topic is assigned to this broker any more."""
        self._states.pop(topic_id, None)
        self._decided.pop(topic_id, None)
        task = self._tasks.pop(topic_id, None)
        if task is not None:
            task.cancel()
        self._release(topic_id)

    def opened(self, key: OwnedKey) -> None:
        """A shard was opened: it may be a parent that its former owner did not end."""
        if self._states.get(key[0]) in (topic_pb2.TOPIC_STATE_SCALING, topic_pb2.TOPIC_STATE_SEALING):
            self._start(key[0])

    async def settled(self, key: OwnedKey) -> None:
        """Wait while a shard is being ended here."""
        ending = self._ending.get(key)
        if ending is not None:
            await asyncio.shield(ending)

    # ---- inside

    def _start(self, topic_id: int) -> None:
        task = self._tasks.get(topic_id)
        if task is not None and not task.done():
            self._again.add(topic_id)
            return
        self._again.discard(topic_id)
        self._tasks[topic_id] = asyncio.create_task(self._run(topic_id))

    def _release(self, topic_id: int, kept: Collection[OwnedKey] = ()) -> None:
        for key in [each for each in self._ending if each[0] == topic_id and each not in kept]:
            self._reopen(key)

    def _reopen(self, key: OwnedKey) -> None:
        """Open a shard again, if it is still assigned to this broker and has not ended."""
        ending = self._ending.pop(key, None)
        if ending is not None and not ending.done():
            ending.set_result(None)

    async def _run(self, topic_id: int) -> None:
        """Do what there is to do for a topic, until there is nothing left that this broker can do."""
        attempt = 0
        while True:
            self._again.discard(topic_id)
            try:
                if await self._step(topic_id):
                    if topic_id not in self._again:
                        return
                    attempt = 0
            except RangelogError as error:
                _log.info("the scale of topic %d is not done yet: %s", topic_id, error)
            except Exception:
                _log.exception("the scale of topic %d failed", topic_id)
            await asyncio.sleep(min(POLL_S[1], POLL_S[0] * 2.0 ** min(attempt, 7)))
            attempt += 1

    async def _step(self, topic_id: int) -> bool:
        """Return whether this broker has nothing more to do."""
        request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=topic_id))
        described = await self._topics.call(request, topic_pb2.DescribeTopicResponse, timeout_s=CALL_TIMEOUT_S)
        if described.topic.state == topic_pb2.TOPIC_STATE_SEALING:
            return await self._seal(topic_id)
        if not described.HasField("scale"):
            self._release(topic_id)
            return True
        return await self._scale(topic_id, described.scale)

    async def _scale(self, topic_id: int, plan: topic_pb2.ScalePlan) -> bool:
        keys = [(topic_id, parent) for parent in plan.parents]
        self._release(topic_id, keys)  # the parents of an earlier plan
        mine = [shard for key in keys if (shard := self._owned.open_shard(key)) is not None]
        commits = self._owns_or_ended(keys[0])
        await asyncio.gather(*(shard.settle_snapshot() for shard in mine))
        began_s = time.monotonic()
        ended = await asyncio.gather(*(self._finish(shard) for shard in mine))
        ends = {end.shard_id: end for end in ended}
        if not commits:
            return await self._look_after([key for key in keys if key in self._ending], ends)
        for attempt in range(_LOOKS):
            missing = [key for key in keys if key[1] not in ends]
            left = await asyncio.gather(*(self._settle_again(key) for key in missing if self._is_left(key)))
            ends |= {end.shard_id: end for end in left}
            missing = [key for key in missing if key[1] not in ends]
            found = await asyncio.gather(*(self._end_of(key) for key in missing))
            ends |= {end.shard_id: end for end in found if end is not None}
            if len(ends) == len(keys):
                break
            await asyncio.sleep(POLL_S[0] * 2.0**attempt)
        else:
            for key in keys:
                if key[1] not in ends:
                    self._reopen(key)
            return False  # their owners have not ended them: look at the plan again
        request = topic_pb2.CommitScaleRequest(
            request_id=uuid.uuid4().hex, topic_id=topic_id, scale_id=plan.scale_id, ends=[ends[key[1]] for key in keys]
        )
        try:
            await self._topics.call(request, topic_pb2.CommitScaleResponse, timeout_s=CALL_TIMEOUT_S)
        except TopicStateForbids:
            return False  # it was committed or cancelled meanwhile: look again
        except (WriterFenced, PreconditionFailed) as error:
            _log.info("a parent of topic %d has another end by now: %s", topic_id, error)
            return False
        _log.info("topic %d: scale %d is committed, %.1f ms after its parents were closed", topic_id, plan.scale_id,
                  (time.monotonic() - began_s) * 1000)  # fmt: skip
        for shard in mine:
            self._keep(shard, ends[shard.key[1]])
        return True

    async def _seal(self, topic_id: int) -> bool:
        """End the shards of a topic that is being sealed, as far as this broker owns them.

        Each ends once no transaction has records to be merged into it: it takes no more of them, what is open is aborted.
        """
        is_done = True
        shards = self._owned.open_shards(topic_id)
        for shard in shards:
            shard.transactions.takes_more = False
        for shard in shards:
            if not await self._is_drained(shard):
                is_done = False  # what is committed is being merged
                continue
            end = await self._finish(shard)
            request = topic_pb2.EndShardRequest(request_id=uuid.uuid4().hex, topic_id=topic_id, end=end)
            try:
                if not await self._ended(await self._finished.staged_at_end(shard.key)):
                    self._reopen(shard.key)  # its last owner but one has staged it
                    is_done = False
                    continue
                await self._topics.call(request, topic_pb2.EndShardResponse, timeout_s=CALL_TIMEOUT_S)
            except RangelogError:
                self._reopen(shard.key)
                raise
            self._keep(shard, end)
        return is_done

    async def _is_drained(self, shard: OwnedShard) -> bool:
        """Abort what is open at a shard and at those before it; return whether nothing is left to be merged."""
        if not await self._ended(shard.transactions.staged()):
            return False
        decided = self._decided.setdefault(shard.key[0], set())
        before = await self._finished.staged_before(shard.row, decided)
        for staged in before.values():
            if not await self._ended(staged):
                return False
        decided.update(before)
        return True

    async def _ended(self, staged: StagedNames) -> bool:
        results = await asyncio.gather(*(self.end_transaction(*each) for each in staged), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return all(results)

    def _owns_or_ended(self, key: OwnedKey) -> bool:
        return self._owned.open_shard(key) is not None or key in self._ending

    async def _finish(self, shard: OwnedShard) -> topic_pb2.ShardEnd:
        """End a shard that this broker owns; it stays closed until the topic's state changes, unless this raises."""
        self._ending.setdefault(shard.key, asyncio.get_running_loop().create_future())
        try:
            return await shard.finish()
        except BaseException:
            self._reopen(shard.key)
            raise

    async def _look_after(self, kept: list[OwnedKey], ends: Mapping[int, topic_pb2.ShardEnd]) -> bool:
        """Return whether no shard is kept closed here for a plan that others commit; reopen those that are not at an end."""
        known = [key for key in kept if key[1] not in ends]
        found = await asyncio.gather(*(self._end_of(key) for key in known))
        for key, end in zip(known, found, strict=True):
            if end is None:
                self._reopen(key)
        return not kept

    def _is_left(self, key: OwnedKey) -> bool:
        """Whether a parent that was ended here before is assigned to this broker: another one may have opened it since."""
        return key in self._ending and self._owned.open_shard(key) is None and self._owned.is_assigned(key)

    async def _settle_again(self, key: OwnedKey) -> topic_pb2.ShardEnd:
        return await settle(self._client, await self._rows.shard(*key), timeout_s=SETTLE_TIMEOUT_S)

    async def _end_of(self, key: OwnedKey) -> topic_pb2.ShardEnd | None:
        """Return how a shard ended if its last range is sealed, wherever its owner is."""
        row = await self._rows.shard(*key)
        stream, ranges = await self._client.metadata.ranges(shard_stream_name(*key), 0, stream_id=row.stream_id)
        end = topic_pb2.ShardEnd(shard_id=key[1], stream_id=row.stream_id, epoch=stream.epoch, end_offset=0)
        if ranges:
            last = ranges[-1]
            if last.state != common_pb2.RANGE_STATE_SEALED:
                return None
            end.last_range_index, end.end_offset = last.index, last.end_offset
        return end

    def _keep(self, shard: OwnedShard, end: topic_pb2.ShardEnd) -> None:
        """Keep the final table of a shard whose end is committed: its successors are about to ask for it."""
        self._owned.note_end(shard.key)
        if shard.confirm_offset == end.end_offset:
            self._finished.put(shard.key, shard.state)
