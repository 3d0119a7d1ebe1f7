"""The descriptions of the routes of streams, which the application answers itself, before FastAPI."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Body, Depends, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from rangelog_http.handlers.described import not_called
from rangelog_http.handlers.topics import Namespace
from rangelog_http.wire.cdap import CONSUMER_HEADER
from rangelog_server_common.http_answers import possible

Stream = Annotated[str, Path(description="The stream: a topic of the namespace.", examples=["who"])]
ConsumerId = Annotated[str, Header(alias=CONSUMER_HEADER, description="From consumer-id.")]
Event = Annotated[bytes, Body(media_type="application/octet-stream", examples=["first"])]


class StreamProperties(BaseModel):
    """The properties of a stream."""

    model_config = ConfigDict(extra="forbid")

    ttl: int | None = Field(default=None, ge=0, description="Seconds after which events may go.", examples=[86_400])


class CdapStream(BaseModel):
    """A stream."""

    name: str = Field(examples=["who"])
    ttl: int = Field(description="Seconds; 9223372036854775: for ever.", examples=[86_400])


class StreamEvent(BaseModel):
    """An event."""

    timestamp: int = Field(description="Milliseconds.", examples=[1_790_000_000_000])
    headers: dict[str, str] = Field(examples=[{"color": "red"}])
    body: str = Field(
        description="Bytes that are no printable ASCII are escaped, with two digits each.", examples=["first"]
    )


NO_PROPERTIES = StreamProperties()


async def _create(stream: Stream, body: StreamProperties = NO_PROPERTIES) -> None:
    """Create a stream; one that is there stays as it is. The answer has no body."""
    not_called()


async def _send(stream: Stream, body: Event) -> None:
    """Send an event; headers STREAM.NAME are its headers. The answer has no body."""
    not_called()


async def _describe(stream: Stream) -> CdapStream:
    """Return a stream's properties."""
    not_called()


async def _delete(stream: Stream) -> None:
    """Delete a stream with all its events. The answer has no body."""
    not_called()


async def _send_unacked(stream: Stream, body: Event) -> None:
    """Answer before the event is acked: it may be lost."""
    not_called()


async def _send_batch(stream: Stream, body: Event) -> None:
    """Send an event a line, of a Content-Type text/…; 406: it is another one. The answer has no body."""
    not_called()


async def _make_consumer(
    stream: Stream,
    mode: Annotated[str, Query(description="fifo, round_robin or hash.")] = "fifo",
    size: Annotated[int, Query(description="Instances that share the events.")] = 1,
    instance: Annotated[int, Query(description="Which one it is, from 0.")] = 0,
    header: Annotated[str, Query(description="With hash: the header whose values stay together.")] = "",
) -> str:
    """Return the id of a consumer that begins at the first event, in the body and as a header."""
    not_called()


async def _dequeue(stream: Stream, consumer_id: ConsumerId) -> bytes:
    """Return the next event of a consumer, with its headers; 204: it has had all."""
    not_called()


async def _truncate(stream: Stream) -> None:
    """Delete all events that are acked before. The answer has no body."""
    not_called()


async def _configure(stream: Stream, body: StreamProperties) -> None:
    """Change the time to live of events. The answer has no body."""
    not_called()


async def _read_events(
    stream: Stream,
    start: Annotated[int, Query(description="Milliseconds; the first time.")] = 0,
    end: Annotated[int | None, Query(description="Milliseconds; behind the last time.")] = None,
    limit: Annotated[int | None, Query(description="Events at most.")] = None,
) -> list[StreamEvent]:
    """Return the events of [start, end) as one list; without one the status is 204."""
    not_called()


async def _namespace(namespace: Namespace) -> None:
    """Name the namespace in a path."""


class _Row(NamedTuple):
    """An operation."""

    method: str
    path: str
    summary: str
    endpoint: Any
    statuses: tuple[int, ...]


_ROWS = (
    _Row("PUT", "", "Create a stream", _create, (403, 404)),
    _Row("POST", "", "Send an event", _send, (403, 404, 413)),
    _Row("GET", "", "Describe a stream", _describe, (404,)),
    _Row("DELETE", "", "Delete a stream", _delete, (403, 404)),
    _Row("POST", "/async", "Send an event, unacked", _send_unacked, (403, 404, 413)),
    _Row("POST", "/batch", "Send events", _send_batch, (403, 404, 413)),
    _Row("POST", "/consumer-id", "Make a consumer", _make_consumer, (403, 404)),
    _Row("POST", "/dequeue", "Dequeue an event", _dequeue, (403, 404)),
    _Row("POST", "/truncate", "Truncate a stream", _truncate, (403, 404)),
    _Row("PUT", "/config", "Change a stream", _configure, (403, 404)),
    _Row("PUT", "/properties", "Change a stream", _configure, (403, 404)),
    _Row("GET", "/events", "Read events", _read_events, (403, 404)),
    _Row("GET", "/info", "Describe a stream", _describe, (404,)),
)


def _router(prefix: str, version: str, *dependencies: Any) -> APIRouter:
    router = APIRouter(
        prefix=f"{prefix}/streams/{{stream}}", tags=[f"streams of CDAP, {version}"], dependencies=dependencies
    )
    for row in _ROWS:
        router.add_api_route(
            row.path, row.endpoint, methods=[row.method], summary=row.summary, responses=possible(*row.statuses),
            status_code=202 if row.path == "/async" else 200, name=f"{version}{row.path or '/stream'}",
        )  # fmt: skip
    return router


ROUTERS = (_router("/v2", "v2"), _router("/v3/namespaces/{namespace}", "v3", Depends(_namespace)))
"""v2 has one namespace, "default"."""
