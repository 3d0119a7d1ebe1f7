"""Consumer groups: members, positions, lag, resets and checkpoints."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field, field_validator

from rangelog import GroupInfo, ShardOfTopic
from rangelog.errors import InvalidArgument
from rangelog_broker.rest.resources.topics import CutFields
from rangelog_broker.rest.values import (
    CALL_TIMEOUT_S,
    PAGE_SIZE_DEFAULT,
    AnswerBody,
    GroupName,
    NextPageToken,
    PageSize,
    PageToken,
    Prefix,
    RequestBody,
    TheClient,
    WaitSeconds,
    one_page,
)
from rangelog_server_common.http_answers import possible

TOPICS_MAX = 1_000
CheckpointName = Annotated[str, Path(description="The checkpoint's name.", examples=["before-release"])]
TopicNames = Annotated[list[str], Field(max_length=TOPICS_MAX, examples=[["air/flights"]])]


class GroupEntry(AnswerBody):
    """A group in a list."""

    name: str = Field(examples=["billing"])
    generation: int = Field(description="Raised whenever shards are handed out.", examples=[5])
    member_count: int = Field(examples=[3])


class GroupsPage(AnswerBody):
    """A page of groups, in order of names."""

    groups: list[GroupEntry]
    next_page_token: NextPageToken


class ShardPlace(AnswerBody):
    """A shard of a topic."""

    topic: str = Field(examples=["air/flights"])
    shard_id: int = Field(examples=[0])


class MemberAnswer(AnswerBody):
    """A member of a group."""

    member_id: str = Field(examples=["billing-7f3a"])
    joined: int = Field(description="The generation in which it joined.", examples=[4])
    session_s: float = Field(description="Seconds of silence after which it is taken out.", examples=[10.0])
    silent_s: float = Field(description="Seconds since the group has heard of it.", examples=[0.4])
    shards: list[ShardPlace]


class GroupShardAnswer(AnswerBody):
    """A shard that a group reads."""

    topic: str = Field(examples=["air/flights"])
    shard_id: int = Field(examples=[0])
    offset: int | None = Field(description="The next record to be processed; null: none committed.", examples=[250])
    metadata: str = Field(description="What was committed beside the position, in base64.", examples=[""])
    member_id: str = Field(description="The member that has it; empty: none has.", examples=["billing-7f3a"])
    since: int = Field(description="The generation in which it was handed out.", examples=[4])
    is_ended: bool = Field(examples=[False])
    end_offset: int | None = Field(description="One past its last record, if it has ended.", examples=[None])
    is_finished: bool = Field(description="Whether all of it is committed.", examples=[False])

    @field_validator("metadata", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value


class GroupAnswer(AnswerBody):
    """A group."""

    name: str = Field(examples=["billing"])
    generation: int = Field(description="Raised whenever shards are handed out.", examples=[5])
    topics: list[str] = Field(examples=[["air/flights"]])
    members: list[MemberAnswer]
    shards: list[GroupShardAnswer]
    checkpoints: list[str] = Field(description="Complete ones, the oldest first.", examples=[["before-release"]])
    pending_checkpoint: str = Field(description="One that some members have not met; empty: none.", examples=[""])
    retains: bool = Field(
        description="Whether topics that are trimmed by consumption keep what it has not consumed.", examples=[False]
    )


class LagAnswer(AnswerBody):
    """How far a group is behind the end of a shard."""

    topic: str = Field(examples=["air/flights"])
    shard_id: int = Field(examples=[0])
    offset: int = Field(description="The committed position.", examples=[250])
    end_offset: int = Field(description="One past the last acked record.", examples=[300])
    records: int = Field(description="Records that are not committed.", examples=[50])
    seconds: float = Field(description="The age of the oldest of them; 0 without one.", examples=[1.5])
    is_deleted: bool = Field(description="Whether the topic was deleted: nothing of it can be read.", examples=[False])


class GroupLag(AnswerBody):
    """The lag of a group, for each shard that it has not finished."""

    records: int = Field(description="Of all shards together.", examples=[50])
    shards: list[LagAnswer]


class Reset(RequestBody):
    """Where a group is to begin anew: a place by name, a time, or cuts."""

    to: str | None = Field(
        default=None,
        max_length=300,
        description='"earliest", "latest", "checkpoint:NAME", or a time (ISO 8601, with a zone).',
        examples=["2026-01-01T00:00:00Z"],
    )
    cuts: list[CutFields] = Field(default_factory=list, max_length=TOPICS_MAX, description="Instead: one per topic.")
    topics: TopicNames | None = Field(
        default=None, description="Only in these topics; null: in all, or in those of the cuts."
    )

    def place(self) -> Any:
        """Return the place as the client takes it. Raises InvalidArgument."""
        if (self.to is None) == (not self.cuts):
            raise InvalidArgument("a reset has either `to` or `cuts`")
        if self.to is None:
            return [each.to_cut() for each in self.cuts]
        if self.to in ("earliest", "latest") or self.to.startswith("checkpoint:"):
            return self.to
        try:
            time = datetime.fromisoformat(self.to)
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            raise InvalidArgument(
                f"bad place {self.to!r}: 'earliest', 'latest', 'checkpoint:NAME' or a time with a zone"
            )
        return time


class Unsubscribe(RequestBody):
    """Topics that a group is to read no more."""

    topics: TopicNames


class Retain(RequestBody):
    """Whether a group counts for topics that are trimmed by consumption."""

    retains: bool = Field(default=True, description="false: the group counts no more.", examples=[True])


class NewCheckpoint(RequestBody):
    """A checkpoint to be taken."""

    name: str = Field(examples=["before-release"])
    timeout_s: WaitSeconds = 30.0


class PositionAnswer(ShardPlace):
    """A position in a checkpoint."""

    offset: int = Field(description="The next record to be processed.", examples=[250])


class CheckpointAnswer(AnswerBody):
    """A complete checkpoint."""

    name: str = Field(examples=["before-release"])
    positions: list[PositionAnswer]


class CheckpointNames(AnswerBody):
    """The checkpoints of a group."""

    checkpoints: list[str] = Field(description="Complete ones, the oldest first.", examples=[["before-release"]])
    pending_checkpoint: str = Field(description="One that some members have not met; empty: none.", examples=[""])


def _group_answer(group: GroupInfo) -> GroupAnswer:
    return GroupAnswer.model_validate(group)


router = APIRouter(prefix="/v1/groups", tags=["groups"])


@router.get("", summary="List groups", responses=possible())
async def list_groups(
    client: TheClient, prefix: Prefix = "", page_size: PageSize = PAGE_SIZE_DEFAULT, page_token: PageToken = ""
) -> GroupsPage:
    """Return a page of the groups, in order of names."""
    found, token = await one_page(client.groups.list(prefix, after=page_token), page_size, lambda each: each.name)
    return GroupsPage(groups=[GroupEntry.model_validate(each) for each in found], next_page_token=token)


@router.get("/{group}", summary="Describe a group", responses=possible(404))
async def describe_group(client: TheClient, group: GroupName) -> GroupAnswer:
    """Return members, shards and positions of a group."""
    return _group_answer(await client.groups.describe(group))


@router.delete("/{group}", status_code=204, summary="Delete a group", responses=possible(404, 409))
async def delete_group(client: TheClient, group: GroupName) -> Response:
    """Delete a group that has no members, with its positions."""
    await client.groups.delete(group, timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)


@router.get("/{group}/lag", summary="Measure a group's lag", responses=possible(404))
async def group_lag(client: TheClient, group: GroupName) -> GroupLag:
    """Return how far a group is behind, in records and seconds."""
    found = await client.groups.lag(group)
    return GroupLag(
        records=sum(each.records for each in found), shards=[LagAnswer.model_validate(each) for each in found]
    )


@router.post("/{group}/reset", summary="Reset a group's positions", responses=possible(404, 409))
async def reset_group(client: TheClient, group: GroupName, body: Reset) -> GroupAnswer:
    """Move the positions of a group; its members begin anew from there, whatever they have not committed."""
    await client.groups.reset(group, body.place(), topics=body.topics, timeout_s=CALL_TIMEOUT_S)
    return _group_answer(await client.groups.describe(group))


@router.post("/{group}/unsubscribe", summary="Let a group read topics no more", responses=possible(404, 409))
async def unsubscribe_group(client: TheClient, group: GroupName, body: Unsubscribe) -> GroupAnswer:
    """Let a group read topics no more; its positions in them are dropped."""
    await client.groups.unsubscribe(group, body.topics, timeout_s=CALL_TIMEOUT_S)
    return _group_answer(await client.groups.describe(group))


@router.post("/{group}/retain", summary="Keep what a group has not consumed", responses=possible(404, 409))
async def retain_group(client: TheClient, group: GroupName, body: Retain) -> GroupAnswer:
    """Turn retention by consumption for a group on or off, at topics that are trimmed by consumption."""
    await client.groups.retain(group, retains=body.retains, timeout_s=CALL_TIMEOUT_S)
    return _group_answer(await client.groups.describe(group))


@router.get("/{group}/checkpoints", tags=["checkpoints"], summary="List checkpoints", responses=possible(404))
async def list_checkpoints(client: TheClient, group: GroupName) -> CheckpointNames:
    """Return the names of a group's checkpoints."""
    found = await client.groups.describe(group)
    return CheckpointNames(checkpoints=list(found.checkpoints), pending_checkpoint=found.pending_checkpoint)


