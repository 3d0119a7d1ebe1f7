from rangelog_proto.v1 import broker_pb2 as _broker_pb2
from rangelog_proto.v1 import common_pb2 as _common_pb2
from rangelog_proto.v1 import restore_status_pb2 as _restore_status_pb2
from rangelog_proto.v1 import topic_pb2 as _topic_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_STATE_UNSPECIFIED: _ClassVar[ReplicaState]
    REPLICA_STATE_OPEN: _ClassVar[ReplicaState]
    REPLICA_STATE_FENCED: _ClassVar[ReplicaState]
    REPLICA_STATE_SEALED: _ClassVar[ReplicaState]
    REPLICA_STATE_INCOMPLETE: _ClassVar[ReplicaState]
    REPLICA_STATE_QUARANTINED: _ClassVar[ReplicaState]
REPLICA_STATE_UNSPECIFIED: ReplicaState
REPLICA_STATE_OPEN: ReplicaState
REPLICA_STATE_FENCED: ReplicaState
REPLICA_STATE_SEALED: ReplicaState
REPLICA_STATE_INCOMPLETE: ReplicaState
REPLICA_STATE_QUARANTINED: ReplicaState

class CreateStreamRequest(_message.Message):
    __slots__ = ("request_id", "name", "config")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    config: _common_pb2.StreamConfig
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Union[_common_pb2.StreamConfig, _Mapping]] = ...) -> None: ...

class CreateStreamResponse(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ...) -> None: ...

class DescribeStreamRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeStreamResponse(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ("prefix", "page_token", "page_size")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_token: str
    page_size: int
    def __init__(self, prefix: _Optional[str] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams", "next_page_token")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[_common_pb2.Stream]
    next_page_token: str
    def __init__(self, streams: _Optional[_Iterable[_Union[_common_pb2.Stream, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateStreamRequest(_message.Message):
    __slots__ = ("request_id", "name", "config", "fields", "expected_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    config: _common_pb2.StreamConfig
    fields: _containers.RepeatedScalarFieldContainer[str]
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Union[_common_pb2.StreamConfig, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class UpdateStreamResponse(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ...) -> None: ...

class DeleteStreamRequest(_message.Message):
    __slots__ = ("request_id", "name", "expected_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteStreamResponse(_message.Message):
    __slots__ = ("stream", "open_range")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OPEN_RANGE_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    open_range: _common_pb2.Range
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ..., open_range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ...) -> None: ...

class TrimStreamRequest(_message.Message):
    __slots__ = ("request_id", "name", "trim_offset", "stream_id", "expected_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRIM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    trim_offset: int
    stream_id: int
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., trim_offset: _Optional[int] = ..., stream_id: _Optional[int] = ..., expected_version: _Optional[int] = ...) -> None: ...

class TrimStreamResponse(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ...) -> None: ...

class OpenWriterRequest(_message.Message):
    __slots__ = ("request_id", "name", "writer", "stream_id", "expected_epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    writer: str
    stream_id: int
    expected_epoch: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., writer: _Optional[str] = ..., stream_id: _Optional[int] = ..., expected_epoch: _Optional[int] = ...) -> None: ...

class OpenWriterResponse(_message.Message):
    __slots__ = ("stream", "last_range", "earlier_ranges")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LAST_RANGE_FIELD_NUMBER: _ClassVar[int]
    EARLIER_RANGES_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    last_range: _common_pb2.Range
    earlier_ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.Range]
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ..., last_range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ..., earlier_ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ...) -> None: ...

class CreateRangeRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "epoch", "start_offset", "exclude_servers")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_SERVERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    epoch: int
    start_offset: int
    exclude_servers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., exclude_servers: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateRangeResponse(_message.Message):
    __slots__ = ("range",)
    RANGE_FIELD_NUMBER: _ClassVar[int]
    range: _common_pb2.Range
    def __init__(self, range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ...) -> None: ...

class SealRangeRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "range_index", "epoch", "end_offset", "create_next", "exclude_servers", "exclude_strictly")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CREATE_NEXT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_SERVERS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_STRICTLY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    range_index: int
    epoch: int
    end_offset: int
    create_next: bool
    exclude_servers: _containers.RepeatedScalarFieldContainer[str]
    exclude_strictly: bool
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., create_next: bool = ..., exclude_servers: _Optional[_Iterable[str]] = ..., exclude_strictly: bool = ...) -> None: ...

class SealRangeResponse(_message.Message):
    __slots__ = ("range", "next_range")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_RANGE_FIELD_NUMBER: _ClassVar[int]
    range: _common_pb2.Range
    next_range: _common_pb2.Range
    def __init__(self, range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ..., next_range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ...) -> None: ...

class CallError(_message.Message):
    __slots__ = ("code", "message", "epoch", "offset", "has_offset")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    HAS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    epoch: int
    offset: int
    has_offset: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., epoch: _Optional[int] = ..., offset: _Optional[int] = ..., has_offset: bool = ...) -> None: ...

class OpenWritersRequest(_message.Message):
    __slots__ = ("request_id", "writers")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    writers: _containers.RepeatedCompositeFieldContainer[OpenWriterRequest]
    def __init__(self, request_id: _Optional[str] = ..., writers: _Optional[_Iterable[_Union[OpenWriterRequest, _Mapping]]] = ...) -> None: ...

class OpenWritersResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OpenWriterResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OpenWriterResult, _Mapping]]] = ...) -> None: ...

