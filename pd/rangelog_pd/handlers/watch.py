"""The call that waits for changes of streams and topics: a session in the leader's memory, with one call after the other."""

from __future__ import annotations

import asyncio

from rangelog_core.errors import InvalidArgument, Overloaded
from rangelog_core.limits import NAME_LENGTH_MAX
from rangelog_core.net.principals import WITH_PD
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import needs
from rangelog_pd.handlers.call import Call
from rangelog_pd.reconcile.watches import STREAMS_MAX, WatchSession
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server_common.grpc_server import current_caller

WAIT_MS_MAX = 20_000
BEGIN_MAX = 10_000
TOPICS_MAX = 10_000
"""Topics of one session."""


async def watch(driver: Driver, request: pb.WatchRequest) -> pb.WatchResponse:
    """Return the changes, none after the wait. Raises NotLeader, InvalidArgument, Overloaded."""
    if len(request.begin_broker) > NAME_LENGTH_MAX:
        raise InvalidArgument("the name of the broker to watch is too long")
    if request.wait_ms > WAIT_MS_MAX or len(request.begin) + len(request.begin_topics) > BEGIN_MAX:
        raise InvalidArgument(
            f"one call waits at most {WAIT_MS_MAX} ms and begins to watch at most {BEGIN_MAX} streams and topics"
        )
    await driver.barrier()  # a watch starts with the current rows, which the caller may have already
    session = _session(driver, request)
    if session is None:
        return pb.WatchResponse()
    call = session.call
    if not session.has_news and request.wait_ms:
        await _wait(session, request.wait_ms / 1000)
        await driver.barrier()
    if session.call != call or session.is_closed:
        return pb.WatchResponse()  # the caller has gone, or a new term of leadership has started: return no changes
    return _answer(driver, session)


def _session(driver: Driver, request: pb.WatchRequest) -> WatchSession | None:
    """Find or create the session and add its new watches."""
    now_ms, caller = driver.now_ms(), str(current_caller(None, tls=False) or "")
    watches = driver.watches
    if request.session:
        session = watches.find(request.session, now_ms, request.acked, request.call, caller)
    else:
        session = watches.open(now_ms, caller)
    if session is None:
        return None
    session.wake()  # end an earlier call of the same session, which its caller has cancelled
    if len(session.watched) + len(request.begin) > STREAMS_MAX:
        raise Overloaded(f"one session watches at most {STREAMS_MAX} streams: open another one")
    if len(session.topic_watch.watched) + len(request.begin_topics) > TOPICS_MAX:
        raise Overloaded(f"one session watches at most {TOPICS_MAX} topics: open another one")
    with driver.state() as state:
        watches.follow(state)
        for each in request.begin:
            watches.begin(state, session, each.stream_id, each.from_index)
        watches.end(session, request.end)
        for topic in request.begin_topics:
            watches.begin_topic(state, session, topic.topic_id, topic.map_version)
        watches.end_topics(session, request.end_topics)
        if request.begin_broker:
            watches.begin_broker(state, session, request.begin_broker)
    return session


async def _wait(session: WatchSession, timeout_s: float) -> None:
    changed = asyncio.Event()
    session.wake = changed.set
    try:
        async with asyncio.timeout(timeout_s):
            await changed.wait()
    except TimeoutError:
        pass


def _answer(driver: Driver, session: WatchSession) -> pb.WatchResponse:
    with driver.state() as state:
        driver.watches.follow(state)
        streams, ranges, deleted = driver.watches.take(state, session)
        filled = driver.view.fill_in(state, ranges, driver.now_ms())
        topics, shards, deleted_topics = session.topic_watch.take(state)
        return pb.WatchResponse(
            session=session.number,
            sequence=session.sequence,
            streams=streams,
            ranges=filled,
            deleted_stream_ids=deleted,
            topics=topics,
            shards=shards,
            deleted_topic_ids=deleted_topics,
            assignments=session.topic_watch.take_assignments(state),
            more=session.has_news,
        )


CALLS = (Call("Watch", watch, WITH_PD, needs=needs.watched, hidden_by_restore=True),)
