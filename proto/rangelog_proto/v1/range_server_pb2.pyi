from rangelog_proto.v1 import pd_pb2 as _pd_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("server", "incarnation", "boot", "data_address", "log_end", "used_bytes", "replica_count", "connection_count", "flush_count", "appended_bytes", "registered", "version", "wall_ms", "disk_free_bytes", "disk_total_bytes", "capacity_bytes", "log_problem", "append_count", "append_record_count", "fetched_bytes", "pending_bytes", "log_keys", "log_key_problem")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_COUNT_FIELD_NUMBER: _ClassVar[int]
    APPENDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    APPEND_COUNT_FIELD_NUMBER: _ClassVar[int]
    APPEND_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PENDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_KEYS_FIELD_NUMBER: _ClassVar[int]
    LOG_KEY_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    server: str
    incarnation: int
    boot: int
    data_address: str
    log_end: int
    used_bytes: int
    replica_count: int
    connection_count: int
    flush_count: int
    appended_bytes: int
    registered: bool
    version: str
    wall_ms: int
    disk_free_bytes: int
    disk_total_bytes: int
    capacity_bytes: int
    log_problem: str
    append_count: int
    append_record_count: int
    fetched_bytes: int
    pending_bytes: int
    log_keys: _containers.RepeatedCompositeFieldContainer[LogKeyUse]
    log_key_problem: str
    def __init__(self, server: _Optional[str] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., data_address: _Optional[str] = ..., log_end: _Optional[int] = ..., used_bytes: _Optional[int] = ..., replica_count: _Optional[int] = ..., connection_count: _Optional[int] = ..., flush_count: _Optional[int] = ..., appended_bytes: _Optional[int] = ..., registered: bool = ..., version: _Optional[str] = ..., wall_ms: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., log_problem: _Optional[str] = ..., append_count: _Optional[int] = ..., append_record_count: _Optional[int] = ..., fetched_bytes: _Optional[int] = ..., pending_bytes: _Optional[int] = ..., log_keys: _Optional[_Iterable[_Union[LogKeyUse, _Mapping]]] = ..., log_key_problem: _Optional[str] = ...) -> None: ...

class LogKeyUse(_message.Message):
    __slots__ = ("key_id", "file_count", "size_bytes")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    file_count: int
    size_bytes: int
    def __init__(self, key_id: _Optional[str] = ..., file_count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListReplicasRequest(_message.Message):
    __slots__ = ("stream_id", "page_size", "page_token", "without_writer")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_WRITER_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    page_size: int
    page_token: str
    without_writer: bool
    def __init__(self, stream_id: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., without_writer: bool = ...) -> None: ...

class ListReplicasResponse(_message.Message):
    __slots__ = ("replicas", "next_page_token")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[_pd_pb2.ReplicaReport]
    next_page_token: str
    def __init__(self, replicas: _Optional[_Iterable[_Union[_pd_pb2.ReplicaReport, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class BatchPlace(_message.Message):
    __slots__ = ("base_offset", "count", "length_bytes", "crc", "timestamp_ms_min", "timestamp_ms_max", "log_file", "log_position")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    count: int
    length_bytes: int
    crc: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    log_file: int
    log_position: int
    def __init__(self, base_offset: _Optional[int] = ..., count: _Optional[int] = ..., length_bytes: _Optional[int] = ..., crc: _Optional[int] = ..., timestamp_ms_min: _Optional[int] = ..., timestamp_ms_max: _Optional[int] = ..., log_file: _Optional[int] = ..., log_position: _Optional[int] = ...) -> None: ...

class LocateBatchRequest(_message.Message):
    __slots__ = ("stream_id", "range_index", "offset", "last")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    offset: int
    last: bool
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., offset: _Optional[int] = ..., last: bool = ...) -> None: ...

class LocateBatchResponse(_message.Message):
    __slots__ = ("replica", "batch", "writer_connected", "writer")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WRITER_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    replica: _pd_pb2.ReplicaReport
    batch: BatchPlace
    writer_connected: bool
    writer: str
    def __init__(self, replica: _Optional[_Union[_pd_pb2.ReplicaReport, _Mapping]] = ..., batch: _Optional[_Union[BatchPlace, _Mapping]] = ..., writer_connected: bool = ..., writer: _Optional[str] = ...) -> None: ...

class ListBatchesRequest(_message.Message):
    __slots__ = ("stream_id", "range_index", "from_offset", "end_offset", "page_size", "read")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    from_offset: int
    end_offset: int
    page_size: int
    read: bool
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., from_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., page_size: _Optional[int] = ..., read: bool = ...) -> None: ...

class ListBatchesResponse(_message.Message):
    __slots__ = ("replica", "batches", "problem", "problem_offset", "read_bytes")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    replica: _pd_pb2.ReplicaReport
    batches: _containers.RepeatedCompositeFieldContainer[BatchSum]
    problem: str
    problem_offset: int
    read_bytes: int
    def __init__(self, replica: _Optional[_Union[_pd_pb2.ReplicaReport, _Mapping]] = ..., batches: _Optional[_Iterable[_Union[BatchSum, _Mapping]]] = ..., problem: _Optional[str] = ..., problem_offset: _Optional[int] = ..., read_bytes: _Optional[int] = ...) -> None: ...

class BatchSum(_message.Message):
    __slots__ = ("base_offset", "count", "crc", "length_bytes")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    count: int
    crc: int
    length_bytes: int
    def __init__(self, base_offset: _Optional[int] = ..., count: _Optional[int] = ..., crc: _Optional[int] = ..., length_bytes: _Optional[int] = ...) -> None: ...
