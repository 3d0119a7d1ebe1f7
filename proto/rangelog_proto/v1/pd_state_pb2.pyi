from rangelog_proto.v1 import broker_pb2 as _broker_pb2
from rangelog_proto.v1 import common_pb2 as _common_pb2
from rangelog_proto.v1 import operations_pb2 as _operations_pb2
from rangelog_proto.v1 import cursor_pb2 as _cursor_pb2
from rangelog_proto.v1 import pd_pb2 as _pd_pb2
from rangelog_proto.v1 import repair_pb2 as _repair_pb2
from rangelog_proto.v1 import tier_pb2 as _tier_pb2
from rangelog_proto.v1 import restore_pb2 as _restore_pb2
from rangelog_proto.v1 import restore_status_pb2 as _restore_status_pb2
from rangelog_proto.v1 import rights_pb2 as _rights_pb2
from rangelog_proto.v1 import audit_pb2 as _audit_pb2
from rangelog_proto.v1 import tokens_pb2 as _tokens_pb2
from rangelog_proto.v1 import quotas_pb2 as _quotas_pb2
from rangelog_proto.v1 import topic_pb2 as _topic_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SectionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SECTION_KIND_UNSPECIFIED: _ClassVar[SectionKind]
    SECTION_KIND_HEADER: _ClassVar[SectionKind]
    SECTION_KIND_STREAMS: _ClassVar[SectionKind]
    SECTION_KIND_RANGES: _ClassVar[SectionKind]
    SECTION_KIND_OBJECTS: _ClassVar[SectionKind]
    SECTION_KIND_SERVERS: _ClassVar[SectionKind]
    SECTION_KIND_RESULTS: _ClassVar[SectionKind]
    SECTION_KIND_END: _ClassVar[SectionKind]
    SECTION_KIND_NAMESPACES: _ClassVar[SectionKind]
    SECTION_KIND_TOPICS: _ClassVar[SectionKind]
    SECTION_KIND_SHARDS: _ClassVar[SectionKind]
    SECTION_KIND_TOPIC_WORK: _ClassVar[SectionKind]
    SECTION_KIND_BROKERS: _ClassVar[SectionKind]
    SECTION_KIND_ASSIGNMENTS: _ClassVar[SectionKind]
    SECTION_KIND_RETENTION_CUTS: _ClassVar[SectionKind]
    SECTION_KIND_CONSUMED_CUTS: _ClassVar[SectionKind]
    SECTION_KIND_TIER_STORES: _ClassVar[SectionKind]
    SECTION_KIND_CURSORS: _ClassVar[SectionKind]
    SECTION_KIND_ACCESS_RULES: _ClassVar[SectionKind]
    SECTION_KIND_AUDIT_ENTRIES: _ClassVar[SectionKind]
    SECTION_KIND_TOKENS: _ClassVar[SectionKind]
    SECTION_KIND_TOKEN_KEYS: _ClassVar[SectionKind]
    SECTION_KIND_QUOTAS: _ClassVar[SectionKind]
SECTION_KIND_UNSPECIFIED: SectionKind
SECTION_KIND_HEADER: SectionKind
SECTION_KIND_STREAMS: SectionKind
SECTION_KIND_RANGES: SectionKind
SECTION_KIND_OBJECTS: SectionKind
SECTION_KIND_SERVERS: SectionKind
SECTION_KIND_RESULTS: SectionKind
SECTION_KIND_END: SectionKind
SECTION_KIND_NAMESPACES: SectionKind
SECTION_KIND_TOPICS: SectionKind
SECTION_KIND_SHARDS: SectionKind
SECTION_KIND_TOPIC_WORK: SectionKind
SECTION_KIND_BROKERS: SectionKind
SECTION_KIND_ASSIGNMENTS: SectionKind
SECTION_KIND_RETENTION_CUTS: SectionKind
SECTION_KIND_CONSUMED_CUTS: SectionKind
SECTION_KIND_TIER_STORES: SectionKind
SECTION_KIND_CURSORS: SectionKind
SECTION_KIND_ACCESS_RULES: SectionKind
SECTION_KIND_AUDIT_ENTRIES: SectionKind
SECTION_KIND_TOKENS: SectionKind
SECTION_KIND_TOKEN_KEYS: SectionKind
SECTION_KIND_QUOTAS: SectionKind

