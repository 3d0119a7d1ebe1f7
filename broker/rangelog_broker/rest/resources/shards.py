"""The shards of a topic and their map, and its scaling: splits, merges, and a plan that is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from rangelog import KeyRange, ShardInfo
from rangelog.errors import InvalidArgument, ShardEnded
from rangelog_broker.rest.resources.topics import (
    KeyEnd,
    KeyRangeFields,
    ScalingFields,
    TopicAnswer,
    full_name,
    topic_answer,
)
from rangelog_broker.rest.values import (
    CALL_TIMEOUT_S,
    AnswerBody,
    NamespaceName,
    RequestBody,
    ShardId,
    ShortName,
    TheClient,
    WaitSeconds,
)
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_core.name_errors import no_shard
from rangelog_server_common.http_answers import possible


class ShardAnswer(AnswerBody):
    """A shard, what preceded and what followed it."""

    shard_id: int = Field(description="The number of the shard in its topic; never reused.", examples=[1])
    key_range: KeyRangeFields
    stream_id: int = Field(description="The stream that holds its records.", examples=[17])
    created_version: int = Field(description="The map version from which it is current.", examples=[2])
    ended_version: int = Field(description="The one from which it is no longer; 0: it is current.", examples=[0])
    predecessors: list[int] = Field(examples=[[0]])
    successors: list[int] = Field(examples=[[]])
    end_offset: int | None = Field(description="One past its last record, once it has ended.", examples=[None])
    truncated: bool = Field(description="Whether it lies wholly before a cut of a truncation.", examples=[False])


class ShardList(AnswerBody):
    """Shards of a topic."""

    shards: list[ShardAnswer]


class ScalingState(AnswerBody):
    """The scaling of a topic."""

    state: str = Field(description='"scaling" while a plan is not committed.', examples=["active"])
    policy: ScalingFields
    shard_count: int = Field(description="Current shards.", examples=[4])
    map_version: int = Field(examples=[3])
    scale_id: int = Field(description="The last scale that was started; 0: none was.", examples=[2])
    committed_scale_id: int = Field(description="The last scale that was committed; 0: none was.", examples=[2])


class Split(RequestBody):
    """A split: into equal parts, or at given keys."""

    shard_id: ShardId
    parts: int | None = Field(default=None, ge=2, le=COMMAND_SHARDS_MAX, description="Equal parts.", examples=[2])
    at: list[KeyEnd] = Field(default_factory=list, max_length=COMMAND_SHARDS_MAX - 1, description="Or the keys.")
    timeout_s: WaitSeconds = 30.0


class Merge(RequestBody):
    """A merge of shards whose keys are neighbours."""

    shard_ids: list[ShardId] = Field(min_length=2, max_length=COMMAND_SHARDS_MAX, examples=[[1, 2]])
    timeout_s: WaitSeconds = 30.0


def _shard_answer(shard: ShardInfo) -> ShardAnswer:
    fields = {name: getattr(shard, name) for name in ShardAnswer.model_fields if name != "key_range"}
    low, high = shard.key_range
    return ShardAnswer(key_range=KeyRangeFields(low=f"{low:#034x}", high=f"{high:#034x}"), **fields)


def _shard_list(shards: Sequence[ShardInfo]) -> ShardList:
    return ShardList(shards=[_shard_answer(each) for each in shards])


router = APIRouter(prefix="/v1/namespaces/{namespace}/topics/{topic}", tags=["shards"])


@router.get("/shards", summary="List shards", responses=possible(404))
async def list_shards(
    client: TheClient,
    namespace: NamespaceName,
    topic: ShortName,
    include_ended: Annotated[bool, Query(description="All that the topic ever had.")] = False,
) -> ShardList:
    """Return the current shards in order of keys; or all that the topic ever had, in order of id."""
    return _shard_list(await client.topics.shards(full_name(namespace, topic), include_ended=include_ended))


@router.get("/scaling", tags=["scaling"], summary="Describe the scaling", responses=possible(404))
async def describe_scaling(client: TheClient, namespace: NamespaceName, topic: ShortName) -> ScalingState:
    """Return the scaling policy of a topic, and whether it is being scaled."""
    found = await client.topics.describe(full_name(namespace, topic), timeout_s=CALL_TIMEOUT_S)
    policy = {name: getattr(found.config.scaling, name) for name in ScalingFields.model_fields}
    fields = {name: getattr(found, name) for name in ScalingState.model_fields if name != "policy"}
    return ScalingState(policy=ScalingFields(**policy), **fields)


@router.post("/scaling/split", tags=["scaling"], summary="Split a shard", responses=possible(404, 409))
async def split_shard(client: TheClient, namespace: NamespaceName, topic: ShortName, body: Split) -> ShardList:
    """Split a shard, and return the new ones once they are current. After the time-out the plan stays: see `cancel`."""
    if body.at and body.parts is not None:
        raise InvalidArgument("`parts` and `at` exclude each other")
    name = full_name(namespace, topic)
    if not body.at:
        parts = body.parts or 2
        return _shard_list(await client.topics.scale(name, [body.shard_id], parts, timeout_s=body.timeout_s))
    whole = _current(await _all_shards(client, name), name, body.shard_id).key_range
    inner = sorted({int(each, 16) for each in body.at})
    wrong = next((each for each in inner if not whole.low < each < whole.high), None)
    if wrong is not None:
        raise InvalidArgument(f"shard {body.shard_id} has the keys {whole}, and cannot be split at {wrong:#034x}")
    ranges = [KeyRange(low, high) for low, high in pairwise([whole.low, *inner, whole.high])]
    return _shard_list(await client.topics.scale(name, [body.shard_id], ranges, timeout_s=body.timeout_s))


@router.post("/scaling/merge", tags=["scaling"], summary="Merge shards", responses=possible(404, 409))
async def merge_shards(client: TheClient, namespace: NamespaceName, topic: ShortName, body: Merge) -> ShardList:
    """Merge shards whose keys are neighbours, and return the new one once it is current."""
    if len(set(body.shard_ids)) != len(body.shard_ids):
        raise InvalidArgument("each shard is named once")
    name = full_name(namespace, topic)
    return _shard_list(await client.topics.scale(name, body.shard_ids, 1, timeout_s=body.timeout_s))


@router.post("/scaling/cancel", tags=["scaling"], summary="Cancel a scale", responses=possible(404, 409))
async def cancel_scale(client: TheClient, namespace: NamespaceName, topic: ShortName) -> TopicAnswer:
    """Drop the plan of the scale that is not committed yet."""
    return topic_answer(await client.topics.cancel_scale(full_name(namespace, topic), timeout_s=CALL_TIMEOUT_S))


async def _all_shards(client: TheClient, name: str) -> Mapping[int, ShardInfo]:
    return {each.shard_id: each for each in await client.topics.shards(name, include_ended=True)}


def _current(shards: Mapping[int, ShardInfo], name: str, shard_id: int) -> ShardInfo:
    found = shards.get(shard_id)
    if found is None:
        raise no_shard(name, shard_id)
    if not found.is_current:
        raise ShardEnded(f"shard {shard_id} has ended: its successors are {list(found.successors)}")
    return found
