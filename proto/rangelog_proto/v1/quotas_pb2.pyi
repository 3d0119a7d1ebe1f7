from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Quota(_message.Message):
    __slots__ = ("principal", "prefix", "append_bytes_per_s", "read_bytes_per_s", "calls_per_s")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    APPEND_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    CALLS_PER_S_FIELD_NUMBER: _ClassVar[int]
    principal: str
    prefix: str
    append_bytes_per_s: int
    read_bytes_per_s: int
    calls_per_s: int
    def __init__(self, principal: _Optional[str] = ..., prefix: _Optional[str] = ..., append_bytes_per_s: _Optional[int] = ..., read_bytes_per_s: _Optional[int] = ..., calls_per_s: _Optional[int] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("request_id", "principal", "prefix", "append_bytes_per_s", "read_bytes_per_s", "calls_per_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    APPEND_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    CALLS_PER_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    principal: str
    prefix: str
    append_bytes_per_s: int
    read_bytes_per_s: int
    calls_per_s: int
    def __init__(self, request_id: _Optional[str] = ..., principal: _Optional[str] = ..., prefix: _Optional[str] = ..., append_bytes_per_s: _Optional[int] = ..., read_bytes_per_s: _Optional[int] = ..., calls_per_s: _Optional[int] = ...) -> None: ...

class SetQuotaResponse(_message.Message):
    __slots__ = ("quota",)
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    quota: Quota
    def __init__(self, quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class RemoveQuotaRequest(_message.Message):
    __slots__ = ("request_id", "principal", "prefix")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    principal: str
    prefix: str
    def __init__(self, request_id: _Optional[str] = ..., principal: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class RemoveQuotaResponse(_message.Message):
    __slots__ = ("quota",)
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    quota: Quota
    def __init__(self, quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "version")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    version: int
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...
