"""One answer for all who ask the same within a moment."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_core.errors import Unavailable
from rangelog_page.shared_answers import KEYS_MAX, SharedAnswers


class Source:
    """Answers with how often it was asked, once its gate is open."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        count = self.count
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return count


async def test_an_answer_is_given_out_until_it_is_too_old() -> None:
    """Its age counts from when it was asked for; each key has its own."""
    now_s = 0.0
    shared, source = SharedAnswers(lambda: now_s), Source()
    assert [await shared.get("k", 1.0, source) for _ in range(3)] == [1, 1, 1]
    assert await shared.get("other", 1.0, source) == 2
    now_s = 1.1
    assert await shared.get("k", 1.0, source) == 3
    assert await shared.get("other", 2.0, source) == 2


async def test_those_who_wait_get_one_answer() -> None:
    """However many ask while it runs; one that goes away takes it from nobody."""
    shared, source = SharedAnswers(), Source()
    source.gate.clear()
    asked = [asyncio.create_task(shared.get("k", 1.0, source)) for _ in range(10)]
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert await asyncio.gather(*asked[1:]) == [1] * 9 and source.count == 1


async def test_an_error_is_not_kept() -> None:
    """It goes to those who waited; the next one asks again."""
    shared, source = SharedAnswers(), Source()
    source.error = Unavailable("no leader")
    with pytest.raises(Unavailable):
        await shared.get("k", 60.0, source)
    source.error = None
    assert await shared.get("k", 60.0, source) == 2


async def test_answers_are_bounded() -> None:
    """The oldest is forgotten; and what runs ends with `close`."""
    shared, source = SharedAnswers(lambda: 0.0), Source()
    for key in range(KEYS_MAX + 1):
        await shared.get(key, 1.0, source)
    assert await shared.get(1, 1.0, source) == 2
    assert await shared.get(0, 1.0, source) == KEYS_MAX + 2
    source.gate.clear()
    waiting = asyncio.create_task(shared.get("late", 1.0, source))
    await asyncio.sleep(0)
    await shared.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
