"""Writers of one client that leave their ranges together: one question, few calls, and each writer's own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rangelog._append import placement_calls
from rangelog._append.placement_calls import SEALS_PER_CALL, TURNS_MAX, PlacementCalls
from rangelog.protocol.appender import Probe, SealRange
from rangelog_core.errors import (
    NoPlacement,
    RangelogError,
    RequestTimeout,
    SealBelowFloor,
    StreamNotFound,
    Unavailable,
    UnsupportedVersion,
    WriterFenced,
)
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.pd_calls import CallsByName

pytestmark = pytest.mark.virtual

SEAL = SealRange(3, 40, ("rs1",), strictly=False)


class FakePd(CallsByName):
    """Answers as told; notes what it was asked."""

    def __init__(self) -> None:
        self.pd = self
        self.probes = 0
        self.singles: list[pd_pb2.SealRangeRequest] = []
        self.calls: list[pd_pb2.SealRangesRequest] = []
        self.fail_next: list[RangelogError] = []
        self.openings: list[list[str]] = []
        self.refused: dict[str, RangelogError] = {}
        self.judge: Callable[[pd_pb2.SealRangeRequest], RangelogError | None] = lambda request: None

    async def servers(self, timeout_s: float) -> list[common_pb2.Server]:
        self.probes += 1
        await asyncio.sleep(0)
        if self.fail_next:
            raise self.fail_next.pop(0)
        alive = common_pb2.SERVER_HEALTH_ALIVE
        return [
            common_pb2.Server(name=name, incarnation=7, data_address=f"{name}:1", health=alive)
            for name in ("rs1", "rs2", "rs3")
        ]

    async def seal_range(self, request: pd_pb2.SealRangeRequest, timeout_s: float) -> pd_pb2.SealRangeResponse:
        self.singles.append(request)
        error = self.fail_next.pop(0) if self.fail_next else self.judge(request)
        if error is not None:
            raise error
        return answer(request)

    async def seal_ranges(self, request: pd_pb2.SealRangesRequest, *, timeout_s: float) -> pd_pb2.SealRangesResponse:
        self.calls.append(request)
        if self.fail_next:
            raise self.fail_next.pop(0)
        results = []
        for each in request.seals:
            error = self.judge(each)
            if error is None:
                results.append(pd_pb2.SealRangeResult(response=answer(each)))
            else:
                told = pd_pb2.CallError(
                    code=error.code,
                    message=error.message,
                    epoch=error.epoch or 0,
                    offset=error.offset or 0,
                    has_offset=error.offset is not None,
                )
                results.append(pd_pb2.SealRangeResult(error=told))
        return pd_pb2.SealRangesResponse(results=results)

    async def open_writer(self, request: pd_pb2.OpenWriterRequest, *, timeout_s: float) -> pd_pb2.OpenWriterResponse:
        self.openings.append([request.name])
        if request.name in self.refused:
            raise self.refused[request.name]
        return opened(request)

    async def open_writers(self, request: pd_pb2.OpenWritersRequest, *, timeout_s: float) -> pd_pb2.OpenWritersResponse:
        self.openings.append([each.name for each in request.writers])
        await asyncio.sleep(0.001)
        if self.fail_next:
            raise self.fail_next.pop(0)
        results = []
        for each in request.writers:
            error = self.refused.get(each.name)
            if error is None:
                results.append(pd_pb2.OpenWriterResult(response=opened(each)))
            else:
                results.append(pd_pb2.OpenWriterResult(error=pd_pb2.CallError(code=error.code, message=error.message)))
        return pd_pb2.OpenWritersResponse(results=results)


def opened(request: pd_pb2.OpenWriterRequest) -> pd_pb2.OpenWriterResponse:
    return pd_pb2.OpenWriterResponse(stream=common_pb2.Stream(name=request.name, epoch=3))


def answer(request: pd_pb2.SealRangeRequest) -> pd_pb2.SealRangeResponse:
    sealed = common_pb2.Range(stream_id=request.stream_id, index=request.range_index, end_offset=request.end_offset)
    return pd_pb2.SealRangeResponse(range=sealed)


@pytest.fixture
def pd() -> FakePd:
    return FakePd()


@pytest.fixture
def calls(pd: FakePd, monkeypatch: pytest.MonkeyPatch) -> PlacementCalls:
    async def at_once(attempt: int) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(placement_calls, "backoff", at_once)
    return PlacementCalls(cast(Any, pd))


async def test_probes_of_a_moment_are_one_question(pd: FakePd, calls: PlacementCalls) -> None:
    """Each writer judges the answer by what it needs; a later one asks anew."""
    wanted = [Probe((), False, 2), Probe(("rs1",), True, 2), Probe(("rs1", "rs2"), True, 2)]
    assert await asyncio.gather(*(calls.probe(each) for each in wanted)) == [True, True, False]
    assert pd.probes == 1
    pd.fail_next = [Unavailable("nobody leads")]
    assert await asyncio.gather(calls.probe(wanted[0]), calls.probe(wanted[0])) == [False, False]
    assert await calls.probe(wanted[0])
    assert pd.probes == 3


async def test_addresses_are_asked_for_once_by_all(pd: FakePd, calls: PlacementCalls) -> None:
    """A server that came back elsewhere is found by every writer that lost it; nothing is lost where nobody answers."""
    found = await asyncio.gather(*(calls.addresses() for _ in range(100)))
    assert pd.probes == 1 and all(each[ReplicaId("rs2", Incarnation(7))] == "rs2:1" for each in found)
    pd.fail_next = [Unavailable("nobody leads")]
    assert await calls.addresses() == {}


async def test_a_writer_that_gives_up_does_not_take_the_others_answer(pd: FakePd, calls: PlacementCalls) -> None:
    """A cancelled probe ends for its own writer only."""
    first = asyncio.create_task(calls.probe(Probe((), False, 2)))
    second = asyncio.create_task(calls.probe(Probe((), False, 2)))
    await asyncio.sleep(0)
    first.cancel()
    assert await second


async def test_one_seal_goes_alone(pd: FakePd, calls: PlacementCalls) -> None:
    """As before: the single call."""
    response = await calls.seal_and_create(7, 2, SEAL)
    assert response is not None and response.range.end_offset == 40
    assert [(each.stream_id, each.epoch, each.create_next) for each in pd.singles] == [(7, 2, True)]
    assert not pd.calls


async def test_an_earlier_placement_driver_gets_seals_one_by_one(pd: FakePd, calls: PlacementCalls) -> None:
    """It does not know the call of many; a member that does may have had it before, so each seal keeps its id of there."""
    pd.fail_next = [Unavailable("the answer was lost"), UnsupportedVersion("what call?")]
    pd.judge = lambda request: WriterFenced("epoch 9", epoch=9) if request.stream_id == 1 else None
    told = await asyncio.gather(
        *(calls.seal_and_create(stream, 2, SEAL) for stream in range(3)), return_exceptions=True
    )
    assert isinstance(told[1], WriterFenced) and told[1].epoch == 9
    assert [each.range.stream_id for each in (told[0], told[2]) if isinstance(each, pd_pb2.SealRangeResponse)] == [0, 2]
    assert len({each.request_id for each in pd.calls}) == 1
    assert [each.request_id for each in pd.singles] == [f"{pd.calls[0].request_id}/{number}" for number in range(3)]


async def test_seals_of_a_moment_travel_together_and_each_gets_its_own_answer(
    pd: FakePd, calls: PlacementCalls
) -> None:
    """A refusal of one is no refusal of another, and keeps its type, epoch and offset."""
    errors = {
        3: WriterFenced("later", epoch=9),
        4: NoPlacement("nowhere"),
        5: SealBelowFloor("shown", offset=44),
    }
    pd.judge = lambda request: errors.get(request.stream_id)
    count = SEALS_PER_CALL + 10
    found = await asyncio.gather(
        *(calls.seal_and_create(number, 1, SEAL) for number in range(count)), return_exceptions=True
    )
    assert [len(each.seals) for each in pd.calls] == [SEALS_PER_CALL, 10]
    assert isinstance(found[3], WriterFenced) and found[3].epoch == 9
    assert found[4] is None, "there is no better place"
    assert isinstance(found[5], SealBelowFloor) and found[5].offset == 44
    others = [found[number] for number in range(count) if number not in errors]
    assert [cast(Any, each).range.stream_id for each in others] == [n for n in range(count) if n not in errors]


async def test_an_unanswered_call_is_repeated_as_it_was(pd: FakePd, calls: PlacementCalls) -> None:
    """It may have been carried out: under the same request id its first answers come back."""
    pd.fail_next = [RequestTimeout("no answer"), Unavailable("no leader")]
    found = await asyncio.gather(*(calls.seal_and_create(number, 1, SEAL) for number in (1, 2)))
    assert all(found)
    assert len(pd.calls) == 3 and len({each.request_id for each in pd.calls}) == 1
    assert len({each.SerializeToString() for each in pd.calls}) == 1


async def test_a_retriable_refusal_of_one_item_is_asked_again(pd: FakePd, calls: PlacementCalls) -> None:
    """It did nothing, so that one goes again, the others do not."""
    refused = {2: [Unavailable("not now")]}

    def judge(request: pd_pb2.SealRangeRequest) -> RangelogError | None:
        waiting = refused.get(request.stream_id)
        return waiting.pop() if waiting else None

    pd.judge = judge
    found = await asyncio.gather(*(calls.seal_and_create(number, 1, SEAL) for number in (1, 2, 3)))
    assert all(found)
    assert len(pd.calls) == 1 and [each.stream_id for each in pd.singles] == [2]


async def test_ranges_that_still_work_are_left_in_turn(calls: PlacementCalls) -> None:
    """So many are frozen at a time as have a turn; one that does not work any more does not wait for one."""
    began: list[int] = []
    go_on = asyncio.Event()

    async def leave(number: int, *, urgent: bool) -> bool:
        async with calls.turn(urgent=urgent) as waited:
            began.append(number)
            await go_on.wait()
            return waited

    leaving = [asyncio.create_task(leave(number, urgent=False)) for number in range(TURNS_MAX + 2)]
    await asyncio.sleep(0)
    leaving.append(asyncio.create_task(leave(9_999, urgent=True)))
    await asyncio.sleep(0)
    assert began == [*range(TURNS_MAX), 9_999]
    leaving[TURNS_MAX].cancel()  # a writer that is closed gives its place in the queue up
    go_on.set()
    waited = await asyncio.gather(*leaving, return_exceptions=True)
    assert [number for number, each in enumerate(waited) if each is True] == [TURNS_MAX + 1]
    assert began[-1] == TURNS_MAX + 1


async def test_openings_of_a_moment_go_together_and_each_has_its_own_answer(pd: FakePd, calls: PlacementCalls) -> None:
    """A stream that is not there fails its own opening only; one alone is the single call."""
    pd.refused = {"s2": StreamNotFound("no stream 's2'")}
    told = await asyncio.gather(*(calls.open_writer(f"s{each}", "w", 5.0) for each in range(4)), return_exceptions=True)
    assert [each.stream.name for each in told if not isinstance(each, BaseException)] == ["s0", "s1", "s3"]
    assert isinstance(told[2], StreamNotFound)
    assert (await calls.open_writer("s5", "w", 5.0)).stream.epoch == 3
    assert pd.openings == [["s0", "s1", "s2", "s3"], ["s5"]]


async def test_openings_gather_while_calls_are_in_progress(pd: FakePd, calls: PlacementCalls) -> None:
    """Those that come one after the other take few calls, in their order."""

    async def open_later(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        await calls.open_writer(f"s{number}", "w", 5.0)

    await asyncio.gather(*(open_later(number) for number in range(30)))
    assert sorted(name for names in pd.openings for name in names) == sorted(f"s{number}" for number in range(30))
    assert len(pd.openings) < 15


async def test_an_earlier_placement_driver_gets_openings_one_by_one(pd: FakePd, calls: PlacementCalls) -> None:
    """It does not know the call of many; an error of one is the answer to that one."""
    pd.fail_next = [UnsupportedVersion("what call?")]
    pd.refused = {"s0": Unavailable("nobody leads")}
    told = await asyncio.gather(*(calls.open_writer(f"s{each}", "w", 5.0) for each in range(2)), return_exceptions=True)
    assert isinstance(told[0], Unavailable) and not isinstance(told[1], BaseException)
    assert pd.openings == [["s0", "s1"], ["s0"], ["s1"]]


async def test_a_call_of_openings_without_an_answer_fails_all_of_them(pd: FakePd, calls: PlacementCalls) -> None:
    """Each caller tries again by itself."""
    pd.fail_next = [Unavailable("nobody leads")]
    told = await asyncio.gather(*(calls.open_writer(f"s{each}", "w", 5.0) for each in range(2)), return_exceptions=True)
    assert [type(each) for each in told] == [Unavailable, Unavailable]