class Command(_message.Message):
    __slots__ = ("version", "request_id", "now_ms", "name_cluster", "create_stream", "update_stream", "delete_stream", "trim_stream", "open_writer", "create_range", "seal_range", "register_server", "mark_log_end", "prepare_object", "commit_object", "abandon_object", "collect_objects", "drop_hot", "replace_replica", "prove_end", "mark_log_ends", "set_cluster_version", "seal_ranges", "open_writers", "create_namespace", "delete_namespace", "create_topic", "update_topic", "seal_topic", "end_shard", "delete_topic", "truncate_topic", "start_scale", "cancel_scale", "commit_scale", "continue_topic", "register_broker", "mark_broker_lost", "assign_shards", "ensure_log", "start_own_scale", "retain_topic", "take_cuts", "report_consumed", "prepare_repack", "commit_repack", "accept_loss", "reupload_object", "set_tier", "set_server_mode", "remove_server", "set_cursors", "delete_cursor", "retain_stream", "begin_restore", "restore_rows", "end_restore", "grant_rights", "revoke_rights", "enforce_rights", "set_audit", "note_audit", "mark_audit_written", "create_token", "revoke_token", "set_quota", "remove_quota", "time_is_provisional")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    CREATE_STREAM_FIELD_NUMBER: _ClassVar[int]
    UPDATE_STREAM_FIELD_NUMBER: _ClassVar[int]
    DELETE_STREAM_FIELD_NUMBER: _ClassVar[int]
    TRIM_STREAM_FIELD_NUMBER: _ClassVar[int]
    OPEN_WRITER_FIELD_NUMBER: _ClassVar[int]
    CREATE_RANGE_FIELD_NUMBER: _ClassVar[int]
    SEAL_RANGE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_SERVER_FIELD_NUMBER: _ClassVar[int]
    MARK_LOG_END_FIELD_NUMBER: _ClassVar[int]
    PREPARE_OBJECT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OBJECT_FIELD_NUMBER: _ClassVar[int]
    ABANDON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    COLLECT_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    DROP_HOT_FIELD_NUMBER: _ClassVar[int]
    REPLACE_REPLICA_FIELD_NUMBER: _ClassVar[int]
    PROVE_END_FIELD_NUMBER: _ClassVar[int]
    MARK_LOG_ENDS_FIELD_NUMBER: _ClassVar[int]
    SET_CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SEAL_RANGES_FIELD_NUMBER: _ClassVar[int]
    OPEN_WRITERS_FIELD_NUMBER: _ClassVar[int]
    CREATE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DELETE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    END_SHARD_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_SCALE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_SCALE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    MARK_BROKER_LOST_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_SHARDS_FIELD_NUMBER: _ClassVar[int]
    ENSURE_LOG_FIELD_NUMBER: _ClassVar[int]
    START_OWN_SCALE_FIELD_NUMBER: _ClassVar[int]
    RETAIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAKE_CUTS_FIELD_NUMBER: _ClassVar[int]
    REPORT_CONSUMED_FIELD_NUMBER: _ClassVar[int]
    PREPARE_REPACK_FIELD_NUMBER: _ClassVar[int]
    COMMIT_REPACK_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    REUPLOAD_OBJECT_FIELD_NUMBER: _ClassVar[int]
    SET_TIER_FIELD_NUMBER: _ClassVar[int]
    SET_SERVER_MODE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SERVER_FIELD_NUMBER: _ClassVar[int]
    SET_CURSORS_FIELD_NUMBER: _ClassVar[int]
    DELETE_CURSOR_FIELD_NUMBER: _ClassVar[int]
    RETAIN_STREAM_FIELD_NUMBER: _ClassVar[int]
    BEGIN_RESTORE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ROWS_FIELD_NUMBER: _ClassVar[int]
    END_RESTORE_FIELD_NUMBER: _ClassVar[int]
    GRANT_RIGHTS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_RIGHTS_FIELD_NUMBER: _ClassVar[int]
    ENFORCE_RIGHTS_FIELD_NUMBER: _ClassVar[int]
    SET_AUDIT_FIELD_NUMBER: _ClassVar[int]
    NOTE_AUDIT_FIELD_NUMBER: _ClassVar[int]
    MARK_AUDIT_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVOKE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SET_QUOTA_FIELD_NUMBER: _ClassVar[int]
    REMOVE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    TIME_IS_PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    version: int
    request_id: str
    now_ms: int
    name_cluster: NameCluster
    create_stream: _pd_pb2.CreateStreamRequest
    update_stream: _pd_pb2.UpdateStreamRequest
    delete_stream: _pd_pb2.DeleteStreamRequest
    trim_stream: _pd_pb2.TrimStreamRequest
    open_writer: _pd_pb2.OpenWriterRequest
    create_range: PlacedCreateRange
    seal_range: PlacedSealRange
    register_server: _pd_pb2.RegisterServerRequest
    mark_log_end: MarkLogEnd
    prepare_object: TimedPrepareObject
    commit_object: _pd_pb2.CommitObjectRequest
    abandon_object: AbandonObject
    collect_objects: CollectObjects
    drop_hot: DropHot
    replace_replica: ReplaceReplica
    prove_end: _pd_pb2.ProveEndRequest
    mark_log_ends: MarkLogEnds
    set_cluster_version: SetClusterVersion
    seal_ranges: PlacedSealRanges
    open_writers: _pd_pb2.OpenWritersRequest
    create_namespace: _topic_pb2.CreateNamespaceRequest
    delete_namespace: _topic_pb2.DeleteNamespaceRequest
    create_topic: _topic_pb2.CreateTopicRequest
    update_topic: _topic_pb2.UpdateTopicRequest
    seal_topic: _topic_pb2.SealTopicRequest
    end_shard: _topic_pb2.EndShardRequest
    delete_topic: _topic_pb2.DeleteTopicRequest
    truncate_topic: _topic_pb2.TruncateTopicRequest
    start_scale: _topic_pb2.StartScaleRequest
    cancel_scale: _topic_pb2.CancelScaleRequest
    commit_scale: _topic_pb2.CommitScaleRequest
    continue_topic: ContinueTopic
    register_broker: _broker_pb2.RegisterBrokerRequest
    mark_broker_lost: MarkBrokerLost
    assign_shards: AssignShards
    ensure_log: _topic_pb2.EnsureLogRequest
    start_own_scale: StartOwnScale
    retain_topic: RetainTopic
    take_cuts: TakeCuts
    report_consumed: _topic_pb2.ReportConsumedRequest
    prepare_repack: TimedPrepareRepack
    commit_repack: _pd_pb2.CommitRepackRequest
    accept_loss: _repair_pb2.AcceptLossRequest
    reupload_object: _tier_pb2.ReuploadObjectRequest
    set_tier: _tier_pb2.SetTierRequest
    set_server_mode: _operations_pb2.SetServerModeRequest
    remove_server: _operations_pb2.RemoveServerRequest
    set_cursors: _cursor_pb2.SetCursorsRequest
    delete_cursor: _cursor_pb2.DeleteCursorRequest
    retain_stream: RetainStream
    begin_restore: _restore_pb2.BeginRestoreRequest
    restore_rows: _restore_pb2.RestoreRowsRequest
    end_restore: _restore_pb2.EndRestoreRequest
    grant_rights: _rights_pb2.GrantRightsRequest
    revoke_rights: _rights_pb2.RevokeRightsRequest
    enforce_rights: _rights_pb2.EnforceRightsRequest
    set_audit: _audit_pb2.PlacedSetAudit
    note_audit: _audit_pb2.NoteAudit
    mark_audit_written: _audit_pb2.MarkAuditWritten
    create_token: _tokens_pb2.PlacedCreateToken
    revoke_token: _tokens_pb2.RevokeTokenRequest
    set_quota: _quotas_pb2.SetQuotaRequest
    remove_quota: _quotas_pb2.RemoveQuotaRequest
    time_is_provisional: bool
    def __init__(self, version: _Optional[int] = ..., request_id: _Optional[str] = ..., now_ms: _Optional[int] = ..., name_cluster: _Optional[_Union[NameCluster, _Mapping]] = ..., create_stream: _Optional[_Union[_pd_pb2.CreateStreamRequest, _Mapping]] = ..., update_stream: _Optional[_Union[_pd_pb2.UpdateStreamRequest, _Mapping]] = ..., delete_stream: _Optional[_Union[_pd_pb2.DeleteStreamRequest, _Mapping]] = ..., trim_stream: _Optional[_Union[_pd_pb2.TrimStreamRequest, _Mapping]] = ..., open_writer: _Optional[_Union[_pd_pb2.OpenWriterRequest, _Mapping]] = ..., create_range: _Optional[_Union[PlacedCreateRange, _Mapping]] = ..., seal_range: _Optional[_Union[PlacedSealRange, _Mapping]] = ..., register_server: _Optional[_Union[_pd_pb2.RegisterServerRequest, _Mapping]] = ..., mark_log_end: _Optional[_Union[MarkLogEnd, _Mapping]] = ..., prepare_object: _Optional[_Union[TimedPrepareObject, _Mapping]] = ..., commit_object: _Optional[_Union[_pd_pb2.CommitObjectRequest, _Mapping]] = ..., abandon_object: _Optional[_Union[AbandonObject, _Mapping]] = ..., collect_objects: _Optional[_Union[CollectObjects, _Mapping]] = ..., drop_hot: _Optional[_Union[DropHot, _Mapping]] = ..., replace_replica: _Optional[_Union[ReplaceReplica, _Mapping]] = ..., prove_end: _Optional[_Union[_pd_pb2.ProveEndRequest, _Mapping]] = ..., mark_log_ends: _Optional[_Union[MarkLogEnds, _Mapping]] = ..., set_cluster_version: _Optional[_Union[SetClusterVersion, _Mapping]] = ..., seal_ranges: _Optional[_Union[PlacedSealRanges, _Mapping]] = ..., open_writers: _Optional[_Union[_pd_pb2.OpenWritersRequest, _Mapping]] = ..., create_namespace: _Optional[_Union[_topic_pb2.CreateNamespaceRequest, _Mapping]] = ..., delete_namespace: _Optional[_Union[_topic_pb2.DeleteNamespaceRequest, _Mapping]] = ..., create_topic: _Optional[_Union[_topic_pb2.CreateTopicRequest, _Mapping]] = ..., update_topic: _Optional[_Union[_topic_pb2.UpdateTopicRequest, _Mapping]] = ..., seal_topic: _Optional[_Union[_topic_pb2.SealTopicRequest, _Mapping]] = ..., end_shard: _Optional[_Union[_topic_pb2.EndShardRequest, _Mapping]] = ..., delete_topic: _Optional[_Union[_topic_pb2.DeleteTopicRequest, _Mapping]] = ..., truncate_topic: _Optional[_Union[_topic_pb2.TruncateTopicRequest, _Mapping]] = ..., start_scale: _Optional[_Union[_topic_pb2.StartScaleRequest, _Mapping]] = ..., cancel_scale: _Optional[_Union[_topic_pb2.CancelScaleRequest, _Mapping]] = ..., commit_scale: _Optional[_Union[_topic_pb2.CommitScaleRequest, _Mapping]] = ..., continue_topic: _Optional[_Union[ContinueTopic, _Mapping]] = ..., register_broker: _Optional[_Union[_broker_pb2.RegisterBrokerRequest, _Mapping]] = ..., mark_broker_lost: _Optional[_Union[MarkBrokerLost, _Mapping]] = ..., assign_shards: _Optional[_Union[AssignShards, _Mapping]] = ..., ensure_log: _Optional[_Union[_topic_pb2.EnsureLogRequest, _Mapping]] = ..., start_own_scale: _Optional[_Union[StartOwnScale, _Mapping]] = ..., retain_topic: _Optional[_Union[RetainTopic, _Mapping]] = ..., take_cuts: _Optional[_Union[TakeCuts, _Mapping]] = ..., report_consumed: _Optional[_Union[_topic_pb2.ReportConsumedRequest, _Mapping]] = ..., prepare_repack: _Optional[_Union[TimedPrepareRepack, _Mapping]] = ..., commit_repack: _Optional[_Union[_pd_pb2.CommitRepackRequest, _Mapping]] = ..., accept_loss: _Optional[_Union[_repair_pb2.AcceptLossRequest, _Mapping]] = ..., reupload_object: _Optional[_Union[_tier_pb2.ReuploadObjectRequest, _Mapping]] = ..., set_tier: _Optional[_Union[_tier_pb2.SetTierRequest, _Mapping]] = ..., set_server_mode: _Optional[_Union[_operations_pb2.SetServerModeRequest, _Mapping]] = ..., remove_server: _Optional[_Union[_operations_pb2.RemoveServerRequest, _Mapping]] = ..., set_cursors: _Optional[_Union[_cursor_pb2.SetCursorsRequest, _Mapping]] = ..., delete_cursor: _Optional[_Union[_cursor_pb2.DeleteCursorRequest, _Mapping]] = ..., retain_stream: _Optional[_Union[RetainStream, _Mapping]] = ..., begin_restore: _Optional[_Union[_restore_pb2.BeginRestoreRequest, _Mapping]] = ..., restore_rows: _Optional[_Union[_restore_pb2.RestoreRowsRequest, _Mapping]] = ..., end_restore: _Optional[_Union[_restore_pb2.EndRestoreRequest, _Mapping]] = ..., grant_rights: _Optional[_Union[_rights_pb2.GrantRightsRequest, _Mapping]] = ..., revoke_rights: _Optional[_Union[_rights_pb2.RevokeRightsRequest, _Mapping]] = ..., enforce_rights: _Optional[_Union[_rights_pb2.EnforceRightsRequest, _Mapping]] = ..., set_audit: _Optional[_Union[_audit_pb2.PlacedSetAudit, _Mapping]] = ..., note_audit: _Optional[_Union[_audit_pb2.NoteAudit, _Mapping]] = ..., mark_audit_written: _Optional[_Union[_audit_pb2.MarkAuditWritten, _Mapping]] = ..., create_token: _Optional[_Union[_tokens_pb2.PlacedCreateToken, _Mapping]] = ..., revoke_token: _Optional[_Union[_tokens_pb2.RevokeTokenRequest, _Mapping]] = ..., set_quota: _Optional[_Union[_quotas_pb2.SetQuotaRequest, _Mapping]] = ..., remove_quota: _Optional[_Union[_quotas_pb2.RemoveQuotaRequest, _Mapping]] = ..., time_is_provisional: bool = ...) -> None: ...

