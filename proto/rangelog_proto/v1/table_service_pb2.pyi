from rangelog_proto.v1 import table_pb2 as _table_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenTableSessionRequest(_message.Message):
    __slots__ = ("topic_id", "shard_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class OpenTableSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class GetRowsRequest(_message.Message):
    __slots__ = ("topic_id", "shard_id", "keys", "stale")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    stale: bool
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., stale: bool = ...) -> None: ...

class GetRowsResponse(_message.Message):
    __slots__ = ("rows", "version")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[_table_pb2.TableRow]
    version: int
    def __init__(self, rows: _Optional[_Iterable[_Union[_table_pb2.TableRow, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...

class NumberedTableCommand(_message.Message):
    __slots__ = ("sequence", "command")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    command: _table_pb2.TableCommand
    def __init__(self, sequence: _Optional[int] = ..., command: _Optional[_Union[_table_pb2.TableCommand, _Mapping]] = ...) -> None: ...

class ApplyTableRequest(_message.Message):
    __slots__ = ("topic_id", "shard_id", "session", "settled", "commands")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    session: int
    settled: int
    commands: _containers.RepeatedCompositeFieldContainer[NumberedTableCommand]
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., session: _Optional[int] = ..., settled: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[NumberedTableCommand, _Mapping]]] = ...) -> None: ...

class TableOutcome(_message.Message):
    __slots__ = ("version", "changed", "error_code", "error_message")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    error_code: str
    error_message: str
    def __init__(self, version: _Optional[int] = ..., changed: bool = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class ApplyTableResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[TableOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[TableOutcome, _Mapping]]] = ...) -> None: ...

class ScanTableRequest(_message.Message):
    __slots__ = ("topic_id", "shard_id", "start", "end", "limit", "stale")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    start: bytes
    end: bytes
    limit: int
    stale: bool
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., limit: _Optional[int] = ..., stale: bool = ...) -> None: ...

class ScanTableResponse(_message.Message):
    __slots__ = ("rows", "next_key", "version")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[_table_pb2.TableRow]
    next_key: bytes
    version: int
    def __init__(self, rows: _Optional[_Iterable[_Union[_table_pb2.TableRow, _Mapping]]] = ..., next_key: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class WatchTableRequest(_message.Message):
    __slots__ = ("topic_id", "shard_id", "since_version", "start", "end", "limit", "wait_ms")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    since_version: int
    start: bytes
    end: bytes
    limit: int
    wait_ms: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., since_version: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., limit: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class TableRowChange(_message.Message):
    __slots__ = ("key", "version", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    version: int
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., version: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class WatchTableResponse(_message.Message):
    __slots__ = ("changes", "version")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[TableRowChange]
    version: int
    def __init__(self, changes: _Optional[_Iterable[_Union[TableRowChange, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...