class OpenWriterResult(_message.Message):
    __slots__ = ("response", "error")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    response: OpenWriterResponse
    error: CallError
    def __init__(self, response: _Optional[_Union[OpenWriterResponse, _Mapping]] = ..., error: _Optional[_Union[CallError, _Mapping]] = ...) -> None: ...

class SealRangesRequest(_message.Message):
    __slots__ = ("request_id", "seals")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEALS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    seals: _containers.RepeatedCompositeFieldContainer[SealRangeRequest]
    def __init__(self, request_id: _Optional[str] = ..., seals: _Optional[_Iterable[_Union[SealRangeRequest, _Mapping]]] = ...) -> None: ...

class SealRangesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SealRangeResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SealRangeResult, _Mapping]]] = ...) -> None: ...

class SealRangeResult(_message.Message):
    __slots__ = ("response", "error")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    response: SealRangeResponse
    error: CallError
    def __init__(self, response: _Optional[_Union[SealRangeResponse, _Mapping]] = ..., error: _Optional[_Union[CallError, _Mapping]] = ...) -> None: ...

class ProveEndRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "range_index", "end_offset", "holders")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    range_index: int
    end_offset: int
    holders: _containers.RepeatedCompositeFieldContainer[_common_pb2.Replica]
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., end_offset: _Optional[int] = ..., holders: _Optional[_Iterable[_Union[_common_pb2.Replica, _Mapping]]] = ...) -> None: ...

class ProveEndResponse(_message.Message):
    __slots__ = ("range",)
    RANGE_FIELD_NUMBER: _ClassVar[int]
    range: _common_pb2.Range
    def __init__(self, range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ...) -> None: ...

class ListRangesRequest(_message.Message):
    __slots__ = ("stream_id", "name", "from_offset", "page_size", "from_index", "last_only")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_ONLY_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    name: str
    from_offset: int
    page_size: int
    from_index: int
    last_only: bool
    def __init__(self, stream_id: _Optional[int] = ..., name: _Optional[str] = ..., from_offset: _Optional[int] = ..., page_size: _Optional[int] = ..., from_index: _Optional[int] = ..., last_only: bool = ...) -> None: ...

