from rangelog_proto.v1 import transaction_pb2 as _transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenTransactionSessionRequest(_message.Message):
    __slots__ = ("journal", "transactional_id")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    journal: int
    transactional_id: str
    def __init__(self, journal: _Optional[int] = ..., transactional_id: _Optional[str] = ...) -> None: ...

class OpenTransactionSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class InitTransactionsRequest(_message.Message):
    __slots__ = ("session", "sequence", "transactional_id", "timeout_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    transactional_id: str
    timeout_ms: int
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., transactional_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class InitTransactionsResponse(_message.Message):
    __slots__ = ("producer_id", "epoch", "number")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    number: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _transaction_pb2.TransactionName
    def __init__(self, name: _Optional[_Union[_transaction_pb2.TransactionName, _Mapping]] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingTransactionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _transaction_pb2.TransactionName
    def __init__(self, name: _Optional[_Union[_transaction_pb2.TransactionName, _Mapping]] = ...) -> None: ...

class PingTransactionResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: _transaction_pb2.TransactionState
    def __init__(self, state: _Optional[_Union[_transaction_pb2.TransactionState, str]] = ...) -> None: ...

class CommitTransactionRequest(_message.Message):
    __slots__ = ("name", "participants", "begin_next")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_NEXT_FIELD_NUMBER: _ClassVar[int]
    name: _transaction_pb2.TransactionName
    participants: _containers.RepeatedCompositeFieldContainer[_transaction_pb2.Participant]
    begin_next: bool
    def __init__(self, name: _Optional[_Union[_transaction_pb2.TransactionName, _Mapping]] = ..., participants: _Optional[_Iterable[_Union[_transaction_pb2.Participant, _Mapping]]] = ..., begin_next: bool = ...) -> None: ...

class CommitTransactionResponse(_message.Message):
    __slots__ = ("state", "begun")
    STATE_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    state: _transaction_pb2.TransactionState
    begun: bool
    def __init__(self, state: _Optional[_Union[_transaction_pb2.TransactionState, str]] = ..., begun: bool = ...) -> None: ...

class AbortTransactionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _transaction_pb2.TransactionName
    def __init__(self, name: _Optional[_Union[_transaction_pb2.TransactionName, _Mapping]] = ...) -> None: ...

class AbortTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTransactionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _transaction_pb2.TransactionName
    def __init__(self, name: _Optional[_Union[_transaction_pb2.TransactionName, _Mapping]] = ...) -> None: ...

class DescribeTransactionResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _transaction_pb2.TransactionResult
    def __init__(self, result: _Optional[_Union[_transaction_pb2.TransactionResult, _Mapping]] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("journal", "page_token", "page_size", "transactional_id")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    journal: int
    page_token: str
    page_size: int
    transactional_id: str
    def __init__(self, journal: _Optional[int] = ..., page_token: _Optional[str] = ..., page_size: _Optional[int] = ..., transactional_id: _Optional[str] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[ListedTransaction]
    next_page_token: str
    def __init__(self, transactions: _Optional[_Iterable[_Union[ListedTransaction, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListedTransaction(_message.Message):
    __slots__ = ("transactional_id", "result", "used_ms")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    result: _transaction_pb2.TransactionResult
    used_ms: int
    def __init__(self, transactional_id: _Optional[str] = ..., result: _Optional[_Union[_transaction_pb2.TransactionResult, _Mapping]] = ..., used_ms: _Optional[int] = ...) -> None: ...

class MergeTransactionRequest(_message.Message):
    __slots__ = ("topic_id", "shard_id", "staging_shard_id", "producer_id", "number", "more")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    STAGING_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    shard_id: int
    staging_shard_id: int
    producer_id: int
    number: int
    more: _containers.RepeatedCompositeFieldContainer[MergeTransactionRequest]
    def __init__(self, topic_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., staging_shard_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., number: _Optional[int] = ..., more: _Optional[_Iterable[_Union[MergeTransactionRequest, _Mapping]]] = ...) -> None: ...

class MergeTransactionResponse(_message.Message):
    __slots__ = ("more_merged",)
    MORE_MERGED_FIELD_NUMBER: _ClassVar[int]
    more_merged: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, more_merged: _Optional[_Iterable[bool]] = ...) -> None: ...
