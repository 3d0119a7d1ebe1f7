"""Many fetches on one connection: all are answered, the loop has its turns meanwhile, and no slot is ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import Future as ThreadFuture

import pytest

from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.store import Store
from rangelog_server.serving import fetch_queue
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import fetch
from tests.support.memory_server import Client

COUNT = 1_020
"""More than Python has frames to recurse through."""


def with_records(plane: DataPlane, count: int = 4) -> Client:
    """A client that appended so many records, all confirmed."""
    client = Client(plane).hello()
    for base in range(count):
        client.append(base, confirm_offset=base)
    client.confirm(count)
    client.wire.frames()
    return client


def codes(frames: list[Frame]) -> dict[int, str]:
    """What each request was answered: the error's code, or nothing."""
    return {
        frame.request_id: data_pb2.Error.FromString(frame.message).code if frame.opcode is Opcode.ERROR else ""
        for frame in frames
    }


@pytest.fixture
def defects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was logged as a defect of the server."""
    said: list[str] = []

    class Log:
        def exception(self, event: str, **fields: object) -> None:
            said.append(event)

    monkeypatch.setattr(fetch, "_log", Log(), raising=False)
    return said


@pytest.mark.parametrize("credit_bytes", [0, 1 << 20])
async def test_a_thousand_queued_fetches_are_answered(plane: DataPlane, credit_bytes: int) -> None:
    """What gathered while the client did not read is answered from memory, all of it, and no slot is lost."""
    client = with_records(plane)
    client.connection.pause_writing()
    asked = [client.fetch(0, wait_ms_max=10_000, credit_bytes=credit_bytes) for _ in range(COUNT)]
    client.connection.resume_writing()
    assert codes(await client.replies(COUNT)) == dict.fromkeys(asked, "")
    assert client.connection.fetches.active_count == 0
    last = client.fetch(0)
    assert last in codes(await client.replies(1))


async def test_a_thousand_long_polls_that_end_together(plane: DataPlane) -> None:
    """One step of the confirm offset answers them all; afterwards there are as many slots as before."""
    client, writer = with_records(plane), Client(plane).hello()
    asked = [client.fetch(4, wait_ms_max=10_000) for _ in range(COUNT)]
    writer.append(4, confirm_offset=4)
    writer.confirm(5)
    assert codes(await client.replies(COUNT)) == dict.fromkeys(asked, "")
    assert (client.connection.fetches.active_count, client.connection.fetches.count) == (0, 0)


async def test_a_long_queue_leaves_the_loop_its_turns(plane: DataPlane) -> None:
    """Of a thousand fetches some are answered in one turn of the loop; what else waits there comes in between."""
    client = with_records(plane)
    client.connection.pause_writing()
    for _ in range(COUNT):
        client.fetch(0)
    loop = asyncio.get_running_loop()
    turns: list[int] = []

    def look() -> None:
        turns.append(len(client.wire.frames()))
        if sum(turns) < COUNT:
            loop.call_soon(look)

    client.connection.resume_writing()
    look()
    async with asyncio.timeout(5):
        while sum(turns) < COUNT:
            await asyncio.sleep(0)
    assert max(turns) <= 2 * fetch_queue.FETCHES_PER_TURN_MAX


def failing(times: int, error: BaseException) -> Callable[..., list[bytes] | None]:
    """`Store.cached`, which fails so many times first."""
    left = [times]

    def cached(self: Store, hosted: HostedReplica, first: int, last: int) -> list[bytes] | None:
        if left[0]:
            left[0] -= 1
            raise error
        return original(self, hosted, first, last)

    original = Store.cached
    return cached


async def test_a_fetch_that_fails_for_no_known_reason_is_answered(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    """More of them than there are slots: each is told INTERNAL and logged, its slot comes back, the others are served."""
    client = with_records(plane)
    bad = fetch_queue.FETCHES_ACTIVE_MAX + 2
    monkeypatch.setattr(Store, "cached", failing(bad, ValueError("a defect")))
    client.connection.pause_writing()
    asked = [client.fetch(0) for _ in range(10)]
    client.connection.resume_writing()
    answers = codes(await client.replies(10))
    assert [answers[number] for number in asked] == ["INTERNAL"] * bad + [""] * (10 - bad)
    assert (client.connection.fetches.active_count, client.connection.fetches.count) == (0, 0)
    assert len(defects) == bad


@pytest.mark.parametrize(("failure", "code"), [(ValueError("a defect"), "INTERNAL"), (CancelledError(), "UNAVAILABLE")])
async def test_a_read_that_fails_for_no_known_reason_is_answered(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, defects: list[str], failure: BaseException, code: str
) -> None:
    """On the reader threads as well: a defect is told INTERNAL, what the server's end cut short UNAVAILABLE."""
    client = with_records(plane)
    plane.store.cache._batches.clear()
    thread_future: ThreadFuture[list[bytes]] = ThreadFuture()
    monkeypatch.setattr(plane.readers, "submit", lambda *call: thread_future)
    asked = [client.fetch(0) for _ in range(fetch_queue.FETCHES_ACTIVE_MAX)]
    if isinstance(failure, CancelledError):
        thread_future.cancel()
    else:
        thread_future.set_exception(failure)
    assert codes(await client.replies(len(asked))) == dict.fromkeys(asked, code)
    assert (client.connection.fetches.active_count, client.connection.fetches.count) == (0, 0)
    assert plane.store.find(1, 0).core.trust.value == "sound"


async def test_a_reply_that_cannot_be_sent_costs_no_slot(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    """Even a transport that fails on every write leaves the connection its slots."""
    client = with_records(plane)

    def broken(data: object) -> None:
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(client.wire, "write", broken)
    monkeypatch.setattr(client.wire, "writelines", broken)
    for _ in range(fetch_queue.FETCHES_ACTIVE_MAX + 2):
        client.fetch(0)
    assert (client.connection.fetches.active_count, client.connection.fetches.count) == (0, 0)
    assert defects
