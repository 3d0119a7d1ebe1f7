from rangelog_proto.v1 import pd_pb2 as _pd_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Cursor(_message.Message):
    __slots__ = ("stream_id", "name", "offset", "metadata", "version", "set_ms", "created_ms", "expired", "request_id")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SET_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    name: str
    offset: int
    metadata: str
    version: int
    set_ms: int
    created_ms: int
    expired: bool
    request_id: str
    def __init__(self, stream_id: _Optional[int] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., version: _Optional[int] = ..., set_ms: _Optional[int] = ..., created_ms: _Optional[int] = ..., expired: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class CursorSet(_message.Message):
    __slots__ = ("stream_id", "name", "offset", "metadata", "expected_version")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    name: str
    offset: int
    metadata: str
    expected_version: int
    def __init__(self, stream_id: _Optional[int] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class SetCursorsRequest(_message.Message):
    __slots__ = ("request_id", "sets")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    sets: _containers.RepeatedCompositeFieldContainer[CursorSet]
    def __init__(self, request_id: _Optional[str] = ..., sets: _Optional[_Iterable[_Union[CursorSet, _Mapping]]] = ...) -> None: ...

class SetCursorsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SetCursorResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SetCursorResult, _Mapping]]] = ...) -> None: ...

class SetCursorResult(_message.Message):
    __slots__ = ("cursor", "error")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    cursor: Cursor
    error: _pd_pb2.CallError
    def __init__(self, cursor: _Optional[_Union[Cursor, _Mapping]] = ..., error: _Optional[_Union[_pd_pb2.CallError, _Mapping]] = ...) -> None: ...

class GetCursorRequest(_message.Message):
    __slots__ = ("stream_id", "name")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    name: str
    def __init__(self, stream_id: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class GetCursorResponse(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: Cursor
    def __init__(self, cursor: _Optional[_Union[Cursor, _Mapping]] = ...) -> None: ...

class ListCursorsRequest(_message.Message):
    __slots__ = ("stream_id", "page_size", "page_token")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    page_size: int
    page_token: str
    def __init__(self, stream_id: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCursorsResponse(_message.Message):
    __slots__ = ("cursors", "next_page_token")
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    next_page_token: str
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteCursorRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "name", "expected_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    name: str
    expected_version: int
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteCursorResponse(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: Cursor
    def __init__(self, cursor: _Optional[_Union[Cursor, _Mapping]] = ...) -> None: ...
