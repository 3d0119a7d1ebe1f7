"""The tasks that keep assigned shards open: one each, again after each end, none after the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from unittest import mock

import pytest

from rangelog.errors import (
    Corruption,
    RangelogError,
    ShardNotFound,
    StreamNotFound,
    StreamSealed,
    TopicNotFound,
    Unavailable,
    UnsupportedVersion,
)
from rangelog_broker.hosting import host as hosts
from rangelog_broker.hosting.host import Host
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

KEY = (3, 0)
Outcome = Exception | str


class Bench:
    """A host whose openings end as a test says."""

    def __init__(self) -> None:
        self.host = Host(self._open, self._settled)
        self.outcomes: list[Outcome] = []
        self.tries = 0
        self.opening = 0
        self.opening_max = 0
        self.open = 0
        self.gate: asyncio.Event | None = None
        self.closing: list[asyncio.Future[None]] = []
        self.pauses: list[float] = []

    async def _settled(self, key: tuple[int, int]) -> None:
        """Nothing is being scaled."""

    async def _open(self, key: tuple[int, int]) -> Awaitable[None] | None:
        self.tries += 1
        self.opening += 1
        self.opening_max = max(self.opening, self.opening_max)
        try:
            if self.gate is not None:
                await self.gate.wait()
            outcome = self.outcomes.pop(0) if self.outcomes else "opened"
            if isinstance(outcome, Exception):
                raise outcome
            if outcome == "ended":
                return None
        finally:
            self.opening -= 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closing.append(future)
        return self._until(future)

    async def _until(self, future: asyncio.Future[None]) -> None:
        self.open += 1
        try:
            await future
        finally:
            self.open -= 1

    async def sleep(self, delay_s: float) -> None:
        """In place of asyncio.sleep."""
        if delay_s >= hosts.PAUSE_S[0]:
            self.pauses.append(delay_s)
        await real_sleep(0)


real_sleep = asyncio.sleep


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A host without real pauses."""
    made = Bench()
    with mock.patch.object(hosts.asyncio, "sleep", made.sleep):
        yield made
        await made.host.close()
    assert not made.open and not made.opening


async def test_a_key_has_one_task(bench: Bench) -> None:
    """An assignment that is repeated opens nothing twice."""
    for _ in range(3):
        bench.host.assigned(KEY)
        await real_sleep(0)
    await until(lambda: bench.open == 1)
    assert bench.tries == 1


async def test_failures_are_retried_with_growing_pauses(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Errors of any kind delay an opening and do not end it; after a success the pauses begin anew."""
    caplog.set_level(logging.CRITICAL, "rangelog.broker")
    bench.outcomes = [Unavailable("no"), KeyError("defect"), Corruption("no"), *[Unavailable("no")] * 20]
    bench.host.assigned(KEY)
    await until(lambda: bench.open == 1)
    assert bench.tries == 24
    assert bench.pauses == sorted(bench.pauses) and bench.pauses[0] == 0.02 and bench.pauses[-1] == 2.0
    bench.pauses.clear()
    bench.closing[-1].set_result(None)
    await until(lambda: bench.tries == 25)
    assert bench.pauses == [0.02]


async def test_what_a_later_program_wrote_is_reported(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Until it can be opened, or is assigned to another broker."""
    caplog.set_level(logging.CRITICAL, "rangelog.broker")
    bench.outcomes = [UnsupportedVersion("later"), Unavailable("no"), UnsupportedVersion("later")]
    bench.host.assigned(KEY)
    await until(lambda: bench.tries == 2)
    assert bench.host.unopenable() == [KEY]
    await until(lambda: bench.open == 1)
    assert bench.host.unopenable() == []
    bench.outcomes = [UnsupportedVersion("later")] * 1_000
    bench.closing[-1].set_result(None)
    await until(lambda: bench.host.unopenable() == [KEY])
    bench.host.withdrawn(KEY)
    assert bench.host.unopenable() == []


@pytest.mark.parametrize("error", [StreamSealed("x"), StreamNotFound("x"), ShardNotFound("x"), TopicNotFound("x")])
async def test_what_is_gone_is_not_tried_again(bench: Bench, error: RangelogError) -> None:
    """An ended or deleted shard ends the task; a later assignment of the key starts another one."""
    bench.outcomes = [error]
    bench.host.assigned(KEY)
    for _ in range(10):
        await real_sleep(0)
    assert bench.tries == 1
    bench.host.assigned(KEY)
    await until(lambda: bench.open == 1)


async def test_nothing_to_own_ends_the_task(bench: Bench) -> None:
    """An opening that finds the shard at its end."""
    bench.outcomes = ["ended"]
    bench.host.assigned(KEY)
    for _ in range(10):
        await real_sleep(0)
    assert (bench.tries, bench.pauses) == (1, [])


async def test_withdrawn_while_it_is_opened(bench: Bench) -> None:
    """The opening is cancelled; nothing is open afterwards; withdrawing again changes nothing."""
    bench.gate = asyncio.Event()
    bench.host.assigned(KEY)
    await until(lambda: bench.opening == 1)
    bench.host.withdrawn(KEY)
    bench.host.withdrawn(KEY)
    await until(lambda: bench.opening == 0)
    bench.gate.set()
    for _ in range(5):
        await real_sleep(0)
    assert (bench.tries, bench.open) == (1, 0)


async def test_withdrawn_and_assigned_again_at_once(bench: Bench) -> None:
    """The former task ends, and the shard is open once."""
    bench.host.assigned(KEY)
    await until(lambda: bench.open == 1)
    bench.host.withdrawn(KEY)
    bench.host.assigned(KEY)
    await until(lambda: bench.tries == 2 and bench.open == 1)


async def test_openings_at_a_time_are_bounded(bench: Bench) -> None:
    """What a dead broker leaves is opened by and by."""
    bench.gate = asyncio.Event()
    for number in range(hosts.OPENINGS_MAX * 2):
        bench.host.assigned((3, number))
    await until(lambda: bench.opening == hosts.OPENINGS_MAX)
    bench.gate.set()
    await until(lambda: bench.open == hosts.OPENINGS_MAX * 2)
    assert bench.opening_max == hosts.OPENINGS_MAX


async def test_close_ends_all(bench: Bench) -> None:
    """Open shards, openings and pauses alike."""
    bench.host.assigned(KEY)
    await until(lambda: bench.open == 1)
    bench.gate = asyncio.Event()
    bench.host.assigned((4, 0))
    await until(lambda: bench.opening == 1)
    await bench.host.close()
    assert (bench.open, bench.opening) == (0, 0)
