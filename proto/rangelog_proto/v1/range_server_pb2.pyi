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
    __slots__ = ("server", "incarnation", "boot", "data_address", "log_end", "used_bytes", "replica_count", "connection_count", "flush_count", "appended_bytes", "registered", "version")
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
    def __init__(self, server: _Optional[str] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., data_address: _Optional[str] = ..., log_end: _Optional[int] = ..., used_bytes: _Optional[int] = ..., replica_count: _Optional[int] = ..., connection_count: _Optional[int] = ..., flush_count: _Optional[int] = ..., appended_bytes: _Optional[int] = ..., registered: bool = ..., version: _Optional[str] = ...) -> None: ...

class ListReplicasRequest(_message.Message):
    __slots__ = ("stream_id", "page_size", "page_token")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    page_size: int
    page_token: str
    def __init__(self, stream_id: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListReplicasResponse(_message.Message):
    __slots__ = ("replicas", "next_page_token")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[_pd_pb2.ReplicaReport]
    next_page_token: str
    def __init__(self, replicas: _Optional[_Iterable[_Union[_pd_pb2.ReplicaReport, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
