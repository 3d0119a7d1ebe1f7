"""A client in place of `rangelog.connect`'s: a producer, a reader and a member of a group that do what a test says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from rangelog import ProducerAck, Record, TopicChunk
from rangelog_core.errors import InvalidArgument, RangelogError


class FakeProducer:
    """Acks each record in shard 0 unless `outcomes` has something else for it: an error, or None for none."""

    def __init__(self, outcomes: dict[bytes, RangelogError | None], fails: RangelogError | None) -> None:
        self.sent: list[tuple[bytes | None, bytes, Any, int | None]] = []
        self.times: list[Any] = []
        self._outcomes = outcomes
        self._fails = fails
        self._pending: list[asyncio.Future[ProducerAck]] = []
        self._next_offset = 0

    async def __aenter__(self) -> FakeProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        for future in self._pending:
            future.set_exception(RangelogError("closed", outcome_unknown=True))

    async def ready(self) -> None:
        """There is room."""

    def submit(
        self, value: bytes, *, key: bytes | None, headers: Any, timestamp: Any, shard: int | None
    ) -> asyncio.Future[Any]:
        """As TopicProducer."""
        if value == b"invalid":
            raise InvalidArgument("this value is not valid")
        self.sent.append((key, value, headers, shard))
        self.times.append(timestamp)
        future: asyncio.Future[ProducerAck] = asyncio.get_running_loop().create_future()
        outcome = self._outcomes.get(value)
        if outcome is not None:
            future.set_exception(outcome)
        elif value in self._outcomes:
            self._pending.append(future)
        else:
            future.set_result(ProducerAck(0, self._next_offset))
            self._next_offset += 1
        return future

    async def flush(self) -> None:
        """Fails, or waits, where records are left without an outcome."""
        if self._pending and self._fails is not None:
            raise self._fails
        if self._pending:
            await asyncio.Event().wait()


class FakeMember:
    """Hands out records; notes which are processed when it is closed."""

    def __init__(self, records: list[Any], *, then_waits: bool) -> None:
        self._records = deque(records)
        self._then_waits = then_waits
        self.processed = self.handed_out = 0
        self.committed = 0
        self.closed = False

    async def open(self) -> None:
        """Join."""

    async def close(self) -> None:
        """Commit what is processed, as a member with automatic commits does."""
        self.committed = max(self.committed, self.processed)
        self.closed = True

    async def commit(self) -> None:
        """Commit what was handed out."""
        self.committed = self.handed_out

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Any]:
        while self._records:
            self.handed_out += 1
            yield self._records.popleft()
            self.processed = self.handed_out
        if self._then_waits:
            await asyncio.Event().wait()


class FakeClient:
    """See the module."""

    def __init__(self) -> None:
        self.outcomes: dict[bytes, RangelogError | None] = {}
        self.fails: RangelogError | None = None
        self.producers: list[FakeProducer] = []
        self.chunks: list[TopicChunk] = []
        self.reader_options: dict[str, Any] = {}
        self.member = FakeMember([], then_waits=False)
        self.member_options: dict[str, Any] = {}
        self.topics = SimpleNamespace(describe=self._describe)

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def _describe(self, name: str, *, timeout_s: float) -> None:
        assert name and timeout_s > 0

    def producer(self, topic: str, **_: float) -> FakeProducer:
        """As Client."""
        self.producers.append(FakeProducer(self.outcomes, self.fails))
        return self.producers[-1]

    def topic_reader(self, topic: str, **options: Any) -> Any:
        """As Client."""
        self.reader_options = options

        async def chunks() -> AsyncIterator[TopicChunk]:
            for each in self.chunks:
                yield each
            if options["follow"]:
                await asyncio.Event().wait()

        return SimpleNamespace(chunks=chunks)

    def group(self, name: str, topic: str, **options: Any) -> FakeMember:
        """As Client."""
        self.member_options = options | {"group": name, "topic": topic}
        return self.member


def records(*values: bytes, first: int = 0) -> list[Record]:
    """Records without keys, one after the other."""
    return [Record(first + number, 1_000, None, value) for number, value in enumerate(values)]
