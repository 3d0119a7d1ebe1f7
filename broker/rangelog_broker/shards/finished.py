"""The states of shards that have ended: asked for by producers in doubt, and by shards that follow, which begin with them.

What holds: the state is that of all batches up to the end that the placement driver committed, so what it does not hold is not
in the shard and never will be. Any broker can make it, from the shard's last snapshot and its log; a bounded number is kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence

from rangelog import Client
from rangelog.errors import OffsetTrimmed, RangelogError, ShardNotFound, Unavailable
from rangelog_broker.shards.producer_table import ProducerTable
from rangelog_broker.shards.restore import ShardRows, fold_log, restored_offset_of
from rangelog_broker.shards.routing import records_in
from rangelog_broker.shards.side_entry import SideFold
from rangelog_broker.shards.side_log import SideLog, read_side_log
from rangelog_broker.shards.staging import StagedBatch, Staging, TransactionKey
from rangelog_broker.shards.state import ShardState
from rangelog_broker.shards.submission_window import RUNS_MAX
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_ranges import KeyRange, key_range_from_bytes
from rangelog_core.net.combined_calls import CombinedCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2

STATES_MAX = 256
SUBMITTED_RUNS_MAX = 4 * RUNS_MAX
"""Of all windows of submissions that are kept: as many as of four full ones, some 250 MB."""
SIDES_MAX = 4
"""Side logs of ended shards that are kept in memory: with what transactions have staged there, up to 64 MiB each."""
_ALL = 1 << 64
CALL_TIMEOUT_S = 10.0
LOOKS = 3
"""How often a state is looked for while what it begins with is trimmed."""

ROWS_PER_CALL = 500
ROW_CALLS_MAX = 2
GAP_MAX = 16
"""Rows between two that are wanted, which are listed rather than asked around."""

ShardKey = tuple[int, int]
TopicAndShard = tuple[topic_pb2.Topic, topic_pb2.Shard]
StagedNames = list[tuple[TransactionKey, str]]
"""Transactions with their transactional ids."""


class FinishedShards:
    """The final states of ended shards, for one event loop."""

    def __init__(self, client: Client, topics: PdClient, rows: ShardRows) -> None:
        self._client = client
        self._topics = topics
        self._rows = rows
        self._states: OrderedDict[ShardKey, ShardState] = OrderedDict()
        self._ended_rows: OrderedDict[ShardKey, topic_pb2.Shard] = OrderedDict()
        self._sides: OrderedDict[ShardKey, SideFold] = OrderedDict()
        self._making: dict[ShardKey, asyncio.Task[ShardState]] = {}

    def put(self, key: ShardKey, state: ShardState) -> None:
        """Keep the final state of a shard whose end is committed."""
        self._states[key] = state
        self._states.move_to_end(key)
        runs = sum([len(each.submissions) for each in self._states.values()])
        while len(self._states) > 1 and (len(self._states) > STATES_MAX or runs > SUBMITTED_RUNS_MAX):
            runs -= len(self._states.popitem(last=False)[1].submissions)

    async def table(self, key: ShardKey) -> ProducerTable:
        """Return the final table of a shard's producers. Raises as `state`."""
        return (await self.state(key)).table

    async def state(self, key: ShardKey) -> ShardState:
        """Return the final state of a shard.

        Raises ShardNotFound, Unavailable (the shard has not ended, or a part of its log cannot be read now), Corruption.
        """
        known = self._states.get(key)
        if known is not None:
            self._states.move_to_end(key)
            return known
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(making)

    async def first_state(self, shard: topic_pb2.Shard) -> ShardState:
        """Return what a shard's state is before its first batch, by the final states of its predecessors. Raises as `state`."""
        return ShardState.first([await self.state((shard.topic_id, each)) for each in shard.predecessors])

    async def staging(self, key: ShardKey) -> Staging:
        """Return what was staged at a shard that has ended. Raises Unavailable, ShardNotFound, Corruption."""
        if not (await self._row(key)).ended_version:
            raise Unavailable(f"shard {key[1]} of topic {key[0]} has not ended: its owner answers for it")
        return (await self._side(key)).staging

    async def staged_before(self, shard: topic_pb2.Shard, known: Container[int]) -> dict[int, StagedNames]:
        """Return what transactions have staged at each shard that this one follows, but for those that are known already.

        Raises Unavailable, ShardNotFound, Corruption.
        """
        found: dict[int, StagedNames] = {}
        pending = list(shard.predecessors)
        while pending:
            each = pending.pop()
            if each not in found and each not in known:
                key = shard.topic_id, each
                found[each] = (await self.staging(key)).transactions()
                pending += (await self._row(key)).predecessors
        return found

    async def staged_at_end(self, key: ShardKey) -> StagedNames:
        """Return what transactions have staged at a shard whose side log is sealed, if its end is not committed yet."""
        return (await read_side_log(self._client, *key)).staging.transactions()

    async def staged_for(self, shard: topic_pb2.Shard, staging_id: int, key: TransactionKey) -> list[StagedBatch]:
        """Return what a committed transaction has staged at a shard that has ended, as far as it is for one that follows it.

        Records that a shard in between has merged are left out. Raises Unavailable, ShardNotFound, Corruption.
        """
        staging_row = await self._row((shard.topic_id, staging_id))
        if not staging_row.ended_version:
            raise Unavailable(f"shard {staging_id} has not ended: it merges by itself")
        ways = await self._between(shard, staging_id, key)
        staging = _keys(staging_row)
        own = _keys(shard)
        chosen: list[StagedBatch] = []
        for batch in (await self._side((shard.topic_id, staging_id))).staging.batches(key):

            def wanted(position: int, sequence: int = batch.sequence) -> bool:
                if not own.low <= position < own.high:
                    return False
                return not any(each.low <= position < each.high and sequence < merged for each, merged in ways)

            data = records_in(batch.data, staging, wanted)
            if data is not None:
                chosen.append(StagedBatch(batch.sequence, data))
        return chosen

    async def _between(
        self, shard: topic_pb2.Shard, staging_id: int, key: TransactionKey
    ) -> list[tuple[KeyRange, int]]:
        """Return the key range of each shard from the staging one down to this one, and how far it has merged the run."""
        ways: list[tuple[KeyRange, int]] = []
        pending, seen = list(shard.predecessors), set(shard.predecessors)
        while pending:
            each = pending.pop()
            if each < staging_id:
                continue  # ids rise with each scale: it does not follow the staging shard
            row = await self._row((shard.topic_id, each))
            merged = (await self.state((shard.topic_id, each))).merges.next_sequence(key, staging_id)
            ways.append((_keys(row), _ALL if merged is None else merged))
            if each != staging_id:
                pending += [before for before in row.predecessors if before not in seen]
                seen.update(row.predecessors)
        return ways

    async def _row(self, key: ShardKey) -> topic_pb2.Shard:
        row = self._ended_rows.get(key)
        if row is None:
            row = await self._rows.shard(*key)
            if row.ended_version:  # it never changes any more but by a truncation
                self._ended_rows[key] = row
                while len(self._ended_rows) > STATES_MAX:
                    self._ended_rows.popitem(last=False)
        return row

    async def _side(self, key: ShardKey) -> SideFold:
        side = self._sides.get(key)
        if side is None:
            side = self._sides[key] = await read_side_log(self._client, *key)
            while len(self._sides) > SIDES_MAX:
                self._sides.popitem(last=False)
        return side

    async def _make(self, key: ShardKey) -> ShardState:
        shard = await self._row(key)
        if not shard.ended_version:
            raise Unavailable(f"shard {key[1]} of topic {key[0]} has not ended: its owner answers for it")
        for _ in range(LOOKS):
            try:
                snapshot = (await self._side(key)).best
                if snapshot is not None:
                    state, start = ShardState.restore(snapshot.pieces), snapshot.offset
                else:
                    state, start = await self.first_state(shard), 0
                cut = restored_offset_of(shard)
                await fold_log(self._client, state, key, shard.stream_id, start, shard.end_offset, cut)
            except OffsetTrimmed:  # below a snapshot that was written meanwhile
                self._sides.pop(key, None)
                continue
            self.put(key, state)
            return state
        raise Unavailable(f"the log of shard {key[1]} of topic {key[0]} is being trimmed: try again")

    async def cover(self, key: ShardKey) -> int:
        """Write a snapshot at the end of an ended shard, and return that end. Raises as `state`; WriterFenced."""
        state = await self.state(key)
        end = (await self._row(key)).end_offset
        known = (await self._side(key)).best
        if known is not None and known.offset >= end:
            return end
        stream = await self._client.metadata.describe_stream(shard_stream_name(*key))
        side = SideLog(self._client, self._topics, *key)
        try:
            await side.open()
            if side.snapshot is None or side.snapshot.offset < end:
                await side.write_snapshot(stream.epoch, end, state)
        finally:
            await side.close()
            self._sides.pop(key, None)
        return end


