from rangelog_proto.v1 import common_pb2 as _common_pb2
from rangelog_proto.v1 import pd_pb2 as _pd_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Copy(_message.Message):
    __slots__ = ("replica", "state", "durable_offset", "size_bytes", "problem", "whole")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    replica: _common_pb2.Replica
    state: _pd_pb2.ReplicaState
    durable_offset: int
    size_bytes: int
    problem: str
    whole: bool
    def __init__(self, replica: _Optional[_Union[_common_pb2.Replica, _Mapping]] = ..., state: _Optional[_Union[_pd_pb2.ReplicaState, str]] = ..., durable_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., problem: _Optional[str] = ..., whole: bool = ...) -> None: ...

class InspectedRange(_message.Message):
    __slots__ = ("range", "copies", "wanted", "tiered_bytes", "blocked", "problem")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    TIERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    range: _common_pb2.Range
    copies: _containers.RepeatedCompositeFieldContainer[Copy]
    wanted: int
    tiered_bytes: int
    blocked: bool
    problem: str
    def __init__(self, range: _Optional[_Union[_common_pb2.Range, _Mapping]] = ..., copies: _Optional[_Iterable[_Union[Copy, _Mapping]]] = ..., wanted: _Optional[int] = ..., tiered_bytes: _Optional[int] = ..., blocked: bool = ..., problem: _Optional[str] = ...) -> None: ...

class InspectRangesRequest(_message.Message):
    __slots__ = ("name", "from_index", "page_size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    from_index: int
    page_size: int
    def __init__(self, name: _Optional[str] = ..., from_index: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class InspectRangesResponse(_message.Message):
    __slots__ = ("stream", "ranges", "more")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    ranges: _containers.RepeatedCompositeFieldContainer[InspectedRange]
    more: bool
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[InspectedRange, _Mapping]]] = ..., more: bool = ...) -> None: ...

class LocateOffsetRequest(_message.Message):
    __slots__ = ("name", "offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class LocateOffsetResponse(_message.Message):
    __slots__ = ("stream", "range", "object", "servers")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    range: InspectedRange
    object: _common_pb2.Object
    servers: _containers.RepeatedCompositeFieldContainer[_common_pb2.Server]
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ..., range: _Optional[_Union[InspectedRange, _Mapping]] = ..., object: _Optional[_Union[_common_pb2.Object, _Mapping]] = ..., servers: _Optional[_Iterable[_Union[_common_pb2.Server, _Mapping]]] = ...) -> None: ...

class FindTasksRequest(_message.Message):
    __slots__ = ("task_id", "kind", "stream_name", "server", "include_done")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DONE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    kind: str
    stream_name: str
    server: str
    include_done: bool
    def __init__(self, task_id: _Optional[str] = ..., kind: _Optional[str] = ..., stream_name: _Optional[str] = ..., server: _Optional[str] = ..., include_done: bool = ...) -> None: ...

class FindTasksResponse(_message.Message):
    __slots__ = ("tasks", "settled")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_pd_pb2.Task]
    settled: bool
    def __init__(self, tasks: _Optional[_Iterable[_Union[_pd_pb2.Task, _Mapping]]] = ..., settled: bool = ...) -> None: ...

class CancelTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class CancelTaskResponse(_message.Message):
    __slots__ = ("task", "effect")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    task: _pd_pb2.Task
    effect: str
    def __init__(self, task: _Optional[_Union[_pd_pb2.Task, _Mapping]] = ..., effect: _Optional[str] = ...) -> None: ...

class InspectMemberRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InspectMemberResponse(_message.Message):
    __slots__ = ("name", "version", "wall_ms", "disk_free_bytes", "disk_total_bytes", "leader", "feature_level", "auto_finalize")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    AUTO_FINALIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    wall_ms: int
    disk_free_bytes: int
    disk_total_bytes: int
    leader: bool
    feature_level: int
    auto_finalize: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., wall_ms: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., leader: bool = ..., feature_level: _Optional[int] = ..., auto_finalize: bool = ...) -> None: ...
