"""A journal that this process owns: the core over the writer of its stream.

What holds:
- Opening is fence, then read to the end that the fence settled, then serve: no entry of another owner is acked after that end.
- A result is given once its entry is acked and applied. When the journal ends, the outcome of what is proposed and not acked is
  unknown, and said so.
- Time goes on at the rate of this owner's clock, also where that clock is behind an earlier owner's, or goes back. A step of
  the wall clock is no time that has passed: nobody falls silent by it.
- A linearizable read looks at the state first; then an entry that is appended *after* the look is acked. A new owner that
  was acked anything before the look had fenced this one before, so that entry would not be.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Generic, Self, TypeVar

from rangelog import Ack, Client, Record, Writer
from rangelog.errors import (
    InternalError,
    OffsetTrimmed,
    RangelogError,
    RequestTimeout,
    StorageFull,
    Unavailable,
    UnsupportedVersion,
    WriterClosed,
    WriterFenced,
)
from rangelog_broker.journal.entry import Command, Own
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.machine import M
from rangelog_broker.journal.owner import DEFAULT_LIMITS, Owner, OwnerLimits, Proposed
from rangelog_broker.journal.replay import JournalReplay
from rangelog_broker.journal.sessions import Result, refused
from rangelog_core.versions import FEATURE_LEVEL

T = TypeVar("T")

OPEN_TIMEOUT_S = 30.0
PROPOSE_TIMEOUT_S = 30.0
TURN_BYTES = 256 << 10
"""Of entries, after which a replay lets the other work of the loop have its turn: some 10 ms."""
_READS_AGAIN = 5
"""A reader that starts at the trim offset may find it raised; so often it begins anew."""

_log = logging.getLogger("rangelog.journal")


def steady_clock() -> Callable[[], int]:
    """Return a clock in ms since the Unix epoch: the wall clock's time as it is now, and on without the steps of that clock."""
    begun_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (begun_ns + time.monotonic_ns()) // 1_000_000


