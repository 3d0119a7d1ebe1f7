from rangelog_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainPlacementRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ExplainPlacementResponse(_message.Message):
    __slots__ = ("stream", "refusal", "servers")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    stream: _common_pb2.Stream
    refusal: str
    servers: _containers.RepeatedCompositeFieldContainer[ExplainedServer]
    def __init__(self, stream: _Optional[_Union[_common_pb2.Stream, _Mapping]] = ..., refusal: _Optional[str] = ..., servers: _Optional[_Iterable[_Union[ExplainedServer, _Mapping]]] = ...) -> None: ...

class ExplainedServer(_message.Message):
    __slots__ = ("server", "zone", "rack", "labels", "health", "chosen", "reason", "why_not", "open_ranges", "replicas", "bytes_per_s", "used_percent", "host")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    OPEN_RANGES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    USED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    server: str
    zone: str
    rack: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    health: _common_pb2.ServerHealth
    chosen: bool
    reason: _common_pb2.ReplicaReason
    why_not: str
    open_ranges: int
    replicas: int
    bytes_per_s: int
    used_percent: int
    host: str
    def __init__(self, server: _Optional[str] = ..., zone: _Optional[str] = ..., rack: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., health: _Optional[_Union[_common_pb2.ServerHealth, str]] = ..., chosen: bool = ..., reason: _Optional[_Union[_common_pb2.ReplicaReason, str]] = ..., why_not: _Optional[str] = ..., open_ranges: _Optional[int] = ..., replicas: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., used_percent: _Optional[int] = ..., host: _Optional[str] = ...) -> None: ...

class ReplicaMove(_message.Message):
    __slots__ = ("stream_id", "stream_name", "range_index", "source", "target", "size_bytes")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    stream_name: str
    range_index: int
    source: _common_pb2.Replica
    target: _common_pb2.Replica
    size_bytes: int
    def __init__(self, stream_id: _Optional[int] = ..., stream_name: _Optional[str] = ..., range_index: _Optional[int] = ..., source: _Optional[_Union[_common_pb2.Replica, _Mapping]] = ..., target: _Optional[_Union[_common_pb2.Replica, _Mapping]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ServerShare(_message.Message):
    __slots__ = ("server", "zone", "before_bytes", "after_bytes", "capacity_bytes")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    server: str
    zone: str
    before_bytes: int
    after_bytes: int
    capacity_bytes: int
    def __init__(self, server: _Optional[str] = ..., zone: _Optional[str] = ..., before_bytes: _Optional[int] = ..., after_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ...) -> None: ...

class PlanRebalanceRequest(_message.Message):
    __slots__ = ("bytes_max",)
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    bytes_max: int
    def __init__(self, bytes_max: _Optional[int] = ...) -> None: ...

class PlanRebalanceResponse(_message.Message):
    __slots__ = ("moves", "shares", "bytes", "refusal")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[ReplicaMove]
    shares: _containers.RepeatedCompositeFieldContainer[ServerShare]
    bytes: int
    refusal: str
    def __init__(self, moves: _Optional[_Iterable[_Union[ReplicaMove, _Mapping]]] = ..., shares: _Optional[_Iterable[_Union[ServerShare, _Mapping]]] = ..., bytes: _Optional[int] = ..., refusal: _Optional[str] = ...) -> None: ...

class ApplyRebalanceRequest(_message.Message):
    __slots__ = ("request_id", "bytes_max")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    bytes_max: int
    def __init__(self, request_id: _Optional[str] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class ApplyRebalanceResponse(_message.Message):
    __slots__ = ("rebalance",)
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    rebalance: RebalanceState
    def __init__(self, rebalance: _Optional[_Union[RebalanceState, _Mapping]] = ...) -> None: ...

class DescribeRebalanceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeRebalanceResponse(_message.Message):
    __slots__ = ("rebalance",)
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    rebalance: RebalanceState
    def __init__(self, rebalance: _Optional[_Union[RebalanceState, _Mapping]] = ...) -> None: ...

class RebalanceState(_message.Message):
    __slots__ = ("rebalance_id", "moves", "bytes", "moved", "moved_bytes", "under_way", "skipped", "done", "waiting_for", "last_skipped")
    REBALANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    LAST_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    rebalance_id: str
    moves: int
    bytes: int
    moved: int
    moved_bytes: int
    under_way: int
    skipped: int
    done: bool
    waiting_for: str
    last_skipped: str
    def __init__(self, rebalance_id: _Optional[str] = ..., moves: _Optional[int] = ..., bytes: _Optional[int] = ..., moved: _Optional[int] = ..., moved_bytes: _Optional[int] = ..., under_way: _Optional[int] = ..., skipped: _Optional[int] = ..., done: bool = ..., waiting_for: _Optional[str] = ..., last_skipped: _Optional[str] = ...) -> None: ...
