from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Broker(_message.Message):
    __slots__ = ("name", "incarnation", "address", "zone", "version", "lost", "registered_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    address: str
    zone: str
    version: str
    lost: bool
    registered_ms: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., lost: bool = ..., registered_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("request_id", "name", "incarnation", "address", "zone", "version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    incarnation: int
    address: str
    zone: str
    version: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("cluster_id", "heartbeat_interval_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    heartbeat_interval_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class ShardLoad(_message.Message):
    __slots__ = ("topic_id", "shard_id", "events_per_s", "bytes_per_s")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    events_per_s: int
    bytes_per_s: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., events_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ...) -> None: ...

class BrokerHeartbeatRequest(_message.Message):
    __slots__ = ("name", "incarnation", "loads", "complete")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    loads: _containers.RepeatedCompositeFieldContainer[ShardLoad]
    complete: bool
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., loads: _Optional[_Iterable[_Union[ShardLoad, _Mapping]]] = ..., complete: bool = ...) -> None: ...

class BrokerHeartbeatResponse(_message.Message):
    __slots__ = ("register", "send_all")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    SEND_ALL_FIELD_NUMBER: _ClassVar[int]
    register: bool
    send_all: bool
    def __init__(self, register: bool = ..., send_all: bool = ...) -> None: ...

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
    __slots__ = ("brokers",)
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    def __init__(self, brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ...) -> None: ...
