"""Namespaces and topics: created, configured, tagged, sealed, truncated at a cut, deleted."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from rangelog import Cut, Retention, ScalingPolicy, StreamConfig, StreamConfigChange, TopicConfig, TopicConfigChange
from rangelog import TopicInfo as Topic
from rangelog.errors import InvalidArgument
from rangelog_broker.rest.resources.streams import FOR_EVER, Seconds, StreamConfigFields
from rangelog_broker.rest.values import (
    CALL_TIMEOUT_S,
    PAGE_SIZE_DEFAULT,
    AnswerBody,
    ExpectedVersion,
    Name,
    NamespaceName,
    NextPageToken,
    Offset,
    PageSize,
    PageToken,
    Prefix,
    RequestBody,
    ShortName,
    Tags,
    TheClient,
    one_page,
)
from rangelog_core.limits import COMMAND_SHARDS_MAX, TAGS_MAX
from rangelog_core.topic_names import TopicName
from rangelog_server_common.http_answers import possible

KeyEnd = Annotated[
    str,
    Field(pattern=r"^0x[0-9a-f]{1,33}$", description="A key, hexadecimal.", examples=["0x8" + "0" * 31]),
]


class KeyRangeFields(RequestBody):
    """The keys from `low` up to, and without, `high`; the key space is 0x0 to 0x1 followed by 32 zeros."""

    low: KeyEnd
    high: KeyEnd


class ScalingFields(RequestBody):
    """When shards are split and merged."""

    kind: Literal["fixed", "events", "bytes"] = Field(default="fixed", description='"fixed": on request only.')
    target_per_s: int = Field(
        default=0, description="Events or bytes per second of one shard; 0 with fixed.", examples=[1000]
    )
    factor: int = Field(default=2, description="A hot shard is split into so many.")
    shards_min: int = Field(default=1, description="Merges leave at least so many shards.")
    shards_max: int = Field(default=3_000, description="Splits leave at most so many shards.")


class RetentionFields(RequestBody):
    """How long records stay."""

    age_seconds: Seconds = Field(
        default=0, description="Age at which records are trimmed; 0: never.", examples=[604800]
    )
    shard_size_bytes: int = Field(
        default=0, description="Bytes per current shard above which the oldest records are trimmed; 0: never."
    )
    consumed: bool = Field(default=False, description="Whether what all subscribed groups have consumed is trimmed.")


class TopicConfigFields(RequestBody):
    """The configuration of a topic. Parts that are left out have their defaults, or stay as they are."""

    stream: StreamConfigFields | None = Field(default=None, description="Of the shards' streams; without a retention.")
    scaling: ScalingFields | None = None
    retention: RetentionFields | None = None

    def given(self, stream_type: type[StreamConfig | StreamConfigChange]) -> dict[str, Any]:
        """Return the parts that are set, as the client takes them."""
        parts: dict[str, Any] = {}
        if self.stream is not None:
            parts["stream"] = stream_type(**self.stream.given())
        if self.scaling is not None:
            parts["scaling"] = ScalingPolicy(**self.scaling.model_dump())
        if self.retention is not None:
            parts["retention"] = Retention(**self.retention.model_dump())
        return parts


class NewNamespace(RequestBody):
    """A namespace to be created."""

    name: Annotated[str, Field(examples=["air"])]


class NamespacesPage(AnswerBody):
    """A page of the names of namespaces."""

    namespaces: list[str] = Field(examples=[["air", "default"]])
    next_page_token: NextPageToken


class NewTopic(RequestBody):
    """A topic to be created."""

    name: Name
    shards: int = Field(
        default=1, ge=1, le=COMMAND_SHARDS_MAX, description="They divide the key space equally.", examples=[4]
    )
    config: TopicConfigFields = TopicConfigFields()
    tags: Tags = Field(default_factory=dict, max_length=TAGS_MAX)


class TopicChange(RequestBody):
    """A change of a topic: at least one part of the configuration, or a tag."""

    config: TopicConfigFields = TopicConfigFields()
    set_tags: Tags = Field(default_factory=dict, max_length=TAGS_MAX)
    remove_tags: list[str] = Field(default_factory=list, max_length=TAGS_MAX, examples=[["team"]])
    expected_version: int | None = Field(
        default=None, ge=1, le=(1 << 63), description="Change nothing of another `version`."
    )


class CutFields(RequestBody):
    """A position in a topic: one offset for each shard of a consistent set, by shard id."""

    topic_id: int = Field(examples=[7])
    offsets: dict[str, Offset] = Field(examples=[{"1": 250, "2": 0}])

    def to_cut(self) -> Cut:
        """Return the cut. Raises InvalidArgument."""
        for each in self.offsets:
            if not (each.isascii() and each.isdigit() and len(each) <= 20 and str(int(each)) == each):
                raise InvalidArgument(f"bad shard id {each!r} in a cut")
        return Cut(self.topic_id, {int(shard_id): offset for shard_id, offset in self.offsets.items()})


class TopicAnswer(AnswerBody):
    """The state and configuration of a topic."""

    name: str = Field(examples=["air/flights"])
    topic_id: int = Field(description="Never reused, unlike the name.", examples=[7])
    state: str = Field(examples=["active"])
    config: dict[str, Any] = Field(
        description="`stream`, `scaling` and `retention`, with the cluster's defaults filled in.",
        examples=[{"scaling": {"kind": "fixed", "target_per_s": 0, "factor": 2, "shards_min": 1, "shards_max": 3000}}],
    )
    tags: dict[str, str] = Field(examples=[{"team": "ops"}])
    map_version: int = Field(description="The version of the shard map.", examples=[1])
    shard_count: int = Field(description="Current shards.", examples=[4])
    scale_id: int = Field(description="The last scale that was started; 0: none was.", examples=[0])
    committed_scale_id: int = Field(description="The last scale that was committed; 0: none was.", examples=[0])
    version: int = Field(description="Raised by each change, for `expected_version`.", examples=[1])
    created_ms: int = Field(description="Milliseconds since the Unix epoch.", examples=[1790000000000])


class TopicsPage(AnswerBody):
    """A page of topics, by namespace and name."""

    topics: list[TopicAnswer]
    next_page_token: NextPageToken


def topic_answer(topic: Topic) -> TopicAnswer:
    """Return a topic as it is answered."""
    stream = {
        name: getattr(topic.config.stream, name)
        for name in StreamConfigFields.model_fields
        if not name.startswith("retention")
    }
    if stream["hot_retention_seconds"] == math.inf:
        stream["hot_retention_seconds"] = FOR_EVER
    scaling, retention = topic.config.scaling, topic.config.retention
    config = {
        "stream": stream,
        "scaling": {name: getattr(scaling, name) for name in ScalingFields.model_fields},
        "retention": {name: getattr(retention, name) for name in RetentionFields.model_fields},
    }
    fields = {name: getattr(topic, name) for name in TopicAnswer.model_fields if name not in ("config", "tags")}
    return TopicAnswer(config=config, tags=dict(topic.tags), **fields)


def full_name(namespace: str, name: str) -> str:
    """Return a topic's or table's name as the client takes it."""
    return str(TopicName(namespace, name))


router = APIRouter(prefix="/v1", tags=["topics"])
_TOPIC = "/namespaces/{namespace}/topics/{topic}"


@router.get("/namespaces", tags=["namespaces"], summary="List namespaces", responses=possible())
async def list_namespaces(
    client: TheClient, prefix: Prefix = "", page_size: PageSize = PAGE_SIZE_DEFAULT, page_token: PageToken = ""
) -> NamespacesPage:
    """Return a page of the names of the namespaces, in order."""
    found, token = await one_page(client.topics.namespaces(prefix, after=page_token), page_size, str)
    return NamespacesPage(namespaces=found, next_page_token=token)


@router.post("/namespaces", tags=["namespaces"], status_code=201, summary="Create a namespace", responses=possible(409))
async def create_namespace(client: TheClient, body: NewNamespace) -> NewNamespace:
    """Create a namespace: topics and tables are in one."""
    await client.topics.create_namespace(body.name, timeout_s=CALL_TIMEOUT_S)
    return body


@router.delete(
    "/namespaces/{namespace}",
    tags=["namespaces"],
    status_code=204,
    summary="Delete a namespace",
    responses=possible(404, 409),
)
async def delete_namespace(client: TheClient, namespace: NamespaceName) -> Response:
    """Delete a namespace that has no topics and tables."""
    await client.topics.delete_namespace(namespace, timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)


@router.get("/topics", summary="List topics", responses=possible())
async def list_topics(
    client: TheClient,
    namespace: Annotated[str, Query(description="Only topics of this namespace.")] = "",
    prefix: Annotated[str, Query(description="Only names that start so; with `namespace` only.")] = "",
    tag: Annotated[
        list[str] | None, Query(description="Only topics with all of these tags.", examples=[["team=ops"]])
    ] = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> TopicsPage:
    """Return a page of the topics, by namespace and name."""
    listed = client.topics.list(namespace=namespace, prefix=prefix, tags=_tags(tag or []), after=page_token)
    found, token = await one_page(listed, page_size, lambda each: each.name)
    return TopicsPage(topics=[topic_answer(each) for each in found], next_page_token=token)


@router.post("/namespaces/{namespace}/topics", status_code=201, summary="Create a topic", responses=possible(404, 409))
async def create_topic(client: TheClient, namespace: NamespaceName, body: NewTopic) -> TopicAnswer:
    """Create a topic. The namespace must exist; "default" is created where it is missing."""
    config = TopicConfig(**body.config.given(StreamConfig))
    name = full_name(namespace, body.name)
    made = await client.topics.create(name, config, shards=body.shards, tags=body.tags, timeout_s=CALL_TIMEOUT_S)
    return topic_answer(made)


@router.get(_TOPIC, summary="Describe a topic", responses=possible(404))
async def describe_topic(client: TheClient, namespace: NamespaceName, topic: ShortName) -> TopicAnswer:
    """Return state and configuration of a topic."""
    return topic_answer(await client.topics.describe(full_name(namespace, topic), timeout_s=CALL_TIMEOUT_S))


@router.patch(_TOPIC, summary="Change a topic's configuration and tags", responses=possible(404, 409))
async def update_topic(client: TheClient, namespace: NamespaceName, topic: ShortName, body: TopicChange) -> TopicAnswer:
    """Change the given parts. A scaling policy or a retention is replaced wholly."""
    changed = await client.topics.update(
        full_name(namespace, topic),
        TopicConfigChange(**body.config.given(StreamConfigChange)),
        set_tags=body.set_tags,
        remove_tags=body.remove_tags,
        expected_version=body.expected_version,
        timeout_s=CALL_TIMEOUT_S,
    )
    return topic_answer(changed)


@router.delete(_TOPIC, status_code=204, summary="Delete a topic", responses=possible(404, 409))
async def delete_topic(
    client: TheClient,
    namespace: NamespaceName,
    topic: ShortName,
    force: Annotated[bool, Query(description="Also a topic that is not sealed.")] = False,
    expected_version: ExpectedVersion = None,
) -> Response:
    """Delete a sealed topic with all its records; with `force`, any topic."""
    name = full_name(namespace, topic)
    await client.topics.delete(name, force=force, expected_version=expected_version, timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)


@router.post(_TOPIC + "/seal", summary="Seal a topic", responses=possible(404, 409))
async def seal_topic(
    client: TheClient, namespace: NamespaceName, topic: ShortName, expected_version: ExpectedVersion = None
) -> TopicAnswer:
    """Start to seal a topic: its shards are ended, then it takes no record any more."""
    name = full_name(namespace, topic)
    return topic_answer(await client.topics.seal(name, expected_version=expected_version, timeout_s=CALL_TIMEOUT_S))


@router.get(_TOPIC + "/cut", summary="Find a cut", responses=possible(404, 409))
async def find_cut(
    client: TheClient,
    namespace: NamespaceName,
    topic: ShortName,
    place: Annotated[
        Literal["head", "tail"], Query(description="Before the first record, or behind the last.")
    ] = "tail",
    time: Annotated[
        datetime | None, Query(description="Instead: at the first record of each shard at or after it.")
    ] = None,
) -> CutFields:
    """Return a cut of a topic: at its head, its tail, or at a time (ISO 8601, with a zone)."""
    if time is not None and time.tzinfo is None:
        raise InvalidArgument("a time needs a zone: 2026-01-01T00:00:00Z")
    cut = await client.topics.cut(full_name(namespace, topic), place if time is None else time)
    return CutFields(topic_id=cut.topic_id, offsets={str(each): offset for each, offset in cut.offsets.items()})


@router.post(_TOPIC + "/truncate", summary="Truncate a topic at a cut", responses=possible(404, 409))
async def truncate_topic(client: TheClient, namespace: NamespaceName, topic: ShortName, body: CutFields) -> TopicAnswer:
    """Remove all records before a cut."""
    name = full_name(namespace, topic)
    return topic_answer(await client.topics.truncate(name, body.to_cut(), timeout_s=CALL_TIMEOUT_S))


def _tags(given: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidArgument(f"a tag is given as name=value, not {each!r}")
        tags[name] = value
    return tags