class ListRangesResponse(_message.Message):
    __slots__ = ("ranges", "more", "stream")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.Range]
    more: bool
    stream: _common_pb2.Stream
    def __init__(self, ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ..., more: bool = ..., stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("session", "acked", "begin", "end", "wait_ms", "call", "begin_topics", "end_topics", "begin_broker")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TOPICS_FIELD_NUMBER: _ClassVar[int]
    END_TOPICS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_BROKER_FIELD_NUMBER: _ClassVar[int]
    session: int
    acked: int
    begin: _containers.RepeatedCompositeFieldContainer[WatchedStream]
    end: _containers.RepeatedScalarFieldContainer[int]
    wait_ms: int
    call: int
    begin_topics: _containers.RepeatedCompositeFieldContainer[WatchedTopic]
    end_topics: _containers.RepeatedScalarFieldContainer[int]
    begin_broker: str
    def __init__(self, session: _Optional[int] = ..., acked: _Optional[int] = ..., begin: _Optional[_Iterable[_Union[WatchedStream, _Mapping]]] = ..., end: _Optional[_Iterable[int]] = ..., wait_ms: _Optional[int] = ..., call: _Optional[int] = ..., begin_topics: _Optional[_Iterable[_Union[WatchedTopic, _Mapping]]] = ..., end_topics: _Optional[_Iterable[int]] = ..., begin_broker: _Optional[str] = ...) -> None: ...

class WatchedTopic(_message.Message):
    __slots__ = ("topic_id", "map_version")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    map_version: int
    def __init__(self, topic_id: _Optional[int] = ..., map_version: _Optional[int] = ...) -> None: ...

class WatchedStream(_message.Message):
    __slots__ = ("stream_id", "from_index")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    from_index: int
    def __init__(self, stream_id: _Optional[int] = ..., from_index: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("session", "sequence", "streams", "ranges", "deleted_stream_ids", "topics", "shards", "deleted_topic_ids", "assignments", "more")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DELETED_STREAM_IDS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    streams: _containers.RepeatedCompositeFieldContainer[_common_pb2.Stream]
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.Range]
    deleted_stream_ids: _containers.RepeatedScalarFieldContainer[int]
    topics: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Topic]
    shards: _containers.RepeatedCompositeFieldContainer[_topic_pb2.Shard]
    deleted_topic_ids: _containers.RepeatedScalarFieldContainer[int]
    assignments: _containers.RepeatedCompositeFieldContainer[_broker_pb2.Assignment]
    more: bool
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[_common_pb2.Stream, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.Range, _Mapping]]] = ..., deleted_stream_ids: _Optional[_Iterable[int]] = ..., topics: _Optional[_Iterable[_Union[_topic_pb2.Topic, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[_topic_pb2.Shard, _Mapping]]] = ..., deleted_topic_ids: _Optional[_Iterable[int]] = ..., assignments: _Optional[_Iterable[_Union[_broker_pb2.Assignment, _Mapping]]] = ..., more: bool = ...) -> None: ...

class PrepareObjectRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "range_index", "start_offset", "end_offset", "server", "incarnation", "spoiled_object_id", "encrypted")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SPOILED_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    range_index: int
    start_offset: int
    end_offset: int
    server: str
    incarnation: int
    spoiled_object_id: int
    encrypted: bool
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., spoiled_object_id: _Optional[int] = ..., encrypted: bool = ...) -> None: ...

class PrepareObjectResponse(_message.Message):
    __slots__ = ("object",)
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: _common_pb2.Object
    def __init__(self, object: _Optional[_Union[_common_pb2.Object, _Mapping]] = ...) -> None: ...

