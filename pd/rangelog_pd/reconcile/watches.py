"""The sessions that watch streams and topics, and the changes for each. Pure: the handler of the call sends the results.

What holds: a session gets every later change of its streams and topics, several changes of a row as its latest form; a change
counts as delivered only when it is acked, and is sent again otherwise. The changes that wait for a slow session are bounded by
its number of streams and shards, not by their rate of change. A change without a watch costs one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from google.protobuf.message import Message

from rangelog_core.errors import Overloaded
from rangelog_pd.reconcile.topic_watch import TopicWatch
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey, discard
from rangelog_proto.v1 import broker_pb2, common_pb2, topic_pb2

ROWS_PER_ANSWER = 500
STREAMS_MAX = 100_000
"""Streams of one session."""
SESSIONS_MAX = 10_000
FORGET_MS = 60_000.0


@dataclass(eq=False, slots=True)
class WatchSession:
    """One session. `wake` is called when there are changes to send."""

    number: int
    heard_ms: float
    caller: str = ""
    """Whose it is: numbers follow each other, and everybody can guess them."""
    wake: Callable[[], None] = lambda: None
    sequence: int = 0
    call: int = 0
    """The number of the session's last call: an earlier one that still waits was cancelled by its caller."""
    watched: dict[int, None] = field(default_factory=dict)
    streams: dict[int, None] = field(default_factory=dict)
    """The streams whose row must be sent."""
    ranges: dict[RangeKey, None] = field(default_factory=dict)
    unacked_streams: list[int] = field(default_factory=list)
    unacked_ranges: list[RangeKey] = field(default_factory=list)
    topic_watch: TopicWatch = field(default_factory=TopicWatch)
    is_closed: bool = False

    @property
    def has_news(self) -> bool:
        """Whether there are changes to send."""
        return bool(self.streams or self.ranges or self.topic_watch.has_news)


