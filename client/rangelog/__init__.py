"""rangelog: a range-based, tiered, replicated log store. This package is the client.

async with await rangelog.connect("127.0.0.1:7100") as client:
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
    AppendTimeout,
    ConfigInvalid,
    Corruption,
    InvalidArgument,
    MissingExtra,
    NoPlacement,
    OffsetOutOfRange,
    OffsetTrimmed,
    OutcomeUnknown,
    Overloaded,
    PreconditionFailed,
    RangelogError,
    RecordTooLarge,
    RequestTimeout,
    SealBlocked,
    StreamExists,
    StreamNotFound,
    Unauthorized,
    Unavailable,
    UnsupportedVersion,
    WriterClosed,
    WriterFenced,
)
from rangelog_core.record import Ack, AppendRecord, Record

if TYPE_CHECKING:
    from rangelog import sync
    from rangelog._append.writer import Writer
    from rangelog._client import Client, connect
    from rangelog._read.reader import Reader
    from rangelog._stream_info import StreamInfo
    from rangelog_core.net.grpc_options import TlsConfig
    from rangelog_core.stream_config import StreamConfig, StreamConfigChange

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "AppendRecord",
    "AppendTimeout",
    "Client",
    "ConfigInvalid",
    "Corruption",
    "InvalidArgument",
    "MissingExtra",
    "NoPlacement",
    "OffsetOutOfRange",
    "OffsetTrimmed",
    "OutcomeUnknown",
    "Overloaded",
    "PreconditionFailed",
    "RangelogError",
    "Reader",
    "Record",
    "RecordTooLarge",
    "RequestTimeout",
    "SealBlocked",
    "StreamConfig",
    "StreamConfigChange",
    "StreamExists",
    "StreamInfo",
    "StreamNotFound",
    "TlsConfig",
    "Unauthorized",
    "Unavailable",
    "UnsupportedVersion",
    "Writer",
    "WriterClosed",
    "WriterFenced",
    "connect",
    "sync",
]

logging.getLogger("rangelog").addHandler(logging.NullHandler())

_LAZY = {
    "Client": "rangelog._client",
    "Reader": "rangelog._read.reader",
    "StreamConfig": "rangelog_core.stream_config",
    "StreamConfigChange": "rangelog_core.stream_config",
    "StreamInfo": "rangelog._stream_info",
    "TlsConfig": "rangelog_core.net.grpc_options",
    "Writer": "rangelog._append.writer",
    "connect": "rangelog._client",
}


def __getattr__(name: str) -> Any:
    """Import what needs gRPC only when it is asked for: commands and cores start without it."""
    if name == "sync":
        return importlib.import_module("rangelog.sync")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'rangelog' has no attribute {name!r}")