class CommitObjectRequest(_message.Message):
    __slots__ = ("request_id", "object_id", "server", "incarnation", "size_bytes", "digest", "row_groups", "epoch", "footer_size_bytes", "footer_crc", "encryption_key_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FOOTER_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOOTER_CRC_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    object_id: int
    server: str
    incarnation: int
    size_bytes: int
    digest: str
    row_groups: _containers.RepeatedCompositeFieldContainer[_common_pb2.RowGroup]
    epoch: int
    footer_size_bytes: int
    footer_crc: int
    encryption_key_id: str
    def __init__(self, request_id: _Optional[str] = ..., object_id: _Optional[int] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., size_bytes: _Optional[int] = ..., digest: _Optional[str] = ..., row_groups: _Optional[_Iterable[_Union[_common_pb2.RowGroup, _Mapping]]] = ..., epoch: _Optional[int] = ..., footer_size_bytes: _Optional[int] = ..., footer_crc: _Optional[int] = ..., encryption_key_id: _Optional[str] = ...) -> None: ...

class CommitObjectResponse(_message.Message):
    __slots__ = ("object",)
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: _common_pb2.Object
    def __init__(self, object: _Optional[_Union[_common_pb2.Object, _Mapping]] = ...) -> None: ...

class PrepareRepackRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "object_ids", "packer", "incarnation", "spoiled_object_id", "drops_trimmed", "encrypted")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    PACKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SPOILED_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    DROPS_TRIMMED_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    object_ids: _containers.RepeatedScalarFieldContainer[int]
    packer: str
    incarnation: int
    spoiled_object_id: int
    drops_trimmed: bool
    encrypted: bool
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., object_ids: _Optional[_Iterable[int]] = ..., packer: _Optional[str] = ..., incarnation: _Optional[int] = ..., spoiled_object_id: _Optional[int] = ..., drops_trimmed: bool = ..., encrypted: bool = ...) -> None: ...

class PrepareRepackResponse(_message.Message):
    __slots__ = ("object",)
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: _common_pb2.Object
    def __init__(self, object: _Optional[_Union[_common_pb2.Object, _Mapping]] = ...) -> None: ...

