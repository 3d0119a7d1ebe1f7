"""Automatic scaling by the leader: the averages that owners report, and the plans that follow. Another leader starts empty.

What holds: a round looks at the topics of which a load was reported or changed, and at no other; in such a topic at the shards
that it concerns, and their neighbours. A topic has one plan at a time and rests after each scale. A plan of the leader's own
that no broker carries out is cancelled after a time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from rangelog_pd.reconcile.scaling_policy import Scale, ShardRates, next_scale
from rangelog_pd.state.shards import encode_key_range
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import ShardKey
from rangelog_pd.state.topic_states import ACTIVE
from rangelog_pd.state.topic_tables import key_range_of
from rangelog_proto.v1 import broker_pb2, pd_state_pb2, topic_pb2

MINUTE_MS = 60_000
REST_MINUTES = 5
"""After a scale the topic's averages begin anew; this is about how long they take to mean something."""
PLAN_TIMEOUT_MS = 60_000.0
LOOK_AGAIN_MS = 1_000.0
TOPICS_PER_ROUND = 100
SHARDS_PER_LOOK = 500
SHARDS_MAX = 500_000
"""Shards whose rates are kept; more of them are not scaled."""
_WINDOWS = 4


class _Reported(NamedTuple):
    broker: str
    incarnation: int
    events: tuple[int, ...]
    bytes: tuple[int, ...]
    mature: bool


