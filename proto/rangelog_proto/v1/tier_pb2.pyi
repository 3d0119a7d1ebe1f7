from rangelog_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeTierRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTierResponse(_message.Message):
    __slots__ = ("tier_url", "checks", "prepared_count", "expired_count", "deleted_count")
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    tier_url: str
    checks: _containers.RepeatedCompositeFieldContainer[TierCheck]
    prepared_count: int
    expired_count: int
    deleted_count: int
    def __init__(self, tier_url: _Optional[str] = ..., checks: _Optional[_Iterable[_Union[TierCheck, _Mapping]]] = ..., prepared_count: _Optional[int] = ..., expired_count: _Optional[int] = ..., deleted_count: _Optional[int] = ...) -> None: ...

class TierCheck(_message.Message):
    __slots__ = ("name", "placement_driver", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_DRIVER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    placement_driver: bool
    error: str
    def __init__(self, name: _Optional[str] = ..., placement_driver: bool = ..., error: _Optional[str] = ...) -> None: ...

class FindObjectsRequest(_message.Message):
    __slots__ = ("object_ids",)
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    object_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, object_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class FindObjectsResponse(_message.Message):
    __slots__ = ("objects", "next_object_id", "time_ms", "tier_url")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[_common_pb2.Object]
    next_object_id: int
    time_ms: int
    tier_url: str
    def __init__(self, objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ..., next_object_id: _Optional[int] = ..., time_ms: _Optional[int] = ..., tier_url: _Optional[str] = ...) -> None: ...

class ReuploadObjectRequest(_message.Message):
    __slots__ = ("request_id", "object_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    object_id: int
    def __init__(self, request_id: _Optional[str] = ..., object_id: _Optional[int] = ...) -> None: ...

class ReuploadObjectResponse(_message.Message):
    __slots__ = ("objects",)
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[_common_pb2.Object]
    def __init__(self, objects: _Optional[_Iterable[_Union[_common_pb2.Object, _Mapping]]] = ...) -> None: ...

class SetTierRequest(_message.Message):
    __slots__ = ("request_id", "url", "moved")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    url: str
    moved: bool
    def __init__(self, request_id: _Optional[str] = ..., url: _Optional[str] = ..., moved: bool = ...) -> None: ...

class SetTierResponse(_message.Message):
    __slots__ = ("tier_url",)
    TIER_URL_FIELD_NUMBER: _ClassVar[int]
    tier_url: str
    def __init__(self, tier_url: _Optional[str] = ...) -> None: ...

class TierStore(_message.Message):
    __slots__ = ("first_object_id", "url", "since_ms", "moved")
    FIRST_OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    first_object_id: int
    url: str
    since_ms: int
    moved: bool
    def __init__(self, first_object_id: _Optional[int] = ..., url: _Optional[str] = ..., since_ms: _Optional[int] = ..., moved: bool = ...) -> None: ...
