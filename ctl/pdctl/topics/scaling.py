"""A scale from its plan to its commit: the placement driver keeps the plan, the parents' owners carry it out.

What holds: a wait ends with the commit, with the loss of the plan, or when its time is over; after the plan is kept, an error
names the scale, since it goes on.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rangelog_core.errors import PreconditionFailed, RequestTimeout, Unavailable
from rangelog_core.key_ranges import KeyRange

if TYPE_CHECKING:
    from pdctl.topics.calls import Listing
    from rangelog_core.net.pd_client import PdClient
    from rangelog_core.topic_names import TopicName
    from rangelog_proto.v1 import topic_pb2

POLL_S, POLL_S_MAX = 0.05, 1.0
_NAMED_MAX = 10

Plan = Callable[["Listing"], tuple[list[int], list[KeyRange]]]
"""From the current shards to the parents and the key ranges of what follows them."""


class _Scale(NamedTuple):
    name: TopicName
    topic_id: int
    scale_id: int
    map_version: int
    parents: tuple[int, ...]
    key_ranges: tuple[KeyRange, ...]

    @property
    def reference(self) -> topic_pb2.TopicReference:
        """The reference of the topic in a request: its id, which another topic of this name does not have."""
        from rangelog_proto.v1 import topic_pb2

        return topic_pb2.TopicReference(topic_id=self.topic_id)

    def __str__(self) -> str:
        return f"scale {self.scale_id} of topic {self.name}"


async def run_scale(
    pd: PdClient, name: TopicName, plan: Plan, timeout_s: float, wait_s: float | None, show: Callable[[str], None]
) -> dict[str, Any]:
    """Start a scale; unless `wait_s` is None, wait so long until it is committed. Return what is printed of it.

    `show` gets a line whenever it has changed what the scale waits for. Raises what StartScale raises, PreconditionFailed (the
    plan was dropped), RequestTimeout (not committed in time).
    """
    scale = await _start(pd, name, plan, timeout_s)
    children: list[dict[str, Any]] = []
    if wait_s is not None:
        try:
            await _wait(pd, scale, timeout_s, wait_s, show)
            children = await _children(pd, scale, timeout_s)
        except Unavailable as error:
            if isinstance(error, RequestTimeout) and str(scale) in error.message:
                raise
            raise Unavailable(f"{error.message}: {scale} is started: {_what_to_do(scale)}") from error
    return {
        "topic": str(name),
        "scale_id": scale.scale_id,
        "state": "started" if wait_s is None else "committed",
        "parents": list(scale.parents),
        "key_ranges": [{"low": f"{each.low:#034x}", "high": f"{each.high:#034x}"} for each in scale.key_ranges],
        "children": children,
    }


async def _start(pd: PdClient, name: TopicName, plan: Plan, timeout_s: float) -> _Scale:

    from pdctl.topics.calls import encode_key_range, list_shards, reference
    from rangelog_proto.v1 import topic_pb2

    listed = await list_shards(pd, reference(name), timeout_s)
    parents, key_ranges = plan(listed)
    request = topic_pb2.StartScaleRequest(
        request_id=uuid.uuid4().hex,
        topic=topic_pb2.TopicReference(topic_id=listed.topic.topic_id),
        map_version=listed.topic.map_version,
        parents=parents,
        key_ranges=[encode_key_range(each) for each in key_ranges],
    )
    started = (await pd.call(request, topic_pb2.StartScaleResponse, timeout_s=timeout_s)).topic
    return _Scale(name, started.topic_id, started.scale_id, started.map_version, tuple(parents), tuple(key_ranges))


async def _wait(pd: PdClient, scale: _Scale, timeout_s: float, wait_s: float, show: Callable[[str], None]) -> None:
    """Return once the scale is committed. Raises PreconditionFailed, RequestTimeout."""
    from rangelog_proto.v1 import topic_pb2

    request = topic_pb2.DescribeTopicRequest(topic=scale.reference)
    start_s, pause_s, shown = time.monotonic(), POLL_S, ""
    while True:
        found = await pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=timeout_s)
        if found.scale.scale_id != scale.scale_id:
            await _check_committed(pd, scale, found.topic, timeout_s)
            return
        waited_s = time.monotonic() - start_s
        if waited_s >= wait_s or pause_s == POLL_S_MAX:
            line = await _waits_for(pd, scale, timeout_s)
            if waited_s >= wait_s:
                raise RequestTimeout(f"{scale} is not committed after {wait_s:g} s, {line}: {_what_to_do(scale)}")
            if line != shown:
                show(f"{scale}: {line}")
                shown = line
        await asyncio.sleep(min(pause_s, max(0.0, wait_s - waited_s)))
        pause_s = min(POLL_S_MAX, pause_s * 2)


async def _check_committed(pd: PdClient, scale: _Scale, topic: topic_pb2.Topic, timeout_s: float) -> None:
    """Return if the plan is carried out. Raises PreconditionFailed if it is not: then it was dropped.

    Scales may have followed, so the topic's row is not enough: the commit is what gave the parents these successors.
    """
    from pdctl.topics.views import key_range_of

    if topic.committed_scale_id == scale.scale_id:
        return
    made = [key_range_of(each.key_range) for each in await _made(pd, scale, timeout_s)]
    if topic.committed_scale_id < scale.scale_id or sorted(made) != sorted(scale.key_ranges):
        raise PreconditionFailed(f"{scale} was cancelled by another caller: see `pdctl topic show {scale.name}`")


async def _made(pd: PdClient, scale: _Scale, timeout_s: float) -> list[topic_pb2.Shard]:
    """Return the shards that followed the parents in the next map version."""
    from pdctl.topics.calls import list_shards

    listed = await list_shards(pd, scale.reference, timeout_s, selection="CHANGED", since_map_version=scale.map_version)
    parents = dict.fromkeys(scale.parents)
    return [
        each
        for each in listed.shards.values()
        if each.created_version == scale.map_version + 1 and any(before in parents for before in each.predecessors)
    ]


async def _children(pd: PdClient, scale: _Scale, timeout_s: float) -> list[dict[str, Any]]:
    from pdctl.topics.calls import Listing, all_brokers, list_shards
    from pdctl.topics.views import shard_views

    made = await _made(pd, scale, timeout_s)
    listed = await list_shards(pd, scale.reference, timeout_s)
    brokers = await all_brokers(pd, timeout_s)
    return shard_views(Listing(listed.topic, {each.shard_id: each for each in made}, listed.owners), brokers)


async def _waits_for(pd: PdClient, scale: _Scale, timeout_s: float) -> str:
    """Return the owners whom the scale waits for."""
    from pdctl.topics.calls import all_brokers, list_shards
    from pdctl.topics.views import owner_view, show_owner

    owners = (await list_shards(pd, scale.reference, timeout_s)).owners
    brokers = await all_brokers(pd, timeout_s)
    views = {each: owner_view(row, brokers) for each, row in owners.items()}
    named = [f"{each} ({_by(show_owner(views.get(each)))})" for each in scale.parents[:_NAMED_MAX]]
    more = f" and {len(scale.parents) - _NAMED_MAX} more" if len(scale.parents) > _NAMED_MAX else ""
    return f"waiting for the end of {_plural(scale.parents)} {', '.join(named)}{more}"


def _by(owner: str) -> str:
    return "no owner" if owner == "-" else f"owner {owner}"


def _plural(parents: Sequence[int]) -> str:
    return "shard" if len(parents) == 1 else "shards"


def _what_to_do(scale: _Scale) -> str:
    return (
        f"it goes on; see `pdctl topic show {scale.name}` and `pdctl broker list`, or drop it with "
        f"`pdctl topic cancel-scale {scale.name}`"
    )