class ScalingView:
    """See the module. Times on the leader's monotonic clock, in ms, unless they are named cluster time."""

    def __init__(self, minute_ms: int = MINUTE_MS, plan_timeout_ms: float = PLAN_TIMEOUT_MS) -> None:
        """`minute_ms`: what counts as a minute; `plan_timeout_ms`: after which the leader cancels its own plan."""
        self.minute_ms = minute_ms
        self._plan_timeout_ms = plan_timeout_ms
        self._rates: dict[int, dict[int, _Reported]] = {}
        self._count = 0
        self._changed: dict[int, dict[int, None]] = {}
        self._due: list[tuple[float, int]] = []
        self._queued: dict[int, None] = {}
        self._plans: dict[tuple[int, int], float] = {}
        """When a plan was first seen."""
        self._swept: Iterator[int] = iter(())

    def start_leading(self) -> None:
        """Clear all: each broker sends its loads to a new leader."""
        self.__init__(self.minute_ms, self._plan_timeout_ms)  # type: ignore[misc]

    def heard(self, name: str, incarnation: int, loads: Iterable[broker_pb2.ShardLoad], now_ms: float) -> None:
        """Note the averages in a heartbeat."""
        for load in loads:
            if len(load.events_averages) != _WINDOWS or len(load.bytes_averages) != _WINDOWS:
                continue
            of_topic = self._rates.setdefault(load.topic_id, {})
            if load.shard_id not in of_topic:
                if self._count >= SHARDS_MAX:
                    continue
                self._count += 1
            of_topic[load.shard_id] = _Reported(
                name, incarnation, tuple(load.events_averages), tuple(load.bytes_averages), load.mature
            )
            self._changed.setdefault(load.topic_id, {})[load.shard_id] = None
            self._look(load.topic_id, now_ms)

    def commands(self, state: State, now_ms: float, time_ms: int) -> list[pd_state_pb2.Command]:
        """Return the scales to start and to cancel. `time_ms`: cluster time."""
        found = list(self._overdue(state, now_ms))
        for _ in range(TOPICS_PER_ROUND):
            if not self._due or self._due[0][0] > now_ms:
                break
            topic_id = heapq.heappop(self._due)[1]
            self._queued.pop(topic_id, None)
            command = self._judge(state, topic_id, now_ms, time_ms)
            if command is not None:
                found.append(command)
        self._sweep(state)
        return found

    # ---- inside

    def _look(self, topic_id: int, due_ms: float) -> None:
        if topic_id not in self._queued:
            self._queued[topic_id] = None
            heapq.heappush(self._due, (due_ms, topic_id))

    def _judge(self, state: State, topic_id: int, now_ms: float, time_ms: int) -> pd_state_pb2.Command | None:
        topic = state.topics.topics.find(topic_id)
        if topic is None or topic.config.scaling.kind not in (
            topic_pb2.SCALING_KIND_EVENTS,
            topic_pb2.SCALING_KIND_BYTES,
        ):
            self._forget(topic_id)
            return None
        rests_ms = topic.last_scale_ms + REST_MINUTES * self.minute_ms - time_ms if topic.last_scale_ms else 0
        if topic.state != ACTIVE or rests_ms > 0:
            self._look(topic_id, now_ms + max(LOOK_AGAIN_MS, rests_ms))
            return None
        changed = list(islice(self._changed.get(topic_id, {}), SHARDS_PER_LOOK))
        for shard_id in changed:
            del self._changed[topic_id][shard_id]
        scale = next_scale(topic.config.scaling, self._around(state, topic, changed), topic.current_shard_count)
        if scale is not None:  # they are looked at again, should nothing come of it
            self._changed[topic_id].update(dict.fromkeys(scale.parents))
        if self._changed.get(topic_id):
            self._look(topic_id, now_ms + LOOK_AGAIN_MS)
        else:
            self._changed.pop(topic_id, None)
        return _start(topic, scale) if scale is not None else None

    def _around(self, state: State, topic: topic_pb2.Topic, changed: Iterable[int]) -> list[ShardRates]:
        """Return these shards and the neighbours of each, in order of keys; without those whose rates are not known."""
        current = state.topics.maps.of(topic.topic_id).current
        places: dict[int, None] = {}
        for shard_id in changed:
            shard = state.topics.shards.find((topic.topic_id, shard_id))
            if shard is None or shard.ended_version:
                self._drop(topic.topic_id, shard_id)
                continue
            place = bisect_left(current, (shard.key_range.low, shard_id))
            places.update(dict.fromkeys(range(max(0, place - 1), min(len(current), place + 2))))
        found = (self._rates_of(state, topic, current[place][1]) for place in sorted(places))
        return [each for each in found if each is not None]

    def _rates_of(self, state: State, topic: topic_pb2.Topic, shard_id: int) -> ShardRates | None:
        """Return a current shard's rates as its present owner reports them."""
        key: ShardKey = (topic.topic_id, shard_id)
        reported = self._rates.get(topic.topic_id, {}).get(shard_id)
        owner = state.owners.assignments.find(key)
        if reported is None or owner is None or (owner.broker, owner.incarnation) != reported[:2]:
            return None
        by_events = topic.config.scaling.kind == topic_pb2.SCALING_KIND_EVENTS
        averages = reported.events if by_events else reported.bytes
        return ShardRates(shard_id, key_range_of(state.topics.shards[key]), averages, reported.mature)

    def _overdue(self, state: State, now_ms: float) -> Iterator[pd_state_pb2.Command]:
        """Yield the cancellation of own plans that took too long. Examines the topics that are being scaled."""
        plans: dict[tuple[int, int], float] = {}
        for topic_id in state.topics.plans:
            plan = state.topics.work[topic_id].scale
            if not plan.reason:
                continue
            since_ms = plans[topic_id, plan.scale_id] = self._plans.get((topic_id, plan.scale_id), now_ms)
            if now_ms - since_ms >= self._plan_timeout_ms:
                cancel = topic_pb2.CancelScaleRequest(topic_id=topic_id, scale_id=plan.scale_id)
                yield pd_state_pb2.Command(cancel_scale=cancel)
        self._plans = plans

    # ---- forgetting

    def _drop(self, topic_id: int, shard_id: int) -> None:
        if self._rates.get(topic_id, {}).pop(shard_id, None) is not None:
            self._count -= 1

    def _forget(self, topic_id: int) -> None:
        self._count -= len(self._rates.pop(topic_id, {}))
        self._changed.pop(topic_id, None)

    def _sweep(self, state: State) -> None:
        """Forget what one topic has no more: each topic has its turn."""
        topic_id = next(self._swept, None)
        if topic_id is None:
            self._swept = iter(list(self._rates))
        elif topic_id not in state.topics.topics:
            self._forget(topic_id)
        else:
            for shard_id in list(self._rates.get(topic_id, ())):
                shard = state.topics.shards.find((topic_id, shard_id))
                if shard is None or shard.ended_version:
                    self._drop(topic_id, shard_id)


def _start(topic: topic_pb2.Topic, scale: Scale) -> pd_state_pb2.Command:
    request = topic_pb2.StartScaleRequest(
        topic=topic_pb2.TopicReference(topic_id=topic.topic_id),
        map_version=topic.map_version,
        parents=scale.parents,
        key_ranges=[encode_key_range(each) for each in scale.key_ranges],
    )
    return pd_state_pb2.Command(start_own_scale=pd_state_pb2.StartOwnScale(request=request, reason=scale.reason))
