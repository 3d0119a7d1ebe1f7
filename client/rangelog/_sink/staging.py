"""The task's side of a sink: keeps the encoded batches of one attempt, small ones in memory, others in a staging stream.

What holds: memory is bounded. A span is complete and acked before `finish` returns it; the attempt that comes next into the
same staging stream fences this one, and leaves its finished span as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._sink.decision import StagedSpan, split
from rangelog_core.errors import StreamExists, StreamNotFound
from rangelog_core.limits import MIB
from rangelog_core.stream_config import StreamConfig

_STAGING = StreamConfig(tiered=False, range_size_bytes_max=64 * MIB)


@dataclass(frozen=True, slots=True)
class Output:
    """What one attempt of a task hands to the commit: its batches themselves, or the span where they are staged."""

    attempt: int
    records: int
    batches: tuple[bytes, ...] = ()
    staged: StagedSpan | None = None


class TaskStaging:
    """One attempt's span in its staging stream. `close` it."""

    def __init__(self, client: Client, stream: str, attempt: int) -> None:
        self._client = client
        self._stream = stream
        self._attempt = attempt
        self._writer: Writer | None = None
        self._start = 0
        self._batches = 0

    async def add(self, batches: Sequence[bytes]) -> None:
        """Append encoded batches. Raises WriterFenced once another attempt has begun, and as `Client.writer`."""
        if self._writer is None:
            self._writer = await open_writer(self._client, self._stream, _STAGING)
            self._start = self._writer.next_offset
        for data in batches:
            for key, value in split(data):
                await self._writer.ready()
                self._writer.append_nowait(value, key=key)
            self._batches += 1

    async def finish(self, records: int) -> Output:
        """Return once all is acked. Raises as `add`."""
        assert self._writer is not None
        await self._writer.flush()
        span = StagedSpan(
            self._attempt, self._stream, self._writer.stream_id, self._start, self._writer.next_offset, self._batches, records
        )  # fmt: skip
        return Output(self._attempt, records, staged=span)

    async def close(self) -> None:
        """End the writer; what is not acked is left."""
        if self._writer is not None:
            await self._writer.close(flush=False)


async def open_writer(client: Client, stream: str, config: StreamConfig) -> Writer:
    """Return the writer of a stream of the sink, made if it does not exist. Raises as `Writer.open`, OutcomeUnknown."""
    writer = client.writer(stream)
    try:
        await writer.open()
    except StreamNotFound:
        with suppress(StreamExists):
            await client.create_stream(stream, config)
        writer = client.writer(stream)
        await writer.open()
    return writer
