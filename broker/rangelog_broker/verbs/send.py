"""Sends: records to a topic by any broker, each with its own outcome.

What holds:
- A record is answered with its place once it is acked, or with an error; one whose error has no `outcome_unknown` is in no log.
- Records of one key are in the log in the order in which they were sent here, over requests of all clients.
- All requests to a topic share one producer, so that those of one turn of the loop share a flush. Bytes that
  wait and topics with a producer are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any

from rangelog import AppendRecord, Client, ProducerAck, TopicProducer
from rangelog.errors import InvalidArgument, Overloaded, RangelogError, RequestTimeout
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import SendCounts, size_of
from rangelog_core.limits import MIB
from rangelog_core.quotas import Measure
from rangelog_core.rights import Verb
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC
from rangelog_server_common.quotas.guard import QuotaGuard, client_of

RECORDS_MAX = 10_000
BYTES_MAX = 8 * MIB
"""Of the records of one request; half of what a topic may have in flight, so that what had room goes out whole."""
SEND_TIMEOUT_S = 30.0
OPEN_TIMEOUT_S = 10.0
PRODUCERS_MAX = 1_000
"""Topics that are sent to at once."""
INFLIGHT_BYTES_MAX = 16 * MIB
"""Of one topic."""
CLOSE_TIMEOUT_S = 2.0
IDLE_S = 60.0
"""A producer that has sent nothing for so long is closed."""
SWEEP_S = 10.0
NAMES_KNOWN_MAX = 1_000
"""Names that were checked and are remembered."""

_TOPIC = int(RESOURCE_KIND_TOPIC)
Outcome = ProducerAck | RangelogError
"""Of one record."""


class Sends:
    """The verb that sends records, of one broker. For its event loop; `close` it."""

    def __init__(self, client: Client, quotas: QuotaGuard) -> None:
        """`client`: one whose budgets are for doors alone."""
        self.counts = SendCounts()
        self._client = client
        self._quotas = quotas
        self._topics: dict[str, _Topic] = {}
        self._waits = _OutcomeWaits()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self, caller: Caller, topic: str, records: Sequence[AppendRecord], *, shard: int | None = None
    ) -> list[Outcome]:
        """Send records and return once each has its outcome.

        Args:
            caller: Who asks; it needs the right to append to the topic.
            topic: "namespace/name", or a name in the namespace "default".
            records: 1 to RECORDS_MAX of them, of BYTES_MAX bytes in all.
            shard: The shard of all of them; None: by key, or in turn.

        Returns:
            One outcome per record, in the same order: its place, or its error.

        Raises:
            TopicNotFound, TopicStateForbids, TopicKindForbids, RightMissing, InvalidArgument: No record was sent.
            Overloaded, Unavailable, AppendTimeout: No record was sent; it may be possible later.

        Example:
            ```python
            for outcome in await sends.send(caller, "shop/orders", [AppendRecord(b"first", b"UA")]):
                print(outcome)
            ```
        """
        futures = await self._submit(caller, topic, records, shard)
        with self._waits.limited(futures):
            outcomes = [each if isinstance(each, RangelogError) else await _outcome(each) for each in futures]
        refused = sum([isinstance(each, RangelogError) for each in outcomes])
        self.counts.refused_records += refused
        self.counts.acked_records += len(outcomes) - refused
        return outcomes

    async def send_unacked(
        self, caller: Caller, topic: str, records: Sequence[AppendRecord], *, shard: int | None = None
    ) -> None:
        """Send records and return before they are acked: any of them may be lost. Raises the errors of `send`.

        A record that is refused at once is an error, although earlier ones were sent.
        """
        for each in await self._submit(caller, topic, records, shard):
            if isinstance(each, RangelogError):
                raise each
            each.add_done_callback(_forget)
        self.counts.unacked_records += len(records)

    async def close(self) -> None:
        """Give what was sent a moment to be acked, and close the producers. Idempotent."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._waits.close()
        for name in list(self._topics):
            self._drop(name)
        await asyncio.gather(*self._closing, return_exceptions=True)

    @property
    def topic_count(self) -> int:
        """Topics with a producer."""
        return len(self._topics)

    # ---- inside

    async def _submit(
        self, caller: Caller, topic: str, records: Sequence[AppendRecord], shard: int | None
    ) -> list[asyncio.Future[ProducerAck] | RangelogError]:
        """Hand records to the topic's producer; return what will be their outcomes."""
        name = _full_name(topic)
        size_bytes = sum(map(size_of, records))
        if not 1 <= len(records) <= RECORDS_MAX or size_bytes > BYTES_MAX:
            raise InvalidArgument(
                f"{len(records)} records of {size_bytes} bytes: a request has 1 to {RECORDS_MAX} of up to {BYTES_MAX} bytes"
            )
        await caller.require_named(Verb.APPEND, _TOPIC, name)
        who = client_of(caller.principal)
        if who is not None:
            await self._quotas.hold(who, Measure.APPEND, size_bytes, SEND_TIMEOUT_S, name)
        found = await self._topic(name)
        try:
            return await self._hand_over(found, records, shard)
        except RangelogError as error:
            if error.retriable:  # the producer goes on, and another one would overtake its records
                raise
            self._drop(name, found)
            return await self._hand_over(await self._topic(name), records, shard)

    async def _hand_over(
        self, found: _Topic, records: Sequence[AppendRecord], shard: int | None
    ) -> list[asyncio.Future[ProducerAck] | RangelogError]:
        """Submit records once there is room. Raises what ended the producer, AppendTimeout: no record was sent."""
        async with found.turn:  # who waits for room goes on in turn, and finds it
            await found.producer.ready()
            submit = found.producer.submit
            futures: list[asyncio.Future[ProducerAck] | RangelogError] = []
            for value, key, headers, ms in records:
                try:
                    futures.append(submit(value, key=key, headers=headers or None, timestamp=ms, shard=shard))
                except RangelogError as error:
                    futures.append(error)
            return futures

    async def _topic(self, name: str) -> _Topic:
        """Return the topic with its producer open. Raises what opening it raises, Overloaded."""
        found = self._topics.get(name)
        if found is None:
            if len(self._topics) >= PRODUCERS_MAX:
                raise Overloaded(
                    f"records are sent to {PRODUCERS_MAX} topics at once, the limit of a broker: try again"
                )
            found = _Topic(self._client.producer(
                name, append_timeout_s=SEND_TIMEOUT_S, open_timeout_s=OPEN_TIMEOUT_S, inflight_bytes_max=INFLIGHT_BYTES_MAX
            ))  # fmt: skip
            self._topics[name] = found
            self._sweep_later()
        found.used_s = asyncio.get_running_loop().time()
        if found.is_open:
            return found
        try:
            await asyncio.shield(found.opening)
        except RangelogError:
            self._drop(name, found)
            raise
        found.is_open = True
        return found

    def _drop(self, name: str, found: _Topic | None = None) -> None:
        """Close a topic's producer, unless another one has its place."""
        if found is not None and self._topics.get(name) is not found:
            return
        task = asyncio.create_task(self._topics.pop(name).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Close the producers that have sent nothing lately."""
        self._sweeping = None
        now_s = asyncio.get_running_loop().time()
        for name, found in list(self._topics.items()):
            if now_s - found.used_s > IDLE_S and not found.turn.locked():
                self._drop(name)
        if self._topics:
            self._sweep_later()


class _Topic:
    """A topic that records are sent to."""

    def __init__(self, producer: TopicProducer) -> None:
        self.producer = producer
        self.turn = asyncio.Lock()
        self.used_s = 0.0
        self.is_open = False
        self.opening = asyncio.create_task(producer.open())
        self.opening.add_done_callback(_forget)

    async def close(self) -> None:
        with suppress(RangelogError):
            await self.producer.close(timeout_s=CLOSE_TIMEOUT_S)


class _OutcomeWaits:
    """The requests that wait for outcomes: all for as long, so that one timer serves them."""

    def __init__(self) -> None:
        self._waits: dict[_OutcomeWait, None] = {}  # the one that has waited for longest first
        self._timer: asyncio.TimerHandle | None = None

    def limited(self, futures: Sequence[asyncio.Future[ProducerAck] | RangelogError]) -> _OutcomeWait:
        """Return what cancels the futures that are not done in time, for a `with` block."""
        loop = asyncio.get_running_loop()
        wait = _OutcomeWait(self._waits, futures, loop.time() + SEND_TIMEOUT_S)
        if self._timer is None:
            self._timer = loop.call_at(wait.ends_s, self._look)
        return wait

    def close(self) -> None:
        """Stop: the waits have the producers' limits."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for wait in list(self._waits):
            if wait.ends_s > loop.time():
                self._timer = loop.call_at(wait.ends_s, self._look)
                return
            wait.end()


class _OutcomeWait:
    __slots__ = ("_futures", "_waits", "ends_s")

    def __init__(
        self,
        waits: dict[_OutcomeWait, None],
        futures: Sequence[asyncio.Future[ProducerAck] | RangelogError],
        ends_s: float,
    ) -> None:
        self._waits = waits
        self._futures = futures
        self.ends_s = ends_s

    def __enter__(self) -> None:
        self._waits[self] = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._waits.pop(self, None)

    def end(self) -> None:
        """Cancel what is not done."""
        self._waits.pop(self, None)
        for each in self._futures:
            if isinstance(each, asyncio.Future):
                each.cancel()


@lru_cache(maxsize=NAMES_KNOWN_MAX)
def _full_name(topic: str) -> str:
    return str(parse_topic_name(topic))


async def _outcome(future: asyncio.Future[ProducerAck]) -> Outcome:
    try:
        return await future
    except RangelogError as error:
        return error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return RequestTimeout(
            f"no ack within {SEND_TIMEOUT_S:g} s: read whether the record is in the log", outcome_unknown=True
        )


def _forget(future: asyncio.Future[Any]) -> None:
    """Take the error of a future that nothing waits for."""
    if not future.cancelled():
        future.exception()
