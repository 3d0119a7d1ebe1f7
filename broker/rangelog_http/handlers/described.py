"""The descriptions of the routes of consumers, which the application answers itself, before FastAPI."""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from rangelog_broker.verbs import consume
from rangelog_server_common.http_answers import possible

Group = Annotated[str, Path(description="The group's name.", examples=["billing"])]
Consumer = Annotated[str, Path(description="The consumer's id.", examples=["broker1.9f86d081884c7d65"])]


class ConsumerToJoin(BaseModel):
    """A consumer that joins a group."""

    model_config = ConfigDict(extra="forbid")

    topics: list[str] = Field(description="The topics that the group reads.", examples=[["shop/orders"]])
    start: str = Field(
        default="earliest",
        description="earliest, latest, a time with a zone, or `next` of a read: for topics that are new.",
    )
    session_s: float = Field(
        default=consume.SESSION_S,
        ge=consume.SESSION_S_MIN,
        le=consume.SESSION_S_MAX,
        description="It ends after so many seconds without a request.",
    )
    skip_trimmed: bool = Field(
        default=False, description="Go on behind records that were trimmed before they were read."
    )


class ConsumerJoined(BaseModel):
    """A consumer."""

    consumer: str = Field(
        description="Its id, for this principal and this broker.", examples=["broker1.9f86d081884c7d65"]
    )
    group: str = Field(examples=["billing"])
    session_s: float = Field(examples=[60.0])


class BatchAnswer(BaseModel):
    """A batch of records."""

    batch: int = Field(description="Its number, for the commit; 0: there are no records.", examples=[1])
    records: list[dict[str, Any]] = Field(
        description="As in reads, with their topics.",
        examples=[
            [{"topic": "shop/orders", "shard": 0, "offset": 250, "timestamp_ms": 1790000000000, "value": "first"}]
        ],
    )
    lost: list[dict[str, Any]] = Field(
        description="Shards of the batch before whose records are not committed: they are handed out again, to others.",
        examples=[[]],
    )


class CommitAnswer(BaseModel):
    """A committed batch."""

    committed: int = Field(description="The batch.", examples=[1])


router = APIRouter(prefix="/v1/groups/{group}/consumers", tags=["consumers"])


@router.post("", status_code=201, summary="Join a group", responses=possible(403, 404))
async def join_group(group: Group, body: ConsumerToJoin) -> ConsumerJoined:
    """Make a consumer: a member of the group, which lives in this broker while its client asks in time."""
    not_called()


@router.post("/{consumer}/dequeue", summary="Dequeue records", responses=possible(403, 404, 409))
async def dequeue_records(
    group: Group,
    consumer: Consumer,
    limit: Annotated[int, Query(description="Records at most.")] = 1_000,
    wait_ms: Annotated[int, Query(description="How long to wait for the first one.")] = 0,
    commit: Annotated[int, Query(description="The batch that is processed, to be committed before.")] = 0,
) -> BatchAnswer:
    """Return the next records, or again those that are not committed. With Accept: application/x-ndjson as lines."""
    not_called()


@router.post("/{consumer}/commit", summary="Commit a batch", responses=possible(403, 404, 409))
async def commit_batch(
    group: Group, consumer: Consumer, batch: Annotated[int, Query(description="The last batch.")]
) -> CommitAnswer:
    """Commit all records of the last batch: no consumer of the group gets them again."""
    not_called()


@router.delete("/{consumer}", status_code=204, summary="End a consumer", responses=possible(403, 404))
async def end_consumer(group: Group, consumer: Consumer) -> None:
    """Leave the group: others get at once what is not committed."""
    not_called()


def not_called() -> NoReturn:
    """Raise AssertionError: the functions here are descriptions alone."""
    raise AssertionError("the application answers this path before FastAPI")
