from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TableCondition(_message.Message):
    __slots__ = ("absent", "version")
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    absent: bool
    version: int
    def __init__(self, absent: bool = ..., version: _Optional[int] = ...) -> None: ...

class TableWrite(_message.Message):
    __slots__ = ("key", "value", "remove", "check", "condition")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    remove: bool
    check: bool
    condition: TableCondition
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., remove: bool = ..., check: bool = ..., condition: _Optional[_Union[TableCondition, _Mapping]] = ...) -> None: ...

class TableCommand(_message.Message):
    __slots__ = ("writes",)
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[TableWrite]
    def __init__(self, writes: _Optional[_Iterable[_Union[TableWrite, _Mapping]]] = ...) -> None: ...

class TableResult(_message.Message):
    __slots__ = ("version", "changed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    def __init__(self, version: _Optional[int] = ..., changed: bool = ...) -> None: ...

class TableRow(_message.Message):
    __slots__ = ("key", "value", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    version: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class TableRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[TableRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[TableRow, _Mapping]]] = ...) -> None: ...

class TableHead(_message.Message):
    __slots__ = ("version", "oldest_change", "changes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_CHANGE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    version: int
    oldest_change: int
    changes: _containers.RepeatedCompositeFieldContainer[TableChange]
    def __init__(self, version: _Optional[int] = ..., oldest_change: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[TableChange, _Mapping]]] = ...) -> None: ...

class TableChange(_message.Message):
    __slots__ = ("version", "key")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    version: int
    key: bytes
    def __init__(self, version: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...
