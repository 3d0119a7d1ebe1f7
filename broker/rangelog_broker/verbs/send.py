"""Sends: records to a topic by any broker, each with its own outcome.

What holds:
- A record is answered with its place once it is acked, or with an error; one whose error has no `outcome_unknown` is in no log.
- Records of one key are in the log in the order in which they were sent here, over requests of all clients.
- Records that a caller sends under a name are in the log once, however often it sends them there within ten minutes, by any
  broker. They are in no order with other records that are on their way.
- All requests to a topic share one producer, so that those of one turn of the loop share a flush. Bytes that
  wait and topics with a producer are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from rangelog import AppendRecord, Client, ProducerAck, TopicProducer
from rangelog.errors import InvalidArgument, Overloaded, RangelogError, RequestTimeout, TopicNotFound
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import SendCounts, size_of
from rangelog_broker.verbs.outcome_waits import OutcomeWaits
from rangelog_core.batch_extension import DIGEST_BYTES
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
SUBMITTED_BYTES_MAX = 64 * MIB
"""Under names, to all topics."""
NAME_BYTES_MAX = 255
IDLE_S = 60.0
"""A producer that has sent nothing for so long is closed."""
SWEEP_S = 10.0
NAMES_KNOWN_MAX = 1_000
"""Names that were checked and are remembered."""

_ABSENT = b"\xff" * 8
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
        self._waits = OutcomeWaits()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._submitted_bytes = 0

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
        with self._waits.limited(futures, SEND_TIMEOUT_S):
            outcomes = [each if isinstance(each, RangelogError) else await _outcome(each) for each in futures]
        self._count(outcomes)
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

    async def send_once(
        self, caller: Caller, topic: str, records: Sequence[AppendRecord], *, name: str
    ) -> list[Outcome]:
        """Send records under a name, as `send`: what was sent under it within ten minutes is not sent again.

        Args:
            caller: The name is its own: that of another caller is another name.
            topic: As of `send`.
            records: The same ones each time. Those without a key go to one shard.
            name: 1 to NAME_BYTES_MAX bytes of UTF-8; other bytes as `surrogateescape` decodes them.

        Returns:
            As `send`. PreconditionFailed: other records were sent under the name.

        Raises:
            UnsupportedVersion: A broker is of a version that takes no names. Others as `send`.

        Example:
            ```python
            await sends.send_once(caller, "shop/orders", [AppendRecord(b"first")], name="7f1c")
            await sends.send_once(caller, "shop/orders", [AppendRecord(b"first")], name="7f1c")  # has the same place
            ```
        """
        if not 1 <= len(_name_bytes(name)) <= NAME_BYTES_MAX:
            raise InvalidArgument(f"a name of a request has 1 to {NAME_BYTES_MAX} bytes")
        found, size_bytes = await self._admit(caller, topic, records)
        if self._submitted_bytes + size_bytes > SUBMITTED_BYTES_MAX:
            raise Overloaded(f"{self._submitted_bytes} bytes are on their way under names: try again")
        self._submitted_bytes += size_bytes
        try:
            work = records, digest_of(str(caller.principal or ""), name), content_of(records)
            outcomes = await found.submit(*work)
            if any(isinstance(each, TopicNotFound) for each in outcomes):
                self._drop(found.name, found)  # it was deleted: another one may have its name
                if all(isinstance(each, TopicNotFound) and not each.outcome_unknown for each in outcomes):
                    outcomes = await (await self._topic(found.name)).submit(*work)
        finally:
            self._submitted_bytes -= size_bytes
        self._count(outcomes)
        return outcomes

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

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        refused = sum([isinstance(each, RangelogError) for each in outcomes])
        self.counts.refused_records += refused
        self.counts.acked_records += len(outcomes) - refused

    async def _admit(self, caller: Caller, topic: str, records: Sequence[AppendRecord]) -> tuple[_Topic, int]:
        """Return the topic, and the bytes of the records, once the caller may send them."""
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
        return await self._topic(name), size_bytes

    async def _submit(
        self, caller: Caller, topic: str, records: Sequence[AppendRecord], shard: int | None
    ) -> list[asyncio.Future[ProducerAck] | RangelogError]:
        """Hand records to the topic's producer; return what will be their outcomes."""
        found, _ = await self._admit(caller, topic, records)
        try:
            return await self._hand_over(found, records, shard)
        except RangelogError as error:
            if error.retriable:  # the producer goes on, and another one would overtake its records
                raise
            self._drop(found.name, found)
            return await self._hand_over(await self._topic(found.name), records, shard)

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
            found = self._topics[name] = _Topic(name, self._client)
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

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.producer: TopicProducer = client.producer(
            name, append_timeout_s=SEND_TIMEOUT_S, open_timeout_s=OPEN_TIMEOUT_S, inflight_bytes_max=INFLIGHT_BYTES_MAX
        )
        self.submitter = client.submitter(name)
        self._submitter_open: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()
        self.used_s = 0.0
        self.is_open = False
        self.opening = asyncio.create_task(self.producer.open())
        self.opening.add_done_callback(_forget)

    async def submit(self, records: Sequence[AppendRecord], digest: bytes, content: int) -> list[Outcome]:
        """Send records under a name. Raises TopicNotFound, Unavailable: no record was sent."""
        if self._submitter_open is None:
            self._submitter_open = asyncio.create_task(self.submitter.open(OPEN_TIMEOUT_S))
            self._submitter_open.add_done_callback(_forget)
        try:
            await asyncio.shield(self._submitter_open)
        except RangelogError:
            self._submitter_open = None
            raise
        return await self.submitter.submit(records, digest, content, timeout_s=SEND_TIMEOUT_S)

    async def close(self) -> None:
        if self._submitter_open is not None:  # those that wait for it have its error, not the end of this
            await asyncio.wait([self._submitter_open], timeout=CLOSE_TIMEOUT_S)
            self._submitter_open.cancel()
        with suppress(RangelogError):
            await self.producer.close(timeout_s=CLOSE_TIMEOUT_S)


def digest_of(principal: str, name: str) -> bytes:
    """Return the digest of a name that a caller has given: of another caller's same name it is another one."""
    who = principal.encode()
    return blake2b(len(who).to_bytes(4, "big") + who + _name_bytes(name), digest_size=DIGEST_BYTES).digest()


def _name_bytes(name: str) -> bytes:
    """Return the bytes of a name as they were given. Raises InvalidArgument."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidArgument("a name of a request is text") from None


def content_of(records: Sequence[AppendRecord]) -> int:
    """Return a hash of records: what a name stands for."""
    content = blake2b(digest_size=DIGEST_BYTES // 2)
    for value, key, headers, timestamp_ms in records:
        fields = [value, key, None if timestamp_ms is None else b"%d" % timestamp_ms]
        for name, header in sorted((headers or {}).items()):
            fields += [name.encode("utf-8", "surrogatepass"), header]
        content.update(len(fields).to_bytes(4, "big"))
        for each in fields:
            content.update(_ABSENT if each is None else len(each).to_bytes(8, "big"))
            content.update(each or b"")
    return int.from_bytes(content.digest(), "big")


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
