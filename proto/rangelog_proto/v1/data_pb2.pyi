from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SealOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEAL_OUTCOME_UNSPECIFIED: _ClassVar[SealOutcome]
    SEAL_OUTCOME_FENCED: _ClassVar[SealOutcome]
    SEAL_OUTCOME_DOUBTFUL: _ClassVar[SealOutcome]
    SEAL_OUTCOME_UNKNOWN: _ClassVar[SealOutcome]
SEAL_OUTCOME_UNSPECIFIED: SealOutcome
SEAL_OUTCOME_FENCED: SealOutcome
SEAL_OUTCOME_DOUBTFUL: SealOutcome
SEAL_OUTCOME_UNKNOWN: SealOutcome

class Hello(_message.Message):
    __slots__ = ("protocol_version", "client", "token", "server", "incarnation", "protocol_version_min", "features")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    client: str
    token: str
    server: str
    incarnation: int
    protocol_version_min: int
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol_version: _Optional[int] = ..., client: _Optional[str] = ..., token: _Optional[str] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., protocol_version_min: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("protocol_version", "server", "incarnation", "payload_bytes_max", "protocol_version_min", "protocol_version_max", "features")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    server: str
    incarnation: int
    payload_bytes_max: int
    protocol_version_min: int
    protocol_version_max: int
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol_version: _Optional[int] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., payload_bytes_max: _Optional[int] = ..., protocol_version_min: _Optional[int] = ..., protocol_version_max: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("stream_id", "range_index", "epoch", "start_offset", "confirm_offset", "recovery", "memory")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    epoch: int
    start_offset: int
    confirm_offset: int
    recovery: bool
    memory: bool
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., recovery: bool = ..., memory: bool = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("stream_id", "range_index", "epoch", "durable_offset", "others", "followed", "confirm_wanted", "leave_wanted", "throttle_ms")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_WANTED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_WANTED_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_MS_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    epoch: int
    durable_offset: int
    others: _containers.RepeatedCompositeFieldContainer[AppendReply]
    followed: bool
    confirm_wanted: bool
    leave_wanted: bool
    throttle_ms: int
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., durable_offset: _Optional[int] = ..., others: _Optional[_Iterable[_Union[AppendReply, _Mapping]]] = ..., followed: bool = ..., confirm_wanted: bool = ..., leave_wanted: bool = ..., throttle_ms: _Optional[int] = ...) -> None: ...

class Confirm(_message.Message):
    __slots__ = ("stream_id", "range_index", "epoch", "confirm_offset", "others", "start_offset")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    epoch: int
    confirm_offset: int
    others: _containers.RepeatedCompositeFieldContainer[Confirm]
    start_offset: int
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., others: _Optional[_Iterable[_Union[Confirm, _Mapping]]] = ..., start_offset: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("stream_id", "range_index", "offset", "bytes_max", "wait_ms_max", "known_end_offset", "recovery_epoch", "credit_bytes", "end_offset", "renews", "confirm_wanted_offset", "awaits_replica")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    KNOWN_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RENEWS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_WANTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    AWAITS_REPLICA_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    offset: int
    bytes_max: int
    wait_ms_max: int
    known_end_offset: int
    recovery_epoch: int
    credit_bytes: int
    end_offset: int
    renews: bool
    confirm_wanted_offset: int
    awaits_replica: bool
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., offset: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms_max: _Optional[int] = ..., known_end_offset: _Optional[int] = ..., recovery_epoch: _Optional[int] = ..., credit_bytes: _Optional[int] = ..., end_offset: _Optional[int] = ..., renews: bool = ..., confirm_wanted_offset: _Optional[int] = ..., awaits_replica: bool = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("start_offset", "confirm_offset", "sealed_end_offset", "sealed", "durable_offset", "last", "doubtful", "held")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DOUBTFUL_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    confirm_offset: int
    sealed_end_offset: int
    sealed: bool
    durable_offset: int
    last: bool
    doubtful: bool
    held: bool
    def __init__(self, start_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., sealed_end_offset: _Optional[int] = ..., sealed: bool = ..., durable_offset: _Optional[int] = ..., last: bool = ..., doubtful: bool = ..., held: bool = ...) -> None: ...

class LookupTimestamp(_message.Message):
    __slots__ = ("stream_id", "range_index", "timestamp_ms", "known_end_offset", "before_timestamp_ms")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    timestamp_ms: int
    known_end_offset: int
    before_timestamp_ms: int
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., known_end_offset: _Optional[int] = ..., before_timestamp_ms: _Optional[int] = ...) -> None: ...

class LookupTimestampReply(_message.Message):
    __slots__ = ("found", "offset", "confirm_offset", "readable_end_offset", "until_offset")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READABLE_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNTIL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    found: bool
    offset: int
    confirm_offset: int
    readable_end_offset: int
    until_offset: int
    def __init__(self, found: bool = ..., offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., readable_end_offset: _Optional[int] = ..., until_offset: _Optional[int] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("stream_id", "range_index", "epoch", "start_offset")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    epoch: int
    start_offset: int
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class SealReply(_message.Message):
    __slots__ = ("outcome", "durable_offset", "last_batch_crc", "confirm_offset")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_BATCH_CRC_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    outcome: SealOutcome
    durable_offset: int
    last_batch_crc: int
    confirm_offset: int
    def __init__(self, outcome: _Optional[_Union[SealOutcome, str]] = ..., durable_offset: _Optional[int] = ..., last_batch_crc: _Optional[int] = ..., confirm_offset: _Optional[int] = ...) -> None: ...

class CommitEnd(_message.Message):
    __slots__ = ("stream_id", "range_index", "epoch", "start_offset", "end_offset")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    range_index: int
    epoch: int
    start_offset: int
    end_offset: int
    def __init__(self, stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CommitEndReply(_message.Message):
    __slots__ = ("complete", "durable_offset")
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    durable_offset: int
    def __init__(self, complete: bool = ..., durable_offset: _Optional[int] = ...) -> None: ...

class Produce(_message.Message):
    __slots__ = ("topic_id", "shard_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class ProduceReply(_message.Message):
    __slots__ = ("offset", "throttle_ms", "runs")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_MS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    throttle_ms: int
    runs: _containers.RepeatedCompositeFieldContainer[PlacedRun]
    def __init__(self, offset: _Optional[int] = ..., throttle_ms: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[PlacedRun, _Mapping]]] = ...) -> None: ...

class PlacedRun(_message.Message):
    __slots__ = ("first", "count", "shard_id", "offset")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    shard_id: int
    offset: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., shard_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("topic_id", "shard_id", "transactional_id", "number")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    transactional_id: str
    number: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., transactional_id: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class FindBatch(_message.Message):
    __slots__ = ("topic_id", "shard_id", "producer_id", "producer_epoch", "sequence", "staged")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    producer_id: int
    producer_epoch: int
    sequence: int
    staged: bool
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., staged: bool = ...) -> None: ...

class FindBatchReply(_message.Message):
    __slots__ = ("found", "offset")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    found: bool
    offset: int
    def __init__(self, found: bool = ..., offset: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "epoch", "offset", "stream_id", "range_index")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    epoch: int
    offset: int
    stream_id: int
    range_index: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., epoch: _Optional[int] = ..., offset: _Optional[int] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ...) -> None: ...
