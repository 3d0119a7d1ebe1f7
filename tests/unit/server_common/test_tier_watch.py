"""The watch of the tier: at start, while it fails, and when somebody doubts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog_core.errors import AccessDenied
from rangelog_server_common import tier_watch
from rangelog_server_common.tier_watch import TierWatch, WatchTask
from tests.support.waiting import until


class Tier:
    """A tier that fails as it is told, and counts its checks."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.hangs = False
        self.checks = 0
        self.checked = asyncio.Event()

    async def check(self) -> None:
        self.checks += 1
        self.checked.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.problem is not None:
            raise self.problem


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that nobody waits for."""
    monkeypatch.setattr(tier_watch, "PAUSE_S", 0.001)
    monkeypatch.setattr(tier_watch, "PAUSE_S_MAX", 0.002)
    monkeypatch.setattr(tier_watch, "LIMIT_S", 0.05)


@pytest.fixture
async def running() -> AsyncIterator[tuple[Tier, TierWatch, WatchTask]]:
    """A watch that runs."""
    tier = Tier()
    watch = TierWatch(tier.check)
    task = WatchTask(watch)
    task.start()
    await until(lambda: tier.checks == 1)
    yield tier, watch, task
    await task.close()


async def test_a_working_tier_is_checked_once_and_on_request(
    running: tuple[Tier, TierWatch, WatchTask],
) -> None:
    """No check without a reason."""
    tier, watch, task = running
    await until(lambda: watch._wanted._waiters)  # it waits for a request, not for a time
    assert tier.checks == 1 and watch.error == ""
    watch.recheck()
    await until(lambda: tier.checks == 2)
    task.start()
    await until(lambda: tier.checks == 3)


async def test_a_failing_tier_is_checked_until_it_works(running: tuple[Tier, TierWatch, WatchTask]) -> None:
    """Its error has code and message, and goes when the tier is back."""
    tier, watch, _ = running
    tier.problem = AccessDenied("no " + "x" * 1_000)
    watch.recheck()
    await until(lambda: tier.checks > 4)
    assert watch.error.startswith("ACCESS_DENIED: no x") and len(watch.error) == tier_watch.ERROR_LENGTH_MAX
    tier.problem = None
    await until(lambda: watch.error == "")


async def test_a_check_that_hangs_or_breaks_is_a_failing_tier(running: tuple[Tier, TierWatch, WatchTask]) -> None:
    """A directory that hangs, and a defect, end neither the watch nor the process."""
    tier, watch, _ = running
    tier.hangs = True
    watch.recheck()
    await until(lambda: "no answer" in watch.error)
    tier.hangs, tier.problem = False, ZeroDivisionError()
    await until(lambda: watch.error == "INTERNAL: ZeroDivisionError")
