"""One shard's way to its owner, for one producer: finds the broker, connects, sends batches, and begins anew when that ends.

What holds: a broker whose connection broke is reported before the owner is looked up again; a shard that an owner has
closed is looked for in the map first. Tries are paced: an ack makes the pauses short again, nothing else does. "It is
acked" counts whoever sends it, also over a former connection; every other reply counts only over the present one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol

from rangelog._produce.owner_lookup import BrokerAddress, OwnerLookup
from rangelog._produce.wire import Wire
from rangelog_core.errors import (
    InvalidArgument,
    NamespaceNotFound,
    NotOwner,
    OutOfOrder,
    ProducerFenced,
    ProtocolViolation,
    RangelogError,
    RequestTimeout,
    ShardEnded,
    StorageFull,
    StreamNotFound,
    TopicNotFound,
    Unauthorized,
    Unavailable,
    UnsupportedVersion,
    WrongServer,
)
from rangelog_core.frame import Frame
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnection
from rangelog_proto.v1 import data_pb2

_FINAL = (
    InvalidArgument,
    NamespaceNotFound,
    ProducerFenced,
    ProtocolViolation,
    StreamNotFound,
    TopicNotFound,
    Unauthorized,
    UnsupportedVersion,
)


class Pace(NamedTuple):
    """Times in seconds."""

    pause_min_s: float = 0.02
    pause_max_s: float = 0.5
    tick_s: float = 1.0
    """Between two looks at whether replies come."""
    closed_s: float = 1.0
    """For so long the map alone is asked for a shard that its owner has closed."""

    def pause_s(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row."""
        longest_s = min(self.pause_max_s, self.pause_min_s * 2.0 ** min(failures - 1, 10))
        return longest_s * random.uniform(0.5, 1.0) if failures else 0.0


class OwnerAccess(NamedTuple):
    """The same for all links of a producer: who owns shards, times, and the messages to owners."""

    owners: OwnerLookup
    pace: Pace
    wire: Wire


QUIET_TICKS = 2
"""After so many without a reply the owner is looked up again; after as many more each time, what has no reply is sent again."""


def ends_producer(error: RangelogError) -> bool:
    """Whether a repeat of what was refused is refused again."""
    return isinstance(error, _FINAL) and not isinstance(error, WrongServer | OutOfOrder)


class LinkHost(Protocol):
    """Who has links: called on the event loop."""

    def linked(self, shard_id: int) -> None:
        """What has no outcome may be sent."""

    def unlinked(self, shard_id: int) -> None:
        """Nothing may be sent until it is linked again."""

    def batch_acked(self, shard_id: int, sequence: int, offset: int) -> None:
        """A batch is in the log."""

    def held_off(self, shard_id: int, hold_ms: int) -> None:
        """The producer is over a quota: nothing more is sent for so long."""

    def batches_missing(self, shard_id: int, sequence: int) -> None:
        """The owner lacks batches before this one."""

    def begin_anew(self, shard_id: int, sequence: int, epoch: int) -> bool:
        """The owner takes this epoch and later ones: send under it what has no outcome; return whether that may be done."""

    def no_room(self, shard_id: int) -> None:
        """The owner takes nothing until range servers have room: the link's `problem` says why."""

    def refused_for_good(self, error: RangelogError, shard_id: int, sequence: int | None) -> None:
        """Neither this batch, if it is one, nor any later one is taken."""

    def is_current(self, shard_id: int) -> bool:
        """Whether the shard takes batches, as far as the map says."""

    async def refresh_map(self) -> None:
        """Look at the map. Raises what calls on the placement driver raise."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it, until the producer ends."""


