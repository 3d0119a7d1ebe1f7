"""Calls on writers and ranges. The replicas of a new range are chosen here, and checked again where they are applied.

What holds: a choice without a placement is applied as well, as an empty one. So a retry gets its first result whatever the
epochs and servers are meanwhile, and after NoPlacement a writer can rely on its range being unsealed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice, takewhile

from rangelog_core.errors import NoPlacement, StreamNotFound
from rangelog_core.limits import RANGE_PAGE_SIZE_MAX
from rangelog_core.net.principals import WITH_PD
from rangelog_core.rights import ANY, Verb
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audit, needs
from rangelog_pd.handlers.call import Call
from rangelog_pd.placement import Placer, policy_of, replicas_of
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb

EARLIER_RANGES_MAX = 8
"""In the answer of an opening. Who takes a log over reads what its last snapshot does not cover: seldom more ranges."""


async def open_writer(driver: Driver, request: pb.OpenWriterRequest) -> pb.OpenWriterResponse:
    """Raise a stream's epoch for a writer. Raises StreamNotFound."""
    response = await driver.propose_request(pb.OpenWriterResponse, request.request_id, open_writer=request)
    name_ranges(driver, [response])
    return response


def name_ranges(driver: Driver, opened: Sequence[pb.OpenWriterResponse]) -> None:
    """Add to answers of openings the ranges before the last one, and to each replica its address and health."""
    now_ms = driver.now_ms()
    with driver.state() as state:
        for response in opened:
            if not response.HasField("last_range"):
                continue
            ranges, last = state.ranges.of(response.stream.stream_id), response.last_range
            from_first = ranges.indexes_from(max(0, last.index - EARLIER_RANGES_MAX))
            earlier = [ranges[each] for each in takewhile(last.index.__gt__, from_first)]
            *filled, last_filled = driver.view.fill_in(state, [*earlier, last], now_ms)
            response.earlier_ranges.extend(filled)
            last.CopyFrom(last_filled)


async def create_range(driver: Driver, request: pb.CreateRangeRequest) -> pb.CreateRangeResponse:
    """Create the next range of a stream. Raises StreamNotFound, WriterFenced, PreconditionFailed, NoPlacement."""
    await driver.barrier()
    replicas, refusal = _place(driver, request.stream_id, request.exclude_servers, strictly=False)
    command = pd_state_pb2.PlacedCreateRange(request=request, replicas=replicas)
    try:
        response = await driver.propose_request(pb.CreateRangeResponse, request.request_id, create_range=command)
    except NoPlacement as error:
        raise refusal or error from error
    driver.fill_in(response.range)
    return response


async def seal_range(driver: Driver, request: pb.SealRangeRequest) -> pb.SealRangeResponse:
    """Seal a range. Raises StreamNotFound, RangeNotFound, WriterFenced, InvalidArgument, SealBelowFloor, NoPlacement."""
    replicas: list[common_pb2.Replica] = []
    refusal: NoPlacement | None = None
    if request.create_next:
        await driver.barrier()
        strictly = request.exclude_strictly
        replicas, refusal = _place(driver, request.stream_id, request.exclude_servers, strictly=strictly)
    command = pd_state_pb2.PlacedSealRange(request=request, replicas=replicas)
    try:
        response = await driver.propose_request(pb.SealRangeResponse, request.request_id, seal_range=command)
    except NoPlacement as error:
        raise refusal or error from error
    driver.fill_in(response.range)
    if response.HasField("next_range"):
        driver.fill_in(response.next_range)
    return response


async def prove_end(driver: Driver, request: pb.ProveEndRequest) -> pb.ProveEndResponse:
    """Put a floor under an open range. Raises StreamNotFound, RangeNotFound, InvalidArgument, PreconditionFailed.

    An end that is proved already needs no log entry: all followers of a dead writer ask at about the same time.
    """
    await driver.barrier()
    with driver.state() as state:
        found = state.range(request.stream_id, request.range_index)
        if found.state == common_pb2.RANGE_STATE_SEALED or request.end_offset <= found.floor_offset:
            return pb.ProveEndResponse(range=found)
    return await driver.propose_request(pb.ProveEndResponse, request.request_id, prove_end=request)


async def list_ranges(driver: Driver, request: pb.ListRangesRequest) -> pb.ListRangesResponse:
    """Return one page of a stream's ranges, in order. Raises StreamNotFound."""
    await driver.barrier()
    size = min(request.page_size or RANGE_PAGE_SIZE_MAX, RANGE_PAGE_SIZE_MAX)
    with driver.state() as state:
        if not request.name and not request.stream_id:
            raise StreamNotFound("name the stream whose ranges to list")
        stream = state.stream(request.name) if request.name else state.stream_by_id(request.stream_id)
        ranges = state.ranges.of(stream.stream_id)
        first = request.from_index
        if request.from_offset:
            first = max(first, ranges.index_beyond(request.from_offset))
        if request.last_only:
            first = max(first, stream.range_count - 1)
        found = [ranges[index] for index in islice(ranges.indexes_from(first), size + 1)]
        listed = driver.view.fill_in(state, found[:size], driver.now_ms())
        return pb.ListRangesResponse(ranges=listed, more=len(found) > size, stream=stream)


def _place(
    driver: Driver, stream_id: int, exclude: Collection[str], *, strictly: bool
) -> tuple[list[common_pb2.Replica], NoPlacement | None]:
    """Choose the replicas; none, and the reason, without a placement. The state machine reports an unknown stream."""
    with driver.state() as state:
        stream = state.streams.find(stream_id)
        if stream is None:
            return [], None
        driver.view.complain(state, exclude, f"stream {stream_id}", driver.now_ms())
        placer = driver.view.fleet.placer(state, driver.now_ms())
        try:
            return _choose(state, placer, stream.config, exclude, strictly=strictly), None
        except NoPlacement as refusal:
            return [], refusal


def choose(state: State, placer: Placer, request: pb.SealRangeRequest) -> list[common_pb2.Replica]:
    """Choose the replicas of the range after a sealed one, in a batch; none without a placement or stream."""
    stream = state.streams.find(request.stream_id)
    if stream is None:
        return []
    try:
        return _choose(state, placer, stream.config, request.exclude_servers, strictly=request.exclude_strictly)
    except NoPlacement:
        return []


def _choose(
    state: State, placer: Placer, config: common_pb2.StreamConfig, exclude: Collection[str], *, strictly: bool
) -> list[common_pb2.Replica]:
    chosen = placer.place(
        replicas=config.replicas, acks=config.acks, exclude=exclude, strictly=strictly, policy=policy_of(config)
    )
    return replicas_of(chosen, with_reason=state.cluster_version >= LEVEL_OPERATIONS)


CALLS = (
    Call("OpenWriter", open_writer, WITH_PD, needs=needs.of_stream(needs.WRITES), check=audit.check_writer),
    Call("CreateRange", create_range, WITH_PD, needs=needs.of_stream(needs.WRITES)),
    Call("SealRange", seal_range, WITH_PD, needs=needs.seal),
    Call("ProveEnd", prove_end, WITH_PD, needs=needs.of_stream(Verb.READ | needs.WRITES)),
    Call("ListRanges", list_ranges, WITH_PD, needs=needs.of_stream(ANY), hidden_by_restore=True),
)
