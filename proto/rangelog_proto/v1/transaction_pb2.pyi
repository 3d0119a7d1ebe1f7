from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNKNOWN: _ClassVar[TransactionState]
    TRANSACTION_STATE_OPEN: _ClassVar[TransactionState]
    TRANSACTION_STATE_WAITING: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTING: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_STATE_ABORTED: _ClassVar[TransactionState]
TRANSACTION_STATE_UNKNOWN: TransactionState
TRANSACTION_STATE_OPEN: TransactionState
TRANSACTION_STATE_WAITING: TransactionState
TRANSACTION_STATE_COMMITTING: TransactionState
TRANSACTION_STATE_COMMITTED: TransactionState
TRANSACTION_STATE_ABORTED: TransactionState

class TransactionName(_message.Message):
    __slots__ = ("transactional_id", "epoch", "number", "producer_id")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    epoch: int
    number: int
    producer_id: int
    def __init__(self, transactional_id: _Optional[str] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., producer_id: _Optional[int] = ...) -> None: ...

class Participant(_message.Message):
    __slots__ = ("topic_id", "shard_id", "group")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    group: str
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class TopicMapVersion(_message.Message):
    __slots__ = ("topic_id", "map_version")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    map_version: int
    def __init__(self, topic_id: _Optional[int] = ..., map_version: _Optional[int] = ...) -> None: ...

class TransactionCommand(_message.Message):
    __slots__ = ("init", "begin", "commit", "abort", "expire", "merged")
    INIT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    init: TransactionInit
    begin: TransactionBegin
    commit: TransactionCommit
    abort: TransactionAbort
    expire: TransactionExpire
    merged: TransactionMerged
    def __init__(self, init: _Optional[_Union[TransactionInit, _Mapping]] = ..., begin: _Optional[_Union[TransactionBegin, _Mapping]] = ..., commit: _Optional[_Union[TransactionCommit, _Mapping]] = ..., abort: _Optional[_Union[TransactionAbort, _Mapping]] = ..., expire: _Optional[_Union[TransactionExpire, _Mapping]] = ..., merged: _Optional[_Union[TransactionMerged, _Mapping]] = ...) -> None: ...

class TransactionInit(_message.Message):
    __slots__ = ("transactional_id", "timeout_ms")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    timeout_ms: int
    def __init__(self, transactional_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class TransactionBegin(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: TransactionName
    def __init__(self, name: _Optional[_Union[TransactionName, _Mapping]] = ...) -> None: ...

class TransactionCommit(_message.Message):
    __slots__ = ("name", "participants", "maps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    name: TransactionName
    participants: _containers.RepeatedCompositeFieldContainer[Participant]
    maps: _containers.RepeatedCompositeFieldContainer[TopicMapVersion]
    def __init__(self, name: _Optional[_Union[TransactionName, _Mapping]] = ..., participants: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., maps: _Optional[_Iterable[_Union[TopicMapVersion, _Mapping]]] = ...) -> None: ...

class TransactionAbort(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: TransactionName
    def __init__(self, name: _Optional[_Union[TransactionName, _Mapping]] = ...) -> None: ...

class TransactionExpire(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: TransactionName
    def __init__(self, name: _Optional[_Union[TransactionName, _Mapping]] = ...) -> None: ...

class TransactionMerged(_message.Message):
    __slots__ = ("name", "participant")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    name: TransactionName
    participant: Participant
    def __init__(self, name: _Optional[_Union[TransactionName, _Mapping]] = ..., participant: _Optional[_Union[Participant, _Mapping]] = ...) -> None: ...

class TransactionResult(_message.Message):
    __slots__ = ("producer_id", "epoch", "number", "state", "to_merge", "maps")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TO_MERGE_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    number: int
    state: TransactionState
    to_merge: _containers.RepeatedCompositeFieldContainer[Participant]
    maps: _containers.RepeatedCompositeFieldContainer[TopicMapVersion]
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., state: _Optional[_Union[TransactionState, str]] = ..., to_merge: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., maps: _Optional[_Iterable[_Union[TopicMapVersion, _Mapping]]] = ...) -> None: ...

class TransactionalIdState(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "epoch", "number", "timeout_ms", "transactions", "used_ms")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    epoch: int
    number: int
    timeout_ms: int
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionRow]
    used_ms: int
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., transactions: _Optional[_Iterable[_Union[TransactionRow, _Mapping]]] = ..., used_ms: _Optional[int] = ...) -> None: ...

class TransactionRow(_message.Message):
    __slots__ = ("epoch", "number", "state", "participants", "merged", "maps")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    number: int
    state: TransactionState
    participants: _containers.RepeatedCompositeFieldContainer[Participant]
    merged: _containers.RepeatedScalarFieldContainer[bool]
    maps: _containers.RepeatedCompositeFieldContainer[TopicMapVersion]
    def __init__(self, epoch: _Optional[int] = ..., number: _Optional[int] = ..., state: _Optional[_Union[TransactionState, str]] = ..., participants: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., merged: _Optional[_Iterable[bool]] = ..., maps: _Optional[_Iterable[_Union[TopicMapVersion, _Mapping]]] = ...) -> None: ...

class TransactionsHead(_message.Message):
    __slots__ = ("next_producer_id",)
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    next_producer_id: int
    def __init__(self, next_producer_id: _Optional[int] = ...) -> None: ...
