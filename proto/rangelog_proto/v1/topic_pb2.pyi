from rangelog_proto.v1 import broker_pb2 as _broker_pb2
from rangelog_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScalingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCALING_KIND_UNSPECIFIED: _ClassVar[ScalingKind]
    SCALING_KIND_FIXED: _ClassVar[ScalingKind]
    SCALING_KIND_EVENTS: _ClassVar[ScalingKind]
    SCALING_KIND_BYTES: _ClassVar[ScalingKind]

class TopicKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_KIND_UNSPECIFIED: _ClassVar[TopicKind]
    TOPIC_KIND_RECORDS: _ClassVar[TopicKind]
    TOPIC_KIND_TABLE: _ClassVar[TopicKind]

class TopicState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_STATE_UNSPECIFIED: _ClassVar[TopicState]
    TOPIC_STATE_ACTIVE: _ClassVar[TopicState]
    TOPIC_STATE_SCALING: _ClassVar[TopicState]
    TOPIC_STATE_TRUNCATING: _ClassVar[TopicState]
    TOPIC_STATE_SEALING: _ClassVar[TopicState]
    TOPIC_STATE_SEALED: _ClassVar[TopicState]
    TOPIC_STATE_DELETING: _ClassVar[TopicState]

class ShardSelection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARD_SELECTION_UNSPECIFIED: _ClassVar[ShardSelection]
    SHARD_SELECTION_CURRENT: _ClassVar[ShardSelection]
    SHARD_SELECTION_ALL: _ClassVar[ShardSelection]
    SHARD_SELECTION_CHANGED: _ClassVar[ShardSelection]
SCALING_KIND_UNSPECIFIED: ScalingKind
SCALING_KIND_FIXED: ScalingKind
SCALING_KIND_EVENTS: ScalingKind
SCALING_KIND_BYTES: ScalingKind
TOPIC_KIND_UNSPECIFIED: TopicKind
TOPIC_KIND_RECORDS: TopicKind
TOPIC_KIND_TABLE: TopicKind
TOPIC_STATE_UNSPECIFIED: TopicState
TOPIC_STATE_ACTIVE: TopicState
TOPIC_STATE_SCALING: TopicState
TOPIC_STATE_TRUNCATING: TopicState
TOPIC_STATE_SEALING: TopicState
TOPIC_STATE_SEALED: TopicState
TOPIC_STATE_DELETING: TopicState
SHARD_SELECTION_UNSPECIFIED: ShardSelection
SHARD_SELECTION_CURRENT: ShardSelection
SHARD_SELECTION_ALL: ShardSelection
SHARD_SELECTION_CHANGED: ShardSelection

