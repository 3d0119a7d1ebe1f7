from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogEntry(_message.Message):
    __slots__ = ("number", "wall_ms", "line")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    number: int
    wall_ms: int
    line: str
    def __init__(self, number: _Optional[int] = ..., wall_ms: _Optional[int] = ..., line: _Optional[str] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("level", "since_ms", "run", "after", "limit")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    level: str
    since_ms: int
    run: int
    after: int
    limit: int
    def __init__(self, level: _Optional[str] = ..., since_ms: _Optional[int] = ..., run: _Optional[int] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("run", "entries", "last", "missed", "more")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    run: int
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    last: int
    missed: int
    more: bool
    def __init__(self, run: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ..., last: _Optional[int] = ..., missed: _Optional[int] = ..., more: bool = ...) -> None: ...
