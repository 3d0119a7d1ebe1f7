"""Waits for what a topic goes through: a truncation, a sealing, a deletion; the placement driver and brokers carry it out.

What holds: a wait ends with the end of the workflow that the command has started (not of a later one), with the topic's
deletion, or when its time is over; an error after the start names what goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pdctl.topics.scaling import POLL_S, POLL_S_MAX
from pdctl.units import show_count
from rangelog_core.errors import RequestTimeout, TopicNotFound, Unavailable

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_core.topic_names import TopicName
    from rangelog_proto.v1 import topic_pb2

_LEFT = {
    "truncating": "waiting for snapshots of the producers of {}",
    "sealing": "waiting for the end of {}",
    "deleting": "{} left",
}


async def wait_until_over(
    pd: PdClient,
    name: TopicName,
    started: topic_pb2.Topic,
    timeout_s: float,
    wait_s: float,
    show: Callable[[str], None],
) -> topic_pb2.Topic:
    """Return the topic once it has left the state that it is in, as `started` has it.

    `show` gets a line whenever it has changed what the topic waits for. Raises TopicNotFound (the topic is deleted),
    RequestTimeout (not over in time), Unavailable; the last two state that it goes on.
    """

    from pdctl.views import word
    from rangelog_proto.v1 import topic_pb2

    state = word(topic_pb2.TopicState, started.state)
    if state not in _LEFT:
        return started
    request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=started.topic_id))
    start_s, pause_s, shown = time.monotonic(), POLL_S, ""
    try:
        while True:
            topic = (await pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=timeout_s)).topic
            if (topic.state, topic.state_since_ms) != (started.state, started.state_since_ms):
                return topic
            waited_s = time.monotonic() - start_s
            if waited_s >= wait_s or pause_s == POLL_S_MAX:
                line = _LEFT[state].format(show_count(await _shards_left(pd, started.topic_id, timeout_s), "shard"))
                if waited_s >= wait_s:
                    raise RequestTimeout(f"topic {name} is still {state} after {wait_s:g} s, {line}: {_WHAT_TO_DO}")
                if line != shown:
                    show(f"topic {name} is {state}: {line}")
                    shown = line
            await asyncio.sleep(min(pause_s, max(0.0, wait_s - waited_s)))
            pause_s = min(POLL_S_MAX, pause_s * 2)
    except Unavailable as error:
        if _WHAT_TO_DO in error.message:
            raise
        raise Unavailable(f"{error.message}: topic {name} was {state}: {_WHAT_TO_DO}") from error


async def wait_until_gone(
    pd: PdClient,
    name: TopicName,
    started: topic_pb2.Topic,
    timeout_s: float,
    wait_s: float,
    show: Callable[[str], None],
) -> None:
    """Return once a topic that is being deleted is not there any more. Raises as `wait_until_over`, but for TopicNotFound."""
    try:
        await wait_until_over(pd, name, started, timeout_s, wait_s, show)
    except TopicNotFound:
        pass


async def _shards_left(pd: PdClient, topic_id: int, timeout_s: float) -> int:
    """Return the shards that the topic's workflow has left to do; 0 where it has just ended."""
    from rangelog_proto.v1 import pd_pb2

    listed = await pd.call(pd_pb2.ListTasksRequest(), pd_pb2.ListTasksResponse, timeout_s=timeout_s)
    return max((each.shards_left for each in listed.tasks if each.topic_id == topic_id), default=0)


_WHAT_TO_DO = "it goes on; see `pdctl task list` and `pdctl broker list`"
