"""Topics: PUT, GET and DELETE /v1/topics/NAMESPACE/NAME."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rangelog import Client, Retention, TopicConfig, TopicInfo
from rangelog.errors import TopicExists
from rangelog_core.limits import COMMAND_SHARDS_MAX, TAGS_MAX
from rangelog_core.topic_names import TopicName
from rangelog_server_common.http_answers import possible

CALL_TIMEOUT_S = 20.0


class TopicToPut(BaseModel):
    """A topic that is made where it is not there."""

    model_config = ConfigDict(extra="forbid")

    shards: int = Field(default=1, ge=1, le=COMMAND_SHARDS_MAX, description="They divide the key space equally.")
    retention_seconds: float = Field(default=0, ge=0, description="Age at which records are trimmed; 0: never.")
    tags: dict[str, str] = Field(default_factory=dict, max_length=TAGS_MAX)


class TopicAnswered(BaseModel):
    """A topic."""

    name: str = Field(examples=["shop/orders"])
    topic_id: int = Field(description="Never reused, unlike the name.", examples=[7])
    state: str = Field(examples=["active"])
    shards: int = Field(description="Current shards.", examples=[4])
    retention_seconds: float = Field(examples=[0])
    tags: dict[str, str] = Field(examples=[{"team": "ops"}])


DEFAULTS = TopicToPut()


async def _the_client(request: Request) -> Client:
    return cast(Client, request.app.state.client)


TheClient = Annotated[Client, Depends(_the_client)]
Namespace = Annotated[str, Path(description="The namespace's name.", examples=["shop"])]
Name = Annotated[str, Path(description="The topic's name in it.", examples=["orders"])]

router = APIRouter(prefix="/v1/topics/{namespace}/{name}", tags=["topics"])


@router.put(
    "",
    summary="Create a topic",
    responses=possible(404, 409) | {201: {"model": TopicAnswered, "description": "It was made."}},
)
async def create_topic(
    client: TheClient, namespace: Namespace, name: Name, response: Response, body: TopicToPut = DEFAULTS
) -> TopicAnswered:
    """Create a topic; one that is there stays as it is. The namespace must exist, but "default" is created."""
    full = str(TopicName(namespace, name))
    config = TopicConfig(retention=Retention(age_seconds=body.retention_seconds))
    try:
        made = await client.topics.create(full, config, shards=body.shards, tags=body.tags, timeout_s=CALL_TIMEOUT_S)
    except TopicExists:
        return _answer(await client.topics.describe(full, timeout_s=CALL_TIMEOUT_S))
    response.status_code = 201
    return _answer(made)


@router.get("", summary="Describe a topic", responses=possible(404))
async def describe_topic(client: TheClient, namespace: Namespace, name: Name) -> TopicAnswered:
    """Return what a topic is."""
    return _answer(await client.topics.describe(str(TopicName(namespace, name)), timeout_s=CALL_TIMEOUT_S))


@router.delete("", status_code=204, summary="Delete a topic", responses=possible(404, 409))
async def delete_topic(
    client: TheClient,
    namespace: Namespace,
    name: Name,
    force: Annotated[bool, Query(description="Also a topic that is not sealed.")] = False,
) -> Response:
    """Delete a sealed topic with all its records; with `force`, any topic."""
    await client.topics.delete(str(TopicName(namespace, name)), force=force, timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)


def _answer(topic: TopicInfo) -> TopicAnswered:
    return TopicAnswered(
        name=topic.name,
        topic_id=topic.topic_id,
        state=topic.state,
        shards=topic.shard_count,
        retention_seconds=topic.config.retention.age_seconds,  # type: ignore[arg-type]  # as read it is a number
        tags=dict(topic.tags),
    )
