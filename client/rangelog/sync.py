"""The blocking client: the operations of the asynchronous client, run on one background event loop per client.

Calls are allowed from any thread but the client's own, on which the callbacks of futures run, and only in the process that
connected: other calls raise InvalidArgument. `close` ends waiting calls with an error, and later calls raise one.

    with rangelog.sync.connect("127.0.0.1:7100") as client:
        with client.writer("flights") as writer:
            writer.append(b"…")
        for record in client.reader("flights"):
            ...
"""

from __future__ import annotations

from rangelog._sync_client import Client as Client
from rangelog._sync_client import connect as connect
from rangelog._sync_cursors import StreamCursors as StreamCursors
from rangelog._sync_groups import GroupMember as GroupMember
from rangelog._sync_groups import Groups as Groups
from rangelog._sync_reader import CursorReader as CursorReader
from rangelog._sync_reader import Reader as Reader
from rangelog._sync_serializing import SerializingProducer as SerializingProducer
from rangelog._sync_serializing import SerializingTransaction as SerializingTransaction
from rangelog._sync_serializing import SerializingTransactional as SerializingTransactional
from rangelog._sync_serializing import SerializingWriter as SerializingWriter
from rangelog._sync_tables import Table as Table
from rangelog._sync_tables import Tables as Tables
from rangelog._sync_tables import TableWatch as TableWatch
from rangelog._sync_topics import TopicProducer as TopicProducer
from rangelog._sync_topics import TopicReader as TopicReader
from rangelog._sync_topics import Topics as Topics
from rangelog._sync_transactions import Transaction as Transaction
from rangelog._sync_transactions import Transactional as Transactional
from rangelog._sync_transactions import Transactions as Transactions
from rangelog._sync_writer import Writer as Writer

_PUBLIC = sorted(
    name for name, each in globals().items() if not name.startswith("_") and "sync" in getattr(each, "__module__", "")
)


def __dir__() -> list[str]:
    """List what a program may use."""
    return _PUBLIC