class Watches:
    """All sessions of one leader."""

    def __init__(self, first_number: int = 1) -> None:
        """`first_number`: drawn at random by each leader, so that it recognizes the sessions of others."""
        self._sessions: dict[int, WatchSession] = {}
        self._next_number = first_number
        self._by_stream: dict[int, dict[WatchSession, None]] = {}
        self._by_topic: dict[int, dict[WatchSession, None]] = {}
        self._by_broker: dict[str, dict[WatchSession, None]] = {}
        self._state: State | None = None
        self._seen = 0

    def open(self, now_ms: float, caller: str = "") -> WatchSession:
        """Create a session. `caller`: its principal; empty without TLS. Raises Overloaded."""
        for number in [each.number for each in self._sessions.values() if now_ms - each.heard_ms > FORGET_MS]:
            self.close(number)
        if len(self._sessions) >= SESSIONS_MAX:
            raise Overloaded(
                f"this placement driver has {SESSIONS_MAX} watch sessions, its limit: try again in a while"
            )
        session = self._sessions[self._next_number] = WatchSession(self._next_number, now_ms, caller)
        self._next_number += 1
        return session

    def find(self, number: int, now_ms: float, acked: int, call: int, caller: str = "") -> WatchSession | None:
        """Return the session of a further call; changes that it did not ack are sent again.

        None: the caller has no such session, or a later call of it was received before.
        """
        session = self._sessions.get(number)
        if session is None or session.caller != caller or call <= session.call:
            return None
        session.heard_ms = now_ms
        session.call = call
        session.topic_watch.settle(acked=acked == session.sequence)
        if acked != session.sequence:
            session.streams.update(dict.fromkeys(session.unacked_streams))
            session.ranges.update(dict.fromkeys(session.unacked_ranges))
        session.unacked_streams, session.unacked_ranges = [], []
        return session

    def close(self, number: int) -> None:
        """Remove a session."""
        session = self._sessions.pop(number, None)
        if session is not None:
            self.end(session, list(session.watched))
            self.end_topics(session, list(session.topic_watch.watched))
            discard(self._by_broker, session.topic_watch.broker, session)
            session.is_closed = True

    def clear(self, first_number: int) -> None:
        """Remove all sessions, in another term of leadership."""
        for session in list(self._sessions.values()):
            self.close(session.number)
            session.wake()
        self._next_number = first_number

    def begin(self, state: State, session: WatchSession, stream_id: int, from_index: int) -> None:
        """Start to watch a stream: its row and the ranges from an index on, then all changes."""
        session.watched[stream_id] = None
        session.streams[stream_id] = None
        self._by_stream.setdefault(stream_id, {})[session] = None
        for index in state.ranges.of(stream_id).indexes_from(from_index):
            session.ranges[stream_id, index] = None

    def end(self, session: WatchSession, stream_ids: Iterable[int]) -> None:
        """Stop to watch some streams."""
        for stream_id in stream_ids:
            session.watched.pop(stream_id, None)
            session.streams.pop(stream_id, None)
            discard(self._by_stream, stream_id, session)

    def begin_topic(self, state: State, session: WatchSession, topic_id: int, map_version: int) -> None:
        """Start to watch a topic: its row and the shards that changed after a map version, then all changes."""
        session.topic_watch.begin(state, topic_id, map_version)
        self._by_topic.setdefault(topic_id, {})[session] = None

    def end_topics(self, session: WatchSession, topic_ids: Iterable[int]) -> None:
        """Stop to watch some topics."""
        for topic_id in topic_ids:
            session.topic_watch.end(topic_id)
            discard(self._by_topic, topic_id, session)

    def begin_broker(self, state: State, session: WatchSession, broker: str) -> None:
        """Watch the assignments of one broker, in place of another one that the session watched."""
        discard(self._by_broker, session.topic_watch.broker, session)
        session.topic_watch.begin_broker(state, broker)
        self._by_broker.setdefault(broker, {})[session] = None

    def follow(self, state: State) -> None:
        """Note the changes since the last call for each session, and wake the sessions with changes."""
        concerned: dict[WatchSession, None] = {}
        for session, stream_id, index in self._news(state):
            concerned[session] = None
            if index is None:
                session.streams[stream_id] = None
            else:
                session.ranges[stream_id, index] = None
        for session in concerned:
            session.wake()

    def _news(self, state: State) -> Iterator[tuple[WatchSession, int, int | None]]:
        """Yield (session, stream id, range index, or None for the stream itself) of each change that is watched."""
        changes = state.changes.since(self._seen) if self._state is state else None
        self._state, self._seen = state, state.changes.last
        if changes is None:  # some were missed: all watched rows may have changed
            for topic_id, watchers in self._by_topic.items():
                for session in watchers:
                    session.topic_watch.begin(state, topic_id, 0)
                    session.wake()
            for broker, watchers in self._by_broker.items():
                for session in watchers:
                    session.topic_watch.begin_broker(state, broker)
                    session.wake()
            for stream_id, watchers in self._by_stream.items():
                for session in watchers:
                    yield session, stream_id, None
                    for index in state.ranges.of(stream_id):
                        yield session, stream_id, index
            return
        for before, after in changes:
            self._note_assignment(before, after)
            row = after if after is not None else before
            if isinstance(row, common_pb2.Stream):
                for session in self._by_stream.get(row.stream_id, ()):
                    yield session, row.stream_id, None
            elif isinstance(after, common_pb2.Range):
                for session in self._by_stream.get(after.stream_id, ()):
                    yield session, after.stream_id, after.index
            elif isinstance(row, topic_pb2.Topic | topic_pb2.Shard):
                for session in self._by_topic.get(row.topic_id, ()):
                    session.topic_watch.note(row)
                    session.wake()

    def _note_assignment(self, before: Message | None, after: Message | None) -> None:
        """Send an assignment to who watches its topic, its broker or the broker before."""
        for row in (before, after):
            if isinstance(row, broker_pb2.Assignment):
                for session in (*self._by_topic.get(row.topic_id, ()), *self._by_broker.get(row.broker, ())):
                    session.topic_watch.note(row)
                    session.wake()

    def take(
        self, state: State, session: WatchSession
    ) -> tuple[list[common_pb2.Stream], list[common_pb2.Range], list[int]]:
        """Return (streams, ranges, ids of deleted streams) to send now, bounded, under the session's next sequence."""
        session.sequence += 1
        streams, deleted = [], []
        for stream_id in list(islice(session.streams, ROWS_PER_ANSWER)):
            del session.streams[stream_id]
            session.unacked_streams.append(stream_id)
            row = state.streams.find(stream_id)
            if row is not None:
                streams.append(row)
            else:
                deleted.append(stream_id)
        ranges = []
        for key in list(islice(session.ranges, ROWS_PER_ANSWER)):
            del session.ranges[key]
            session.unacked_ranges.append(key)
            found = state.ranges.find(key)
            if found is not None:
                ranges.append(found)
        return streams, ranges, deleted
