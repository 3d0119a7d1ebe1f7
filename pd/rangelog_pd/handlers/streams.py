"""Calls on streams. Defaults are filled in here, by the proposer: all members apply what the command has."""

from __future__ import annotations

from zlib import crc32

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.limits import STREAM_PAGE_SIZE_MAX
from rangelog_core.net.principals import USERS, WITH_PD
from rangelog_core.rights import ANY, Verb
from rangelog_core.stream_defaults import REPLICAS_DEFAULT, with_defaults
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited, needs
from rangelog_pd.handlers.call import Call
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb

RANGE_AGE_MS_DEFAULT = 3_600_000
"""Records of a slow stream get to the tier within about this time, and its ranges do not hold segments of the logs for ever."""
_AGE_JITTER_MS = 360_000


async def create_stream(driver: Driver, request: pb.CreateStreamRequest) -> pb.CreateStreamResponse:
    """Create a stream. Raises StreamExists, InvalidArgument, PreconditionFailed (more replicas than servers)."""
    check_name("stream", request.name)
    fill_replicas(driver, request.config)
    with_defaults(request.config)
    if not driver.is_repeat("create_stream", request.request_id):
        await check_replicas(driver, request.config.replicas)
    if not request.config.HasField("tiered"):
        request.config.tiered = bool(driver.tier_url())
    if not request.config.HasField("range_age_ms_max"):
        request.config.range_age_ms_max = range_age_ms(request.name)
    return await driver.propose_request(pb.CreateStreamResponse, request.request_id, create_stream=request)


async def describe_stream(driver: Driver, request: pb.DescribeStreamRequest) -> pb.DescribeStreamResponse:
    """Return a stream by name. Raises StreamNotFound."""
    await driver.barrier()
    with driver.state() as state:
        return pb.DescribeStreamResponse(stream=shown(state, state.stream(request.name)))


async def list_streams(driver: Driver, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
    """Return one page of the streams, by name."""
    await driver.barrier()
    size = min(request.page_size or STREAM_PAGE_SIZE_MAX, STREAM_PAGE_SIZE_MAX)
    with driver.state() as state:
        names = state.names.page(request.prefix, request.page_token, size + 1)
        page = names[:size]
        return pb.ListStreamsResponse(
            streams=[shown(state, state.stream(name)) for name in page],
            next_page_token=page[-1] if len(names) > size else "",
        )


async def update_stream(driver: Driver, request: pb.UpdateStreamRequest) -> pb.UpdateStreamResponse:
    """Change a stream's configuration. Raises StreamNotFound, InvalidArgument, PreconditionFailed."""
    if len(request.fields) > 100:
        raise InvalidArgument("too many fields")
    if "replicas" in request.fields and not driver.is_repeat("update_stream", request.request_id):
        await check_replicas(driver, request.config.replicas)
    response = await driver.propose_request(pb.UpdateStreamResponse, request.request_id, update_stream=request)
    with driver.state() as state:
        return pb.UpdateStreamResponse(stream=shown(state, response.stream))


async def delete_stream(driver: Driver, request: pb.DeleteStreamRequest) -> pb.DeleteStreamResponse:
    """Delete a stream. Raises StreamNotFound."""
    response = await driver.propose_request(pb.DeleteStreamResponse, request.request_id, delete_stream=request)
    if response.HasField("open_range"):
        driver.fill_in(response.open_range)
    return response


async def trim_stream(driver: Driver, request: pb.TrimStreamRequest) -> pb.TrimStreamResponse:
    """Raise a stream's trim offset. Raises StreamNotFound, OffsetOutOfRange."""
    response = await driver.propose_request(pb.TrimStreamResponse, request.request_id, trim_stream=request)
    with driver.state() as state:
        return pb.TrimStreamResponse(stream=shown(state, response.stream))


def shown(state: State, stream: common_pb2.Stream) -> common_pb2.Stream:
    """Return a stream for an answer, with the number of its ranges; its row has the next index, which a restore raises."""
    found = copy_of(stream)
    found.range_count = len(state.ranges.of(stream.stream_id))
    return found


def fill_replicas(driver: Driver, config: common_pb2.StreamConfig) -> None:
    """Fill in the replicas where none are given: the setting's number, and no fewer than the acks and zones that are given."""
    config.replicas = config.replicas or max(driver.settings.stream_replicas, config.acks, config.zones_min)


async def check_replicas(driver: Driver, replicas: int) -> None:
    """Raise PreconditionFailed for more replicas than there are range servers; before the first has come, nothing is known.

    The default is accepted: with fewer servers, ranges have fewer copies, which the cluster's health shows.
    """
    if replicas <= REPLICAS_DEFAULT:
        return
    await driver.barrier()
    with driver.state() as state:
        count = len(state.servers)
    if 0 < count < replicas:
        servers = "1 range server is" if count == 1 else f"{count} range servers are"
        raise PreconditionFailed(
            f"{replicas} replicas need {replicas} range servers, and {servers} registered: start more of them, or take "
            f"at most {max(count, REPLICAS_DEFAULT)} replicas"
        )


def range_age_ms(name: str) -> int:
    """Return the default age of a stream's ranges: an hour less up to a tenth, by its name and in whole seconds.

    Streams that were created together do not roll together.
    """
    return RANGE_AGE_MS_DEFAULT - crc32(name.encode()) % _AGE_JITTER_MS // 1_000 * 1_000


CALLS = (
    Call("CreateStream", create_stream, USERS, needs=needs.of_stream(Verb.ADMIN), audit=audited.of_stream),
    Call("DescribeStream", describe_stream, WITH_PD, needs=needs.of_stream(ANY), hidden_by_restore=True),
    Call("ListStreams", list_streams, USERS, needs=needs.STREAMS, hidden_by_restore=True),
    Call("UpdateStream", update_stream, USERS, needs=needs.of_stream(Verb.ADMIN), audit=audited.of_stream),
    Call("DeleteStream", delete_stream, USERS, needs=needs.of_stream(Verb.ADMIN), audit=audited.of_stream),
    Call("TrimStream", trim_stream, USERS, needs=needs.of_stream(Verb.TRIM), audit=audited.of_stream),
)
