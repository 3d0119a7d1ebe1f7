from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupRefusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_REFUSAL_UNSPECIFIED: _ClassVar[GroupRefusal]
    GROUP_REFUSAL_NOT_READ: _ClassVar[GroupRefusal]
    GROUP_REFUSAL_NOT_ASSIGNED: _ClassVar[GroupRefusal]
    GROUP_REFUSAL_BEYOND_END: _ClassVar[GroupRefusal]
    GROUP_REFUSAL_METADATA: _ClassVar[GroupRefusal]
GROUP_REFUSAL_UNSPECIFIED: GroupRefusal
GROUP_REFUSAL_NOT_READ: GroupRefusal
GROUP_REFUSAL_NOT_ASSIGNED: GroupRefusal
GROUP_REFUSAL_BEYOND_END: GroupRefusal
GROUP_REFUSAL_METADATA: GroupRefusal

class GroupShard(_message.Message):
    __slots__ = ("topic_id", "shard_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ...) -> None: ...

class GroupCommand(_message.Message):
    __slots__ = ("group", "join", "leave", "expire", "shards", "commit", "release", "weigh", "reset", "delete", "heartbeat", "forget", "checkpoint", "reach", "drop_checkpoint", "stage", "settle", "retain", "retained")
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
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    DROP_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    RETAIN_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
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
    heartbeat: GroupHeartbeat
    forget: GroupForget
    checkpoint: GroupCheckpoint
    reach: GroupReach
    drop_checkpoint: GroupDropCheckpoint
    stage: GroupStage
    settle: GroupSettle
    retain: GroupRetain
    retained: GroupRetained
    def __init__(self, group: _Optional[str] = ..., join: _Optional[_Union[GroupJoin, _Mapping]] = ..., leave: _Optional[_Union[GroupLeave, _Mapping]] = ..., expire: _Optional[_Union[GroupExpire, _Mapping]] = ..., shards: _Optional[_Union[GroupShards, _Mapping]] = ..., commit: _Optional[_Union[GroupCommit, _Mapping]] = ..., release: _Optional[_Union[GroupRelease, _Mapping]] = ..., weigh: _Optional[_Union[GroupWeigh, _Mapping]] = ..., reset: _Optional[_Union[GroupReset, _Mapping]] = ..., delete: _Optional[_Union[GroupDelete, _Mapping]] = ..., heartbeat: _Optional[_Union[GroupHeartbeat, _Mapping]] = ..., forget: _Optional[_Union[GroupForget, _Mapping]] = ..., checkpoint: _Optional[_Union[GroupCheckpoint, _Mapping]] = ..., reach: _Optional[_Union[GroupReach, _Mapping]] = ..., drop_checkpoint: _Optional[_Union[GroupDropCheckpoint, _Mapping]] = ..., stage: _Optional[_Union[GroupStage, _Mapping]] = ..., settle: _Optional[_Union[GroupSettle, _Mapping]] = ..., retain: _Optional[_Union[GroupRetain, _Mapping]] = ..., retained: _Optional[_Union[GroupRetained, _Mapping]] = ...) -> None: ...

class GroupJoin(_message.Message):
    __slots__ = ("member", "session_ms", "topic_ids", "starts")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    member: str
    session_ms: int
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    starts: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, member: _Optional[str] = ..., session_ms: _Optional[int] = ..., topic_ids: _Optional[_Iterable[int]] = ..., starts: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupLeave(_message.Message):
    __slots__ = ("member", "joined")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    member: str
    joined: int
    def __init__(self, member: _Optional[str] = ..., joined: _Optional[int] = ...) -> None: ...

class GroupHeartbeat(_message.Message):
    __slots__ = ("member", "joined")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    member: str
    joined: int
    def __init__(self, member: _Optional[str] = ..., joined: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("member", "positions", "joined")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    member: str
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    joined: int
    def __init__(self, member: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., joined: _Optional[int] = ...) -> None: ...

class GroupStage(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "number", "commit")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    number: int
    commit: GroupCommit
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., number: _Optional[int] = ..., commit: _Optional[_Union[GroupCommit, _Mapping]] = ...) -> None: ...

class GroupSettle(_message.Message):
    __slots__ = ("producer_id", "number", "committed")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    number: int
    committed: bool
    def __init__(self, producer_id: _Optional[int] = ..., number: _Optional[int] = ..., committed: bool = ...) -> None: ...

class GroupRelease(_message.Message):
    __slots__ = ("member", "positions", "joined")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    member: str
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    joined: int
    def __init__(self, member: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., joined: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("positions", "checkpoint")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    checkpoint: str
    def __init__(self, positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., checkpoint: _Optional[str] = ...) -> None: ...

class GroupDelete(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupRetain(_message.Message):
    __slots__ = ("retains",)
    RETAINS_FIELD_NUMBER: _ClassVar[int]
    retains: bool
    def __init__(self, retains: bool = ...) -> None: ...

class GroupRetained(_message.Message):
    __slots__ = ("topic_ids",)
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupForget(_message.Message):
    __slots__ = ("topic_ids",)
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupCheckpoint(_message.Message):
    __slots__ = ("name", "every_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    every_ms: int
    def __init__(self, name: _Optional[str] = ..., every_ms: _Optional[int] = ...) -> None: ...

class GroupReach(_message.Message):
    __slots__ = ("member", "number", "positions", "joined")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    member: str
    number: int
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    joined: int
    def __init__(self, member: _Optional[str] = ..., number: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., joined: _Optional[int] = ...) -> None: ...

class GroupDropCheckpoint(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GroupResult(_message.Message):
    __slots__ = ("generation", "refused", "joined")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    generation: int
    refused: _containers.RepeatedCompositeFieldContainer[GroupRefused]
    joined: int
    def __init__(self, generation: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[GroupRefused, _Mapping]]] = ..., joined: _Optional[int] = ...) -> None: ...

class GroupRefused(_message.Message):
    __slots__ = ("shard", "why")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    why: GroupRefusal
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., why: _Optional[_Union[GroupRefusal, str]] = ...) -> None: ...

class GroupView(_message.Message):
    __slots__ = ("generation", "assigned", "checkpoint", "checkpoint_name")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    generation: int
    assigned: _containers.RepeatedCompositeFieldContainer[GroupAssigned]
    checkpoint: int
    checkpoint_name: str
    def __init__(self, generation: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[GroupAssigned, _Mapping]]] = ..., checkpoint: _Optional[int] = ..., checkpoint_name: _Optional[str] = ...) -> None: ...