class Journal(Generic[M]):
    """A journal under the epoch of this owner. Make it with `open`; for one event loop."""

    def __init__(self, client: Client, stream: str, *, limits: OwnerLimits, clock_ms: Callable[[], int] | None) -> None:
        self.stream = stream
        self.machine: M
        self.closed: RangelogError | None = None
        self.on_closed: Callable[[RangelogError], object] = lambda error: None
        self.on_change: Callable[[], object] = lambda: None
        """Called after entries were applied, and when the journal ended."""
        self._client = client
        self._clock_ms = clock_ms or steady_clock()
        self._ahead_ms = 0  # of the clock, where it went back or an earlier owner's was ahead
        self._noted_ms = 0
        self._limits = limits
        # The writer refuses what exceeds twice this: the owner's own bound comes first.
        self._writer = client.internal.writer(stream, inflight_bytes_max=limits.proposals_bytes_max + (4 << 20))
        self._writer.on_no_room = self._fail_waits
        self._owner: Owner[M]
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, list[asyncio.Future[Result]]] = {}
        self._waits: dict[asyncio.Future[Any], bool] = {}  # of callers; whether their outcome is unknown
        self._reads: deque[tuple[int, asyncio.Future[None]]] = deque()  # until an entry from its offset on is acked
        self._proof_due, self._proof_offset = False, -1  # the latter: of the proof in flight
        self._snapshot_task: asyncio.Task[None] | None = None
        self._trim_task: asyncio.Task[None] | None = None
        self._trim_offset = 0

    # ---- life

    @classmethod
    async def open(
        cls,
        client: Client,
        stream: str,
        make_machine: Callable[[], M],
        *,
        standby: JournalReplay[M] | None = None,
        limits: OwnerLimits = DEFAULT_LIMITS,
        clock_ms: Callable[[], int] | None = None,
        timeout_s: float = OPEN_TIMEOUT_S,
    ) -> Self:
        """Fence the former owner, restore the state, and become the owner.

        Args:
            client: The client whose connections are used.
            stream: The stream of the journal.
            make_machine: Returns a machine in its first state.
            standby: A recovery that has read the log up to some offset.
            limits: Bounds, and when snapshots are taken.
            clock_ms: The time that is noted in entries; None: that of `steady_clock`.
            timeout_s: Limit in seconds, for the fence and then for each part of the log that is read.

        Raises:
            StreamNotFound, WriterFenced, SealBlocked, NoPlacement, Unavailable: As a writer's `open`.
            RequestTimeout: Nothing more of the log could be read.
            Corruption, UnsupportedVersion: The log cannot be replayed.
        """
        journal = cls(client, stream, limits=limits, clock_ms=clock_ms)
        writer = journal._writer
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await writer.open()
                fold = await _restored(client, writer, make_machine, standby, _extending(limit, timeout_s))
        except TimeoutError as error:
            await writer.close(flush=False)
            raise RequestTimeout(f"opening the journal {stream} made no progress for {timeout_s:g} s") from error
        except BaseException:
            await writer.close(flush=False)
            raise
        journal.machine = fold.machine
        fold.on_failed = journal.note_failed
        journal._owner = Owner(fold, writer.epoch, limits=limits)
        journal._noted_ms = fold.now_ms
        return journal

    @property
    def epoch(self) -> int:
        """The epoch of this owner."""
        return self._owner.epoch

    @property
    def applied_offset(self) -> int:
        """All entries below it are in the state."""
        return self._owner.fold.applied_offset

    @property
    def now_ms(self) -> int:
        """The time that the next entry is noted with. It never goes back, and goes on from what the log has noted."""
        now_ms = self._clock_ms() + self._ahead_ms
        if now_ms < self._noted_ms:
            self._ahead_ms += self._noted_ms - now_ms
            now_ms = self._noted_ms
        self._noted_ms = now_ms
        return now_ms

    async def close(self) -> None:
        """Close; what is not acked has an unknown outcome. Idempotent."""
        self._end(WriterClosed("the journal was closed"))
        for task in (self._snapshot_task, self._trim_task):
            if task is not None:
                task.cancel()
        await self._writer.close(flush=False)

    # ---- commands

    async def open_session(self, *, timeout_s: float = PROPOSE_TIMEOUT_S) -> int:
        """Open a session; return its number. A repeated call opens another one, and nothing else."""
        self._check_open()
        self._writer.check_room()
        number = secrets.randbits(63) | 1 << 63  # no offset, as the numbers of before are
        result = await self._result(self._owner.open_session(self.now_ms, number), timeout_s)
        return int.from_bytes(result.unwrap(), "little")

    async def propose(
        self, session: int, sequence: int, command: bytes, *, settled: int = 0, timeout_s: float = PROPOSE_TIMEOUT_S
    ) -> bytes:
        """Apply a command once, however often it is proposed; return its result.

        Args:
            session: A number from `open_session`, of this or an earlier owner.
            sequence: The command's number in the session. One number is one command.
            command: For the machine.
            settled: The proposer has the results of all sequences below it.
            timeout_s: Limit in seconds.

        Raises:
            Overloaded, InvalidArgument: Nothing was proposed.
            StorageFull: The range servers have no room. With `outcome_unknown` it was proposed, and is applied when they have.
            SessionExpired: The session was idle for too long; whether earlier proposals of the command were applied is unknown.
            WriterFenced, WriterClosed, RequestTimeout: With `outcome_unknown`: propose it again, to the new owner.
            RangelogError: The machine's refusal.
        """
        self._check_open()
        if self._owner.is_new(session, sequence):
            self._writer.check_room()
        proposed = self._owner.propose(Command(self.now_ms, session, sequence, settled, command))
        if isinstance(proposed, Result):
            return proposed.unwrap()
        return (await self._result(proposed, timeout_s)).unwrap()

    async def propose_all(
        self,
        session: int,
        commands: Sequence[tuple[int, bytes]],
        *,
        settled: int = 0,
        timeout_s: float = PROPOSE_TIMEOUT_S,
    ) -> list[Result]:
        """As `propose`, for many commands with their sequences; return their results and refusals in the same order.

        Raises WriterFenced, WriterClosed, RequestTimeout, StorageFull: with `outcome_unknown`, for all of them.
        """
        self._check_open()
        if all(self._owner.is_new(session, sequence) for sequence, _ in commands):
            self._writer.check_room()
        now_ms = self.now_ms
        results: list[Result | asyncio.Future[Result]] = []
        for sequence, command in commands:
            try:
                proposed = self._owner.propose(Command(now_ms, session, sequence, settled, command))
            except RangelogError as error:
                proposed = refused(error)
            results.append(proposed if isinstance(proposed, Result) else self._submit(proposed))
        waiting = [each for each in results if not isinstance(each, Result)]
        if waiting:
            everything = asyncio.gather(*waiting)
            await self._wait(everything, timeout_s, outcome_unknown=True)
        return [each if isinstance(each, Result) else each.result() for each in results]

    async def propose_own(self, command: bytes, *, timeout_s: float = PROPOSE_TIMEOUT_S) -> bytes:
        """Apply a command of the owner itself, which nobody proposes again: the machine decides as it is applied."""
        self._writer.check_room()
        return (await self._wait(self.submit_own(command), timeout_s, outcome_unknown=True)).unwrap()

    def submit_own(self, command: bytes) -> asyncio.Future[Result]:
        """As `propose_own`, without waiting: what is submitted in one turn of the loop shares a batch, in this order."""
        self._check_open()
        return self._submit(self._owner.propose_own(Own(self.now_ms, command)))

    def raise_level(self, level: int) -> None:
        """Apply what follows by the rules of a feature level that all brokers have. Idempotent."""
        proposed = self._owner.raise_level(min(level, FEATURE_LEVEL)) if self.closed is None else None
        if proposed is not None:
            self._append(proposed)

    # ---- reads

    async def read(self, look: Callable[[M], T], *, timeout_s: float = PROPOSE_TIMEOUT_S) -> T:
        """Return what `look` finds in the machine, linearizably. `look` changes nothing and keeps nothing of the machine.

        Raises WriterFenced, WriterClosed, RequestTimeout: read at the new owner. StorageFull: the range servers have no room.
        """
        self._check_open()
        self._writer.check_room()
        found = look(self.machine)
        future: asyncio.Future[None] = self._loop.create_future()
        self._reads.append((self._owner.next_offset, future))
        self._want_proof()
        await self._wait(future, timeout_s, outcome_unknown=False)
        return found

    def read_stale(self, look: Callable[[M], T]) -> T:
        """Return what `look` finds now: a state that was the newest at some time. Raises what ended the journal."""
        self._check_open()
        return look(self.machine)

    def _want_proof(self) -> None:
        if not self._proof_due and self._proof_offset < 0:
            self._proof_due = True
            self._loop.call_soon(self._prove)  # what else is read or proposed in this turn shares it

    def _prove(self) -> None:
        self._proof_due = False
        if self.closed is None and self._reads and self._reads[-1][0] >= self._owner.next_offset:
            proposed = self._owner.prove()
            self._proof_offset = proposed.offset
            self._append(proposed)

    # ---- inside

    def _check_open(self) -> None:
        if self.closed is not None:
            raise self.closed.with_outcome(unknown=False)

    async def _result(self, proposed: Proposed, timeout_s: float) -> Result:
        return await self._wait(self._submit(proposed), timeout_s, outcome_unknown=True)

    def _submit(self, proposed: Proposed) -> asyncio.Future[Result]:
        """Append an entry, unless it is there; return the future of its result."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.setdefault(proposed.offset, []).append(future)
        self._append(proposed)
        return future

    async def _wait(self, future: asyncio.Future[T], timeout_s: float, *, outcome_unknown: bool) -> T:
        timer = self._loop.call_later(timeout_s, self._expire, future, timeout_s, outcome_unknown)
        self._waits[future] = outcome_unknown
        try:
            return await future
        finally:
            timer.cancel()
            del self._waits[future]

    def _fail_waits(self, error: StorageFull) -> None:
        """Nothing is acked until there is room: say so. Who proposes a command again waits for its result."""
        for future, outcome_unknown in self._waits.items():
            _fail(future, error.with_outcome(unknown=outcome_unknown))

    def _expire(self, future: asyncio.Future[T], timeout_s: float, outcome_unknown: bool) -> None:
        message = f"the journal {self.stream} had no ack within {timeout_s:g} s: too few range servers answer?"
        _fail(future, RequestTimeout(message, outcome_unknown=outcome_unknown))

    def _append(self, proposed: Proposed) -> None:
        if proposed.value is None or self.closed is not None:
            return
        try:
            expected = self._writer.next_offset
            if expected != proposed.offset:
                raise InternalError(f"the journal's entry {proposed.offset} would be at {expected} of its stream")
            future = self._writer.submit(proposed.value)
        except RangelogError as error:
            self._end(error)
        else:
            future.add_done_callback(self._acked)

    def _acked(self, future: asyncio.Future[Ack]) -> None:
        if future.cancelled() or self.closed is not None:
            return
        error = future.exception()
        if error is not None:
            self._end(error if isinstance(error, RangelogError) else InternalError(repr(error)))
            return
        try:
            confirm_offset = self._writer.confirm_offset
        except RangelogError:  # it has just stopped; what is acked stays so
            confirm_offset = future.result().offset + 1
        if confirm_offset > self.applied_offset:
            self._apply(confirm_offset)

    def _apply(self, confirm_offset: int) -> None:
        try:
            applied = self._owner.confirmed(confirm_offset)
        except UnsupportedVersion as error:
            self._end(UnsupportedVersion(f"the journal {self.stream}: {error.message}"))
            return
        except Exception as error:
            _log.exception("the journal %s cannot apply an entry", self.stream)
            self._end(InternalError(f"the journal {self.stream} cannot apply an entry: {error!r}"))
            return
        for offset, result in applied:
            for future in self._waiting.pop(offset, ()):
                if not future.done():
                    future.set_result(result)
        self.on_change()
        while self._reads and self._reads[0][0] < confirm_offset:
            _, reader = self._reads.popleft()
            if not reader.done():
                reader.set_result(None)
        if self._proof_offset < confirm_offset:
            self._proof_offset = -1
            if self._reads:
                self._want_proof()
        if self._owner.snapshot_due and self._snapshot_task is None:
            self._snapshot_task = self._spawn(self._take_snapshot())
        self._trim_offset = max(self._trim_offset, self._owner.take_trim())
        if self._trim_offset and self._trim_task is None:
            self._trim_task = self._spawn(self._trim())

    def note_failed(self, offset: int, error: Exception) -> None:
        """Called with the entry at which the machine failed: a defect, whose command has INTERNAL as its result."""
        _log.error("the machine of the journal %s failed at entry %d", self.stream, offset, exc_info=error)

    def _end(self, error: RangelogError) -> None:
        """Nothing is proposed or applied any more."""
        if self.closed is not None:
            return
        self.closed = error
        unknown, certain = error.with_outcome(unknown=True), error.with_outcome(unknown=False)
        waiting, self._waiting = self._waiting, {}
        for future in (future for futures in waiting.values() for future in futures):
            _fail(future, unknown)
        reads, self._reads = self._reads, deque()
        for _, reader in reads:
            _fail(reader, certain)
        self.on_change()
        self.on_closed(error)

    # ---- snapshots

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task is self._snapshot_task:
            self._snapshot_task = None
        if task is self._trim_task:
            self._trim_task = None
        if not task.cancelled() and task.exception() is not None and self.closed is None:
            _log.error("the journal %s: a task failed", self.stream, exc_info=task.exception())
            self._end(InternalError(f"a task of the journal failed: {task.exception()!r}"))

    async def _take_snapshot(self) -> None:
        """Append the pieces between the entries, as there is room."""
        self._owner.start_snapshot()
        try:
            while self.closed is None and (piece := self._owner.next_piece()) is not None:
                self._append(piece)
                await self._writer.ready()
                await asyncio.sleep(0)
        except RangelogError as error:
            self._end(error)

    async def _trim(self) -> None:
        """Trim to what the snapshot covers, as far as ranges are sealed; the rest with the next snapshot."""
        offset, self._trim_offset = self._trim_offset, 0
        try:
            stream = await self._client.metadata.describe_stream(self.stream)
            offset = min(offset, stream.next_offset)
            if offset > stream.trim_offset and stream.stream_id == self._writer.stream_id:
                await self._client.metadata.trim_stream(self.stream, offset, stream_id=stream.stream_id)
        except RangelogError as error:
            _log.info("the journal %s is not trimmed yet: %s", self.stream, error)


def _fail(future: asyncio.Future[T], error: RangelogError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marked as retrieved: nobody may wait for it any more


def _extending(limit: asyncio.Timeout, timeout_s: float) -> Callable[[], None]:
    """Return what begins the time limit anew: a state of a GiB takes longer than any silence may."""
    loop = asyncio.get_running_loop()
    return lambda: limit.reschedule(loop.time() + timeout_s)


async def _restored(
    client: Client,
    writer: Writer,
    make_machine: Callable[[], M],
    recovery: JournalReplay[M] | None,
    on_progress: Callable[[], None],
) -> Fold[M]:
    """Read the log up to the end that the opening of `writer` has settled."""
    end_offset = writer.next_offset
    trim_offset = writer.taken.stream.trim_offset
    for _ in range(_READS_AGAIN):
        if recovery is None:
            recovery = JournalReplay(make_machine(), trim_offset)
        try:
            await _feed(client, writer, recovery, end_offset, on_progress)
            if not recovery.is_known:
                await _check_epoch(client, writer)
            return recovery.finish(end_offset)
        except OffsetTrimmed:  # by the former owner, after its last snapshot
            recovery, trim_offset = None, (await client.metadata.describe_stream(writer.stream)).trim_offset
    raise Unavailable(f"the journal {writer.stream} is trimmed faster than it is read")


async def _check_epoch(client: Client, writer: Writer) -> None:
    """A later owner may have trimmed behind a snapshot beyond our end: it is no damage then, we are deposed."""
    stream = await client.metadata.describe_stream(writer.stream)
    if stream.epoch != writer.epoch:
        raise WriterFenced(f"epoch {stream.epoch} owns the journal {writer.stream}", epoch=stream.epoch)


async def _feed(
    client: Client, writer: Writer, recovery: JournalReplay[M], end_offset: int, on_progress: Callable[[], None]
) -> None:
    """Feed the records up to an end that is settled, in turns with the other work of the loop."""
    while recovery.next_offset < end_offset:  # once more where a snapshot has ended
        chunks = client.internal.records(writer.stream, writer.stream_id, recovery.next_offset, end_offset, writer)
        await feed_chunks(recovery, chunks, on_progress)


async def feed_chunks(
    recovery: JournalReplay[M], chunks: AsyncIterator[Sequence[Record]], on_progress: Callable[[], None] = lambda: None
) -> None:
    """Feed the records of a reader, until it ends or the next one to be read is another one."""
    turn_bytes = 0
    async with aclosing(chunks) as reading:  # type: ignore[type-var]
        async for chunk in reading:
            on_progress()
            for record in chunk:
                recovery.feed(record.offset, record.value)
                if recovery.next_offset <= record.offset:
                    return
                turn_bytes += len(record.value)
                if turn_bytes >= TURN_BYTES:
                    turn_bytes = 0
                    await asyncio.sleep(0)