@router.post(
    "/{group}/checkpoints",
    tags=["checkpoints"],
    status_code=201,
    summary="Take a checkpoint",
    responses=possible(404, 409),
)
async def take_checkpoint(client: TheClient, group: GroupName, body: NewCheckpoint) -> CheckpointAnswer:
    """Note where every member is, and return the positions once all members have met the checkpoint.

    After the time-out it stays pending; its deletion ends it.
    """
    positions = await client.groups.checkpoint(group, body.name, timeout_s=body.timeout_s)
    return CheckpointAnswer(name=body.name, positions=_positions(positions))


@router.delete(
    "/{group}/checkpoints/{checkpoint}",
    tags=["checkpoints"],
    status_code=204,
    summary="Delete a checkpoint",
    responses=possible(404),
)
async def delete_checkpoint(client: TheClient, group: GroupName, checkpoint: CheckpointName) -> Response:
    """Delete a checkpoint, complete or not. Without such a checkpoint nothing changes."""
    await client.groups.delete_checkpoint(group, checkpoint, timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)


def _positions(positions: Mapping[ShardOfTopic, int]) -> list[PositionAnswer]:
    return [
        PositionAnswer(topic=shard.topic, shard_id=shard.shard_id, offset=offset)
        for shard, offset in sorted(positions.items())
    ]
