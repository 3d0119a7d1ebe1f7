from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupMember(_message.Message):
    __slots__ = ("name", "raft_address", "api_address", "voter", "leader", "reachable", "replaces", "feature_level", "acknowledged_index")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAFT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    API_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_INDEX_FIELD_NUMBER: _ClassVar[int]
    name: str
    raft_address: str
    api_address: str
    voter: bool
    leader: bool
    reachable: bool
    replaces: str
    feature_level: int
    acknowledged_index: int
    def __init__(self, name: _Optional[str] = ..., raft_address: _Optional[str] = ..., api_address: _Optional[str] = ..., voter: bool = ..., leader: bool = ..., reachable: bool = ..., replaces: _Optional[str] = ..., feature_level: _Optional[int] = ..., acknowledged_index: _Optional[int] = ...) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ("own_view",)
    OWN_VIEW_FIELD_NUMBER: _ClassVar[int]
    own_view: bool
    def __init__(self, own_view: bool = ...) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("group", "members", "configuration_index", "last_index", "term", "has_majority", "passing", "answered_by")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    HAS_MAJORITY_FIELD_NUMBER: _ClassVar[int]
    PASSING_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    group: bytes
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    configuration_index: int
    last_index: int
    term: int
    has_majority: bool
    passing: bool
    answered_by: str
    def __init__(self, group: _Optional[bytes] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., configuration_index: _Optional[int] = ..., last_index: _Optional[int] = ..., term: _Optional[int] = ..., has_majority: bool = ..., passing: bool = ..., answered_by: _Optional[str] = ...) -> None: ...

class AddMemberRequest(_message.Message):
    __slots__ = ("name", "raft_address", "api_address", "replaces")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAFT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    API_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    name: str
    raft_address: str
    api_address: str
    replaces: str
    def __init__(self, name: _Optional[str] = ..., raft_address: _Optional[str] = ..., api_address: _Optional[str] = ..., replaces: _Optional[str] = ...) -> None: ...

class AddMemberResponse(_message.Message):
    __slots__ = ("configuration_index",)
    CONFIGURATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    configuration_index: int
    def __init__(self, configuration_index: _Optional[int] = ...) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveMemberResponse(_message.Message):
    __slots__ = ("configuration_index",)
    CONFIGURATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    configuration_index: int
    def __init__(self, configuration_index: _Optional[int] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: str
    def __init__(self, leader: _Optional[str] = ...) -> None: ...

class SaveStateRequest(_message.Message):
    __slots__ = ("save_id", "piece")
    SAVE_ID_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    save_id: str
    piece: int
    def __init__(self, save_id: _Optional[str] = ..., piece: _Optional[int] = ...) -> None: ...

class SaveStateResponse(_message.Message):
    __slots__ = ("save_id", "data", "last")
    SAVE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    save_id: str
    data: bytes
    last: bool
    def __init__(self, save_id: _Optional[str] = ..., data: _Optional[bytes] = ..., last: bool = ...) -> None: ...

class SavedState(_message.Message):
    __slots__ = ("cluster_id", "cluster_version", "applied_index", "term", "saved_ms", "saved_by", "group", "stream_count", "range_count", "object_count", "topic_count", "time_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SAVED_MS_FIELD_NUMBER: _ClassVar[int]
    SAVED_BY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STREAM_COUNT_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    cluster_version: int
    applied_index: int
    term: int
    saved_ms: int
    saved_by: str
    group: bytes
    stream_count: int
    range_count: int
    object_count: int
    topic_count: int
    time_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., cluster_version: _Optional[int] = ..., applied_index: _Optional[int] = ..., term: _Optional[int] = ..., saved_ms: _Optional[int] = ..., saved_by: _Optional[str] = ..., group: _Optional[bytes] = ..., stream_count: _Optional[int] = ..., range_count: _Optional[int] = ..., object_count: _Optional[int] = ..., topic_count: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...