class KeyRange(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: bytes
    high: bytes
    def __init__(self, low: _Optional[bytes] = ..., high: _Optional[bytes] = ...) -> None: ...

class ScalingPolicy(_message.Message):
    __slots__ = ("kind", "target_per_s", "factor", "shards_min", "shards_max")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TARGET_PER_S_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    SHARDS_MIN_FIELD_NUMBER: _ClassVar[int]
    SHARDS_MAX_FIELD_NUMBER: _ClassVar[int]
    kind: ScalingKind
    target_per_s: int
    factor: int
    shards_min: int
    shards_max: int
    def __init__(self, kind: _Optional[_Union[ScalingKind, str]] = ..., target_per_s: _Optional[int] = ..., factor: _Optional[int] = ..., shards_min: _Optional[int] = ..., shards_max: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("age_ms", "shard_size_bytes", "consumed")
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SHARD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    age_ms: int
    shard_size_bytes: int
    consumed: bool
    def __init__(self, age_ms: _Optional[int] = ..., shard_size_bytes: _Optional[int] = ..., consumed: bool = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("stream", "scaling", "retention", "kind")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.StreamConfig
    scaling: ScalingPolicy
    retention: Retention
    kind: TopicKind
    def __init__(self, stream: _Optional[_Union[_common_pb2.StreamConfig, _Mapping]] = ..., scaling: _Optional[_Union[ScalingPolicy, _Mapping]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., kind: _Optional[_Union[TopicKind, str]] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("name", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., created_ms: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic_id", "namespace", "name", "config", "tags", "state", "map_version", "next_shard_id", "current_shard_count", "scale_id", "committed_scale_id", "version", "created_ms", "state_since_ms", "last_scale_ms")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCALE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_SCALE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SCALE_MS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    namespace: str
    name: str
    config: TopicConfig
    tags: _containers.ScalarMap[str, str]
    state: TopicState
    map_version: int
    next_shard_id: int
    current_shard_count: int
    scale_id: int
    committed_scale_id: int
    version: int
    created_ms: int
    state_since_ms: int
    last_scale_ms: int
    def __init__(self, topic_id: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., tags: _Optional[_Mapping[str, str]] = ..., state: _Optional[_Union[TopicState, str]] = ..., map_version: _Optional[int] = ..., next_shard_id: _Optional[int] = ..., current_shard_count: _Optional[int] = ..., scale_id: _Optional[int] = ..., committed_scale_id: _Optional[int] = ..., version: _Optional[int] = ..., created_ms: _Optional[int] = ..., state_since_ms: _Optional[int] = ..., last_scale_ms: _Optional[int] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("topic_id", "shard_id", "key_range", "stream_id", "created_version", "ended_version", "predecessors", "successors", "end_offset", "truncated", "restored_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGE_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENDED_VERSION_FIELD_NUMBER: _ClassVar[int]
    PREDECESSORS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    RESTORED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    key_range: KeyRange
    stream_id: int
    created_version: int
    ended_version: int
    predecessors: _containers.RepeatedScalarFieldContainer[int]
    successors: _containers.RepeatedScalarFieldContainer[int]
    end_offset: int
    truncated: bool
    restored_offset: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., key_range: _Optional[_Union[KeyRange, _Mapping]] = ..., stream_id: _Optional[int] = ..., created_version: _Optional[int] = ..., ended_version: _Optional[int] = ..., predecessors: _Optional[_Iterable[int]] = ..., successors: _Optional[_Iterable[int]] = ..., end_offset: _Optional[int] = ..., truncated: bool = ..., restored_offset: _Optional[int] = ...) -> None: ...

class ShardEnd(_message.Message):
    __slots__ = ("shard_id", "stream_id", "epoch", "last_range_index", "end_offset")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    stream_id: int
    epoch: int
    last_range_index: int
    end_offset: int
    def __init__(self, shard_id: _Optional[int] = ..., stream_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_range_index: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ShardPosition(_message.Message):
    __slots__ = ("shard_id", "offset")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    offset: int
    def __init__(self, shard_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class TopicWork(_message.Message):
    __slots__ = ("topic_id", "scale", "to_trim", "configure_from", "configure_since_ms")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    TO_TRIM_FIELD_NUMBER: _ClassVar[int]
    CONFIGURE_FROM_FIELD_NUMBER: _ClassVar[int]
    CONFIGURE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    scale: ScalePlan
    to_trim: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    configure_from: int
    configure_since_ms: int
    def __init__(self, topic_id: _Optional[int] = ..., scale: _Optional[_Union[ScalePlan, _Mapping]] = ..., to_trim: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., configure_from: _Optional[int] = ..., configure_since_ms: _Optional[int] = ...) -> None: ...

class ScalePlan(_message.Message):
    __slots__ = ("scale_id", "map_version", "parents", "key_ranges", "started_ms", "reason")
    SCALE_ID_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGES_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    scale_id: int
    map_version: int
    parents: _containers.RepeatedScalarFieldContainer[int]
    key_ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    started_ms: int
    reason: str
    def __init__(self, scale_id: _Optional[int] = ..., map_version: _Optional[int] = ..., parents: _Optional[_Iterable[int]] = ..., key_ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., started_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RetentionCut(_message.Message):
    __slots__ = ("topic_id", "number", "taken_ms", "shard_ids", "offsets")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TAKEN_MS_FIELD_NUMBER: _ClassVar[int]
    SHARD_IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    number: int
    taken_ms: int
    shard_ids: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[int] = ..., number: _Optional[int] = ..., taken_ms: _Optional[int] = ..., shard_ids: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class ConsumedCut(_message.Message):
    __slots__ = ("topic_id", "group", "shard_ids", "offsets", "reported_ms", "epoch", "number")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SHARD_IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    REPORTED_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    group: str
    shard_ids: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    reported_ms: int
    epoch: int
    number: int
    def __init__(self, topic_id: _Optional[int] = ..., group: _Optional[str] = ..., shard_ids: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., reported_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class CreateNamespaceResponse(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ...) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteNamespaceResponse(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ("prefix", "page_token", "page_size")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_token: str
    page_size: int
    def __init__(self, prefix: _Optional[str] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("namespaces", "next_page_token")
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedCompositeFieldContainer[Namespace]
    next_page_token: str
    def __init__(self, namespaces: _Optional[_Iterable[_Union[Namespace, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicReference
    def __init__(self, topic: _Optional[_Union[TopicReference, _Mapping]] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "scale", "consuming_groups")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    CONSUMING_GROUPS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    scale: ScalePlan
    consuming_groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., scale: _Optional[_Union[ScalePlan, _Mapping]] = ..., consuming_groups: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("namespace", "prefix", "tags", "page_token", "page_size")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    prefix: str
    tags: _containers.ScalarMap[str, str]
    page_token: str
    page_size: int
    def __init__(self, namespace: _Optional[str] = ..., prefix: _Optional[str] = ..., tags: _Optional[_Mapping[str, str]] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListShardsRequest(_message.Message):
    __slots__ = ("topic", "selection", "since_map_version", "page_token", "page_size")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    SINCE_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    topic: TopicReference
    selection: ShardSelection
    since_map_version: int
    page_token: str
    page_size: int
    def __init__(self, topic: _Optional[_Union[TopicReference, _Mapping]] = ..., selection: _Optional[_Union[ShardSelection, str]] = ..., since_map_version: _Optional[int] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListShardsResponse(_message.Message):
    __slots__ = ("topic", "shards", "next_page_token", "owners")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    next_page_token: str
    owners: _containers.RepeatedCompositeFieldContainer[_broker_pb2.Assignment]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., owners: _Optional[_Iterable[_Union[_broker_pb2.Assignment, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("request_id", "namespace", "name", "config", "tags", "shard_count", "key_ranges")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    namespace: str
    name: str
    config: TopicConfig
    tags: _containers.ScalarMap[str, str]
    shard_count: int
    key_ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, request_id: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., tags: _Optional[_Mapping[str, str]] = ..., shard_count: _Optional[int] = ..., key_ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class TopicReference(_message.Message):
    __slots__ = ("topic_id", "namespace", "name")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    namespace: str
    name: str
    def __init__(self, topic_id: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("request_id", "topic", "config", "fields", "set_tags", "remove_tags", "expected_version")
    class SetTagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SET_TAGS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_TAGS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: TopicReference
    config: TopicConfig
    fields: _containers.RepeatedScalarFieldContainer[str]
    set_tags: _containers.ScalarMap[str, str]
    remove_tags: _containers.RepeatedScalarFieldContainer[str]
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[_Union[TopicReference, _Mapping]] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ..., set_tags: _Optional[_Mapping[str, str]] = ..., remove_tags: _Optional[_Iterable[str]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class SealTopicRequest(_message.Message):
    __slots__ = ("request_id", "topic", "expected_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: TopicReference
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[_Union[TopicReference, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class SealTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class EndShardRequest(_message.Message):
    __slots__ = ("request_id", "topic_id", "end")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic_id: int
    end: ShardEnd
    def __init__(self, request_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., end: _Optional[_Union[ShardEnd, _Mapping]] = ...) -> None: ...

class EndShardResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class EnsureLogRequest(_message.Message):
    __slots__ = ("request_id", "topic_id", "shard_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic_id: int
    shard_id: int
    def __init__(self, request_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class EnsureLogResponse(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("request_id", "topic", "force", "expected_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: TopicReference
    force: bool
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[_Union[TopicReference, _Mapping]] = ..., force: bool = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class TruncateTopicRequest(_message.Message):
    __slots__ = ("request_id", "topic", "cut")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: TopicReference
    cut: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[_Union[TopicReference, _Mapping]] = ..., cut: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ...) -> None: ...

class TruncateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class ReportConsumedRequest(_message.Message):
    __slots__ = ("request_id", "topic", "group", "cut", "unsubscribe", "epoch", "number")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: TopicReference
    group: str
    cut: _containers.RepeatedCompositeFieldContainer[ShardPosition]
    unsubscribe: bool
    epoch: int
    number: int
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[_Union[TopicReference, _Mapping]] = ..., group: _Optional[str] = ..., cut: _Optional[_Iterable[_Union[ShardPosition, _Mapping]]] = ..., unsubscribe: bool = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class ReportConsumedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StartScaleRequest(_message.Message):
    __slots__ = ("request_id", "topic", "map_version", "parents", "key_ranges")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: TopicReference
    map_version: int
    parents: _containers.RepeatedScalarFieldContainer[int]
    key_ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[_Union[TopicReference, _Mapping]] = ..., map_version: _Optional[int] = ..., parents: _Optional[_Iterable[int]] = ..., key_ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class StartScaleResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CancelScaleRequest(_message.Message):
    __slots__ = ("request_id", "topic_id", "scale_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SCALE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic_id: int
    scale_id: int
    def __init__(self, request_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., scale_id: _Optional[int] = ...) -> None: ...

class CancelScaleResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CommitScaleRequest(_message.Message):
    __slots__ = ("request_id", "topic_id", "scale_id", "ends")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SCALE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic_id: int
    scale_id: int
    ends: _containers.RepeatedCompositeFieldContainer[ShardEnd]
    def __init__(self, request_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., scale_id: _Optional[int] = ..., ends: _Optional[_Iterable[_Union[ShardEnd, _Mapping]]] = ...) -> None: ...

class CommitScaleResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...
