"""Calls on many streams at once, for a client that loses a server with replicas of many of its ranges.

What holds: each item is answered as the single call would be. Items go into as few commands as their size allows, and a
cluster whose members do not all know such commands gets the single ones. An item's request id follows from the one of the
whole, so a repeat finds the first results whichever way the items went, also when the cluster version rises in between. A
whole of which one item has no answer has none: its caller repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import InvalidArgument, NoPlacement, RangelogError
from rangelog_core.net.principals import WITH_PD
from rangelog_pd.driver import REQUEST_ID_LENGTH_MAX, Driver
from rangelog_pd.handlers import audit, needs, ranges
from rangelog_pd.handlers.call import Call
from rangelog_pd.state.batches import call_error
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1 import pd_state_pb2

ITEMS_MAX = 1_000
COMMAND_ITEMS_BYTES_MAX = 40 * 1024
"""Below the size of one Raft command, with room for the message around the items."""
SINGLES_AT_ONCE = 64

_NUMBER_LENGTH = len(f"/{ITEMS_MAX}")

_T = TypeVar("_T", bound=Message)
_Item = TypeVar("_Item", pb.OpenWriterRequest, pb.SealRangeRequest)
_R = TypeVar("_R")


async def open_writers(driver: Driver, request: pb.OpenWritersRequest) -> pb.OpenWritersResponse:
    """Open many writers. Raises InvalidArgument for the whole request; an item's error is its result."""
    _name_items(request.writers, request.request_id)
    if not driver.knows("open_writers"):
        results = await _one_by_one(
            request.writers, lambda item: _result(pb.OpenWriterResult, ranges.open_writer(driver, item))
        )
        return pb.OpenWritersResponse(results=results)
    results = await in_parts(
        request.writers,
        lambda items: driver.propose(pb.OpenWritersResponse, "", open_writers=pb.OpenWritersRequest(writers=items)),
    )
    response = pb.OpenWritersResponse(results=results)
    ranges.name_ranges(driver, [each.response for each in response.results])
    return response


async def seal_ranges(driver: Driver, request: pb.SealRangesRequest) -> pb.SealRangesResponse:
    """Seal many ranges, and create the next ones where requested. Raises InvalidArgument for the whole request."""
    _name_items(request.seals, request.request_id)
    if not driver.knows("seal_ranges"):
        results = await _one_by_one(
            request.seals, lambda item: _result(pb.SealRangeResult, ranges.seal_range(driver, item))
        )
        return pb.SealRangesResponse(results=results)
    await driver.barrier()
    placed = _place_all(driver, request.seals)
    results = await in_parts(
        placed,
        lambda items: driver.propose(pb.SealRangesResponse, "", seal_ranges=pd_state_pb2.PlacedSealRanges(seals=items)),
    )
    response = pb.SealRangesResponse(results=results)
    sealed = [each.response.range for each in response.results if each.response.HasField("range")]
    created = [each.response.next_range for each in response.results if each.response.HasField("next_range")]
    driver.fill_in(*sealed, *created)
    return response


def _place_all(driver: Driver, seals: Sequence[pb.SealRangeRequest]) -> list[pd_state_pb2.PlacedSealRange]:
    """Place all new ranges, each with the load of the ones before. Without a placement: no replicas, as for a single seal."""
    placed = []
    with driver.state() as state:
        now_ms = driver.now_ms()
        placer = driver.view.fleet.placer(state, now_ms)
        for request in seals:
            driver.view.complain(state, request.exclude_servers, f"stream {request.stream_id}", now_ms)
            replicas = ranges.choose(state, placer, request) if request.create_next else []
            placed.append(pd_state_pb2.PlacedSealRange(request=request, replicas=replicas))
    return placed


def _name_items(items: Sequence[_Item], request_id: str) -> None:
    """Give each item its request id, the same for a repeat of the same request. Raises InvalidArgument."""
    if not request_id:
        raise InvalidArgument("the request id is missing: a retry of a command carries the id of its first try")
    if len(request_id) > REQUEST_ID_LENGTH_MAX - _NUMBER_LENGTH:
        raise InvalidArgument(
            f"a request id of {len(request_id)} characters; the limit is {REQUEST_ID_LENGTH_MAX - _NUMBER_LENGTH}"
        )
    if not 1 <= len(items) <= ITEMS_MAX:
        raise InvalidArgument(f"{len(items)} items in one call; 1 to {ITEMS_MAX} are allowed")
    for number, item in enumerate(items):
        item.request_id = f"{request_id}/{number}"


def parts(items: Sequence[_T]) -> Iterator[list[_T]]:
    """Yield the items of each command."""
    part: list[_T] = []
    size = 0
    for item in items:
        item_size = item.ByteSize() + 8
        if part and size + item_size > COMMAND_ITEMS_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(item)
        size += item_size
    yield part


async def in_parts(items: Sequence[_T], call: Callable[[list[_T]], Awaitable[Any]]) -> list[Any]:
    """Make all commands at once; return the results of their answers, in order."""
    answers = await asyncio.gather(*(call(part) for part in parts(items)))
    return [result for answer in answers for result in answer.results]


async def _one_by_one(items: Sequence[_Item], call: Callable[[_Item], Awaitable[_R]]) -> list[_R]:
    """Run single commands, a bounded number at once, for a cluster with members of level 1; results in order."""
    answers: list[_R] = []
    remaining = iter(items)
    while group := list(islice(remaining, SINGLES_AT_ONCE)):
        answers += await asyncio.gather(*(call(item) for item in group))
    return answers


async def _result(result: Callable[..., _R], response: Awaitable[Message]) -> _R:
    """Return an item's response or error as its result. Raises an error that leaves the item's outcome open."""
    try:
        return result(response=await response)
    except RangelogError as error:
        if error.retriable and not isinstance(error, NoPlacement):
            raise
        return result(error=call_error(error))


CALLS = (
    Call(
        "OpenWriters",
        open_writers,
        WITH_PD,
        needs=needs.NeedsOfItems("writers", needs.of_stream(needs.WRITES), pb.OpenWritersResponse),
        check=audit.check_writer,
    ),
    Call("SealRanges", seal_ranges, WITH_PD, needs=needs.NeedsOfItems("seals", needs.seal, pb.SealRangesResponse)),
)
