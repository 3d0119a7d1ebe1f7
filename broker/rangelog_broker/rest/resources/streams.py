"""Streams, and the configuration that streams and shards of topics share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from rangelog import StreamConfig, StreamConfigChange
from rangelog_broker.rest.values import (
    CALL_TIMEOUT_S,
    PAGE_SIZE_DEFAULT,
    AnswerBody,
    Name,
    NextPageToken,
    Offset,
    PageSize,
    PageToken,
    Prefix,
    RequestBody,
    StreamName,
    TheClient,
    one_page,
)
from rangelog_server_common.http_answers import possible

FOR_EVER = "forever"
Seconds = Annotated[float, Field(ge=0, strict=False)]


class StreamConfigFields(RequestBody):
    """The configuration of a stream. A field that is left out has its default, or stays as it is."""

    replicas: int | None = Field(default=None, description="Replicas of each range, 1 to 7.", examples=[3])
    acks: int | None = Field(default=None, description="Replicas that hold a record before it is acked.", examples=[2])
    range_size_bytes_max: int | None = Field(
        default=None, description="Size at which a range is sealed.", examples=[268435456]
    )
    range_age_seconds: Seconds | None = Field(default=None, description="Age at which a range is sealed; 0: at no age.")
    retention_seconds: Seconds | None = Field(default=None, description="Age at which records are trimmed; 0: never.")
    retention_bytes: int | None = Field(
        default=None, description="Size above which the oldest records are trimmed; 0: never."
    )
    hot_retention_seconds: Seconds | Literal["forever"] | None = Field(
        default=None, description="Time that a tiered range also stays on range servers."
    )
    durability: Literal["flushed", "memory"] | None = Field(default=None, description="What an ack means.")
    compression: Literal["none", "zstd"] | None = Field(
        default=None, description="Compression of batches.", examples=["zstd"]
    )
    tiered: bool | None = Field(default=None, description="Whether sealed ranges are uploaded.", examples=[True])
    zones_min: int | None = Field(
        default=None, description="Zones that replicas span at least; 0: as many as there are."
    )
    server_labels: list[str] | None = Field(
        default=None, description="Labels of the servers that may have replicas.", examples=[["disk=ssd"]]
    )

    def given(self) -> dict[str, Any]:
        """Return the fields that are set, as the client takes them."""
        fields = self.model_dump(exclude_none=True)
        if fields.get("hot_retention_seconds") == FOR_EVER:
            fields["hot_retention_seconds"] = float("inf")
        return fields


class NewStream(RequestBody):
    """A stream to be created."""

    name: Name
    config: StreamConfigFields = StreamConfigFields()


class StreamTrim(RequestBody):
    """Where a stream is to begin."""

    trim_offset: Offset


class StreamAnswer(AnswerBody):
    """The state and configuration of a stream."""

    name: str = Field(examples=["clicks"])
    stream_id: int = Field(description="Never reused, unlike the name.", examples=[17])
    epoch: int = Field(description="The epoch of the latest writer; 0 before the first.", examples=[1])
    trim_offset: int = Field(description="The first offset that is not trimmed.", examples=[0])
    next_offset: int = Field(description="The end of the last sealed range.", examples=[5000])
    range_count: int = Field(description="Its ranges, without those that were trimmed.", examples=[2])
    created_ms: int = Field(description="Milliseconds since the Unix epoch.", examples=[1790000000000])
    replicas: int = Field(examples=[3])
    acks: int = Field(examples=[2])
    range_size_bytes_max: int = Field(examples=[268435456])
    retention_ms: int = Field(description="0: never for their age.", examples=[604800000])
    retention_bytes: int = Field(description="0: never for the size.", examples=[0])
    hot_retention_ms: int = Field(description="-1: for ever.", examples=[600000])
    durability: str = Field(examples=["flushed"])
    compression: str = Field(examples=["none"])
    tiered: bool = Field(examples=[True])
    zones_min: int = Field(description="0: as many as there are.", examples=[0])
    server_labels: list[str] = Field(examples=[["disk=ssd"]])


class StreamsPage(AnswerBody):
    """A page of streams, in order of names."""

    streams: list[StreamAnswer]
    next_page_token: NextPageToken


class SealedEnd(AnswerBody):
    """Where a stream ends."""

    end_offset: int = Field(description="One past the last record.", examples=[5120])


router = APIRouter(prefix="/v1/streams", tags=["streams"])


@router.get("", summary="List streams", responses=possible())
async def list_streams(
    client: TheClient, prefix: Prefix = "", page_size: PageSize = PAGE_SIZE_DEFAULT, page_token: PageToken = ""
) -> StreamsPage:
    """Return a page of the streams, in order of names."""
    found, token = await one_page(client.list_streams(prefix, after=page_token), page_size, lambda each: each.name)
    return StreamsPage(streams=[StreamAnswer.model_validate(each) for each in found], next_page_token=token)


@router.post("", status_code=201, summary="Create a stream", responses=possible(409))
async def create_stream(client: TheClient, body: NewStream) -> StreamAnswer:
    """Create a stream. Fields that are left out have the cluster's defaults."""
    config = StreamConfig(**body.config.given())
    return StreamAnswer.model_validate(await client.create_stream(body.name, config, timeout_s=CALL_TIMEOUT_S))


@router.get("/{stream}", summary="Describe a stream", responses=possible(404))
async def describe_stream(client: TheClient, stream: StreamName) -> StreamAnswer:
    """Return state and configuration of a stream."""
    return StreamAnswer.model_validate(await client.describe_stream(stream, timeout_s=CALL_TIMEOUT_S))


@router.patch("/{stream}", summary="Change a stream's configuration", responses=possible(404))
async def update_stream(client: TheClient, stream: StreamName, body: StreamConfigFields) -> StreamAnswer:
    """Change the given fields. A writer applies the change when it next opens the stream."""
    change = StreamConfigChange(**body.given())
    return StreamAnswer.model_validate(await client.update_stream(stream, change, timeout_s=CALL_TIMEOUT_S))


@router.delete("/{stream}", status_code=204, summary="Delete a stream", responses=possible(404))
async def delete_stream(client: TheClient, stream: StreamName) -> Response:
    """Delete a stream and all its records."""
    await client.delete_stream(stream, timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)


@router.post("/{stream}/trim", summary="Trim a stream", responses=possible(404, 409))
async def trim_stream(client: TheClient, stream: StreamName, body: StreamTrim) -> StreamAnswer:
    """Remove all records below an offset."""
    return StreamAnswer.model_validate(await client.trim_stream(stream, body.trim_offset))


@router.post("/{stream}/seal", summary="Seal a stream's open range", responses=possible(404))
async def seal_stream(client: TheClient, stream: StreamName) -> SealedEnd:
    """Fence the stream's writer and seal the open range, if there is one; return the end of the stream."""
    return SealedEnd(end_offset=await client.seal_stream(stream, timeout_s=CALL_TIMEOUT_S))