class CommitRepackRequest(_message.Message):
    __slots__ = ("request_id", "object_id", "packer", "size_bytes", "digest", "row_groups", "footer_size_bytes", "footer_crc", "encryption_key_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PACKER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    FOOTER_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOOTER_CRC_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    object_id: int
    packer: str
    size_bytes: int
    digest: str
    row_groups: _containers.RepeatedCompositeFieldContainer[_common_pb2.RowGroup]
    footer_size_bytes: int
    footer_crc: int
    encryption_key_id: str
    def __init__(self, request_id: _Optional[str] = ..., object_id: _Optional[int] = ..., packer: _Optional[str] = ..., size_bytes: _Optional[int] = ..., digest: _Optional[str] = ..., row_groups: _Optional[_Iterable[_Union[_common_pb2.RowGroup, _Mapping]]] = ..., footer_size_bytes: _Optional[int] = ..., footer_crc: _Optional[int] = ..., encryption_key_id: _Optional[str] = ...) -> None: ...

class CommitRepackResponse(_message.Message):
    __slots__ = ("object",)
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: _common_pb2.Object
    def __init__(self, object: _Optional[_Union[_common_pb2.Object, _Mapping]] = ...) -> None: ...

class ListObjectsRequest(_message.Message):
    __slots__ = ("stream_id", "name", "from_offset", "page_size", "state", "knows_encryption")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    KNOWS_ENCRYPTION_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    name: str
    from_offset: int
    page_size: int
    state: _common_pb2.ObjectState
    knows_encryption: bool
    def __init__(self, stream_id: _Optional[int] = ..., name: _Optional[str] = ..., from_offset: _Optional[int] = ..., page_size: _Optional[int] = ..., state: _Optional[_Union[_common_pb2.ObjectState, str]] = ..., knows_encryption: bool = ...) -> None: ...

class ListObjectsResponse(_message.Message):
    __slots__ = ("objects", "more")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[_common_pb2.Object]
    more: bool
    def __init__(self, objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ..., more: bool = ...) -> None: ...

class RegisterServerRequest(_message.Message):
    __slots__ = ("request_id", "server", "incarnation", "boot", "data_address", "control_address", "zone", "capacity_bytes", "version", "process_id", "log_end", "formats", "labels", "rack", "host")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    FORMATS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    server: str
    incarnation: int
    boot: int
    data_address: str
    control_address: str
    zone: str
    capacity_bytes: int
    version: str
    process_id: int
    log_end: int
    formats: _containers.RepeatedCompositeFieldContainer[_common_pb2.FormatVersions]
    labels: _containers.RepeatedScalarFieldContainer[str]
    rack: str
    host: str
    def __init__(self, request_id: _Optional[str] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., data_address: _Optional[str] = ..., control_address: _Optional[str] = ..., zone: _Optional[str] = ..., capacity_bytes: _Optional[int] = ..., version: _Optional[str] = ..., process_id: _Optional[int] = ..., log_end: _Optional[int] = ..., formats: _Optional[_Iterable[_Union[_common_pb2.FormatVersions, _Mapping]]] = ..., labels: _Optional[_Iterable[str]] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class RegisterServerResponse(_message.Message):
    __slots__ = ("cluster_id", "heartbeat_interval_ms", "tier_url", "rights_version", "tokens_version", "quotas_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    heartbeat_interval_ms: int
    tier_url: str
    rights_version: int
    tokens_version: int
    quotas_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., heartbeat_interval_ms: _Optional[int] = ..., tier_url: _Optional[str] = ..., rights_version: _Optional[int] = ..., tokens_version: _Optional[int] = ..., quotas_version: _Optional[int] = ...) -> None: ...

class ReplicaReport(_message.Message):
    __slots__ = ("stream_id", "range_index", "state", "start_offset", "durable_offset", "confirm_offset", "epoch", "size_bytes", "problem")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    state: ReplicaState
    start_offset: int
    durable_offset: int
    confirm_offset: int
    epoch: int
    size_bytes: int
    problem: str
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., start_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., size_bytes: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("task_id", "done", "error", "failed_servers", "writer_answers")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILED_SERVERS_FIELD_NUMBER: _ClassVar[int]
    WRITER_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    done: bool
    error: str
    failed_servers: _containers.RepeatedScalarFieldContainer[str]
    writer_answers: bool
    def __init__(self, task_id: _Optional[str] = ..., done: bool = ..., error: _Optional[str] = ..., failed_servers: _Optional[_Iterable[str]] = ..., writer_answers: bool = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("server", "incarnation", "sequence", "replicas", "complete", "tasks", "used_bytes", "capacity_bytes", "log_end", "wall_ms", "tier_error", "feature_level", "host", "log_error")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    TIER_ERROR_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LOG_ERROR_FIELD_NUMBER: _ClassVar[int]
    server: str
    incarnation: int
    sequence: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaReport]
    complete: bool
    tasks: _containers.RepeatedCompositeFieldContainer[TaskReport]
    used_bytes: int
    capacity_bytes: int
    log_end: int
    wall_ms: int
    tier_error: str
    feature_level: int
    host: str
    log_error: str
    def __init__(self, server: _Optional[str] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaReport, _Mapping]]] = ..., complete: bool = ..., tasks: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ..., used_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., log_end: _Optional[int] = ..., wall_ms: _Optional[int] = ..., tier_error: _Optional[str] = ..., feature_level: _Optional[int] = ..., host: _Optional[str] = ..., log_error: _Optional[str] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("directives", "send_complete", "tier_url", "rights_version", "tokens_version", "quotas_version")
    DIRECTIVES_FIELD_NUMBER: _ClassVar[int]
    SEND_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    directives: _containers.RepeatedCompositeFieldContainer[Directive]
    send_complete: bool
    tier_url: str
    rights_version: int
    tokens_version: int
    quotas_version: int
    def __init__(self, directives: _Optional[_Iterable[_Union[Directive, _Mapping]]] = ..., send_complete: bool = ..., tier_url: _Optional[str] = ..., rights_version: _Optional[int] = ..., tokens_version: _Optional[int] = ..., quotas_version: _Optional[int] = ...) -> None: ...

