from rangelog_proto.v1 import group_pb2 as _group_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenGroupSessionRequest(_message.Message):
    __slots__ = ("journal", "group")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    journal: int
    group: str
    def __init__(self, journal: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class OpenGroupSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class GroupProposal(_message.Message):
    __slots__ = ("session", "sequence", "settled")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    settled: int
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., settled: _Optional[int] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("proposal", "group", "join")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    join: _group_pb2.GroupJoin
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., join: _Optional[_Union[_group_pb2.GroupJoin, _Mapping]] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ("view", "token", "joined")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    view: _group_pb2.GroupView
    token: int
    joined: int
    def __init__(self, view: _Optional[_Union[_group_pb2.GroupView, _Mapping]] = ..., token: _Optional[int] = ..., joined: _Optional[int] = ...) -> None: ...

class HeartbeatGroupRequest(_message.Message):
    __slots__ = ("group", "member", "token", "wait_ms", "ended", "joined")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    token: int
    wait_ms: int
    ended: _containers.RepeatedCompositeFieldContainer[_group_pb2.GroupShard]
    joined: int
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., token: _Optional[int] = ..., wait_ms: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[_group_pb2.GroupShard, _Mapping]]] = ..., joined: _Optional[int] = ...) -> None: ...

class HeartbeatGroupResponse(_message.Message):
    __slots__ = ("view", "token")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    view: _group_pb2.GroupView
    token: int
    def __init__(self, view: _Optional[_Union[_group_pb2.GroupView, _Mapping]] = ..., token: _Optional[int] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("proposal", "group", "member", "joined")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    member: str
    joined: int
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., joined: _Optional[int] = ...) -> None: ...

class LeaveGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommitPositionsRequest(_message.Message):
    __slots__ = ("proposal", "group", "commit")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    commit: _group_pb2.GroupCommit
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., commit: _Optional[_Union[_group_pb2.GroupCommit, _Mapping]] = ...) -> None: ...

class CommitPositionsResponse(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[_group_pb2.GroupRefused]
    def __init__(self, refused: _Optional[_Iterable[_Union[_group_pb2.GroupRefused, _Mapping]]] = ...) -> None: ...

class ReleaseShardsRequest(_message.Message):
    __slots__ = ("proposal", "group", "release")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    release: _group_pb2.GroupRelease
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., release: _Optional[_Union[_group_pb2.GroupRelease, _Mapping]] = ...) -> None: ...

class ReleaseShardsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StagePositionsRequest(_message.Message):
    __slots__ = ("proposal", "group", "stage")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    stage: _group_pb2.GroupStage
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., stage: _Optional[_Union[_group_pb2.GroupStage, _Mapping]] = ...) -> None: ...

class StagePositionsResponse(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[_group_pb2.GroupRefused]
    def __init__(self, refused: _Optional[_Iterable[_Union[_group_pb2.GroupRefused, _Mapping]]] = ...) -> None: ...

class MergePositionsRequest(_message.Message):
    __slots__ = ("group", "producer_id", "number")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    producer_id: int
    number: int
    def __init__(self, group: _Optional[str] = ..., producer_id: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class MergePositionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReachCheckpointRequest(_message.Message):
    __slots__ = ("proposal", "group", "reach")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    reach: _group_pb2.GroupReach
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., reach: _Optional[_Union[_group_pb2.GroupReach, _Mapping]] = ...) -> None: ...

class ReachCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("journal", "prefix", "page_token", "page_size")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    journal: int
    prefix: str
    page_token: str
    page_size: int
    def __init__(self, journal: _Optional[int] = ..., prefix: _Optional[str] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group", "generation", "member_count", "topic_ids")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    member_count: int
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., member_count: _Optional[int] = ..., topic_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("state", "now_ms")
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    state: _group_pb2.GroupState
    now_ms: int
    def __init__(self, state: _Optional[_Union[_group_pb2.GroupState, _Mapping]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("proposal", "group", "reset")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    reset: _group_pb2.GroupReset
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., reset: _Optional[_Union[_group_pb2.GroupReset, _Mapping]] = ...) -> None: ...

class ResetGroupResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class RetainGroupRequest(_message.Message):
    __slots__ = ("proposal", "group", "retains")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RETAINS_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    retains: bool
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., retains: bool = ...) -> None: ...

class RetainGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("proposal", "group")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnsubscribeGroupRequest(_message.Message):
    __slots__ = ("proposal", "group", "topic_ids")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    topic_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., topic_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class UnsubscribeGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestCheckpointRequest(_message.Message):
    __slots__ = ("proposal", "group", "checkpoint")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    checkpoint: _group_pb2.GroupCheckpoint
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., checkpoint: _Optional[_Union[_group_pb2.GroupCheckpoint, _Mapping]] = ...) -> None: ...

class RequestCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeCheckpointRequest(_message.Message):
    __slots__ = ("group", "name")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    group: str
    name: str
    def __init__(self, group: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DescribeCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _group_pb2.GroupCheckpointState
    def __init__(self, checkpoint: _Optional[_Union[_group_pb2.GroupCheckpointState, _Mapping]] = ...) -> None: ...

class DeleteCheckpointRequest(_message.Message):
    __slots__ = ("proposal", "group", "name")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    proposal: GroupProposal
    group: str
    name: str
    def __init__(self, proposal: _Optional[_Union[GroupProposal, _Mapping]] = ..., group: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
