"""The driver's side of a sink: decides what is appended for a batch of work, and appends it to the target.

What holds:
- The decisions are in the control stream, whose writer is this committer alone: to open it fences an earlier committer.
- Whoever appends a decision's next batch is the target's writer, and has since read the target from the decision's start. So
  no batch is appended twice, and none is left out, whoever dies between any two steps.
- A decision is appended whole before the next is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._sink.decision import DECISION, DONE, ControlLog, Decision, Joining, Mark, StagedSpan, split
from rangelog._sink.staging import Output, open_writer
from rangelog_core.batch import check_batch
from rangelog_core.batch_extension import Tag, decode_producer
from rangelog_core.errors import (
    OffsetTrimmed,
    OutcomeUnknown,
    PreconditionFailed,
    RangelogError,
    StreamNotFound,
    Unavailable,
    WriterFenced,
)
from rangelog_core.limits import MIB

COMMIT_TIMEOUT_S = 120.0
_FENCED_MAX = 3
"""Times that another committer may take the streams during one commit."""
_RETRY_S = 0.2
_TRIM_BYTES = 8 * MIB
_TRIM_DECISIONS = 64
"""The control stream is trimmed after so much: what the next committer reads."""
_log = logging.getLogger("rangelog.sink")


class Committer:
    """Commits the work of one sink, by name, to one stream. Use it from one event loop; `close` it.

    Example:
        ```python
        committer = Committer(client, "flights", (await client.describe_stream("flights")).stream_id, "copy-1")
        await committer.commit(0, [output])
        ```
    """

    def __init__(self, client: Client, target: str, target_id: int, name: str) -> None:
        """`name`: of the sink; `control_name` and the staging streams are named after it."""
        self._client = client
        self._target_name = target
        self._target_id = target_id
        self.control_name = f"{name}-control"
        self._lock = asyncio.Lock()
        self._control: Writer | None = None
        self._target: Writer | None = None
        self._control_log = ControlLog()
        self._untrimmed_bytes = self._untrimmed_decisions = 0

    async def commit(self, number: int, outputs: Sequence[Output], *, timeout_s: float = COMMIT_TIMEOUT_S) -> bool:
        """Append the outputs in their order, unless batch of work `number` was committed before; return whether they were.

        Numbers rise. After an error the batch of work is committed or not; to commit it again, with any outputs, settles that.

        Args:
            number: Of the batch of work, from 0.
            outputs: One for each task.
            timeout_s: Limit in seconds for tries after failures.

        Raises:
            WriterFenced: Another committer of this sink, or another writer of the target, goes on taking them.
            StreamNotFound: The target is not the stream any more that it was.
            OffsetTrimmed: The target was trimmed so far that what an earlier commit appended cannot be seen.
            Unavailable: The cluster does not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        fenced = 0
        async with self._lock:
            while True:
                try:
                    return await self._commit(number, outputs)
                except (WriterFenced, Unavailable, OutcomeUnknown) as error:
                    await self._leave()
                    fenced += isinstance(error, WriterFenced)
                    if fenced > _FENCED_MAX or time.monotonic() > deadline:
                        raise
                    _log.info("commit %d of %s: again after %s", number, self.control_name, error)
                    await asyncio.sleep(_RETRY_S)
                except BaseException:
                    await self._leave()
                    raise

    async def close(self) -> None:
        """End the writers. Idempotent."""
        async with self._lock:
            if self._control is not None:
                with suppress(RangelogError):
                    await self._control.flush()
            await self._leave()

    # ---- the steps

    async def _commit(self, number: int, outputs: Sequence[Output]) -> bool:
        if self._control is None or self._target is None:
            await self._open()
        assert self._control is not None
        assert self._target is not None
        if self._control_log.has(number):
            return False
        decision = await self._decide(self._control, self._target, number, outputs)
        kept = {output.attempt: output.batches for output in outputs if output.staged is None}
        await self._copy(self._target, decision, 0, kept)
        await self._finish(decision)
        return True

    async def _open(self) -> None:
        """Become the writer of both streams, the control stream first, and carry out what was decided before."""
        self._control_log = ControlLog()
        self._control = control = await open_writer(self._client, self.control_name)
        begin = (await self._client.describe_stream(self.control_name)).trim_offset
        if begin < control.next_offset:
            span = (self.control_name, control.stream_id, begin, control.next_offset)
            async for chunk in self._client.internal.records(*span):
                for record in chunk:
                    self._control_log.note(record.offset, record.key, record.value)
        self._target = target = self._client.writer(self._target_name)
        await target.open()
        if target.stream_id != self._target_id:
            raise StreamNotFound(f"stream {self._target_name!r} was deleted and made anew since the sink began")
        pending = self._control_log.last
        if pending is not None and not self._control_log.done:
            await self._copy(target, pending, await self._copied(pending, target.next_offset), {})
            await self._finish(pending)

    async def _decide(self, control: Writer, target: Writer, number: int, outputs: Sequence[Output]) -> Decision:
        """Make the decision durable."""
        spans: list[StagedSpan] = []
        for output in outputs:
            if output.staged is not None:
                spans.append(output.staged)
            elif output.batches:
                start = control.next_offset
                for key, value in (piece for data in output.batches for piece in split(data)):
                    await control.ready()
                    control.append_nowait(value, key=key)
                    self._untrimmed_bytes += len(value)
                span = (self.control_name, control.stream_id, start, control.next_offset)
                spans.append(StagedSpan(output.attempt, *span, len(output.batches), output.records))
        decision = Decision(number, target.next_offset, tuple(spans))
        value = decision.encode()
        offset = control.append_nowait(value, key=DECISION)
        await control.flush()
        self._control_log.note(offset, DECISION, value)
        return decision

    async def _copy(self, target: Writer, decision: Decision, copied: int, kept: dict[int, tuple[bytes, ...]]) -> None:
        """Append the decision's batches but the first `copied`, and return once they are acked. `kept`: by attempt."""
        at = 0
        for span in decision.spans:
            first, at = at, at + span.batches
            if at <= copied:
                continue
            skipped = max(0, copied - first)
            taken = 0
            async for data in _each(kept[span.attempt]) if span.attempt in kept else self._staged(span):
                taken += 1
                if taken > skipped:
                    await self._submit(target, data)
            if taken != span.batches:
                raise PreconditionFailed(
                    f"{span.stream} holds {taken} of {span.batches} staged batches of {span.attempt:#x}"
                )
        await target.flush()

    async def _submit(self, target: Writer, data: bytes) -> None:
        header = check_batch(data)
        await target.ready()
        acked = target.submit_batch(data, header)
        acked.add_done_callback(lambda done: done.cancelled() or done.exception())  # `flush` raises it

    async def _staged(self, span: StagedSpan) -> AsyncIterator[bytes]:
        joining = Joining()
        async for chunk in self._client.internal.records(span.stream, span.stream_id, span.start, span.end):
            for record in chunk:
                data = joining.add(record.key, record.value)
                if data is not None:
                    yield data

    async def _copied(self, pending: Decision, end: int) -> int:
        """Return how many batches of a decision the target has up to its end."""
        trimmed = (await self._client.describe_stream(self._target_name)).trim_offset
        start = max(trimmed, pending.target_from)
        marks: list[Mark] = []
        if start < end:
            headers = self._client.internal.batch_headers(self._target_name, self._target_id, start, end)
            async for chunk in headers:
                for each in chunk:
                    field = each.fields.get(Tag.PRODUCER)
                    if field is not None:
                        producer = decode_producer(field)
                        marks.append((producer.producer_id, producer.sequence))
        copied = pending.copied(marks, cut=trimmed > pending.target_from)
        if copied is None:
            raise OffsetTrimmed(
                f"stream {self._target_name!r} was trimmed up to {trimmed} while batch {pending.number} was being appended "
                f"from {pending.target_from} on: whether it was there cannot be seen. Stream {self.control_name!r} has the "
                "decision: delete it, and the batch is appended (again)",
                offset=trimmed,
            )
        return copied

    async def _finish(self, decision: Decision) -> None:
        """Note that a decision is carried out, and trim what it does not need any more. To lose the note costs a look."""
        assert self._control is not None
        self._control_log.done = True
        self._control.append_nowait(b"", key=DONE)
        self._untrimmed_decisions += 1
        ends = {span.stream: span.end for span in decision.spans if span.stream != self.control_name}
        if self._untrimmed_bytes > _TRIM_BYTES or self._untrimmed_decisions >= _TRIM_DECISIONS:
            await self._control.flush()
            ends[self.control_name] = self._control_log.last_offset
            self._untrimmed_bytes = self._untrimmed_decisions = 0
        await asyncio.gather(*(self._trim(stream, end) for stream, end in ends.items()))

    async def _trim(self, stream: str, end: int) -> None:
        try:
            await self._client.trim_stream(stream, end)
        except RangelogError as error:
            _log.info("%s is not trimmed to %d: %s", stream, end, error)

    async def _leave(self) -> None:
        writers = [self._control, self._target]
        self._control = self._target = None
        for writer in writers:
            if writer is not None:
                with suppress(RangelogError):
                    await writer.close(flush=False)


async def _each(batches: Iterable[bytes]) -> AsyncIterator[bytes]:
    for data in batches:
        yield data