class Directive(_message.Message):
    __slots__ = ("task_id", "stream_id", "range_index", "seal_replica", "upload_range", "drop_replica", "copy_replica", "delete_objects", "write_manifests", "recover_range", "leave_range", "repack_objects")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SEAL_REPLICA_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_RANGE_FIELD_NUMBER: _ClassVar[int]
    DROP_REPLICA_FIELD_NUMBER: _ClassVar[int]
    COPY_REPLICA_FIELD_NUMBER: _ClassVar[int]
    DELETE_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    WRITE_MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    RECOVER_RANGE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_RANGE_FIELD_NUMBER: _ClassVar[int]
    REPACK_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    stream_id: int
    range_index: int
    seal_replica: SealReplica
    upload_range: UploadRange
    drop_replica: DropReplica
    copy_replica: CopyReplica
    delete_objects: DeleteObjects
    write_manifests: WriteManifests
    recover_range: RecoverRange
    leave_range: LeaveRange
    repack_objects: RepackObjects
    def __init__(self, task_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., seal_replica: _Optional[_Union[SealReplica, _Mapping]] = ..., upload_range: _Optional[_Union[UploadRange, _Mapping]] = ..., drop_replica: _Optional[_Union[DropReplica, _Mapping]] = ..., copy_replica: _Optional[_Union[CopyReplica, _Mapping]] = ..., delete_objects: _Optional[_Union[DeleteObjects, _Mapping]] = ..., write_manifests: _Optional[_Union[WriteManifests, _Mapping]] = ..., recover_range: _Optional[_Union[RecoverRange, _Mapping]] = ..., leave_range: _Optional[_Union[LeaveRange, _Mapping]] = ..., repack_objects: _Optional[_Union[RepackObjects, _Mapping]] = ...) -> None: ...

class SealReplica(_message.Message):
    __slots__ = ("epoch", "start_offset", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class UploadRange(_message.Message):
    __slots__ = ("epoch", "start_offset", "end_offset", "stream_name")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    end_offset: int
    stream_name: str
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., stream_name: _Optional[str] = ...) -> None: ...

class DropReplica(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class CopyReplica(_message.Message):
    __slots__ = ("epoch", "start_offset", "end_offset", "sources")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    end_offset: int
    sources: _containers.RepeatedCompositeFieldContainer[_common_pb2.Replica]
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[_common_pb2.Replica, _Mapping]]] = ...) -> None: ...

