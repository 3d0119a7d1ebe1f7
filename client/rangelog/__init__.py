"""rangelog: a range-based, tiered, replicated log store. This package is the client.

async with rangelog.connect("127.0.0.1:7100") as client:
    await client.create_stream("flights")
    async with client.writer("flights") as writer:
        ack = await writer.append(b"…", key=b"UA")
    async for record in client.reader("flights"):
        ...
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import (
    AccessDenied,
    AppendConflict,
    AppendTimeout,
    ClientClosed,
    ConfigInvalid,
    Corruption,
    DirectoryGivenUp,
    EncryptionKeyMissing,
    GroupNotFound,
    HandshakeFailed,
    InternalError,
    InvalidArgument,
    KeyRangeGap,
    KeyRangeOverlap,
    MemberFenced,
    MemberNotFound,
    MissingExtra,
    NamespaceExists,
    NamespaceNotFound,
    NoPlacement,
    NotLeader,
    NotOwner,
    ObjectNotFound,
    OffsetOutOfRange,
    OffsetTrimmed,
    OutcomeUnknown,
    OutOfOrder,
    Overloaded,
    PreconditionFailed,
    ProducerFenced,
    ProtocolViolation,
    RangeDropped,
    RangelogError,
    RangeNotFound,
    RecordsLost,
    RecordTooLarge,
    RequestTimeout,
    RightMissing,
    RoleForbids,
    SealBelowFloor,
    SealBlocked,
    SessionExpired,
    ShardEnded,
    ShardLost,
    ShardNotFound,
    StaleMapVersion,
    StorageFull,
    StreamExists,
    StreamNotFound,
    StreamSealed,
    TopicExists,
    TopicKindForbids,
    TopicNotFound,
    TopicStateForbids,
    TransactionNotFound,
    Unauthorized,
    Unavailable,
    UnsupportedVersion,
    WriterClosed,
    WriterFenced,
    WrongServer,
)
from rangelog_core.record import Ack, AppendRecord, BytesLike, Record

if TYPE_CHECKING:
    from rangelog import sync
    from rangelog._append.serializing import SerializingWriter
    from rangelog._append.writer import Writer
    from rangelog._client import Client, connect
    from rangelog._consume.group import GroupMember
    from rangelog._consume.group_records import GroupChunk, GroupListener, GroupRecord, ReachedCheckpoint, ShardOfTopic
    from rangelog._consume.groups import GroupInfo, GroupMemberInfo, Groups, GroupShardInfo, GroupSummary, ShardLag
    from rangelog._consume.reader import TopicReader
    from rangelog._consume.records import TopicChunk, TopicRecord
    from rangelog._event_files import open_files
    from rangelog._produce.producer import TopicProducer
    from rangelog._produce.serializing import SerializingProducer
    from rangelog._produce.waiters import ProducerAck
    from rangelog._read.cursor_reader import CursorReader
    from rangelog._read.cursors import Cursor, StreamCursors
    from rangelog._read.reader import Reader
    from rangelog._stream_info import StreamInfo
    from rangelog._table.table import Table
    from rangelog._table.tables import Tables
    from rangelog._table.values import TableChange, TableCheck, TableDelete, TableInfo, TablePut, TableRow
    from rangelog._table.watch import TableWatch
    from rangelog._topics.cut import Cut
    from rangelog._topics.time_windows import TimeWindow
    from rangelog._topics.topics import Topics
    from rangelog._topics.values import (
        Retention,
        ScalingPolicy,
        ShardInfo,
        TopicConfig,
        TopicConfigChange,
        TopicInfo,
        Watermark,
    )
    from rangelog._transact.serializing import SerializingTransaction, SerializingTransactional
    from rangelog._transact.transaction import Transaction
    from rangelog._transact.transactional import Transactional
    from rangelog._transact.transactions import TransactionInfo, Transactions
    from rangelog_core.key_ranges import KeyRange
    from rangelog_core.net.tls import TlsConfig
    from rangelog_core.net.token_sources import TokenFile
    from rangelog_core.stream_config import StreamConfig, StreamConfigChange
    from rangelog_tier.encryption_keys import KeyDirectory
    from rangelog_tier.kms_keys import KmsKeys

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AppendConflict",
    "ClientClosed",
    "InternalError",
    "KeyRangeGap",
    "KeyRangeOverlap",
    "NamespaceExists",
    "NamespaceNotFound",
    "NotLeader",
    "NotOwner",
    "ObjectNotFound",
    "OutOfOrder",
    "ProtocolViolation",
    "RangeDropped",
    "RangeNotFound",
    "SealBelowFloor",
    "SessionExpired",
    "ShardEnded",
    "ShardNotFound",
    "StaleMapVersion",
    "StorageFull",
    "StreamSealed",
    "TopicKindForbids",
    "TopicStateForbids",
    "WrongServer",
    "Ack",
    "AppendRecord",
    "AppendTimeout",
    "BytesLike",
    "Client",
    "ConfigInvalid",
    "Corruption",
    "DirectoryGivenUp",
    "Cursor",
    "CursorReader",
    "Cut",
    "EncryptionKeyMissing",
    "InvalidArgument",
    "KeyDirectory",
    "KeyRange",
    "KmsKeys",
    "GroupChunk",
    "GroupInfo",
    "GroupListener",
    "GroupMember",
    "GroupMemberInfo",
    "GroupNotFound",
    "HandshakeFailed",
    "GroupRecord",
    "GroupShardInfo",
    "GroupSummary",
    "Groups",
    "MemberFenced",
    "MemberNotFound",
    "MissingExtra",
    "NoPlacement",
    "OffsetOutOfRange",
    "OffsetTrimmed",
    "OutcomeUnknown",
    "Overloaded",
    "PreconditionFailed",
    "ProducerAck",
    "ProducerFenced",
    "RangelogError",
    "ReachedCheckpoint",
    "Reader",
    "Record",
    "RecordTooLarge",
    "RecordsLost",
    "RequestTimeout",
    "RightMissing",
    "RoleForbids",
    "Retention",
    "ScalingPolicy",
    "SealBlocked",
    "SerializingProducer",
    "SerializingTransaction",
    "SerializingTransactional",
    "SerializingWriter",
    "ShardInfo",
    "ShardLag",
    "ShardLost",
    "ShardOfTopic",
    "StreamConfig",
    "StreamConfigChange",
    "StreamCursors",
    "StreamExists",
    "StreamInfo",
    "StreamNotFound",
    "Table",
    "TableChange",
    "TableCheck",
    "TableDelete",
    "TableInfo",
    "TablePut",
    "TableRow",
    "TableWatch",
    "Tables",
    "TimeWindow",
    "TlsConfig",
    "TokenFile",
    "TopicProducer",
    "TopicChunk",
    "TopicConfig",
    "TopicConfigChange",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "TopicReader",
    "TopicRecord",
    "Topics",
    "Transaction",
    "TransactionInfo",
    "TransactionNotFound",
    "Transactional",
    "Transactions",
    "Unauthorized",
    "Unavailable",
    "UnsupportedVersion",
    "Watermark",
    "Writer",
    "WriterClosed",
    "WriterFenced",
    "connect",
    "open_files",
    "sync",
]

logging.getLogger("rangelog").addHandler(logging.NullHandler())

_LAZY = {
    "Client": "rangelog._client",
    "ProducerAck": "rangelog._produce.waiters",
    "Cursor": "rangelog._read.cursors",
    "CursorReader": "rangelog._read.cursor_reader",
    "Cut": "rangelog._topics.cut",
    "KeyDirectory": "rangelog_tier.encryption_keys",
    "KeyRange": "rangelog_core.key_ranges",
    "KmsKeys": "rangelog_tier.kms_keys",
    "Reader": "rangelog._read.reader",
    "Retention": "rangelog._topics.values",
    "ScalingPolicy": "rangelog._topics.values",
    "SerializingProducer": "rangelog._produce.serializing",
    "SerializingTransaction": "rangelog._transact.serializing",
    "SerializingTransactional": "rangelog._transact.serializing",
    "SerializingWriter": "rangelog._append.serializing",
    "ShardInfo": "rangelog._topics.values",
    "GroupChunk": "rangelog._consume.group_records",
    "GroupInfo": "rangelog._consume.groups",
    "GroupListener": "rangelog._consume.group_records",
    "GroupMember": "rangelog._consume.group",
    "GroupMemberInfo": "rangelog._consume.groups",
    "GroupRecord": "rangelog._consume.group_records",
    "GroupShardInfo": "rangelog._consume.groups",
    "GroupSummary": "rangelog._consume.groups",
    "Groups": "rangelog._consume.groups",
    "ReachedCheckpoint": "rangelog._consume.group_records",
    "ShardLag": "rangelog._consume.groups",
    "ShardOfTopic": "rangelog._consume.group_records",
    "StreamConfig": "rangelog_core.stream_config",
    "StreamConfigChange": "rangelog_core.stream_config",
    "StreamCursors": "rangelog._read.cursors",
    "StreamInfo": "rangelog._stream_info",
    "Table": "rangelog._table.table",
    "TableChange": "rangelog._table.values",
    "TableCheck": "rangelog._table.values",
    "TableDelete": "rangelog._table.values",
    "TableInfo": "rangelog._table.values",
    "TablePut": "rangelog._table.values",
    "TableRow": "rangelog._table.values",
    "TableWatch": "rangelog._table.watch",
    "Tables": "rangelog._table.tables",
    "TlsConfig": "rangelog_core.net.tls",
    "TokenFile": "rangelog_core.net.token_sources",
    "TimeWindow": "rangelog._topics.time_windows",
    "TopicProducer": "rangelog._produce.producer",
    "TopicChunk": "rangelog._consume.records",
    "TopicConfig": "rangelog._topics.values",
    "TopicConfigChange": "rangelog._topics.values",
    "TopicInfo": "rangelog._topics.values",
    "TopicReader": "rangelog._consume.reader",
    "TopicRecord": "rangelog._consume.records",
    "Topics": "rangelog._topics.topics",
    "Transaction": "rangelog._transact.transaction",
    "TransactionInfo": "rangelog._transact.transactions",
    "Transactional": "rangelog._transact.transactional",
    "Transactions": "rangelog._transact.transactions",
    "Watermark": "rangelog._topics.values",
    "Writer": "rangelog._append.writer",
    "connect": "rangelog._client",
    "open_files": "rangelog._event_files",
}


if not TYPE_CHECKING:  # a checker sees the imports above, and no name that is none

    def __getattr__(name: str) -> Any:
        """Import what needs gRPC only when it is asked for: commands and cores start without it."""
        if name == "sync":
            return importlib.import_module("rangelog.sync")
        if name in _LAZY:
            return getattr(importlib.import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'rangelog' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what a program may use."""
    return list(__all__)
