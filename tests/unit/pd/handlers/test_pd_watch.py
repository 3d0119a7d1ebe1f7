"""Watching streams: nothing is missed, what was not acked comes again, another leader knows no session."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, NotLeader
from rangelog_core.net.principals import Principal, Role
from rangelog_pd.handlers import streams, watch
from rangelog_pd.reconcile.watches import FORGET_MS, Watches
from rangelog_pd.state.changes import CHANGES_MAX
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server_common import grpc_server
from tests.support.waiting import until

numbers = itertools.count(1)


async def ask(
    api: Any, session: int = 0, acked: int = 0, *begin: int, wait_ms: int = 0, call: int = 0
) -> pb.WatchResponse:
    request = pb.WatchRequest(
        call=call or next(numbers),
        session=session,
        acked=acked,
        wait_ms=wait_ms,
        begin=[pb.WatchedStream(stream_id=each) for each in begin],
    )
    return await watch.watch(api.driver, request)


async def until_waiting(api: Any, session: int) -> None:
    """Return once a call of the session waits for changes."""

    def waits() -> bool:
        event = getattr(api.driver.watches._sessions[session].wake, "__self__", None)
        return isinstance(event, asyncio.Event) and not event.is_set()

    await until(waits)


async def test_a_watcher_gets_the_rows_first_and_then_what_changes(ready: Any) -> None:
    """A call that waits is answered by the change itself, with addresses as a listing has them."""
    first = await ask(ready, 0, 0, 1)
    assert [each.name for each in first.streams] == ["s"]
    assert [(each.index, each.replicas[0].data_address) for each in first.ranges] == [(0, "rs1:7")]
    waiting = asyncio.create_task(ask(ready, first.session, first.sequence, wait_ms=5_000))
    await until_waiting(ready, first.session)
    assert not waiting.done()
    await ready.seal(10, create_next=True)
    told = await asyncio.wait_for(waiting, 1)
    assert [(each.index, each.end_offset) for each in told.ranges] == [(0, 10), (1, 0)]
    assert told.streams[0].next_offset == 10
    quiet = await ask(ready, told.session, told.sequence, wait_ms=1)
    assert not quiet.ranges and not quiet.streams and quiet.session == first.session


async def test_what_was_not_acked_is_told_again(ready: Any) -> None:
    """An answer that was lost on its way is no change that was missed."""
    first = await ask(ready, 0, 0, 1)
    await ready.seal(10)
    lost = await ask(ready, first.session, first.sequence)
    again = await ask(ready, first.session, first.sequence)
    assert [each.index for each in again.ranges] == [each.index for each in lost.ranges] == [0]
    assert not (await ask(ready, first.session, again.sequence)).ranges


async def test_a_call_that_was_given_up_takes_nothing_from_the_next(ready: Any) -> None:
    """Two calls of one session: only the later one is told."""
    first = await ask(ready, 0, 0, 1)
    given_up = asyncio.create_task(ask(ready, first.session, first.sequence, wait_ms=5_000))
    await until_waiting(ready, first.session)
    waiting = asyncio.create_task(ask(ready, first.session, first.sequence, wait_ms=5_000))
    assert not (await asyncio.wait_for(given_up, 1)).ranges
    await ready.seal(10)
    assert [each.index for each in (await asyncio.wait_for(waiting, 1)).ranges] == [0]


async def test_a_call_that_was_overtaken_is_not_carried_out(ready: Any) -> None:
    """What it wanted to end may be watched again by now."""
    first = await ask(ready, 0, 0, 1)
    await ask(ready, first.session, first.sequence, 1, call=1_000_000)
    late = pb.WatchRequest(session=first.session, acked=first.sequence, end=[1], call=999_999)
    assert not (await watch.watch(ready.driver, late)).session
    await ready.seal(10)
    assert (await ask(ready, first.session, first.sequence, call=1_000_001)).ranges


async def test_a_deleted_stream_is_told_of(ready: Any) -> None:
    """As is one that never was."""
    first = await ask(ready, 0, 0, 1, 77)
    assert list(first.deleted_stream_ids) == [77]
    await streams.delete_stream(ready.driver, pb.DeleteStreamRequest(request_id="d", name="s"))
    assert list((await ask(ready, first.session, first.sequence)).deleted_stream_ids) == [1]


async def test_another_leader_knows_no_session_and_a_deposed_one_answers_none(ready: Any) -> None:
    """The watcher begins anew with whoever leads."""
    first = await ask(ready, 0, 0, 1)
    waiting = asyncio.create_task(ask(ready, first.session, first.sequence, wait_ms=5_000))
    await until_waiting(ready, first.session)
    ready.consensus.set_leader("pd2")
    await ready.driver.reconcile()
    with pytest.raises(NotLeader):
        await asyncio.wait_for(waiting, 1)
    ready.consensus.set_leader("pd1")
    ready.change_leader()
    assert (await ask(ready, first.session, first.sequence)).session == 0


async def test_missed_changes_are_made_up_for(ready: Any) -> None:
    """When more changed than is remembered, everything that is watched is told again."""
    first = await ask(ready, 0, 0, 1)
    for _ in range(CHANGES_MAX + 1):
        ready.machine.state.changes.note(None, pb.WatchResponse())
    told = await ask(ready, first.session, first.sequence)
    assert len(told.streams) == 1 and len(told.ranges) == 1


def test_a_session_that_is_not_called_is_forgotten() -> None:
    """Nothing is kept for a watcher that is gone."""
    watches = Watches()
    session = watches.open(0.0)
    assert watches.find(session.number, 10.0, 0, 1) is session
    watches.open(11.0 + FORGET_MS)
    assert watches.find(session.number, 12.0 + FORGET_MS, 0, 2) is None


async def test_a_session_is_its_callers(ready: Any) -> None:
    """Numbers follow each other: who guesses one neither learns what it watches, nor ends it, nor has its calls ignored."""

    async def as_client(name: str, *arguments: Any, **more: Any) -> pb.WatchResponse:
        token = grpc_server._CALLER.set((Principal(Role.CLIENT, name),))
        try:
            return await ask(ready, *arguments, **more)
        finally:
            grpc_server._CALLER.reset(token)

    first = await as_client("a", 0, 0, 1)
    guessed = (await as_client("b")).session - 1
    assert guessed == first.session
    waiting = asyncio.create_task(as_client("a", first.session, first.sequence, wait_ms=5_000))
    await until_waiting(ready, first.session)
    assert await as_client("b", guessed, 0, call=1 << 60) == pb.WatchResponse()
    assert not waiting.done()
    await ready.seal(10, create_next=True)
    assert [each.index for each in (await asyncio.wait_for(waiting, 1)).ranges] == [0, 1]


async def test_a_call_is_bounded(ready: Any) -> None:
    """Neither a wait for ever nor a list without an end."""
    with pytest.raises(InvalidArgument):
        await ask(ready, 0, 0, wait_ms=watch.WAIT_MS_MAX + 1)
    with pytest.raises(InvalidArgument):
        await ask(ready, 0, 0, *range(1, watch.BEGIN_MAX + 2))
