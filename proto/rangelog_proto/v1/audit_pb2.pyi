from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetAuditRequest(_message.Message):
    __slots__ = ("request_id", "enabled")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    enabled: bool
    def __init__(self, request_id: _Optional[str] = ..., enabled: bool = ...) -> None: ...

class SetAuditResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: AuditState
    def __init__(self, state: _Optional[_Union[AuditState, _Mapping]] = ...) -> None: ...

class DescribeAuditRequest(_message.Message):
    __slots__ = ("pending_from",)
    PENDING_FROM_FIELD_NUMBER: _ClassVar[int]
    pending_from: int
    def __init__(self, pending_from: _Optional[int] = ...) -> None: ...

class DescribeAuditResponse(_message.Message):
    __slots__ = ("state", "pending", "problem")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    state: AuditState
    pending: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    problem: str
    def __init__(self, state: _Optional[_Union[AuditState, _Mapping]] = ..., pending: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class AuditState(_message.Message):
    __slots__ = ("enabled", "stream_id", "last_sequence", "last_hash", "written_sequence")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_HASH_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    stream_id: int
    last_sequence: int
    last_hash: bytes
    written_sequence: int
    def __init__(self, enabled: bool = ..., stream_id: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_hash: _Optional[bytes] = ..., written_sequence: _Optional[int] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("sequence", "line")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    line: bytes
    def __init__(self, sequence: _Optional[int] = ..., line: _Optional[bytes] = ...) -> None: ...

class AuditNote(_message.Message):
    __slots__ = ("principal", "peer", "call", "resource", "outcome", "detail", "of_sequence", "count", "dropped_count", "through")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OF_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    principal: str
    peer: str
    call: str
    resource: str
    outcome: str
    detail: str
    of_sequence: int
    count: int
    dropped_count: int
    through: str
    def __init__(self, principal: _Optional[str] = ..., peer: _Optional[str] = ..., call: _Optional[str] = ..., resource: _Optional[str] = ..., outcome: _Optional[str] = ..., detail: _Optional[str] = ..., of_sequence: _Optional[int] = ..., count: _Optional[int] = ..., dropped_count: _Optional[int] = ..., through: _Optional[str] = ...) -> None: ...

class NoteAudit(_message.Message):
    __slots__ = ("notes",)
    NOTES_FIELD_NUMBER: _ClassVar[int]
    notes: _containers.RepeatedCompositeFieldContainer[AuditNote]
    def __init__(self, notes: _Optional[_Iterable[_Union[AuditNote, _Mapping]]] = ...) -> None: ...

class NoteAuditResponse(_message.Message):
    __slots__ = ("sequences",)
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class PlacedSetAudit(_message.Message):
    __slots__ = ("request", "note", "tiered")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TIERED_FIELD_NUMBER: _ClassVar[int]
    request: SetAuditRequest
    note: AuditNote
    tiered: bool
    def __init__(self, request: _Optional[_Union[SetAuditRequest, _Mapping]] = ..., note: _Optional[_Union[AuditNote, _Mapping]] = ..., tiered: bool = ...) -> None: ...

class MarkAuditWritten(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...
