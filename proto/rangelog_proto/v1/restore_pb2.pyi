from rangelog_proto.v1 import common_pb2 as _common_pb2
from rangelog_proto.v1 import cursor_pb2 as _cursor_pb2
from rangelog_proto.v1 import restore_status_pb2 as _restore_status_pb2
from rangelog_proto.v1 import topic_pb2 as _topic_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
from rangelog_proto.v1.restore_status_pb2 import RestoreMark as RestoreMark
from rangelog_proto.v1.restore_status_pb2 import TierSnapshotStatus as TierSnapshotStatus
from rangelog_proto.v1.restore_status_pb2 import RestorePhase as RestorePhase

DESCRIPTOR: _descriptor.FileDescriptor
RESTORE_PHASE_UNSPECIFIED: _restore_status_pb2.RestorePhase
RESTORE_PHASE_RUNNING: _restore_status_pb2.RestorePhase
RESTORE_PHASE_DONE: _restore_status_pb2.RestorePhase

class BeginRestoreRequest(_message.Message):
    __slots__ = ("request_id", "plan_id", "source_cluster_id", "snapshot_id", "row_count", "next_stream_id", "next_object_id", "next_topic_id", "next_cursor_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    plan_id: str
    source_cluster_id: str
    snapshot_id: str
    row_count: int
    next_stream_id: int
    next_object_id: int
    next_topic_id: int
    next_cursor_version: int
    def __init__(self, request_id: _Optional[str] = ..., plan_id: _Optional[str] = ..., source_cluster_id: _Optional[str] = ..., snapshot_id: _Optional[str] = ..., row_count: _Optional[int] = ..., next_stream_id: _Optional[int] = ..., next_object_id: _Optional[int] = ..., next_topic_id: _Optional[int] = ..., next_cursor_version: _Optional[int] = ...) -> None: ...

class RestoreRowsRequest(_message.Message):
    __slots__ = ("request_id", "plan_id", "first_row", "namespaces", "topics", "streams", "ranges", "objects", "shards", "topic_work", "retention_cuts", "cursors", "clear")
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
    CURSORS_FIELD_NUMBER: _ClassVar[int]
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
    cursors: _containers.RepeatedCompositeFieldContainer[_cursor_pb2.Cursor]
    clear: bool
    def __init__(self, request_id: _Optional[str] = ..., plan_id: _Optional[str] = ..., first_row: _Optional[int] = ..., namespaces: _Optional[_Iterable[_Union[_topic_pb2.Namespace, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[_topic_pb2.Topic, _Mapping]]] = ..., streams: _Optional[_Iterable[_Union[_common_pb2.Stream, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ..., objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[_topic_pb2.Shard, _Mapping]]] = ..., topic_work: _Optional[_Iterable[_Union[_topic_pb2.TopicWork, _Mapping]]] = ..., retention_cuts: _Optional[_Iterable[_Union[_topic_pb2.RetentionCut, _Mapping]]] = ..., cursors: _Optional[_Iterable[_Union[_cursor_pb2.Cursor, _Mapping]]] = ..., clear: bool = ...) -> None: ...

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
    mark: _restore_status_pb2.RestoreMark
    cluster_id: str
    cluster_version: int
    tier_url: str
    def __init__(self, mark: _Optional[_Union[_restore_status_pb2.RestoreMark, _Mapping]] = ..., cluster_id: _Optional[str] = ..., cluster_version: _Optional[int] = ..., tier_url: _Optional[str] = ...) -> None: ...

class TierSnapshotHeader(_message.Message):
    __slots__ = ("cluster_id", "time_ms", "applied_index", "cluster_version", "restored_from", "tier_url")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FROM_FIELD_NUMBER: _ClassVar[int]
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    time_ms: int
    applied_index: int
    cluster_version: int
    restored_from: str
    tier_url: str
    def __init__(self, cluster_id: _Optional[str] = ..., time_ms: _Optional[int] = ..., applied_index: _Optional[int] = ..., cluster_version: _Optional[int] = ..., restored_from: _Optional[str] = ..., tier_url: _Optional[str] = ...) -> None: ...
