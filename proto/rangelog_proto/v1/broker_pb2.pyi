from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Broker(_message.Message):
    __slots__ = ("name", "incarnation", "address", "zone", "version", "lost", "registered_ms", "control_address", "feature_level", "endpoints", "host")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_MS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    address: str
    zone: str
    version: str
    lost: bool
    registered_ms: int
    control_address: str
    feature_level: int
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    host: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., lost: bool = ..., registered_ms: _Optional[int] = ..., control_address: _Optional[str] = ..., feature_level: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., host: _Optional[str] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("door", "address")
    DOOR_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    door: str
    address: str
    def __init__(self, door: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("topic_id", "shard_id", "broker", "incarnation", "owner_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    OWNER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    broker: str
    incarnation: int
    owner_epoch: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., broker: _Optional[str] = ..., incarnation: _Optional[int] = ..., owner_epoch: _Optional[int] = ...) -> None: ...

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("request_id", "name", "incarnation", "address", "zone", "version", "control_address", "feature_level", "endpoints", "host")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    incarnation: int
    address: str
    zone: str
    version: str
    control_address: str
    feature_level: int
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    host: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., control_address: _Optional[str] = ..., feature_level: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., host: _Optional[str] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("cluster_id", "heartbeat_interval_ms", "rate_minute_ms", "rights_version", "broker_version", "tokens_version", "quotas_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    RATE_MINUTE_MS_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    heartbeat_interval_ms: int
    rate_minute_ms: int
    rights_version: int
    broker_version: int
    tokens_version: int
    quotas_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., heartbeat_interval_ms: _Optional[int] = ..., rate_minute_ms: _Optional[int] = ..., rights_version: _Optional[int] = ..., broker_version: _Optional[int] = ..., tokens_version: _Optional[int] = ..., quotas_version: _Optional[int] = ...) -> None: ...

class ShardLoad(_message.Message):
    __slots__ = ("topic_id", "shard_id", "events_per_s", "bytes_per_s", "events_averages", "bytes_averages", "mature")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    EVENTS_AVERAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_AVERAGES_FIELD_NUMBER: _ClassVar[int]
    MATURE_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    events_per_s: int
    bytes_per_s: int
    events_averages: _containers.RepeatedScalarFieldContainer[int]
    bytes_averages: _containers.RepeatedScalarFieldContainer[int]
    mature: bool
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., events_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., events_averages: _Optional[_Iterable[int]] = ..., bytes_averages: _Optional[_Iterable[int]] = ..., mature: bool = ...) -> None: ...

class ShardCover(_message.Message):
    __slots__ = ("topic_id", "shard_id", "offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    offset: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class BrokerHeartbeatRequest(_message.Message):
    __slots__ = ("name", "incarnation", "loads", "complete", "covered", "feature_level", "unopenable", "host")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    UNOPENABLE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    loads: _containers.RepeatedCompositeFieldContainer[ShardLoad]
    complete: bool
    covered: _containers.RepeatedCompositeFieldContainer[ShardCover]
    feature_level: int
    unopenable: _containers.RepeatedCompositeFieldContainer[OwnedShard]
    host: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., loads: _Optional[_Iterable[_Union[ShardLoad, _Mapping]]] = ..., complete: bool = ..., covered: _Optional[_Iterable[_Union[ShardCover, _Mapping]]] = ..., feature_level: _Optional[int] = ..., unopenable: _Optional[_Iterable[_Union[OwnedShard, _Mapping]]] = ..., host: _Optional[str] = ...) -> None: ...

class BrokerHeartbeatResponse(_message.Message):
    __slots__ = ("register", "send_all", "cover", "rights_version", "broker_version", "tokens_version", "quotas_version")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    SEND_ALL_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    register: bool
    send_all: bool
    cover: _containers.RepeatedCompositeFieldContainer[ShardCover]
    rights_version: int
    broker_version: int
    tokens_version: int
    quotas_version: int
    def __init__(self, register: bool = ..., send_all: bool = ..., cover: _Optional[_Iterable[_Union[ShardCover, _Mapping]]] = ..., rights_version: _Optional[int] = ..., broker_version: _Optional[int] = ..., tokens_version: _Optional[int] = ..., quotas_version: _Optional[int] = ...) -> None: ...

class ReportBrokerLostRequest(_message.Message):
    __slots__ = ("name", "incarnation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class ReportBrokerLostResponse(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: bool
    def __init__(self, lost: bool = ...) -> None: ...

class ListBrokersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBrokersResponse(_message.Message):
    __slots__ = ("brokers", "owned")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    owned: _containers.RepeatedCompositeFieldContainer[OwnedCount]
    def __init__(self, brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., owned: _Optional[_Iterable[_Union[OwnedCount, _Mapping]]] = ...) -> None: ...

class OwnedCount(_message.Message):
    __slots__ = ("broker", "shards", "journals")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    JOURNALS_FIELD_NUMBER: _ClassVar[int]
    broker: str
    shards: int
    journals: int
    def __init__(self, broker: _Optional[str] = ..., shards: _Optional[int] = ..., journals: _Optional[int] = ...) -> None: ...

class OwnedShard(_message.Message):
    __slots__ = ("topic_id", "shard_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class FindOwnersRequest(_message.Message):
    __slots__ = ("shards",)
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[OwnedShard]
    def __init__(self, shards: _Optional[_Iterable[_Union[OwnedShard, _Mapping]]] = ...) -> None: ...

class FindOwnersResponse(_message.Message):
    __slots__ = ("assignments", "brokers", "ended", "missing")
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    ended: _containers.RepeatedCompositeFieldContainer[OwnedShard]
    missing: _containers.RepeatedCompositeFieldContainer[OwnedShard]
    def __init__(self, assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[OwnedShard, _Mapping]]] = ..., missing: _Optional[_Iterable[_Union[OwnedShard, _Mapping]]] = ...) -> None: ...

class MoveShardRequest(_message.Message):
    __slots__ = ("request_id", "topic_id", "shard_id", "broker")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic_id: int
    shard_id: int
    broker: str
    def __init__(self, request_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., broker: _Optional[str] = ...) -> None: ...

class MoveShardResponse(_message.Message):
    __slots__ = ("assignment",)
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    assignment: Assignment
    def __init__(self, assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...
