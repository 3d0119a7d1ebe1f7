"""Submits records to a topic under a name: each is in the log once, however often, by whom and through whom they are submitted.

What holds: a batch is of one submission and names it, so owners find a repeat; it has no producer and no number. Whatever has
no outcome is sent again, to the present owners of the shards where its keys are then. The batches of one submission for one
shard go one after the other, so its records of one key are in order. For brokers: owners take submissions from them alone.

Source: as rangelog_broker.shards.submission_window.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rangelog._append.batch_builder import BATCH_BYTES_MAX
from rangelog._produce.owner_lookup import BrokerAddress, OwnerLookup
from rangelog._produce.record_rows import Row, checked_row, encode_rows
from rangelog._produce.shard_link import Pace, ends_producer
from rangelog._produce.topic_map import TopicMap, topic_reference
from rangelog._produce.waiters import ProducerAck
from rangelog_core.batch_extension import RUNS_MAX, Submission, Tag, encode_extension, encode_submission
from rangelog_core.errors import (
    AppendTimeout,
    InvalidArgument,
    PreconditionFailed,
    RangelogError,
    ShardEnded,
)
from rangelog_core.frame import Opcode
from rangelog_core.key_hash import key_position
from rangelog_core.name_errors import sealed_topic
from rangelog_core.net.budgets import AppendBudget
from rangelog_core.net.pd_client import PdClient
from rangelog_core.record import AppendRecord
from rangelog_proto.v1 import data_pb2

REQUEST_TIMEOUT_S = 3.0

SubmittedOutcome = ProducerAck | RangelogError
"""Of one record."""


class TopicSubmitter:
    """The submissions to one topic. `open` it first; it needs no closing."""

    def __init__(
        self, topics: PdClient, owners: OwnerLookup, budget: AppendBudget, topic: str, *, pace: Pace | None = None
    ) -> None:
        self._map = TopicMap(topics, topic_reference(topic))
        self._owners = owners
        self._budget = budget
        self._pace = pace or Pace()
        self._known: dict[int, BrokerAddress] = {}
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._current: list[int] = []
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self, timeout_s: float) -> None:
        """Look at the topic's map. Raises TopicNotFound, Unavailable."""
        await self._map.load(timeout_s)
        self._take_map()

    async def submit(
        self, records: Sequence[AppendRecord], digest: bytes, content: int, *, timeout_s: float
    ) -> list[SubmittedOutcome]:
        """Return one outcome per record, in order: its place, or its error.

        Args:
            records: At least one. Those without a key go where the digest lies, all of them.
            digest: Of the name and of who gave it, 16 bytes.
            content: A hash of the records, 64 bits.
            timeout_s: For how long what has no outcome is sent again.
        """
        work = _Work(records, digest, content)
        deadline = asyncio.get_running_loop().time() + timeout_s
        failures = 0
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not await self._sent_once(work):
                    failures += 1
                    await asyncio.sleep(self._pace.pause_s(failures))
                    await self._look_again(work)
        return work.ended(timeout_s)

    # ---- inside

    async def _sent_once(self, work: _Work) -> bool:
        """Send what has no outcome to its shards; return whether all has one."""
        shards: dict[int, list[int]] = {}
        for number in work.open_numbers():
            shard_id = self._shard_of(work.positions[number])
            if shard_id is None:
                work.outcomes[number] = sealed_topic(self._map.name).with_outcome(unknown=number in work.sent)
            else:
                shards.setdefault(shard_id, []).append(number)
        await asyncio.gather(*(self._send_to(shard_id, numbers, work) for shard_id, numbers in shards.items()))
        return not work.open_numbers()

    async def _send_to(self, shard_id: int, numbers: list[int], work: _Work) -> None:
        """Send records to one shard until all have an outcome, or it is to be looked for again."""
        try:
            while numbers:
                batch = next(work.batches(numbers))
                owner = self._known.get(shard_id)
                if owner is None:
                    owner = self._known[shard_id] = await self._owners.find((self._map.topic.topic_id, shard_id))
                work.note(await self._send(owner, shard_id, batch, work))
                numbers = [each for each in numbers if each not in work.outcomes]
        except RangelogError as error:
            self._known.pop(shard_id, None)
            if ends_producer(error) or _is_of_name(error):
                for number in numbers:
                    work.outcomes[number] = error.with_outcome(unknown=number in work.sent)
            else:
                work.problem = error

    async def _send(
        self, owner: BrokerAddress, shard_id: int, numbers: list[int], work: _Work
    ) -> data_pb2.ProduceReply:
        connection = await self._owners.connect(owner)
        data = work.encode(numbers, self._map.codec)
        message = data_pb2.Produce(topic_id=self._map.topic.topic_id, shard_id=shard_id).SerializeToString()
        known = work.sent.keys() & set(numbers)
        work.sent.update(dict.fromkeys(numbers))
        self._budget.sent(len(data))
        try:
            frame = await connection.request(Opcode.PRODUCE, message, (data,), timeout_s=REQUEST_TIMEOUT_S)
        except RangelogError as error:
            if connection.closed is not None:
                await self._owners.report_lost(owner.broker)
            elif not error.outcome_unknown:
                for number in numbers:
                    if number not in known:
                        del work.sent[number]  # it was refused, before anything was done
            raise
        finally:
            self._budget.ended(len(data))
        return data_pb2.ProduceReply.FromString(frame.message)

    def _shard_of(self, position: int) -> int | None:
        at = bisect_right(self._lows, position) - 1
        return self._current[at] if at >= 0 and position < self._highs[at] else None

    def _take_map(self) -> None:
        current = sorted((each for each in self._map.shards if not each.ended), key=lambda each: each.low)
        self._lows = [each.low for each in current]
        self._highs = [each.high for each in current]
        self._current = [each.shard_id for each in current]

    async def _look_again(self, work: _Work) -> None:
        """Look at the map again. Submissions that fail at the same time share a look."""
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        try:
            await asyncio.shield(self._refreshing)
        except RangelogError as error:
            work.problem = error
            if ends_producer(error):
                for number in work.open_numbers():
                    work.outcomes[number] = error.with_outcome(unknown=number in work.sent)

    async def _refresh(self) -> None:
        if await self._map.refresh(keep_ended=False):
            self._take_map()

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # those that wait for it have it