class DeleteObjects(_message.Message):
    __slots__ = ("keys", "object_ids")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    object_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., object_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RecoverRange(_message.Message):
    __slots__ = ("stream_name", "epoch", "reason")
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    stream_name: str
    epoch: int
    reason: str
    def __init__(self, stream_name: _Optional[str] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaveRange(_message.Message):
    __slots__ = ("reason", "only_asks")
    REASON_FIELD_NUMBER: _ClassVar[int]
    ONLY_ASKS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    only_asks: bool
    def __init__(self, reason: _Optional[str] = ..., only_asks: bool = ...) -> None: ...

class WriteManifests(_message.Message):
    __slots__ = ("stream_ids",)
    STREAM_IDS_FIELD_NUMBER: _ClassVar[int]
    stream_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stream_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RepackObjects(_message.Message):
    __slots__ = ("stream_name", "object_ids")
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    stream_name: str
    object_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stream_name: _Optional[str] = ..., object_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ListServersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListServersResponse(_message.Message):
    __slots__ = ("servers",)
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedCompositeFieldContainer[_common_pb2.Server]
    def __init__(self, servers: _Optional[_Iterable[_Union[_common_pb2.Server, _Mapping]]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PdMember(_message.Message):
    __slots__ = ("name", "address", "leader", "reachable", "term", "applied_index", "feature_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    leader: bool
    reachable: bool
    term: int
    applied_index: int
    feature_level: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., leader: bool = ..., reachable: bool = ..., term: _Optional[int] = ..., applied_index: _Optional[int] = ..., feature_level: _Optional[int] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "members", "cluster_version", "stream_count", "range_count", "open_range_count", "object_count", "servers", "tier_url", "has_majority", "failing_task_count", "health", "reasons", "under_replicated_range_count", "blocked_repair_count", "lost_range_count", "under_replicated_since_ms", "tier_snapshot", "restore")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    STREAM_COUNT_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OPEN_RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    HAS_MAJORITY_FIELD_NUMBER: _ClassVar[int]
    FAILING_TASK_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_REPAIR_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOST_RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TIER_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    members: _containers.RepeatedCompositeFieldContainer[PdMember]
    cluster_version: int
    stream_count: int
    range_count: int
    open_range_count: int
    object_count: int
    servers: _containers.RepeatedCompositeFieldContainer[_common_pb2.Server]
    tier_url: str
    has_majority: bool
    failing_task_count: int
    health: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    under_replicated_range_count: int
    blocked_repair_count: int
    lost_range_count: int
    under_replicated_since_ms: int
    tier_snapshot: _restore_status_pb2.TierSnapshotStatus
    restore: _restore_status_pb2.RestoreMark
    def __init__(self, cluster_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[PdMember, _Mapping]]] = ..., cluster_version: _Optional[int] = ..., stream_count: _Optional[int] = ..., range_count: _Optional[int] = ..., open_range_count: _Optional[int] = ..., object_count: _Optional[int] = ..., servers: _Optional[_Iterable[_Union[_common_pb2.Server, _Mapping]]] = ..., tier_url: _Optional[str] = ..., has_majority: bool = ..., failing_task_count: _Optional[int] = ..., health: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., under_replicated_range_count: _Optional[int] = ..., blocked_repair_count: _Optional[int] = ..., lost_range_count: _Optional[int] = ..., under_replicated_since_ms: _Optional[int] = ..., tier_snapshot: _Optional[_Union[_restore_status_pb2.TierSnapshotStatus, _Mapping]] = ..., restore: _Optional[_Union[_restore_status_pb2.RestoreMark, _Mapping]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "kind", "stream_id", "stream_name", "range_index", "server", "since_ms", "attempts", "last_error", "age_ms", "topic_id", "topic_name", "topic_state", "shards_left", "detail", "done", "done_ms", "result", "can_be_cancelled")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_STATE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    DONE_MS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CAN_BE_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    kind: str
    stream_id: int
    stream_name: str
    range_index: int
    server: str
    since_ms: int
    attempts: int
    last_error: str
    age_ms: int
    topic_id: int
    topic_name: str
    topic_state: _topic_pb2.TopicState
    shards_left: int
    detail: str
    done: bool
    done_ms: int
    result: str
    can_be_cancelled: bool
    def __init__(self, task_id: _Optional[str] = ..., kind: _Optional[str] = ..., stream_id: _Optional[int] = ..., stream_name: _Optional[str] = ..., range_index: _Optional[int] = ..., server: _Optional[str] = ..., since_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., last_error: _Optional[str] = ..., age_ms: _Optional[int] = ..., topic_id: _Optional[int] = ..., topic_name: _Optional[str] = ..., topic_state: _Optional[_Union[_topic_pb2.TopicState, str]] = ..., shards_left: _Optional[int] = ..., detail: _Optional[str] = ..., done: bool = ..., done_ms: _Optional[int] = ..., result: _Optional[str] = ..., can_be_cancelled: bool = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("failing_only",)
    FAILING_ONLY_FIELD_NUMBER: _ClassVar[int]
    failing_only: bool
    def __init__(self, failing_only: bool = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ...) -> None: ...
