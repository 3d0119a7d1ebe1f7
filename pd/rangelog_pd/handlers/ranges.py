"""Calls on writers and ranges. The replicas of a new range are chosen here, and checked again where they are applied."""

from __future__ import annotations

from collections.abc import Collection

from rangelog.errors import StreamNotFound
from rangelog.limits import RANGE_PAGE_SIZE_MAX
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb

from rangelog_pd.driver import Driver
from rangelog_pd.placement import place
from rangelog_pd.state.store import State


async def open_writer(driver: Driver, request: pb.OpenWriterRequest) -> pb.OpenWriterResponse:
    """Raises StreamNotFound."""
    response = await driver.propose(pb.OpenWriterResponse, request.request_id, open_writer=request)
    if response.HasField("last_range"):
        _fill_in(driver, response.last_range)
    return response


async def create_range(driver: Driver, request: pb.CreateRangeRequest) -> pb.CreateRangeResponse:
    """Raises StreamNotFound, WriterFenced, PreconditionFailed, NoPlacement."""
    await driver.barrier()
    with driver.state() as state:
        stream = state.stream_by_id(request.stream_id)
        state.check_epoch(stream, request.epoch)
        replicas = _place(driver, state, stream, request.exclude_servers, strictly=False)
    command = pd_state_pb2.PlacedCreateRange(request=request, replicas=replicas)
    response = await driver.propose(pb.CreateRangeResponse, request.request_id, create_range=command)
    _fill_in(driver, response.range)
    return response


async def seal_range(driver: Driver, request: pb.SealRangeRequest) -> pb.SealRangeResponse:
    """Raises StreamNotFound, RangeNotFound, WriterFenced, InvalidArgument, NoPlacement."""
    replicas: list[common_pb2.Replica] = []
    if request.create_next:
        await driver.barrier()
        with driver.state() as state:
            stream = state.stream_by_id(request.stream_id)
            state.check_epoch(stream, request.epoch)
            if request.range_index + 1 not in state.ranges[request.stream_id]:
                strictly = request.exclude_strictly
                replicas = _place(driver, state, stream, request.exclude_servers, strictly=strictly)
    command = pd_state_pb2.PlacedSealRange(request=request, replicas=replicas)
    response = await driver.propose(pb.SealRangeResponse, request.request_id, seal_range=command)
    _fill_in(driver, response.range)
    if response.HasField("next_range"):
        _fill_in(driver, response.next_range)
    return response


async def list_ranges(driver: Driver, request: pb.ListRangesRequest) -> pb.ListRangesResponse:
    """In order, a page at a time. Raises StreamNotFound."""
    await driver.barrier()
    size = min(request.page_size or RANGE_PAGE_SIZE_MAX, RANGE_PAGE_SIZE_MAX)
    with driver.state() as state:
        if not request.name and not request.stream_id:
            raise StreamNotFound("name the stream whose ranges to list")
        stream = state.stream(request.name) if request.name else state.stream_by_id(request.stream_id)
        found = [
            each
            for each in state.ranges[stream.stream_id].values()
            if each.index >= request.from_index
            and (
                each.state == common_pb2.RANGE_STATE_OPEN
                or each.end_offset > request.from_offset
                or not request.from_offset
            )
        ]
        page = driver.view.fill_in(state, found[:size], driver.now_ms())
        return pb.ListRangesResponse(ranges=page, more=len(found) > size, stream=stream)


def _place(
    driver: Driver, state: State, stream: common_pb2.Stream, exclude: Collection[str], *, strictly: bool
) -> list[common_pb2.Replica]:
    chosen = place(
        driver.view.candidates(state, driver.now_ms()),
        replicas=stream.config.replicas,
        acks=stream.config.acks,
        exclude=exclude,
        strictly=strictly,
    )
    return [common_pb2.Replica(server=each.server, incarnation=each.incarnation) for each in chosen]


def _fill_in(driver: Driver, target: common_pb2.Range) -> None:
    with driver.state() as state:
        target.CopyFrom(driver.view.fill_in(state, [target], driver.now_ms())[0])
