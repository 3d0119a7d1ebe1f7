from rangelog_proto.v1 import common_pb2 as _common_pb2
from rangelog_proto.v1 import topic_pb2 as _topic_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RestorePhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESTORE_PHASE_UNSPECIFIED: _ClassVar[RestorePhase]
    RESTORE_PHASE_RUNNING: _ClassVar[RestorePhase]
    RESTORE_PHASE_DONE: _ClassVar[RestorePhase]
RESTORE_PHASE_UNSPECIFIED: RestorePhase
RESTORE_PHASE_RUNNING: RestorePhase
RESTORE_PHASE_DONE: RestorePhase

class RestoreMark(_message.Message):
    __slots__ = ("phase", "plan_id", "source_cluster_id", "snapshot_id", "row_count", "rows_put", "began_ms", "ended_ms", "first_stream_id")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROWS_PUT_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    phase: RestorePhase
    plan_id: str
    source_cluster_id: str
    snapshot_id: str
    row_count: int
    rows_put: int
    began_ms: int
    ended_ms: int
    first_stream_id: int
    def __init__(self, phase: _Optional[_Union[RestorePhase, str]] = ..., plan_id: _Optional[str] = ..., source_cluster_id: _Optional[str] = ..., snapshot_id: _Optional[str] = ..., row_count: _Optional[int] = ..., rows_put: _Optional[int] = ..., began_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., first_stream_id: _Optional[int] = ...) -> None: ...

class BeginRestoreRequest(_message.Message):
    __slots__ = ("request_id", "plan_id", "source_cluster_id", "snapshot_id", "row_count", "next_stream_id", "next_object_id", "next_topic_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    plan_id: str
    source_cluster_id: str
    snapshot_id: str
    row_count: int
    next_stream_id: int
    next_object_id: int
    next_topic_id: int
    def __init__(self, request_id: _Optional[str] = ..., plan_id: _Optional[str] = ..., source_cluster_id: _Optional[str] = ..., snapshot_id: _Optional[str] = ..., row_count: _Optional[int] = ..., next_stream_id: _Optional[int] = ..., next_object_id: _Optional[int] = ..., next_topic_id: _Optional[int] = ...) -> None: ...

class RestoreRowsRequest(_message.Message):
    __slots__ = ("request_id", "plan_id", "first_row", "namespaces", "topics", "streams", "ranges", "objects", "shards", "topic_work", "retention_cuts", "clear")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_WORK_FIELD_NUMBER: _ClassVar[int]
    RETENTION_CUTS_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    plan_id: str
    first_row: int
    namespaces: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Namespace]
    topics: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Topic]
    streams: _containers.RepeatedCompositeFieldContainer[_common_pb2.Stream]
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.Range]
    objects: _containers.RepeatedCompositeFieldContainer[_common_pb2.Object]
    shards: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Shard]
    topic_work: _containers.RepeatedCompositeFieldContainer[_topic_pb2.TopicWork]
    retention_cuts: _containers.RepeatedCompositeFieldContainer[_topic_pb2.RetentionCut]
    clear: bool
    def __init__(self, request_id: _Optional[str] = ..., plan_id: _Optional[str] = ..., first_row: _Optional[int] = ..., namespaces: _Optional[_Iterable[_Union[_topic_pb2.Namespace, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[_topic_pb2.Topic, _Mapping]]] = ..., streams: _Optional[_Iterable[_Union[_common_pb2.Stream, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ..., objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[_topic_pb2.Shard, _Mapping]]] = ..., topic_work: _Optional[_Iterable[_Union[_topic_pb2.TopicWork, _Mapping]]] = ..., retention_cuts: _Optional[_Iterable[_Union[_topic_pb2.RetentionCut, _Mapping]]] = ..., clear: bool = ...) -> None: ...

class EndRestoreRequest(_message.Message):
    __slots__ = ("request_id", "plan_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    plan_id: str
    def __init__(self, request_id: _Optional[str] = ..., plan_id: _Optional[str] = ...) -> None: ...

class DescribeRestoreRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("mark", "cluster_id", "cluster_version", "tier_url")
    MARK_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    mark: RestoreMark
    cluster_id: str
    cluster_version: int
    tier_url: str
    def __init__(self, mark: _Optional[_Union[RestoreMark, _Mapping]] = ..., cluster_id: _Optional[str] = ..., cluster_version: _Optional[int] = ..., tier_url: _Optional[str] = ...) -> None: ...

class TierSnapshotStatus(_message.Message):
    __slots__ = ("enabled", "snapshot_id", "written_ms", "age_ms", "size_bytes", "last_error", "current")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    snapshot_id: str
    written_ms: int
    age_ms: int
    size_bytes: int
    last_error: str
    current: bool
    def __init__(self, enabled: bool = ..., snapshot_id: _Optional[str] = ..., written_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ..., last_error: _Optional[str] = ..., current: bool = ...) -> None: ...

class TierSnapshotHeader(_message.Message):
    __slots__ = ("cluster_id", "time_ms", "applied_index", "cluster_version", "restored_from")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FROM_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    time_ms: int
    applied_index: int
    cluster_version: int
    restored_from: str
    def __init__(self, cluster_id: _Optional[str] = ..., time_ms: _Optional[int] = ..., applied_index: _Optional[int] = ..., cluster_version: _Optional[int] = ..., restored_from: _Optional[str] = ...) -> None: ...
