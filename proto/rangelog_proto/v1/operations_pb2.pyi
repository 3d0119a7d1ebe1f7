from rangelog_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetServerModeRequest(_message.Message):
    __slots__ = ("request_id", "server", "mode")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    server: str
    mode: _common_pb2.ServerMode
    def __init__(self, request_id: _Optional[str] = ..., server: _Optional[str] = ..., mode: _Optional[_Union[_common_pb2.ServerMode, str]] = ...) -> None: ...

class SetServerModeResponse(_message.Message):
    __slots__ = ("server",)
    SERVER_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.Server
    def __init__(self, server: _Optional[_Union[_common_pb2.Server, _Mapping]] = ...) -> None: ...

class RemoveServerRequest(_message.Message):
    __slots__ = ("request_id", "server", "incarnation", "dead", "accept_loss")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    server: str
    incarnation: int
    dead: bool
    accept_loss: bool
    def __init__(self, request_id: _Optional[str] = ..., server: _Optional[str] = ..., incarnation: _Optional[int] = ..., dead: bool = ..., accept_loss: bool = ...) -> None: ...

class RemoveServerResponse(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class DescribeDrainRequest(_message.Message):
    __slots__ = ("server", "listed_max")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    LISTED_MAX_FIELD_NUMBER: _ClassVar[int]
    server: str
    listed_max: int
    def __init__(self, server: _Optional[str] = ..., listed_max: _Optional[int] = ...) -> None: ...

class DescribeDrainResponse(_message.Message):
    __slots__ = ("server", "open_count", "sealed_count", "copying_count", "blocked", "blocked_count", "reported")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    OPEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEALED_COUNT_FIELD_NUMBER: _ClassVar[int]
    COPYING_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.Server
    open_count: int
    sealed_count: int
    copying_count: int
    blocked: _containers.RepeatedCompositeFieldContainer[RangeTrouble]
    blocked_count: int
    reported: bool
    def __init__(self, server: _Optional[_Union[_common_pb2.Server, _Mapping]] = ..., open_count: _Optional[int] = ..., sealed_count: _Optional[int] = ..., copying_count: _Optional[int] = ..., blocked: _Optional[_Iterable[_Union[RangeTrouble, _Mapping]]] = ..., blocked_count: _Optional[int] = ..., reported: bool = ...) -> None: ...

class RangeTrouble(_message.Message):
    __slots__ = ("stream_id", "stream_name", "range_index", "reason", "copies")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    RANGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    stream_name: str
    range_index: int
    reason: str
    copies: int
    def __init__(self, stream_id: _Optional[int] = ..., stream_name: _Optional[str] = ..., range_index: _Optional[int] = ..., reason: _Optional[str] = ..., copies: _Optional[int] = ...) -> None: ...

class CheckImpactRequest(_message.Message):
    __slots__ = ("names", "listed_max")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    LISTED_MAX_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    listed_max: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., listed_max: _Optional[int] = ...) -> None: ...

class CheckImpactResponse(_message.Message):
    __slots__ = ("safe", "range_count", "lost", "lost_count", "short", "short_count", "stalled", "stalled_count", "members_reachable", "members_needed", "unreported")
    SAFE_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LOST_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHORT_FIELD_NUMBER: _ClassVar[int]
    SHORT_COUNT_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    STALLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_NEEDED_FIELD_NUMBER: _ClassVar[int]
    UNREPORTED_FIELD_NUMBER: _ClassVar[int]
    safe: bool
    range_count: int
    lost: _containers.RepeatedCompositeFieldContainer[RangeTrouble]
    lost_count: int
    short: _containers.RepeatedCompositeFieldContainer[RangeTrouble]
    short_count: int
    stalled: _containers.RepeatedCompositeFieldContainer[RangeTrouble]
    stalled_count: int
    members_reachable: int
    members_needed: int
    unreported: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, safe: bool = ..., range_count: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[RangeTrouble, _Mapping]]] = ..., lost_count: _Optional[int] = ..., short: _Optional[_Iterable[_Union[RangeTrouble, _Mapping]]] = ..., short_count: _Optional[int] = ..., stalled: _Optional[_Iterable[_Union[RangeTrouble, _Mapping]]] = ..., stalled_count: _Optional[int] = ..., members_reachable: _Optional[int] = ..., members_needed: _Optional[int] = ..., unreported: _Optional[_Iterable[str]] = ...) -> None: ...

class FinalizeUpgradeRequest(_message.Message):
    __slots__ = ("dry_run", "accept_older")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_OLDER_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    accept_older: bool
    def __init__(self, dry_run: bool = ..., accept_older: bool = ...) -> None: ...

class FinalizeUpgradeResponse(_message.Message):
    __slots__ = ("cluster_version_before", "cluster_version", "hindrances", "auto_finalize")
    CLUSTER_VERSION_BEFORE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    HINDRANCES_FIELD_NUMBER: _ClassVar[int]
    AUTO_FINALIZE_FIELD_NUMBER: _ClassVar[int]
    cluster_version_before: int
    cluster_version: int
    hindrances: _containers.RepeatedScalarFieldContainer[str]
    auto_finalize: bool
    def __init__(self, cluster_version_before: _Optional[int] = ..., cluster_version: _Optional[int] = ..., hindrances: _Optional[_Iterable[str]] = ..., auto_finalize: bool = ...) -> None: ...
