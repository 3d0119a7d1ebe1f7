"""The role of a writer: it opens a stream (as long as it takes) and appends until it is done, fenced, or the stream is gone.

An append's outcome is what the SDK says: an error whose `outcome_unknown` is not set means "not in the log, and never".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import (
    AppendTimeout,
    PreconditionFailed,
    RangelogError,
    StorageFull,
    StreamNotFound,
    WriterClosed,
    WriterFenced,
)
from tests.simulation.virtual_life import Append, Life
from tests.simulation.virtual_time import WALL_S, here

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

LAST = "last"
"""The writer of the calm: it must get the stream and be acked."""


async def write(
    clients: Clients, life: Life, name: str, count: int, pause_s: float, *, stays: bool = False, waits_s: float = 0.0
) -> None:
    """Append `count` records, with breaks of `pause_s` in between. `stays`: keep the writer open then, until the load ends.

    `waits_s`: with the stream open, before the first of them.
    """
    writing = _Writing(clients, life, name, count, pause_s)
    writing.stays, writing.waits_s = stays, waits_s
    await writing.run()


class _Writing:
    def __init__(self, clients: Clients, life: Life, name: str, count: int, pause_s: float) -> None:
        self._clients, self._life, self._name = clients, life, name
        self._cluster, self._chance = clients.cluster, clients.chance
        self._count, self._pause_s = count, pause_s
        self._sequence = 0
        self.stays, self.waits_s = False, 0.0
        self._must = name.startswith(LAST)
        self._goes_on_deleted = count % 2 == 1  # until the SDK says that the stream is gone
        self._stamps = self._chance.random() < 0.8
        self._jitter_s = self._chance.choice([0.0, 0.0, 0.02, 2.0])

    @property
    def _goes_on(self) -> bool:
        if self._sequence >= self._count or (self._life.deleting and not self._goes_on_deleted):
            return False
        return self._must or not self._clients.stopping

    async def run(self) -> None:
        client = await self._clients.client()
        while self._goes_on:
            writer = client.writer(
                self._life.name, open_timeout_s=8.0, append_timeout_s=8.0, inflight_bytes_max=32 * 1024
            )
            try:
                await writer.open()
            except RangelogError as error:
                self._cluster.note(f"open: {type(error).__name__}")
                if self._is_over(error):
                    return
                await asyncio.sleep(self._chance.uniform(0.1, 1.0))
                continue
            if writer.taken.stream.stream_id != self._life.stream_id:
                await writer.close(flush=False)  # it was deleted and another one has its name
                return
            if not await self._append_all(writer):
                return

    def _is_over(self, error: RangelogError) -> bool:
        if isinstance(error, StreamNotFound):
            self._clients.cluster.check_deleted(self._life, self._name)
            return True
        return isinstance(error, WriterFenced) and not self._must

    async def _append_all(self, writer: Any) -> bool:
        """Return whether to open again, when something is left to append."""
        self._cluster.note("writer opened")
        self._life.opened.append((writer.epoch, writer.next_offset))
        if self._life is self._clients.main:
            self._clients.holders[here().name] = None
        if self.waits_s:
            await asyncio.sleep(self.waits_s)
        while self._goes_on:
            try:
                await writer.ready(timeout_s=60.0)
                self._append(writer)
            except RangelogError as error:
                self._cluster.note(
                    "writer fenced" if isinstance(error, WriterFenced) else f"append: {type(error).__name__}"
                )
                if isinstance(error, WriterFenced | StreamNotFound):
                    await writer.close(flush=False)
                    return False
                break
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
        try:
            await writer.flush(timeout_s=60.0)
        except (WriterFenced, WriterClosed, AppendTimeout, StorageFull, StreamNotFound) as error:
            self._cluster.note(f"flush: {type(error).__name__}")
            await writer.close(flush=False)
            if self._must:
                raise
            return False
        while self.stays and not self._clients.stopping:
            await asyncio.sleep(0.5)
        await writer.close()
        return True

    def _append(self, writer: Any) -> None:
        life, chance, now = self._life, self._chance, self._clients.loop.now
        self._sequence += 1
        identity = life.identity_of(self._name, self._sequence)
        value = identity + b"|" + bytes(min(8_000, int(chance.expovariate(1 / self._clients.value_bytes))))
        stamp = int((WALL_S + now + chance.uniform(-self._jitter_s, self._jitter_s)) * 1000) if self._stamps else None
        noted = Append(identity, self._name, self._sequence, writer.epoch, now, stamp)
        noted.promised = writer.next_offset
        expected_end = noted.promised if self._sequence % 2 else None
        try:
            if self._sequence % 8 == 0:
                self._append_elsewhere(writer, identity)
            future = writer.submit(value, timestamp=stamp, expected_end=expected_end)
        except RangelogError as error:
            self._note_failure(noted, error)
            raise
        finally:
            life.appends.append(noted)
        future.add_done_callback(lambda done: self._acked(noted, done))

    def _append_elsewhere(self, writer: Any, identity: bytes) -> None:
        """With an expected end that is not the stream's: a record that nobody may see."""
        end = writer.next_offset
        wrong = max(0, end - 1) if self._sequence % 16 else end + 1
        if wrong == end:
            return
        try:
            writer.append_nowait(b"refused " + identity, expected_end=wrong)
        except PreconditionFailed as error:
            told = error.offset
        else:
            told = None
        if told != end or writer.next_offset != end:
            self._cluster.fail(f"an append that expected the end {wrong} was told {told}, not {end}")
        self._cluster.note("append with another end refused")

    def _acked(self, noted: Append, done: asyncio.Future[Any]) -> None:
        noted.returned = self._clients.loop.now
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._note_failure(noted, error)
            return
        life = self._life
        noted.outcome, noted.offset = "ok", done.result().offset
        if noted.offset != noted.promised:
            self._cluster.fail(f"{noted.identity!r} was promised {noted.promised} and acked at {noted.offset}")
        before = life.acked.setdefault(noted.offset, noted.identity)
        if before != noted.identity:
            self._cluster.fail(f"offset {noted.offset} was acked for {before!r} and for {noted.identity!r}")
        if noted.timestamp_ms is not None:
            life.stamps_ms.append(noted.timestamp_ms)
        self._clients.check_durable(life, noted.offset, f"{noted.identity.decode()} was acked")

    def _note_failure(self, noted: Append, error: BaseException) -> None:
        noted.returned = self._clients.loop.now
        if not isinstance(error, RangelogError):
            self._cluster.fail(f"an append failed with {error!r}")
        elif error.outcome_unknown:
            self._cluster.note("writer told outcome unknown")
        else:
            noted.outcome = "failed"
            self._cluster.note("an append failed for certain")
