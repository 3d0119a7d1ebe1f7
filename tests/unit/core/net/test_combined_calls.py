"""Questions of many callers in few calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rangelog_core.errors import InternalError, RangelogError, Unavailable
from rangelog_core.net.combined_calls import CombinedCalls


class Asked:
    """Answers each number with its square; waits for a word first."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: BaseException | None = None

    async def __call__(self, numbers: list[int]) -> Sequence[int | RangelogError]:
        self.calls.append(numbers)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return [Unavailable("an odd number") if each % 2 else each * each for each in numbers]


async def test_what_is_asked_together_goes_together() -> None:
    """Each caller gets the answer to its own question, or the error that is its answer."""
    asked = Asked()
    calls = CombinedCalls(asked, items_max=3, calls_max=2)
    answers = await asyncio.gather(*(calls.ask(number) for number in range(4)), return_exceptions=True)
    assert answers[::2] == [0, 4] and all(isinstance(each, Unavailable) for each in answers[1::2])
    assert asked.calls == [[0, 1, 2], [3]]


async def test_what_is_asked_meanwhile_gathers() -> None:
    """No more calls than allowed are in progress; who gave up is not asked for."""
    asked = Asked()
    asked.go_on.clear()
    calls = CombinedCalls(asked, items_max=10, calls_max=1)
    first = asyncio.create_task(calls.ask(0))
    for _ in range(3):
        await asyncio.sleep(0)
    later = [asyncio.create_task(calls.ask(number)) for number in (2, 4, 6)]
    await asyncio.sleep(0)
    later[1].cancel()
    await asyncio.sleep(0)
    assert asked.calls == [[0]]
    asked.go_on.set()
    assert await asyncio.gather(first, later[0], later[2]) == [0, 4, 36]
    assert asked.calls == [[0], [2, 6]]


@pytest.mark.parametrize(("error", "raised"), [(Unavailable("away"), Unavailable), (ValueError("?"), InternalError)])
async def test_an_error_of_the_call_is_everybodys(error: Exception, raised: type[Exception]) -> None:
    """The next questions are asked anew."""
    asked = Asked()
    asked.error = error
    calls = CombinedCalls(asked, items_max=10, calls_max=1)
    answers = await asyncio.gather(calls.ask(0), calls.ask(2), return_exceptions=True)
    assert [type(each) for each in answers] == [raised, raised]
    asked.error = None
    assert await calls.ask(2) == 4


async def test_closing_cancels_who_waits() -> None:
    """In calls, and before them."""
    asked = Asked()
    asked.go_on.clear()
    calls = CombinedCalls(asked, items_max=1, calls_max=1)
    waiting = [asyncio.create_task(calls.ask(number)) for number in (0, 2)]
    for _ in range(3):
        await asyncio.sleep(0)
    calls.close()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in done)
