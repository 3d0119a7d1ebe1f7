"""Who is told of a record's outcome: its future, or the next flush where no future can tell it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rangelog._produce.waiters import Waiters
from rangelog_core.errors import ShardEnded, WriterClosed

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("ended", [False, True])
async def test_the_error_of_a_record_whose_future_was_cancelled_is_kept(ended: bool) -> None:
    """`asyncio.wait_for` cancels at its time-out, and the record goes on its way: a flush must not say that all is well."""
    waiters = Waiters()
    future = waiters.watch(7)
    with suppress(TimeoutError):
        await asyncio.wait_for(future, 1.0)
    assert future.cancelled()
    if ended:
        closed = WriterClosed("closed")
        told = waiters.end([7], [7], closed, closed)
    else:
        waiters.refused([7], ShardEnded("it has ended"))
        told = waiters.take_untold()
    assert isinstance(told, WriterClosed if ended else ShardEnded)
    assert waiters.take_untold() is None, "once"


async def test_the_error_of_a_record_with_a_future_is_told_there() -> None:
    """And by no flush."""
    waiters = Waiters()
    future = waiters.watch(7)
    waiters.refused([7], ShardEnded("it has ended"))
    with pytest.raises(ShardEnded):
        await future
    assert waiters.take_untold() is None
