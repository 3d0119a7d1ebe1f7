from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_FLUSHED: _ClassVar[Durability]
    DURABILITY_MEMORY: _ClassVar[Durability]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNSPECIFIED: _ClassVar[Compression]
    COMPRESSION_NONE: _ClassVar[Compression]
    COMPRESSION_ZSTD: _ClassVar[Compression]

class RangeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RANGE_STATE_UNSPECIFIED: _ClassVar[RangeState]
    RANGE_STATE_OPEN: _ClassVar[RangeState]
    RANGE_STATE_SEALED: _ClassVar[RangeState]

class CursorRetention(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CURSOR_RETENTION_UNSPECIFIED: _ClassVar[CursorRetention]
    CURSOR_RETENTION_KEEP: _ClassVar[CursorRetention]
    CURSOR_RETENTION_TRIM: _ClassVar[CursorRetention]
    CURSOR_RETENTION_KEEP_AND_TRIM: _ClassVar[CursorRetention]

class ReplicaReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_REASON_UNSPECIFIED: _ClassVar[ReplicaReason]
    REPLICA_REASON_LEAST_LOADED: _ClassVar[ReplicaReason]
    REPLICA_REASON_NEW_ZONE: _ClassVar[ReplicaReason]
    REPLICA_REASON_NEW_RACK: _ClassVar[ReplicaReason]
    REPLICA_REASON_ONLY_CHOICE: _ClassVar[ReplicaReason]
    REPLICA_REASON_REPLACES_LOST: _ClassVar[ReplicaReason]
    REPLICA_REASON_FILLS_PLACE: _ClassVar[ReplicaReason]
    REPLICA_REASON_REBALANCED: _ClassVar[ReplicaReason]
    REPLICA_REASON_LEFT: _ClassVar[ReplicaReason]

class ObjectState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECT_STATE_UNSPECIFIED: _ClassVar[ObjectState]
    OBJECT_STATE_PREPARED: _ClassVar[ObjectState]
    OBJECT_STATE_COMMITTED: _ClassVar[ObjectState]
    OBJECT_STATE_DELETED: _ClassVar[ObjectState]

class ServerHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVER_HEALTH_UNSPECIFIED: _ClassVar[ServerHealth]
    SERVER_HEALTH_ALIVE: _ClassVar[ServerHealth]
    SERVER_HEALTH_SUSPECT: _ClassVar[ServerHealth]
    SERVER_HEALTH_DEAD: _ClassVar[ServerHealth]

class ServerMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVER_MODE_UNSPECIFIED: _ClassVar[ServerMode]
    SERVER_MODE_ACTIVE: _ClassVar[ServerMode]
    SERVER_MODE_CORDONED: _ClassVar[ServerMode]
    SERVER_MODE_DRAINING: _ClassVar[ServerMode]
    SERVER_MODE_REMOVED: _ClassVar[ServerMode]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_FLUSHED: Durability
DURABILITY_MEMORY: Durability
COMPRESSION_UNSPECIFIED: Compression
COMPRESSION_NONE: Compression
COMPRESSION_ZSTD: Compression
RANGE_STATE_UNSPECIFIED: RangeState
RANGE_STATE_OPEN: RangeState
RANGE_STATE_SEALED: RangeState
CURSOR_RETENTION_UNSPECIFIED: CursorRetention
CURSOR_RETENTION_KEEP: CursorRetention
CURSOR_RETENTION_TRIM: CursorRetention
CURSOR_RETENTION_KEEP_AND_TRIM: CursorRetention
REPLICA_REASON_UNSPECIFIED: ReplicaReason
REPLICA_REASON_LEAST_LOADED: ReplicaReason
REPLICA_REASON_NEW_ZONE: ReplicaReason
REPLICA_REASON_NEW_RACK: ReplicaReason
REPLICA_REASON_ONLY_CHOICE: ReplicaReason
REPLICA_REASON_REPLACES_LOST: ReplicaReason
REPLICA_REASON_FILLS_PLACE: ReplicaReason
REPLICA_REASON_REBALANCED: ReplicaReason
REPLICA_REASON_LEFT: ReplicaReason
OBJECT_STATE_UNSPECIFIED: ObjectState
OBJECT_STATE_PREPARED: ObjectState
OBJECT_STATE_COMMITTED: ObjectState
OBJECT_STATE_DELETED: ObjectState
SERVER_HEALTH_UNSPECIFIED: ServerHealth
SERVER_HEALTH_ALIVE: ServerHealth
SERVER_HEALTH_SUSPECT: ServerHealth
SERVER_HEALTH_DEAD: ServerHealth
SERVER_MODE_UNSPECIFIED: ServerMode
SERVER_MODE_ACTIVE: ServerMode
SERVER_MODE_CORDONED: ServerMode
SERVER_MODE_DRAINING: ServerMode
SERVER_MODE_REMOVED: ServerMode

class StreamConfig(_message.Message):
    __slots__ = ("replicas", "acks", "range_size_bytes_max", "range_age_ms_max", "retention_ms", "retention_bytes", "hot_retention_ms", "durability", "compression", "tiered", "zones_min", "server_labels", "cursor_retention", "cursor_expiry_ms")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    RANGE_SIZE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    RANGE_AGE_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOT_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    TIERED_FIELD_NUMBER: _ClassVar[int]
    ZONES_MIN_FIELD_NUMBER: _ClassVar[int]
    SERVER_LABELS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_RETENTION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    replicas: int
    acks: int
    range_size_bytes_max: int
    range_age_ms_max: int
    retention_ms: int
    retention_bytes: int
    hot_retention_ms: int
    durability: Durability
    compression: Compression
    tiered: bool
    zones_min: int
    server_labels: _containers.RepeatedScalarFieldContainer[str]
    cursor_retention: CursorRetention
    cursor_expiry_ms: int
    def __init__(self, replicas: _Optional[int] = ..., acks: _Optional[int] = ..., range_size_bytes_max: _Optional[int] = ..., range_age_ms_max: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., hot_retention_ms: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., compression: _Optional[_Union[Compression, str]] = ..., tiered: bool = ..., zones_min: _Optional[int] = ..., server_labels: _Optional[_Iterable[str]] = ..., cursor_retention: _Optional[_Union[CursorRetention, str]] = ..., cursor_expiry_ms: _Optional[int] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("stream_id", "name", "config", "epoch", "trim_offset", "next_offset", "range_count", "created_ms", "version", "sealed_for_good", "repack_count", "writer")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRIM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEALED_FOR_GOOD_FIELD_NUMBER: _ClassVar[int]
    REPACK_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    name: str
    config: StreamConfig
    epoch: int
    trim_offset: int
    next_offset: int
    range_count: int
    created_ms: int
    version: int
    sealed_for_good: bool
    repack_count: int
    writer: str
    def __init__(self, stream_id: _Optional[int] = ..., name: _Optional[str] = ..., config: _Optional[_Union[StreamConfig, _Mapping]] = ..., epoch: _Optional[int] = ..., trim_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., range_count: _Optional[int] = ..., created_ms: _Optional[int] = ..., version: _Optional[int] = ..., sealed_for_good: bool = ..., repack_count: _Optional[int] = ..., writer: _Optional[str] = ...) -> None: ...

class FormatVersions(_message.Message):
    __slots__ = ("format", "lowest", "highest")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    format: str
    lowest: int
    highest: int
    def __init__(self, format: _Optional[str] = ..., lowest: _Optional[int] = ..., highest: _Optional[int] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("server", "incarnation", "data_address", "health", "reason")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    server: str
    incarnation: int
    data_address: str
    health: ServerHealth
    reason: ReplicaReason
    def __init__(self, server: _Optional[str] = ..., incarnation: _Optional[int] = ..., data_address: _Optional[str] = ..., health: _Optional[_Union[ServerHealth, str]] = ..., reason: _Optional[_Union[ReplicaReason, str]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("stream_id", "index", "epoch", "start_offset", "end_offset", "state", "replicas", "acks", "tiered_end_offset", "created_ms", "sealed_ms", "hot_dropped", "tiered_ms", "floor_offset", "durability", "packed_in", "lost")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TIERED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    SEALED_MS_FIELD_NUMBER: _ClassVar[int]
    HOT_DROPPED_FIELD_NUMBER: _ClassVar[int]
    TIERED_MS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PACKED_IN_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    index: int
    epoch: int
    start_offset: int
    end_offset: int
    state: RangeState
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    acks: int
    tiered_end_offset: int
    created_ms: int
    sealed_ms: int
    hot_dropped: bool
    tiered_ms: int
    floor_offset: int
    durability: Durability
    packed_in: int
    lost: bool
    def __init__(self, stream_id: _Optional[int] = ..., index: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., state: _Optional[_Union[RangeState, str]] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., acks: _Optional[int] = ..., tiered_end_offset: _Optional[int] = ..., created_ms: _Optional[int] = ..., sealed_ms: _Optional[int] = ..., hot_dropped: bool = ..., tiered_ms: _Optional[int] = ..., floor_offset: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., packed_in: _Optional[int] = ..., lost: bool = ...) -> None: ...

class RowGroup(_message.Message):
    __slots__ = ("start_offset", "count", "timestamp_ms_min", "timestamp_ms_max")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    count: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    def __init__(self, start_offset: _Optional[int] = ..., count: _Optional[int] = ..., timestamp_ms_min: _Optional[int] = ..., timestamp_ms_max: _Optional[int] = ...) -> None: ...

class Object(_message.Message):
    __slots__ = ("object_id", "stream_id", "range_index", "epoch", "start_offset", "end_offset", "key", "size_bytes", "digest", "state", "server", "incarnation", "prepare_deadline_ms", "committed_ms", "timestamp_ms_min", "timestamp_ms_max", "row_groups", "footer_size_bytes", "footer_crc", "deleted_ms", "replaces", "tier_id", "encryption_key_id")
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PREPARE_DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    FOOTER_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOOTER_CRC_FIELD_NUMBER: _ClassVar[int]
    DELETED_MS_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    TIER_ID_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    object_id: int
    stream_id: int
    range_index: int
    epoch: int
    start_offset: int
    end_offset: int
    key: str
    size_bytes: int
    digest: str
    state: ObjectState
    server: str
    incarnation: int
    prepare_deadline_ms: int
    committed_ms: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    row_groups: _containers.RepeatedCompositeFieldContainer[RowGroup]
    footer_size_bytes: int
    footer_crc: int
    deleted_ms: int
    replaces: _containers.RepeatedScalarFieldContainer[int]
    tier_id: int
    encryption_key_id: str
    def __init__(self, object_id: _Optional[int] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., key: _Optional[str] = ..., size_bytes: _Optional[int] = ..., digest: _Optional[str] = ..., state: _Optional[_Union[ObjectState, str]] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., prepare_deadline_ms: _Optional[int] = ..., committed_ms: _Optional[int] = ..., timestamp_ms_min: _Optional[int] = ..., timestamp_ms_max: _Optional[int] = ..., row_groups: _Optional[_Iterable[_Union[RowGroup, _Mapping]]] = ..., footer_size_bytes: _Optional[int] = ..., footer_crc: _Optional[int] = ..., deleted_ms: _Optional[int] = ..., replaces: _Optional[_Iterable[int]] = ..., tier_id: _Optional[int] = ..., encryption_key_id: _Optional[str] = ...) -> None: ...

class Server(_message.Message):
    __slots__ = ("name", "incarnation", "boot", "data_address", "control_address", "zone", "health", "replica_count", "used_bytes", "capacity_bytes", "last_heartbeat_ms", "version", "process_id", "formats", "mode", "labels", "rack", "host", "health_reason", "open_range_count", "feature_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    HEALTH_REASON_FIELD_NUMBER: _ClassVar[int]
    OPEN_RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    boot: int
    data_address: str
    control_address: str
    zone: str
    health: ServerHealth
    replica_count: int
    used_bytes: int
    capacity_bytes: int
    last_heartbeat_ms: int
    version: str
    process_id: int
    formats: _containers.RepeatedCompositeFieldContainer[FormatVersions]
    mode: ServerMode
    labels: _containers.RepeatedScalarFieldContainer[str]
    rack: str
    host: str
    health_reason: str
    open_range_count: int
    feature_level: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., data_address: _Optional[str] = ..., control_address: _Optional[str] = ..., zone: _Optional[str] = ..., health: _Optional[_Union[ServerHealth, str]] = ..., replica_count: _Optional[int] = ..., used_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., last_heartbeat_ms: _Optional[int] = ..., version: _Optional[str] = ..., process_id: _Optional[int] = ..., formats: _Optional[_Iterable[_Union[FormatVersions, _Mapping]]] = ..., mode: _Optional[_Union[ServerMode, str]] = ..., labels: _Optional[_Iterable[str]] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ..., health_reason: _Optional[str] = ..., open_range_count: _Optional[int] = ..., feature_level: _Optional[int] = ...) -> None: ...