class _Attachment:
    """A link's use of one connection."""

    __slots__ = ("_link", "connection", "missing", "owner", "replies", "requests")

    def __init__(self, link: ShardLink, connection: DataConnection, owner: BrokerAddress) -> None:
        self._link = link
        self.connection = connection
        self.owner = owner
        self.requests: dict[int, int] = {}  # sequences by request id
        self.replies = 0
        self.missing: set[int] = set()  # requests that were sent before batches were last sent again

    def replied(self, request_id: int, frame: Frame) -> None:
        """See ReplyListener."""
        sequence = self.requests.pop(request_id)
        self.replies += 1
        reply = data_pb2.ProduceReply.FromString(frame.message)
        if reply.throttle_ms:  # before the ack, which lets the next batch go
            self._link.throttled(reply.throttle_ms)
        self._link.acked(sequence, reply.offset)

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See ReplyListener."""
        sequence = self.requests.pop(request_id)
        self.replies += 1
        if self._link.attachment is self:
            self._link.refused(request_id, sequence, error)

    def connection_closed(self, error: RangelogError) -> None:
        """See ReplyListener."""
        if self._link.attachment is self:
            self._link.broke()


class ShardLink:
    """See the module."""

    def __init__(self, shard: tuple[int, int], access: OwnerAccess, host: LinkHost) -> None:
        """`shard`: (topic id, shard id)."""
        self._shard = shard
        self._shard_id = shard[1]
        self._access = access
        self._host = host
        self.attachment: _Attachment | None = None
        self.last_owner: ReplicaId | None = None
        self.problem: RangelogError | None = None  # since the last ack
        self._report: asyncio.Task[None] | None = None  # that the connection broke
        self._closed_by_owner = False
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[None] | None = None
        self._failures = 0
        self._quiet_ticks = 0
        self._quiet_ticks_max = 2 * QUIET_TICKS
        self._seen_replies = 0

    def want(self) -> None:
        """Connect, unless that is under way."""
        if self._task is None and self.attachment is None:
            self._task = self._host.spawn(self._connect())
            self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """The shard has ended, or the producer."""
        for task in (self._task, self._check):
            if task is not None:
                task.cancel()
        self._detach()

    def send(self, sequence: int, batch: bytes) -> None:
        """Send a batch to the owner. Only while it is linked."""
        attachment = self.attachment
        if attachment is not None:
            message = self._access.wire.message(*self._shard)
            request_id = attachment.connection.put(self._access.wire.opcode, message, (batch,), attachment)
            attachment.requests[request_id] = sequence

    # ---- what the owner says

    def throttled(self, hold_ms: int) -> None:
        """The owner holds this producer off: it is over a quota."""
        self._host.held_off(self._shard_id, hold_ms)

    def acked(self, sequence: int, offset: int) -> None:
        """A batch is in the log."""
        self._failures = 0
        self._quiet_ticks_max = 2 * QUIET_TICKS
        self.problem = None
        self._access.wire.acked(*self._shard)
        self._host.batch_acked(self._shard_id, sequence, offset)

    def refused(self, request_id: int, sequence: int, error: RangelogError) -> None:
        """The present owner did not take a batch."""
        if isinstance(error, OutOfOrder):
            self._missing(request_id, sequence)
        elif isinstance(error, ProducerFenced) and self._begun_anew(request_id, sequence, error.epoch):
            pass
        elif ends_producer(error):
            self._host.refused_for_good(error, self._shard_id, sequence)
        else:
            self._closed_by_owner = isinstance(error, ShardEnded)
            self._drop(error)
            if isinstance(error, StorageFull):
                self._host.no_room(self._shard_id)

    def broke(self) -> None:
        """The connection has ended."""
        attachment = self.attachment
        if attachment is None:
            return
        self._report = self._host.spawn(self._access.owners.report_lost(attachment.owner.broker))
        self._drop(Unavailable(f"the connection to broker {attachment.owner.broker} broke"))

    def _missing(self, request_id: int, sequence: int) -> None:
        """Batches sent together are missed one by one: all are sent again once for that."""
        attachment = self.attachment
        if attachment is None or request_id in attachment.missing:
            return
        self._failures += 1
        if self._failures > 1:
            self._drop(OutOfOrder("the owner lacks earlier batches"))
            return
        attachment.missing = set(attachment.requests)
        self._host.batches_missing(self._shard_id, sequence)

    def _begun_anew(self, request_id: int, sequence: int, epoch: int | None) -> bool:
        """Batches sent together are refused one by one: what was sent before the first refusal is of the former epoch."""
        attachment = self.attachment
        if attachment is None or request_id in attachment.missing:
            return True
        sent_before = set(attachment.requests)
        if epoch is None or not self._host.begin_anew(self._shard_id, sequence, epoch):
            return False
        attachment.missing = sent_before
        return True

    # ---- whether replies come

    def tick(self) -> None:
        """Called at intervals: an owner that is quiet for long is looked up again; its connection may be fine."""
        attachment = self.attachment
        if attachment is None or not attachment.requests or attachment.replies != self._seen_replies:
            self._quiet_ticks = 0
            self._seen_replies = attachment.replies if attachment is not None else 0
            return
        self._quiet_ticks += 1
        if self._quiet_ticks >= QUIET_TICKS and self._check is None:
            self._check = self._host.spawn(self._look_again(attachment))
            self._check.add_done_callback(self._checked)

    def _checked(self, _: asyncio.Task[None]) -> None:
        self._check = None

    async def _look_again(self, attachment: _Attachment) -> None:
        try:
            await self._host.refresh_map()
            owner = await self._access.owners.find(self._shard)
        except RangelogError as error:
            self.problem = error
            if ends_producer(error):
                self._host.refused_for_good(error, self._shard_id, None)
            return
        if self.attachment is not attachment:
            return
        if owner.broker != attachment.owner.broker:
            self._drop(NotOwner(f"the shard moved from broker {attachment.owner.broker}"))
        elif self._quiet_ticks >= self._quiet_ticks_max:
            self._quiet_ticks_max *= 2
            self._quiet_ticks = 0
            self._drop(RequestTimeout(f"broker {owner.broker} does not answer"))

    # ---- connecting

    def _drop(self, problem: RangelogError) -> None:
        self.problem = problem
        self._failures += 1
        self._detach()
        self._host.unlinked(self._shard_id)

    def _detach(self) -> None:
        attachment, self.attachment = self.attachment, None
        if attachment is not None:
            attachment.connection.detach(attachment)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if self.attachment is not None:
            self._host.linked(self._shard_id)
        else:  # it broke at once, or the shard has ended
            self._host.unlinked(self._shard_id)

    async def _connect(self) -> None:
        while self._host.is_current(self._shard_id):
            try:
                if self._report is not None:
                    await asyncio.wait([self._report])
                    self._report = None
                elif self._closed_by_owner:
                    self._closed_by_owner = False
                    await self._until_ended()
                    continue
                elif self._failures:
                    await asyncio.sleep(self._access.pace.pause_s(self._failures))
                    await self._host.refresh_map()
                if not self._host.is_current(self._shard_id):
                    return
                owner = await self._access.owners.find(self._shard)
                connection = await self._access.owners.connect(owner)
                self.attachment = attachment = _Attachment(self, connection, owner)
                self.last_owner = owner.broker
                connection.attach(attachment)
                self._quiet_ticks = self._seen_replies = 0
                return
            except RangelogError as error:
                self._detach()
                self.problem = error
                self._failures += 1
                if ends_producer(error) and not isinstance(error, ProtocolViolation):
                    self._host.refused_for_good(error, self._shard_id, None)
                    return

    async def _until_ended(self) -> None:
        """Look at the map until the shard is none of the current ones; for a while only: its scale may be cancelled."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._access.pace.closed_s
        failures = 0
        while True:
            await self._host.refresh_map()
            if not self._host.is_current(self._shard_id) or loop.time() >= until_s:
                return
            failures += 1
            await asyncio.sleep(self._access.pace.pause_s(failures))
