"""The watermarks of the topics of one coordinator: a machine on a journal.

What holds: a command that is refused leaves its topic as it was. A topic is known from its shards on, until it is deleted. What
is promised to readers is described in topic_times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from google.protobuf.message import DecodeError

from rangelog_broker.watermarks.snapshots import restore_piece, topic_pieces
from rangelog_broker.watermarks.topic_times import TopicTimes
from rangelog_core.errors import Corruption, InvalidArgument, Overloaded, TopicNotFound, UnsupportedVersion
from rangelog_proto.v1 import watermark_pb2

ROWS_MAX = 1_000_000
"""Shards, producers and positions of cuts, of all topics together: about 200 MB."""
SHARDS_MAX = 20_000
"""Of one topic, ended ones too."""
_ROW_BYTES = 40


class WatermarkCoordinator:
    """See the module."""

    def __init__(self) -> None:
        self.level = 0
        self.topics: dict[int, TopicTimes] = {}
        self.on_noted: Callable[[int], object] = lambda topic_id: None
        """Called with a topic's id as a note or an end is applied. Not part of the state."""
        self._rows = 0

    # ---- JournalMachine

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return self._rows * _ROW_BYTES

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a WatermarkCommand; its result is empty.

        Raises InvalidArgument, TopicNotFound, Overloaded, and what TopicTimes raises.
        """
        try:
            message = watermark_pb2.WatermarkCommand.FromString(command)
        except DecodeError as error:
            raise InvalidArgument("a command of watermarks does not decode") from error
        topic_id, action = message.topic_id, message.WhichOneof("action")
        if action is None:
            raise UnsupportedVersion("a command of watermarks with an unknown action: upgrade this broker")
        if not topic_id:
            raise InvalidArgument("a command of watermarks without a topic")
        topic = self.topics.get(topic_id)
        if action == "forget":
            if topic is not None:
                self._rows -= topic.rows
                del self.topics[topic_id]
            return b""
        if action in ("shards", "note") and self._rows >= ROWS_MAX:
            raise Overloaded(f"this coordinator keeps {ROWS_MAX} rows of watermarks, its limit")
        if action == "shards":
            _check_shards(message.shards)
            if topic is None:
                topic = self.topics[topic_id] = TopicTimes()
                self._rows += topic.rows
        elif topic is None:
            raise TopicNotFound(f"no producer has noted a time for topic {topic_id}")
        rows = topic.rows
        match action:
            case "shards":
                topic.learn(message.shards.map_version, message.shards.shards)
            case "note":
                topic.note(message.note, now_ms)
            case "end":
                topic.end(message.end, now_ms)
            case _:
                topic.compute(message.compute.expiry_ms, message.compute.opened_ms, now_ms)
        self._rows += topic.rows - rows
        if topic.noted:
            self.on_noted(topic_id)
        return b""

    def snapshot(self) -> Iterator[bytes]:
        """See JournalMachine."""
        return topic_pieces(self.topics)

    def restore_begin(self) -> None:
        """See JournalMachine."""
        self.topics = {}

    def restore_piece(self, piece: bytes) -> None:
        """See JournalMachine."""
        try:
            state = watermark_pb2.WatermarkTopicState.FromString(piece)
        except DecodeError as error:
            raise Corruption("a snapshot of watermarks does not decode") from error
        restore_piece(self.topics.setdefault(state.topic_id, TopicTimes()), state)

    def restore_end(self) -> None:
        """See JournalMachine."""
        self._rows = sum(topic.rows for topic in self.topics.values())

    # ---- reads

    def topic(self, topic_id: int) -> TopicTimes | None:
        """Return what is known of a topic; None: no producer has noted a time yet."""
        return self.topics.get(topic_id)


def _check_shards(shards: watermark_pb2.WatermarkShards) -> None:
    """Raise InvalidArgument unless each shard is listed once, behind all that precede it."""
    if not 0 < len(shards.shards) <= SHARDS_MAX or not shards.map_version:
        raise InvalidArgument(f"a topic of {len(shards.shards)} shards; 1 to {SHARDS_MAX} are allowed")
    last = -1
    for each in shards.shards:
        if each.shard_id <= last or any(before >= each.shard_id for before in each.predecessors):
            raise InvalidArgument("the shards of a topic are not listed in order")
        last = each.shard_id
