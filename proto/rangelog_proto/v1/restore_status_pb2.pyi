from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RestorePhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESTORE_PHASE_UNSPECIFIED: _ClassVar[RestorePhase]
    RESTORE_PHASE_RUNNING: _ClassVar[RestorePhase]
    RESTORE_PHASE_DONE: _ClassVar[RestorePhase]
RESTORE_PHASE_UNSPECIFIED: RestorePhase
RESTORE_PHASE_RUNNING: RestorePhase
RESTORE_PHASE_DONE: RestorePhase

class RestoreMark(_message.Message):
    __slots__ = ("phase", "plan_id", "source_cluster_id", "snapshot_id", "row_count", "rows_put", "began_ms", "ended_ms", "first_stream_id")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROWS_PUT_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    phase: RestorePhase
    plan_id: str
    source_cluster_id: str
    snapshot_id: str
    row_count: int
    rows_put: int
    began_ms: int
    ended_ms: int
    first_stream_id: int
    def __init__(self, phase: _Optional[_Union[RestorePhase, str]] = ..., plan_id: _Optional[str] = ..., source_cluster_id: _Optional[str] = ..., snapshot_id: _Optional[str] = ..., row_count: _Optional[int] = ..., rows_put: _Optional[int] = ..., began_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., first_stream_id: _Optional[int] = ...) -> None: ...

class TierSnapshotStatus(_message.Message):
    __slots__ = ("enabled", "snapshot_id", "written_ms", "age_ms", "size_bytes", "last_error", "current")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    snapshot_id: str
    written_ms: int
    age_ms: int
    size_bytes: int
    last_error: str
    current: bool
    def __init__(self, enabled: bool = ..., snapshot_id: _Optional[str] = ..., written_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ..., last_error: _Optional[str] = ..., current: bool = ...) -> None: ...
