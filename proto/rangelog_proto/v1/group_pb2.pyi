from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupShard(_message.Message):
    __slots__ = ("topic_id", "shard_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class GroupCommand(_message.Message):
    __slots__ = ("group", "join", "leave", "expire", "shards", "commit", "release", "weigh", "reset", "delete")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    WEIGH_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    group: str
    join: GroupJoin
    leave: GroupLeave
    expire: GroupExpire
    shards: GroupShards
    commit: GroupCommit
    release: GroupRelease
    weigh: GroupWeigh
    reset: GroupReset
    delete: GroupDelete
    def __init__(self, group: _Optional[str] = ..., join: _Optional[_Union[GroupJoin, _Mapping]] = ..., leave: _Optional[_Union[GroupLeave, _Mapping]] = ..., expire: _Optional[_Union[GroupExpire, _Mapping]] = ..., shards: _Optional[_Union[GroupShards, _Mapping]] = ..., commit: _Optional[_Union[GroupCommit, _Mapping]] = ..., release: _Optional[_Union[GroupRelease, _Mapping]] = ..., weigh: _Optional[_Union[GroupWeigh, _Mapping]] = ..., reset: _Optional[_Union[GroupReset, _Mapping]] = ..., delete: _Optional[_Union[GroupDelete, _Mapping]] = ...) -> None: ...

class GroupJoin(_message.Message):
    __slots__ = ("member", "session_ms", "topic_ids")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    member: str
    session_ms: int
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, member: _Optional[str] = ..., session_ms: _Optional[int] = ..., topic_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupLeave(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: str
    def __init__(self, member: _Optional[str] = ...) -> None: ...

class GroupExpire(_message.Message):
    __slots__ = ("member", "joined")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    member: str
    joined: int
    def __init__(self, member: _Optional[str] = ..., joined: _Optional[int] = ...) -> None: ...

class GroupShards(_message.Message):
    __slots__ = ("topic_id", "map_version", "shards")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    map_version: int
    shards: _containers.RepeatedCompositeFieldContainer[GroupShardFacts]
    def __init__(self, topic_id: _Optional[int] = ..., map_version: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[GroupShardFacts, _Mapping]]] = ...) -> None: ...

class GroupShardFacts(_message.Message):
    __slots__ = ("shard_id", "predecessors", "ended", "end_offset", "start_offset")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    PREDECESSORS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    predecessors: _containers.RepeatedScalarFieldContainer[int]
    ended: bool
    end_offset: int
    start_offset: int
    def __init__(self, shard_id: _Optional[int] = ..., predecessors: _Optional[_Iterable[int]] = ..., ended: bool = ..., end_offset: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class GroupPosition(_message.Message):
    __slots__ = ("shard", "offset", "since", "metadata")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    offset: int
    since: int
    metadata: bytes
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., offset: _Optional[int] = ..., since: _Optional[int] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class GroupCommit(_message.Message):
    __slots__ = ("member", "positions")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    member: str
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, member: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupRelease(_message.Message):
    __slots__ = ("member", "positions")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    member: str
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, member: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupWeigh(_message.Message):
    __slots__ = ("weights",)
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedCompositeFieldContainer[GroupWeight]
    def __init__(self, weights: _Optional[_Iterable[_Union[GroupWeight, _Mapping]]] = ...) -> None: ...

class GroupWeight(_message.Message):
    __slots__ = ("shard", "weight")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    weight: int
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., weight: _Optional[int] = ...) -> None: ...

class GroupReset(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupDelete(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupResult(_message.Message):
    __slots__ = ("generation", "assigned", "refused")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    generation: int
    assigned: _containers.RepeatedCompositeFieldContainer[GroupAssigned]
    refused: _containers.RepeatedCompositeFieldContainer[GroupRefused]
    def __init__(self, generation: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[GroupAssigned, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[GroupRefused, _Mapping]]] = ...) -> None: ...

class GroupAssigned(_message.Message):
    __slots__ = ("shard", "since", "offset", "release")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    since: int
    offset: int
    release: bool
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., since: _Optional[int] = ..., offset: _Optional[int] = ..., release: bool = ...) -> None: ...

class GroupRefused(_message.Message):
    __slots__ = ("shard", "why")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    why: str
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class GroupState(_message.Message):
    __slots__ = ("group", "generation", "members", "topics", "shards")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMemberState]
    topics: _containers.RepeatedCompositeFieldContainer[GroupTopicState]
    shards: _containers.RepeatedCompositeFieldContainer[GroupShardState]
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMemberState, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[GroupTopicState, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[GroupShardState, _Mapping]]] = ...) -> None: ...

class GroupMemberState(_message.Message):
    __slots__ = ("member", "joined", "session_ms")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    member: str
    joined: int
    session_ms: int
    def __init__(self, member: _Optional[str] = ..., joined: _Optional[int] = ..., session_ms: _Optional[int] = ...) -> None: ...

class GroupTopicState(_message.Message):
    __slots__ = ("topic_id", "map_version")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    map_version: int
    def __init__(self, topic_id: _Optional[int] = ..., map_version: _Optional[int] = ...) -> None: ...

class GroupShardState(_message.Message):
    __slots__ = ("shard", "facts", "known", "has_position", "offset", "metadata", "member", "since", "release", "weight")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    HAS_POSITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    facts: GroupShardFacts
    known: bool
    has_position: bool
    offset: int
    metadata: bytes
    member: str
    since: int
    release: bool
    weight: int
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., facts: _Optional[_Union[GroupShardFacts, _Mapping]] = ..., known: bool = ..., has_position: bool = ..., offset: _Optional[int] = ..., metadata: _Optional[bytes] = ..., member: _Optional[str] = ..., since: _Optional[int] = ..., release: bool = ..., weight: _Optional[int] = ...) -> None: ...
