"""Batches for the shards that this broker owns: taken, staged for a transaction, asked for.

What holds: a batch is checked before it is taken, its caller before that; each is answered once, and acked only after
the ack of the shard's writer. A batch for a shard that is being opened or ended waits for it, for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from rangelog.errors import (
    Corruption,
    InternalError,
    InvalidArgument,
    ProtocolViolation,
    RangelogError,
    RoleForbids,
    UnsupportedVersion,
)
from rangelog_broker.shards.reply import Reply
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import ProduceCounts
from rangelog_core.batch import BatchHeader, check_batch_fields, check_record_headers, open_columns
from rangelog_core.batch_extension import MergedFrom, Producer, Submission, origin_of
from rangelog_core.ids import check_name
from rangelog_core.net.principals import Role
from rangelog_core.rights import Verb
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC, RESOURCE_KIND_TRANSACTION

CHANGING_S_MAX = 0.25
"""A batch for a shard that is being opened or ended waits for so long before it is refused."""

_APPEND = int(Verb.APPEND)
_TOPIC, _TRANSACTION = int(RESOURCE_KIND_TOPIC), int(RESOURCE_KIND_TRANSACTION)
_log = logging.getLogger("rangelog.broker")

Check = Callable[[bytes], tuple[BatchHeader, Producer | Submission]]
"""Returns the header of an encoded batch, and whose it is. Raises InvalidArgument for what no reader could decode."""


class Shards(Protocol):
    """The shards of this broker."""

    def owned(self, topic_id: int, shard_id: int) -> OwnedShard:
        """Return an open shard. Raises NotOwner, ShardEnded."""

    def changing(self, topic_id: int, shard_id: int) -> asyncio.Future[None] | None:
        """Return what is done once a shard that is assigned to this broker and takes no batch now is open, or has ended.

        None: it takes batches, or is not assigned to this broker. The caller does not cancel the future.
        """

    async def find_batch(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """Return the offset of a batch of an ended shard, or None: it is not there.

        Raises Unavailable, ShardNotFound, OutcomeUnknown (it is there, nobody knows where), ProducerFenced (nobody knows).
        """

    async def find_staged(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """Return 0 for a batch that was staged at an ended shard, or None. Raises as `find_batch`."""


def check_native(payload: bytes) -> tuple[BatchHeader, Producer | Submission]:
    """See Check: for batches in the encoding of the log, whose columns are opened.

    Nothing but the producer, or the submission, may be in the header's extension: the log would keep it, and later owners
    read more into it.
    """
    try:
        header, fields = check_batch_fields(payload)
        columns = open_columns(header, payload, fields)  # what no reader can decode would stop all readers of the shard
        check_record_headers(columns, 0, header.count)
        origin = origin_of(fields, header.count)
    except (ProtocolViolation, Corruption, UnsupportedVersion) as error:
        raise InvalidArgument(f"not a batch: {error.message}") from error
    if len(fields) != 1 or not header.count or origin is None or isinstance(origin, MergedFrom):
        raise InvalidArgument(
            "a batch for a shard has records, and names its producer or its submission and nothing else"
        )
    return header, origin


def _require_broker(caller: Caller) -> None:
    """Raise RoleForbids for another caller than a broker: digests of names are made there, from who gave the name."""
    if caller.principal is not None and caller.principal.role is not Role.BROKER:
        raise RoleForbids(f"{caller.principal} may not submit records by a digest: its broker does")


class Batches:
    """The verbs on batches of one broker. For its event loop; `close` it."""

    def __init__(self, shards: Shards, check: Check = check_native) -> None:
        self.shards = shards
        self.check = check
        self.counts = ProduceCounts()
        self._tasks: set[asyncio.Task[None]] = set()

    def produce(
        self, caller: Caller, topic_id: int, shard_id: int, payload: bytes, reply: Reply, request_id: int
    ) -> None:
        """Take a batch; `reply` gets its outcome under `request_id`.

        Raises RightMissing, Unavailable, Overloaded, InvalidArgument, ShardEnded, and as OwnedShard.produce: not taken.
        """
        _Produce(self, topic_id, shard_id, payload, reply, request_id).run(caller)

    def stage(
        self,
        caller: Caller,
        topic_id: int,
        shard_id: int,
        payload: bytes,
        reply: Reply,
        request_id: int,
        *,
        transactional_id: str,
        number: int,
    ) -> None:
        """Stage a batch for a transaction, by its id and number; `reply` gets the outcome. Raises as `produce`."""
        check_name("transactional id", transactional_id)
        staged = _Stage(self, topic_id, shard_id, payload, reply, request_id)
        staged.transactional_id, staged.number = transactional_id, number
        staged.run(caller)

    async def find(
        self, caller: Caller, topic_id: int, shard_id: int, producer: Producer, *, staged: bool
    ) -> int | None:
        """Return the offset of a batch of an ended shard (0 for one that was staged), or None: it is not there.

        Raises as Shards.find_batch; RightMissing.
        """
        await caller.require(Verb.APPEND, _TOPIC, topic_id)
        look = self.shards.find_staged if staged else self.shards.find_batch
        return await look(topic_id, shard_id, producer)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until it ends, or this is closed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End what waits, without an answer. Idempotent."""
        for task in self._tasks:
            task.cancel()


