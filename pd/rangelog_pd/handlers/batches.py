"""Calls on many streams at once, for a client that loses a server with replicas of many of its ranges.

What holds: each item has the result of the single call. Items are put into as few commands as their size allows; in a cluster
whose members do not all know such commands they become single ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import ranges
from rangelog_pd.placement import Placer
from rangelog_pd.state.batches import call_error
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1 import pd_state_pb2

ITEMS_MAX = 1_000
COMMAND_ITEMS_BYTES_MAX = 40 * 1024
"""Below the size of one Raft command, with room for the message around the items."""
SINGLES_AT_ONCE = 64

_T = TypeVar("_T", bound=Message)
_R = TypeVar("_R")


async def open_writers(driver: Driver, request: pb.OpenWritersRequest) -> pb.OpenWritersResponse:
    """Open many writers. Raises InvalidArgument for the whole request; an item's error is its result."""
    _check(len(request.writers), request.request_id)
    if not driver.knows("open_writers"):
        results = await _one_by_one(request.writers, request.request_id, lambda item: _open_one(driver, item))
        return pb.OpenWritersResponse(results=results)
    answers = await asyncio.gather(
        *(
            driver.propose(pb.OpenWritersResponse, request_id, open_writers=pb.OpenWritersRequest(writers=items))
            for request_id, items in _parts(request.writers, request.request_id)
        )
    )
    response = pb.OpenWritersResponse(results=[result for answer in answers for result in answer.results])
    driver.fill_in_all([each.response.last_range for each in response.results if each.response.HasField("last_range")])
    return response


async def seal_ranges(driver: Driver, request: pb.SealRangesRequest) -> pb.SealRangesResponse:
    """Seal many ranges, and create the next ones where requested. Raises InvalidArgument for the whole request."""
    _check(len(request.seals), request.request_id)
    if not driver.knows("seal_ranges"):
        results = await _one_by_one(request.seals, request.request_id, lambda item: _seal_one(driver, item))
        return pb.SealRangesResponse(results=results)
    await driver.barrier()
    placed = _place_all(driver, request.seals)
    answers = await asyncio.gather(
        *(
            driver.propose(pb.SealRangesResponse, request_id, seal_ranges=pd_state_pb2.PlacedSealRanges(seals=items))
            for request_id, items in _parts(placed, request.request_id)
        )
    )
    response = pb.SealRangesResponse(results=[result for answer in answers for result in answer.results])
    sealed = [each.response.range for each in response.results if each.response.HasField("range")]
    created = [each.response.next_range for each in response.results if each.response.HasField("next_range")]
    driver.fill_in_all([*sealed, *created])
    return response


def _place_all(driver: Driver, seals: Sequence[pb.SealRangeRequest]) -> list[pd_state_pb2.PlacedSealRange]:
    """Place all new ranges, each with the load of the ones before. Without a placement: no replicas, as for a single seal."""
    placed = []
    with driver.state() as state:
        placer = Placer(driver.view.candidates(state, driver.now_ms()))
        for request in seals:
            replicas = ranges.choose(state, placer, request) if request.create_next else []
            placed.append(pd_state_pb2.PlacedSealRange(request=request, replicas=replicas))
    return placed


def _check(count: int, request_id: str) -> None:
    if not request_id:
        raise InvalidArgument("the request id is missing: a retry of a command carries the id of its first try")
    if not 1 <= count <= ITEMS_MAX:
        raise InvalidArgument(f"{count} items in one call; 1 to {ITEMS_MAX} are allowed")


def _parts(items: Sequence[_T], request_id: str) -> Iterator[tuple[str, list[_T]]]:
    """Yield (request id, items) of each command; a retry of the same request gets the same ones."""
    part: list[_T] = []
    size = number = 0
    for item in items:
        item_size = item.ByteSize() + 8
        if part and size + item_size > COMMAND_ITEMS_BYTES_MAX:
            yield f"{request_id}/{number}", part
            part, size, number = [], 0, number + 1
        part.append(item)
        size += item_size
    yield f"{request_id}/{number}", part


async def _one_by_one(items: Sequence[_T], request_id: str, call: Callable[[_T], Awaitable[_R]]) -> list[_R]:
    """Run single commands, a bounded number at once, for a cluster with members of level 1; results in order."""
    answers: list[_R] = []
    numbered = iter(enumerate(items))
    while group := list(islice(numbered, SINGLES_AT_ONCE)):
        for number, item in group:
            item.request_id = f"{request_id}/{number}"  # type: ignore[attr-defined]
        answers += await asyncio.gather(*(call(item) for _, item in group))
    return answers


async def _open_one(driver: Driver, request: pb.OpenWriterRequest) -> pb.OpenWriterResult:
    try:
        return pb.OpenWriterResult(response=await ranges.open_writer(driver, request))
    except RangelogError as error:
        return pb.OpenWriterResult(error=call_error(error))


async def _seal_one(driver: Driver, request: pb.SealRangeRequest) -> pb.SealRangeResult:
    try:
        return pb.SealRangeResult(response=await ranges.seal_range(driver, request))
    except RangelogError as error:
        return pb.SealRangeResult(error=call_error(error))