class _Work:
    """One submission on its way. Its records are numbered by the positions of their keys, then as they were given.

    A shard has the keys of a range, so what is submitted to it is one run of numbers, before and after any split or merge.
    """

    def __init__(self, records: Sequence[AppendRecord], digest: bytes, content: int) -> None:
        self.outcomes: dict[int, SubmittedOutcome] = {}
        self.sent: dict[int, None] = {}  # records that may be in a log, without an outcome
        self.problem: RangelogError | None = None
        self._digest = digest
        self._content = content
        rows: list[Row] = []
        invalid: dict[int, RangelogError] = {}
        for place, (value, key, headers, timestamp) in enumerate(records):
            try:
                rows.append(checked_row(value, key, headers, timestamp))
            except InvalidArgument as error:
                invalid[place] = error
                rows.append((b"", None, b"", 0, 0))
        positions = [key_position(row[1] if row[1] is not None else digest) for row in rows]
        self._order = sorted(range(len(rows)), key=positions.__getitem__)  # the place in the request, by number
        self._rows = [rows[place] for place in self._order]
        self.positions = [positions[place] for place in self._order]
        if invalid:
            self.outcomes.update(
                (number, invalid[place]) for number, place in enumerate(self._order) if place in invalid
            )

    def open_numbers(self) -> list[int]:
        """Return the records without an outcome."""
        return [each for each in range(len(self._rows)) if each not in self.outcomes]

    def batches(self, numbers: list[int]) -> Iterator[list[int]]:
        """Yield rising numbers cut into what fits into a batch."""
        chosen: list[int] = []
        size_bytes = runs = 0
        for number in numbers:
            begins_run = not chosen or chosen[-1] + 1 != number
            row_bytes = self._rows[number][4]
            if chosen and (size_bytes + row_bytes > BATCH_BYTES_MAX or runs + begins_run > RUNS_MAX):
                yield chosen
                chosen, size_bytes, runs, begins_run = [], 0, 0, True
            chosen.append(number)
            size_bytes += row_bytes
            runs += begins_run
        yield chosen

    def encode(self, numbers: list[int], codec: int) -> bytes:
        """Return the batch of these records."""
        submission = Submission(self._digest, self._content, tuple(runs_of(numbers)))
        extension = encode_extension({Tag.SUBMISSION: encode_submission(submission)})
        return encode_rows([self._rows[each] for each in numbers], extension, codec)

    def note(self, reply: data_pb2.ProduceReply) -> None:
        """Take the places that an owner has answered."""
        for run in reply.runs:
            for place in range(run.count):
                if run.first + place < len(self._rows):
                    self.outcomes[run.first + place] = ProducerAck(run.shard_id, run.offset + place)

    def ended(self, timeout_s: float) -> list[SubmittedOutcome]:
        """Return all outcomes: what has none now is late."""
        told = (
            f"not acked within {timeout_s:g} s ({self.problem or 'no broker answers'}): submit it again under its name"
        )
        found: dict[int, SubmittedOutcome] = {}
        for number, place in enumerate(self._order):
            known = self.outcomes.get(number)
            found[place] = AppendTimeout(told, outcome_unknown=number in self.sent) if known is None else known
        return [found[place] for place in range(len(found))]


def runs_of(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of rising numbers, as (first, count).

    >>> list(runs_of([0, 1, 2, 7]))
    [(0, 3), (7, 1)]
    """
    first = end = numbers[0]
    for number in numbers:
        if number > end:
            yield first, end - first
            first = number
        end = number + 1
    yield first, end - first


def _is_of_name(error: RangelogError) -> bool:
    """Whether the name stands for other records: a repeat is refused again."""
    return isinstance(error, PreconditionFailed) and not isinstance(error, ShardEnded)