class SetClusterVersion(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class NameCluster(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class MarkLogEnds(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[MarkLogEnd]
    def __init__(self, marks: _Optional[_Iterable[_Union[MarkLogEnd, _Mapping]]] = ...) -> None: ...

class PlacedCreateRange(_message.Message):
    __slots__ = ("request", "replicas")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    request: _pd_pb2.CreateRangeRequest
    replicas: _containers.RepeatedCompositeFieldContainer[_common_pb2.Replica]
    def __init__(self, request: _Optional[_Union[_pd_pb2.CreateRangeRequest, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[_common_pb2.Replica, _Mapping]]] = ...) -> None: ...

class PlacedSealRange(_message.Message):
    __slots__ = ("request", "replicas")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    request: _pd_pb2.SealRangeRequest
    replicas: _containers.RepeatedCompositeFieldContainer[_common_pb2.Replica]
    def __init__(self, request: _Optional[_Union[_pd_pb2.SealRangeRequest, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[_common_pb2.Replica, _Mapping]]] = ...) -> None: ...

class PlacedSealRanges(_message.Message):
    __slots__ = ("seals",)
    SEALS_FIELD_NUMBER: _ClassVar[int]
    seals: _containers.RepeatedCompositeFieldContainer[PlacedSealRange]
    def __init__(self, seals: _Optional[_Iterable[_Union[PlacedSealRange, _Mapping]]] = ...) -> None: ...

class MarkLogEnd(_message.Message):
    __slots__ = ("server", "incarnation", "log_end")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    server: str
    incarnation: int
    log_end: int
    def __init__(self, server: _Optional[str] = ..., incarnation: _Optional[int] = ..., log_end: _Optional[int] = ...) -> None: ...

class TimedPrepareObject(_message.Message):
    __slots__ = ("request", "deadline_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    request: _pd_pb2.PrepareObjectRequest
    deadline_ms: int
    def __init__(self, request: _Optional[_Union[_pd_pb2.PrepareObjectRequest, _Mapping]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class TimedPrepareRepack(_message.Message):
    __slots__ = ("request", "deadline_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    request: _pd_pb2.PrepareRepackRequest
    deadline_ms: int
    def __init__(self, request: _Optional[_Union[_pd_pb2.PrepareRepackRequest, _Mapping]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class AbandonObject(_message.Message):
    __slots__ = ("object_id",)
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    object_id: int
    def __init__(self, object_id: _Optional[int] = ...) -> None: ...

class CollectObjects(_message.Message):
    __slots__ = ("object_ids",)
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    object_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, object_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ContinueTopic(_message.Message):
    __slots__ = ("topic_id", "covered")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    covered: _containers.RepeatedCompositeFieldContainer[_topic_pb2.ShardPosition]
    def __init__(self, topic_id: _Optional[int] = ..., covered: _Optional[_Iterable[_Union[_topic_pb2.ShardPosition, _Mapping]]] = ...) -> None: ...

class RetainTopic(_message.Message):
    __slots__ = ("request", "covered", "by_consumption")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    BY_CONSUMPTION_FIELD_NUMBER: _ClassVar[int]
    request: _topic_pb2.TruncateTopicRequest
    covered: _containers.RepeatedCompositeFieldContainer[_topic_pb2.ShardPosition]
    by_consumption: bool
    def __init__(self, request: _Optional[_Union[_topic_pb2.TruncateTopicRequest, _Mapping]] = ..., covered: _Optional[_Iterable[_Union[_topic_pb2.ShardPosition, _Mapping]]] = ..., by_consumption: bool = ...) -> None: ...

class TakeCuts(_message.Message):
    __slots__ = ("topic_ids",)
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StartOwnScale(_message.Message):
    __slots__ = ("request", "reason")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request: _topic_pb2.StartScaleRequest
    reason: str
    def __init__(self, request: _Optional[_Union[_topic_pb2.StartScaleRequest, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class MarkBrokerLost(_message.Message):
    __slots__ = ("name", "incarnation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class AssignShards(_message.Message):
    __slots__ = ("assignments",)
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[_broker_pb2.Assignment]
    def __init__(self, assignments: _Optional[_Iterable[_Union[_broker_pb2.Assignment, _Mapping]]] = ...) -> None: ...

class RetainStream(_message.Message):
    __slots__ = ("stream_id", "trim_offset", "passed", "expiring")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    TRIM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    trim_offset: int
    passed: bool
    expiring: _containers.RepeatedCompositeFieldContainer[ExpiringCursor]
    def __init__(self, stream_id: _Optional[int] = ..., trim_offset: _Optional[int] = ..., passed: bool = ..., expiring: _Optional[_Iterable[_Union[ExpiringCursor, _Mapping]]] = ...) -> None: ...

class ExpiringCursor(_message.Message):
    __slots__ = ("name", "set_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    set_ms: int
    def __init__(self, name: _Optional[str] = ..., set_ms: _Optional[int] = ...) -> None: ...

class DropHot(_message.Message):
    __slots__ = ("stream_id", "range_index")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ...) -> None: ...

class ReplaceReplica(_message.Message):
    __slots__ = ("stream_id", "range_index", "lost", "replacement")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    lost: _common_pb2.Replica
    replacement: _common_pb2.Replica
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., lost: _Optional[_Union[_common_pb2.Replica, _Mapping]] = ..., replacement: _Optional[_Union[_common_pb2.Replica, _Mapping]] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("response", "error_code", "error_message", "error_epoch", "error_offset", "has_error_offset")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HAS_ERROR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    response: bytes
    error_code: str
    error_message: str
    error_epoch: int
    error_offset: int
    has_error_offset: bool
    def __init__(self, response: _Optional[bytes] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., error_epoch: _Optional[int] = ..., error_offset: _Optional[int] = ..., has_error_offset: bool = ...) -> None: ...

class KeptResult(_message.Message):
    __slots__ = ("request_id", "now_ms", "result")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    now_ms: int
    result: bytes
    def __init__(self, request_id: _Optional[str] = ..., now_ms: _Optional[int] = ..., result: _Optional[bytes] = ...) -> None: ...

class RegisteredServer(_message.Message):
    __slots__ = ("server", "log_end", "retired", "mode")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.Server
    log_end: int
    retired: _containers.RepeatedScalarFieldContainer[int]
    mode: _common_pb2.ServerMode
    def __init__(self, server: _Optional[_Union[_common_pb2.Server, _Mapping]] = ..., log_end: _Optional[int] = ..., retired: _Optional[_Iterable[int]] = ..., mode: _Optional[_Union[_common_pb2.ServerMode, str]] = ...) -> None: ...

class StateSnapshot(_message.Message):
    __slots__ = ("version", "cluster_id", "next_stream_id", "next_object_id", "streams", "ranges", "objects", "servers", "results", "time_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    cluster_id: str
    next_stream_id: int
    next_object_id: int
    streams: _containers.RepeatedCompositeFieldContainer[_common_pb2.Stream]
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.Range]
    objects: _containers.RepeatedCompositeFieldContainer[_common_pb2.Object]
    servers: _containers.RepeatedCompositeFieldContainer[RegisteredServer]
    results: _containers.RepeatedCompositeFieldContainer[KeptResult]
    time_ms: int
    def __init__(self, version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., next_stream_id: _Optional[int] = ..., next_object_id: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[_common_pb2.Stream, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ..., objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ..., servers: _Optional[_Iterable[_Union[RegisteredServer, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[KeptResult, _Mapping]]] = ..., time_ms: _Optional[int] = ...) -> None: ...

class Section(_message.Message):
    __slots__ = ("kind", "version", "rows")
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    kind: SectionKind
    version: int
    rows: bytes
    def __init__(self, kind: _Optional[_Union[SectionKind, str]] = ..., version: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class SnapshotHeader(_message.Message):
    __slots__ = ("cluster_id", "cluster_version", "time_ms", "next_stream_id", "next_object_id", "next_topic_id", "next_cursor_version", "broker_version", "restore", "lost_streams_from", "lost_streams_to", "rights_version", "rights_enforced", "audit", "tokens_version", "quotas_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    LOST_STREAMS_FROM_FIELD_NUMBER: _ClassVar[int]
    LOST_STREAMS_TO_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_ENFORCED_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    cluster_version: int
    time_ms: int
    next_stream_id: int
    next_object_id: int
    next_topic_id: int
    next_cursor_version: int
    broker_version: int
    restore: _restore_status_pb2.RestoreMark
    lost_streams_from: int
    lost_streams_to: int
    rights_version: int
    rights_enforced: bool
    audit: _audit_pb2.AuditState
    tokens_version: int
    quotas_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., cluster_version: _Optional[int] = ..., time_ms: _Optional[int] = ..., next_stream_id: _Optional[int] = ..., next_object_id: _Optional[int] = ..., next_topic_id: _Optional[int] = ..., next_cursor_version: _Optional[int] = ..., broker_version: _Optional[int] = ..., restore: _Optional[_Union[_restore_status_pb2.RestoreMark, _Mapping]] = ..., lost_streams_from: _Optional[int] = ..., lost_streams_to: _Optional[int] = ..., rights_version: _Optional[int] = ..., rights_enforced: bool = ..., audit: _Optional[_Union[_audit_pb2.AuditState, _Mapping]] = ..., tokens_version: _Optional[int] = ..., quotas_version: _Optional[int] = ...) -> None: ...

class SnapshotRows(_message.Message):
    __slots__ = ("streams", "ranges", "objects", "servers", "results", "namespaces", "topics", "shards", "topic_work", "brokers", "assignments", "retention_cuts", "consumed_cuts", "tier_stores", "cursors", "access_rules", "audit_entries", "tokens", "token_keys", "quotas")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_WORK_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_CUTS_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_CUTS_FIELD_NUMBER: _ClassVar[int]
    TIER_STORES_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_RULES_FIELD_NUMBER: _ClassVar[int]
    AUDIT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_KEYS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[_common_pb2.Stream]
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.Range]
    objects: _containers.RepeatedCompositeFieldContainer[_common_pb2.Object]
    servers: _containers.RepeatedCompositeFieldContainer[RegisteredServer]
    results: _containers.RepeatedCompositeFieldContainer[KeptResult]
    namespaces: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Namespace]
    topics: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Topic]
    shards: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Shard]
    topic_work: _containers.RepeatedCompositeFieldContainer[_topic_pb2.TopicWork]
    brokers: _containers.RepeatedCompositeFieldContainer[_broker_pb2.Broker]
    assignments: _containers.RepeatedCompositeFieldContainer[_broker_pb2.Assignment]
    retention_cuts: _containers.RepeatedCompositeFieldContainer[_topic_pb2.RetentionCut]
    consumed_cuts: _containers.RepeatedCompositeFieldContainer[_topic_pb2.ConsumedCut]
    tier_stores: _containers.RepeatedCompositeFieldContainer[_tier_pb2.TierStore]
    cursors: _containers.RepeatedCompositeFieldContainer[_cursor_pb2.Cursor]
    access_rules: _containers.RepeatedCompositeFieldContainer[_rights_pb2.AccessRule]
    audit_entries: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditEntry]
    tokens: _containers.RepeatedCompositeFieldContainer[_tokens_pb2.TokenRow]
    token_keys: _containers.RepeatedCompositeFieldContainer[_tokens_pb2.TokenKey]
    quotas: _containers.RepeatedCompositeFieldContainer[_quotas_pb2.Quota]
    def __init__(self, streams: _Optional[_Iterable[_Union[_common_pb2.Stream, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ..., objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ..., servers: _Optional[_Iterable[_Union[RegisteredServer, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[KeptResult, _Mapping]]] = ..., namespaces: _Optional[_Iterable[_Union[_topic_pb2.Namespace, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[_topic_pb2.Topic, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[_topic_pb2.Shard, _Mapping]]] = ..., topic_work: _Optional[_Iterable[_Union[_topic_pb2.TopicWork, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[_broker_pb2.Broker, _Mapping]]] = ..., assignments: _Optional[_Iterable[_Union[_broker_pb2.Assignment, _Mapping]]] = ..., retention_cuts: _Optional[_Iterable[_Union[_topic_pb2.RetentionCut, _Mapping]]] = ..., consumed_cuts: _Optional[_Iterable[_Union[_topic_pb2.ConsumedCut, _Mapping]]] = ..., tier_stores: _Optional[_Iterable[_Union[_tier_pb2.TierStore, _Mapping]]] = ..., cursors: _Optional[_Iterable[_Union[_cursor_pb2.Cursor, _Mapping]]] = ..., access_rules: _Optional[_Iterable[_Union[_rights_pb2.AccessRule, _Mapping]]] = ..., audit_entries: _Optional[_Iterable[_Union[_audit_pb2.AuditEntry, _Mapping]]] = ..., tokens: _Optional[_Iterable[_Union[_tokens_pb2.TokenRow, _Mapping]]] = ..., token_keys: _Optional[_Iterable[_Union[_tokens_pb2.TokenKey, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[_quotas_pb2.Quota, _Mapping]]] = ...) -> None: ...