class _Produce:
    """A batch on its way. See caller.Request."""

    __slots__ = ("_batches", "_reply", "_request_id", "_shard_id", "_topic_id", "payload")

    def __init__(
        self, batches: Batches, topic_id: int, shard_id: int, payload: bytes, reply: Reply, request_id: int
    ) -> None:
        self._batches = batches
        self._topic_id = topic_id
        self._shard_id = shard_id
        self.payload = payload
        self._reply = reply
        self._request_id = request_id

    def run(self, caller: Caller) -> None:
        topic_id = self._topic_id
        resource = (_TOPIC, topic_id)
        if not caller.passes(self, _APPEND, resource):
            return
        batches = self._batches
        changing = batches.shards.changing(topic_id, self._shard_id)
        if changing is not None:
            caller.charge(self._request_id, resource, len(self.payload))
            batches.spawn(self._run_later(caller, changing))
            return
        shard = batches.shards.owned(topic_id, self._shard_id)
        header, origin = batches.check(self.payload)
        caller.charge(self._request_id, resource, len(self.payload))
        self._take(caller, shard, header, origin)

    def _take(self, caller: Caller, shard: OwnedShard, header: BatchHeader, origin: Producer | Submission) -> None:
        if isinstance(origin, Submission):
            _require_broker(caller)
        self._batches.counts.received_records += header.count
        shard.produce(header, origin, self.payload, self._reply, self._request_id)

    async def _run_later(self, caller: Caller, changing: asyncio.Future[None]) -> None:
        """Take the batch once its shard is open, or refuse it once the shard has ended: its producer need not try and try."""
        await asyncio.wait([changing], timeout=CHANGING_S_MAX)
        try:
            shard = self._batches.shards.owned(self._topic_id, self._shard_id)
            self._take(caller, shard, *self._batches.check(self.payload))
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        if not isinstance(error, RangelogError):
            _log.error("a batch of shard %d/%d failed", self._topic_id, self._shard_id, exc_info=error)
            error = InternalError("the request failed; the broker's log has the details", outcome_unknown=True)
        self._reply.refused(self._request_id, error)


class _Stage(_Produce):
    """A batch of a transaction on its way: the client needs a right on that, too. Staging does not wait for a shard."""

    __slots__ = ("number", "transactional_id")

    transactional_id: str
    number: int

    def run(self, caller: Caller) -> None:
        resource = (_TOPIC, self._topic_id)
        if not caller.passes(self, _APPEND, resource):
            return
        if not caller.passes(self, _APPEND, (_TRANSACTION, self.transactional_id)):
            return
        batches = self._batches
        shard = batches.shards.owned(self._topic_id, self._shard_id)
        header, producer = batches.check(self.payload)
        if isinstance(producer, Submission):
            raise InvalidArgument("a batch for a transaction names its producer")
        batches.counts.received_records += header.count
        caller.charge(self._request_id, resource, len(self.payload))
        shard.transactions.stage(
            self.number, self.transactional_id, producer, self.payload, self._reply, self._request_id
        )