class GroupAssigned(_message.Message):
    __slots__ = ("shard", "since", "offset", "release", "has_position")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    HAS_POSITION_FIELD_NUMBER: _ClassVar[int]
    shard: GroupShard
    since: int
    offset: int
    release: bool
    has_position: bool
    def __init__(self, shard: _Optional[_Union[GroupShard, _Mapping]] = ..., since: _Optional[int] = ..., offset: _Optional[int] = ..., release: bool = ..., has_position: bool = ...) -> None: ...

class GroupState(_message.Message):
    __slots__ = ("group", "generation", "members", "topics", "shards", "checkpoints", "checkpoint_count", "staged", "retains", "leaving")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_COUNT_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    RETAINS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMemberState]
    topics: _containers.RepeatedCompositeFieldContainer[GroupTopicState]
    shards: _containers.RepeatedCompositeFieldContainer[GroupShardState]
    checkpoints: _containers.RepeatedCompositeFieldContainer[GroupCheckpointState]
    checkpoint_count: int
    staged: _containers.RepeatedCompositeFieldContainer[GroupStagedState]
    retains: bool
    leaving: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMemberState, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[GroupTopicState, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[GroupShardState, _Mapping]]] = ..., checkpoints: _Optional[_Iterable[_Union[GroupCheckpointState, _Mapping]]] = ..., checkpoint_count: _Optional[int] = ..., staged: _Optional[_Iterable[_Union[GroupStagedState, _Mapping]]] = ..., retains: bool = ..., leaving: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupStagedState(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "number", "positions")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    number: int
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., number: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupMemberState(_message.Message):
    __slots__ = ("member", "joined", "session_ms", "heard_ms")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    member: str
    joined: int
    session_ms: int
    heard_ms: int
    def __init__(self, member: _Optional[str] = ..., joined: _Optional[int] = ..., session_ms: _Optional[int] = ..., heard_ms: _Optional[int] = ...) -> None: ...

class GroupCheckpointState(_message.Message):
    __slots__ = ("number", "name", "started_ms", "positions", "waiting")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    started_ms: int
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    waiting: _containers.RepeatedCompositeFieldContainer[GroupShard]
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., started_ms: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[GroupShard, _Mapping]]] = ...) -> None: ...

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
