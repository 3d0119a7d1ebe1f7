from rangelog_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RepairState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPAIR_STATE_UNSPECIFIED: _ClassVar[RepairState]
    REPAIR_STATE_WAITING: _ClassVar[RepairState]
    REPAIR_STATE_COPYING: _ClassVar[RepairState]
    REPAIR_STATE_BLOCKED: _ClassVar[RepairState]
    REPAIR_STATE_ORPHANED: _ClassVar[RepairState]
    REPAIR_STATE_LOST: _ClassVar[RepairState]
REPAIR_STATE_UNSPECIFIED: RepairState
REPAIR_STATE_WAITING: RepairState
REPAIR_STATE_COPYING: RepairState
REPAIR_STATE_BLOCKED: RepairState
REPAIR_STATE_ORPHANED: RepairState
REPAIR_STATE_LOST: RepairState

class Repair(_message.Message):
    __slots__ = ("state", "range", "stream_name", "copies", "wanted", "reason")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    state: RepairState
    range: _common_pb2.Range
    stream_name: str
    copies: int
    wanted: int
    reason: str
    def __init__(self, state: _Optional[_Union[RepairState, str]] = ..., range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ..., stream_name: _Optional[str] = ..., copies: _Optional[int] = ..., wanted: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ListRepairsRequest(_message.Message):
    __slots__ = ("state", "page_size")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    state: RepairState
    page_size: int
    def __init__(self, state: _Optional[_Union[RepairState, str]] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListRepairsResponse(_message.Message):
    __slots__ = ("repairs", "more", "waiting_count", "copying_count", "blocked_count", "orphaned_count", "lost_count", "done_count", "copied_bytes", "since_ms", "took_ms")
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WAITING_COUNT_FIELD_NUMBER: _ClassVar[int]
    COPYING_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOST_COUNT_FIELD_NUMBER: _ClassVar[int]
    DONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    repairs: _containers.RepeatedCompositeFieldContainer[Repair]
    more: bool
    waiting_count: int
    copying_count: int
    blocked_count: int
    orphaned_count: int
    lost_count: int
    done_count: int
    copied_bytes: int
    since_ms: int
    took_ms: int
    def __init__(self, repairs: _Optional[_Iterable[_Union[Repair, _Mapping]]] = ..., more: bool = ..., waiting_count: _Optional[int] = ..., copying_count: _Optional[int] = ..., blocked_count: _Optional[int] = ..., orphaned_count: _Optional[int] = ..., lost_count: _Optional[int] = ..., done_count: _Optional[int] = ..., copied_bytes: _Optional[int] = ..., since_ms: _Optional[int] = ..., took_ms: _Optional[int] = ...) -> None: ...

class AcceptLossRequest(_message.Message):
    __slots__ = ("request_id", "stream_id", "range_index", "survivor_end_offset", "give_up_quarantined", "given_up_servers", "lacking_servers")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SURVIVOR_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GIVE_UP_QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_SERVERS_FIELD_NUMBER: _ClassVar[int]
    LACKING_SERVERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stream_id: int
    range_index: int
    survivor_end_offset: int
    give_up_quarantined: bool
    given_up_servers: _containers.RepeatedScalarFieldContainer[str]
    lacking_servers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., stream_id: _Optional[int] = ..., range_index: _Optional[int] = ..., survivor_end_offset: _Optional[int] = ..., give_up_quarantined: bool = ..., given_up_servers: _Optional[_Iterable[str]] = ..., lacking_servers: _Optional[_Iterable[str]] = ...) -> None: ...

class AcceptLossResponse(_message.Message):
    __slots__ = ("range", "kept")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    range: _common_pb2.Range
    kept: _common_pb2.Range
    def __init__(self, range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ..., kept: _Optional[_Union[_common_pb2.Range, _Mapping]] = ...) -> None: ...
