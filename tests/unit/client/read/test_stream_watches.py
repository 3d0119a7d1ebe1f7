"""The watch that all readers of a client share: every change wakes, and an absent placement driver is fallen back from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rangelog._read import watch_calls
from rangelog._read.stream_watches import StreamWatches
from rangelog_core.errors import RangelogError, Unavailable
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.pd_calls import CallsByName

pytestmark = pytest.mark.virtual


class FakePd(CallsByName):
    """Answers calls from a queue that the test fills; notes what it was asked."""

    def __init__(self) -> None:
        self.pd = self
        self.asked: list[pd_pb2.WatchRequest] = []
        self.answers: asyncio.Queue[pd_pb2.WatchResponse | RangelogError] = asyncio.Queue()

    async def watch(self, request: pd_pb2.WatchRequest, *, timeout_s: float) -> pd_pb2.WatchResponse:
        self.asked.append(request)
        answer = await self.answers.get()
        if isinstance(answer, RangelogError):
            raise answer
        return answer

    def tell(self, sequence: int, *stream_ids: int, session: int = 5) -> None:
        streams = [common_pb2.Stream(stream_id=each) for each in stream_ids]
        self.answers.put_nowait(pd_pb2.WatchResponse(session=session, sequence=sequence, streams=streams))


@pytest.fixture
def pd() -> FakePd:
    return FakePd()


@pytest.fixture
async def watches(pd: FakePd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StreamWatches]:
    async def at_once(attempt: int) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(watch_calls, "backoff", at_once)
    made = StreamWatches(cast(Any, pd))
    yield made
    made.close()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_change_wakes_who_waits_for_it(pd: FakePd, watches: StreamWatches) -> None:
    """And nobody else; who knows an older version returns at once."""
    one, other = watches.join(1), watches.join(2)
    await settle()
    pd.tell(1, 1, 2)
    await settle()
    assert one.is_sound and other.is_sound
    version, other_version = one.version, other.version
    waiting = asyncio.create_task(one.wait(version, 10.0))
    await settle()
    pd.tell(2, 1)
    await asyncio.wait_for(waiting, 1)
    assert one.version > version and other.version == other_version
    await asyncio.wait_for(one.wait(version, 10.0), 1)
    assert [each.acked for each in pd.asked[-2:]] == [1, 2]


async def test_readers_of_one_stream_share_its_watch(pd: FakePd, watches: StreamWatches) -> None:
    """It ends with the last of them, and the call with the last stream."""
    first, second = watches.join(1), watches.join(1)
    watches.join(2)
    await settle()
    pd.tell(1, 1, 2)
    await settle()
    assert first is second
    watches.leave(first)
    await settle()
    watches.leave(second)
    pd.tell(2)
    await settle()
    assert list(pd.asked[-1].end) == [1]
    again = watches.join(1)
    assert again is not first and not again.is_sound


async def test_with_nobody_to_answer_readers_look_by_themselves(pd: FakePd, watches: StreamWatches) -> None:
    """The watch is not sound, wakes them, and is sound again once it was begun anew."""
    watch = watches.join(1)
    await settle()
    pd.tell(1, 1)
    await settle()
    version = watch.version
    pd.answers.put_nowait(Unavailable("no leader"))
    await settle()
    assert not watch.is_sound and watch.version > version
    began = asyncio.get_running_loop().time()
    await watch.wait(watch.version, 10.0)
    assert asyncio.get_running_loop().time() - began == watch_calls.FALL_BACK_S
    pd.tell(1, 1, session=6)
    await settle()
    assert watch.is_sound
    assert pd.asked[-2].session == 0 and [each.stream_id for each in pd.asked[-2].begin] == [1]


async def test_another_leader_does_not_know_the_session(pd: FakePd, watches: StreamWatches) -> None:
    """Everything is watched anew: in between changes may have been missed."""
    watch = watches.join(1)
    await settle()
    pd.tell(1, 1)
    await settle()
    pd.answers.put_nowait(pd_pb2.WatchResponse())
    await settle()
    assert not watch.is_sound
    assert pd.asked[-1].session == 0 and [each.stream_id for each in pd.asked[-1].begin] == [1]


async def test_a_stream_that_is_joined_while_a_call_waits_is_begun_at_once(pd: FakePd, watches: StreamWatches) -> None:
    """The call that waits is given up, under the same session and with a later number."""
    watches.join(1)
    await settle()
    pd.tell(1, 1)
    await settle()
    before = len(pd.asked)
    watches.join(2)
    await settle()
    assert len(pd.asked) == before + 1
    assert pd.asked[-1].session == 5 and pd.asked[-1].call > pd.asked[-2].call
    assert [each.stream_id for each in pd.asked[-1].begin] == [2]
