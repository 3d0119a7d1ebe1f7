"""When the leader looks at the retention of which topic, and what it proposes. In memory; another leader starts empty.

What holds: topics take their turns spread over time, each once in its interval and once soon after a leader has begun, so a
round costs the topics that are due. A truncation is proposed only once snapshots cover what it trims; until then the topic is
looked at again soon.
"""

from __future__ import annotations

import heapq

from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_pd.reconcile.coverage import Coverage
from rangelog_pd.reconcile.retention_policy import SizeOf, cuts_to_trim_to, interval_ms
from rangelog_pd.state.cuts import cut_of_now, left_to_trim, positions
from rangelog_pd.state.retention import is_new
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_states import ACTIVE, SEALED
from rangelog_pd.state.versions import LEVEL_BROKERS
from rangelog_proto.v1 import pd_state_pb2, topic_pb2

INTERVAL_MS_MIN = 60_000
SOON_MS = 1_000.0
TOPICS_PER_ROUND = 20
_SPREAD = 0x9E3779B1  # 2^32 over the golden ratio: consecutive ids lie far apart
_BITS = 32
_AROUND_BYTES, _PER_POSITION_BYTES = 256, 2
"""Of a command: around its positions, and around each of them."""


class RetentionQueue:
    """See the module. Times on the leader's monotonic clock, in ms, unless they are named cluster time."""

    def __init__(self, interval_ms_min: int = INTERVAL_MS_MIN) -> None:
        """`interval_ms_min`: between two looks at one topic."""
        self._interval_ms_min = interval_ms_min
        self._due: list[tuple[float, int]] = []
        self._queued: dict[int, None] = {}
        self._state: State | None = None
        self._seen = 0

    def start_leading(self) -> None:
        """Look at all topics again."""
        self._state = None

    def commands(
        self, state: State, coverage: Coverage, size_of: SizeOf, now_ms: float, time_ms: int
    ) -> list[pd_state_pb2.Command]:
        """Return the cuts to take, and the truncations that snapshots cover. `time_ms`: cluster time."""
        self._follow(state, now_ms)
        to_cut: list[int] = []
        found: list[pd_state_pb2.Command] = []
        for _ in range(TOPICS_PER_ROUND):
            if not self._due or self._due[0][0] > now_ms:
                break
            topic_id = heapq.heappop(self._due)[1]
            del self._queued[topic_id]
            topic = state.topics.topics.find(topic_id)
            if topic is None or topic_id not in state.topics.retained:
                continue
            limits = topic.config.retention.age_ms or topic.config.retention.shard_size_bytes
            if limits and is_new(state, topic_id, cut_of_now(state, topic)):
                to_cut.append(topic_id)
            waits = False
            for cut, by_consumption in cuts_to_trim_to(state, topic, size_of, time_ms):
                left = left_to_trim(state, topic_id, cut)
                covered = [coverage.want((topic_id, each), offset, now_ms) for each, offset in left.items()]
                if not left:
                    continue
                if topic.state in (ACTIVE, SEALED) and all(covered):
                    again = by_consumption and state.cluster_version >= LEVEL_BROKERS
                    found.append(_retain(topic_id, cut, left, by_consumption=again))
                waits = True  # or it may not have been applied
            interval = (
                min(SOON_MS, self._interval_ms_min)
                if waits
                else interval_ms(topic.config.retention, self._interval_ms_min)
            )
            self._put(topic_id, now_ms + interval)
        if to_cut:
            found.append(pd_state_pb2.Command(take_cuts=pd_state_pb2.TakeCuts(topic_ids=to_cut)))
        return found

    # ---- inside

    def _put(self, topic_id: int, due_ms: float) -> None:
        if topic_id not in self._queued:
            self._queued[topic_id] = None
            heapq.heappush(self._due, (due_ms, topic_id))

    def _follow(self, state: State, now_ms: float) -> None:
        changes = state.changes.since(self._seen) if self._state is state else None
        if changes is None:
            self._due, self._queued = [], {}
            self._state = state
            for topic_id in state.topics.retained:
                self._put_spread(topic_id, now_ms)
        else:
            for _, after in changes:
                if isinstance(after, topic_pb2.Topic) and after.topic_id in state.topics.retained:
                    self._put_spread(after.topic_id, now_ms)
        self._seen = state.changes.last

    def _put_spread(self, topic_id: int, now_ms: float) -> None:
        """Look at a topic within the shortest interval: a leader may not lead for as long as the topic's own."""
        self._put(topic_id, now_ms + self._interval_ms_min * (topic_id * _SPREAD % (1 << _BITS)) / (1 << _BITS))


def _retain(
    topic_id: int, cut: dict[int, int], covered: dict[int, int], *, by_consumption: bool
) -> pd_state_pb2.Command:
    """Return a truncation with what covers it; what does not fit in a command follows part by part."""
    request = topic_pb2.TruncateTopicRequest(topic=topic_pb2.TopicReference(topic_id=topic_id), cut=positions(cut))
    left_bytes = COMMAND_BYTES_MAX - _AROUND_BYTES - request.ByteSize()
    some: list[topic_pb2.ShardPosition] = []
    for each in positions(covered):
        left_bytes -= each.ByteSize() + _PER_POSITION_BYTES
        if left_bytes < 0:
            break
        some.append(each)
    retain = pd_state_pb2.RetainTopic(request=request, covered=some, by_consumption=by_consumption)
    return pd_state_pb2.Command(retain_topic=retain)
