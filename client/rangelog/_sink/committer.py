"""The driver's side of a sink: decides what is appended for a batch of work, and appends it to the target.

What holds:
- The decisions are in the control stream, whose writer is this committer alone: to open it fences an earlier committer.
- Whoever appends a decision's next batch is the target's only writer, and has since seen what is there of the decision. So no
  batch is appended twice, and none is left out, whoever dies between any two steps.
- A decision is appended whole before the next is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._sink.decision import DECISION, DONE, ControlLog, Decision, Joining, StagedSpan, split
from rangelog._sink.staging import Output, open_writer
from rangelog._sink.target import SinkTarget, StreamTarget
from rangelog._sink.topic_target import TopicTarget
from rangelog_core.errors import (
    OutcomeUnknown,
    PreconditionFailed,
    ProducerFenced,
    RangelogError,
    Unavailable,
    WriterFenced,
)
from rangelog_core.limits import MIB
from rangelog_core.stream_config import StreamConfig

COMMIT_TIMEOUT_S = 120.0
_FENCED_MAX = 3
"""Times that another committer may take the streams during one commit."""
_RETRY_S = 0.2
_TRIM_BYTES = 8 * MIB
_TRIM_DECISIONS = 64
"""The control stream is trimmed after so much, by whole ranges: what the next committer reads."""
_CONTROL = StreamConfig(tiered=False, range_size_bytes_max=_TRIM_BYTES)
_log = logging.getLogger("rangelog.sink")


class SinkCommitter:
    """Commits the work of one sink to one stream or topic. Use it from one event loop; `close` it.

    Example:
        ```python
        committer = to_stream(client, "flights", (await client.describe_stream("flights")).stream_id, "copy-1")
        await committer.commit(0, [output])
        ```
    """

    def __init__(self, client: Client, control_name: str, target: SinkTarget) -> None:
        """Make it with `to_stream` or `to_topic`."""
        self._client = client
        self.control_name = control_name
        self.target = target
        self._lock = asyncio.Lock()
        self._control: Writer | None = None
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
            WriterFenced, ProducerFenced: Another committer of this sink, or another writer of the target, goes on taking them.
            StreamNotFound, TopicNotFound: The target is not the one any more that it was.
            OffsetTrimmed, PreconditionFailed: What an earlier commit has appended cannot be seen any more.
            Unavailable: The cluster does not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        fenced = 0
        async with self._lock:
            while True:
                try:
                    return await self._commit(number, outputs)
                except (WriterFenced, ProducerFenced, Unavailable, OutcomeUnknown) as error:
                    await self._leave()
                    fenced += isinstance(error, WriterFenced | ProducerFenced)
                    if fenced > _FENCED_MAX or time.monotonic() > deadline:
                        raise
                    _log.info("commit %d of %s: again after %s", number, self.control_name, error)
                    await asyncio.sleep(_RETRY_S)
                except BaseException:
                    await self._leave()
                    raise

    @property
    def last(self) -> Decision | None:
        """What is known to be appended last, or decided on: after `commit` that of its number, or of a later one."""
        return self._control_log.last

    async def close(self) -> None:
        """End the writers. Idempotent."""
        async with self._lock:
            if self._control is not None:
                with suppress(RangelogError):
                    await self._control.flush()
            await self._leave()

    # ---- the steps

    async def _commit(self, number: int, outputs: Sequence[Output]) -> bool:
        control = self._control or await self._open()
        if self._control_log.has(number):
            return False
        decision = await self._decide(control, number, outputs)
        kept = {output.attempt: output.batches for output in outputs if output.staged is None}
        await self._carry_out(control, decision, 0, kept)
        return True

    async def _open(self) -> Writer:
        """Become the writer of both, the control stream first, and carry out what was decided before."""
        self._control_log = log = ControlLog()
        control = await open_writer(self._client, self.control_name, _CONTROL)
        try:
            begin = (await self._client.describe_stream(self.control_name)).trim_offset
            if begin < control.next_offset:
                span = (self.control_name, control.stream_id, begin, control.next_offset)
                async for chunk in self._client.internal.records(*span):
                    for record in chunk:
                        log.note(record.offset, record.key, record.value)
            await self.target.open()
            if log.last is not None and not log.done:
                await self._carry_out(control, log.last, await self.target.copied(log.last, log), {})
        except BaseException:
            await control.close(flush=False)
            raise
        self._control = control
        return control

    async def _decide(self, control: Writer, number: int, outputs: Sequence[Output]) -> Decision:
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
        decision = Decision(number, self.target.start, tuple(spans))
        value = decision.encode()
        offset = control.append_nowait(value, key=DECISION)
        await control.flush()
        self._control_log.note(offset, DECISION, value)
        return decision

    async def _carry_out(
        self, control: Writer, decision: Decision, copied: int, kept: dict[int, tuple[bytes, ...]]
    ) -> None:
        """Append the decision's batches but the first `copied`; note that, once they are acked. `kept`: batches by attempt."""

        async def note(key: bytes, value: bytes) -> None:
            control.append_nowait(value, key=key)
            await control.flush()

        await self.target.append(copied, self._batches(decision, copied, kept), note)
        await self._finish(control, decision)

    async def _batches(
        self, decision: Decision, copied: int, kept: dict[int, tuple[bytes, ...]]
    ) -> AsyncIterator[bytes]:
        """Yield the decision's batches but the first `copied`."""
        at = 0
        for span in decision.spans:
            first, at = at, at + span.batches
            if at <= copied:
                continue
            taken = 0
            async for data in _each(kept[span.attempt]) if span.attempt in kept else self._staged(span):
                taken += 1
                if first + taken > copied:
                    yield data
            if taken != span.batches:
                raise PreconditionFailed(
                    f"{span.stream} holds {taken} of {span.batches} staged batches of {span.attempt:#x}"
                )

    async def _staged(self, span: StagedSpan) -> AsyncIterator[bytes]:
        joining = Joining()
        async for chunk in self._client.internal.records(span.stream, span.stream_id, span.start, span.end):
            for record in chunk:
                data = joining.add(record.key, record.value)
                if data is not None:
                    yield data

    async def _finish(self, control: Writer, decision: Decision) -> None:
        """Note that a decision is carried out, and trim what it does not need any more. To lose the note costs a look."""
        self._control_log.done = True
        control.append_nowait(b"", key=DONE)
        self._untrimmed_decisions += 1
        ends = {span.stream: span.end for span in decision.spans if span.stream != self.control_name}
        if self._untrimmed_bytes > _TRIM_BYTES or self._untrimmed_decisions >= _TRIM_DECISIONS:
            await control.flush()
            ends[self.control_name] = self._control_log.last_offset
            self._untrimmed_bytes = self._untrimmed_decisions = 0
        await asyncio.gather(*(self._trim(stream, end) for stream, end in ends.items()))

    async def _trim(self, stream: str, end: int) -> None:
        """Trim what is sealed of a stream below `end`."""
        try:
            info = await self._client.describe_stream(stream)
            if min(end, info.next_offset) > info.trim_offset:
                await self._client.trim_stream(stream, min(end, info.next_offset))
        except RangelogError as error:
            _log.info("%s is not trimmed to %d: %s", stream, end, error)

    async def _leave(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            with suppress(RangelogError):
                await control.close(flush=False)
        await self.target.leave()


def to_stream(client: Client, target: str, stream_id: int, name: str) -> SinkCommitter:
    """Return the committer of the sink `name` to a stream, by its name and id."""
    control_name = f"{name}-control"
    return SinkCommitter(client, control_name, StreamTarget(client, target, stream_id, control_name))


def to_topic(client: Client, target: str, topic_id: int, name: str) -> SinkCommitter:
    """Return the committer of the sink `name` to a topic, by its name and id."""
    control_name = f"{name}-control"
    return SinkCommitter(client, control_name, TopicTarget(client, target, topic_id, control_name))


async def _each(batches: Sequence[bytes]) -> AsyncIterator[bytes]:
    for data in batches:
        yield data
