"""Spans of a writer's batches: each from its submission to the ack. Made only where a trace is recorded.

What holds: batches end in order of their offsets, and every span that has begun ends: acked, or with an error. There are
as many open spans as batches in flight. A span has an event for each server that flushed the batch before the ack: frames
carry no context, so these events alone show for which server a batch waited.
"""

from __future__ import annotations

from collections import deque

from rangelog_core import tracing


class BatchSpans:
    """The open spans of one writer."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._open: deque[tuple[int, tracing.OpenSpan]] = deque()
        self._flushed: dict[str, int] = {}  # by server: below this offset its flushes are noted

    def submitted(self, base_offset: int, end_offset: int, size_bytes: int) -> None:
        """A batch is on its way."""
        begun = tracing.begin(
            "rangelog.append", stream=self._stream, base_offset=base_offset, records=end_offset - base_offset,
            size_bytes=size_bytes,
        )  # fmt: skip
        if begun is not None:
            self._open.append((end_offset, begun))

    def flushed(self, server: str, durable_offset: int) -> None:
        """A server holds all batches that end at or below the offset durably."""
        noted = self._flushed.get(server, 0)
        for end_offset, begun in self._open:
            if end_offset > durable_offset:
                break
            if end_offset > noted:
                begun.event("flushed", server=server)
        self._flushed[server] = max(noted, durable_offset)

    def confirmed(self, confirm_offset: int) -> None:
        """All batches that end at or below the offset are acked."""
        while self._open and self._open[0][0] <= confirm_offset:
            self._open.popleft()[1].end()

    def stopped(self, error: BaseException) -> None:
        """No other batch will be acked."""
        while self._open:
            self._open.popleft()[1].end(error)
