"""How a client sees the ranges of streams and topics: for programs that divide a read among workers, as `rangelog_jobs` do.

These names follow the program's version: a later one may change them.
"""

from __future__ import annotations

from rangelog._metadata import CALL_TIMEOUT_S
from rangelog._read.hot import HotRange
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._read.whole_batches import WholeBatch
from rangelog._stream_info import StreamInfo, stream_info
from rangelog._topics.topic_calls import TopicCalls, by_id, by_name
from rangelog.protocol.reading import trimmed

__all__ = [
    "CALL_TIMEOUT_S", "HotRange", "StreamInfo", "StreamView", "TopicCalls", "WholeBatch", "by_id", "by_name", "confirmed_end",
    "stream_info", "trimmed",
]  # fmt: skip