def _keys(row: topic_pb2.Shard) -> KeyRange:
    return key_range_from_bytes(row.key_range.low, row.key_range.high)


class PlacementRows(ShardRows):
    """Asks the placement driver; for neighbours that are asked for together in one call."""

    def __init__(self, topics: PdClient) -> None:
        self._topics = topics
        self._rows = CombinedCalls(self._ask, items_max=ROWS_PER_CALL, calls_max=ROW_CALLS_MAX)

    async def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """See ShardRows."""
        return (await self.topic_and_shard(topic_id, shard_id))[1]

    async def topic_and_shard(self, topic_id: int, shard_id: int) -> TopicAndShard:
        """Return both rows. Raises TopicNotFound, ShardNotFound, Unavailable."""
        return await self._rows.ask((topic_id, shard_id))

    async def _ask(self, keys: Sequence[ShardKey]) -> Sequence[TopicAndShard | RangelogError]:
        spans = list(_spans(sorted(set(keys))))
        listed = await asyncio.gather(*(self._list(*span) for span in spans))
        found = {key: answer for answers in listed for key, answer in answers.items()}
        return [found[key] for key in keys]

    async def _list(self, topic_id: int, first: int, last: int) -> dict[ShardKey, TopicAndShard | RangelogError]:
        """Answer for all shards from `first` to `last`."""
        request = topic_pb2.ListShardsRequest(
            topic=topic_pb2.TopicReference(topic_id=topic_id),
            selection=topic_pb2.SHARD_SELECTION_ALL,
            page_token=str(first - 1) if first else "",
            page_size=last - first + 1,
        )
        keys = [(topic_id, each) for each in range(first, last + 1)]
        try:
            found = await self._topics.call(request, topic_pb2.ListShardsResponse, timeout_s=CALL_TIMEOUT_S)
        except RangelogError as error:
            return dict.fromkeys(keys, error)
        answers: dict[ShardKey, TopicAndShard | RangelogError] = {
            key: ShardNotFound(f"topic {topic_id} has no shard {key[1]}") for key in keys
        }
        answers.update(((topic_id, row.shard_id), (found.topic, row)) for row in found.shards)
        return answers


def _spans(keys: Iterable[ShardKey]) -> Iterator[tuple[int, int, int]]:
    """Yield the topic, first and last shard of each call: shards between two that are close are listed as well."""
    open_span: tuple[int, int, int] | None = None
    for topic_id, shard_id in keys:
        if open_span is not None:
            same, first, last = open_span
            if same == topic_id and shard_id - last <= GAP_MAX and shard_id - first < ROWS_PER_CALL:
                open_span = (topic_id, first, shard_id)
                continue
            yield open_span
        open_span = (topic_id, shard_id, shard_id)
    if open_span is not None:
        yield open_span
