"""The leader's own work on topics: the parts of large changes, retention, automatic scaling. Pure, as reconcile/commands.py is.

What holds: each command is checked again when it is applied. Reports of brokers are kept in memory only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_pd.reconcile.coverage import Coverage
from rangelog_pd.reconcile.retention_policy import SizeOf
from rangelog_pd.reconcile.retention_queue import INTERVAL_MS_MIN, RetentionQueue
from rangelog_pd.reconcile.scaling_view import MINUTE_MS, PLAN_TIMEOUT_MS, ScalingView
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_states import DELETING
from rangelog_proto.v1 import broker_pb2, pd_state_pb2

UNFINISHED_TOPICS_MAX = 4
"""Topics that one round goes on with: each entry may change a thousand streams."""
UNFINISHED_LOOKED_AT_MAX = 500


class TopicUpkeep:
    """One leader's knowledge of topics beside the state."""

    def __init__(
        self,
        minute_ms: int = MINUTE_MS,
        plan_timeout_ms: float = PLAN_TIMEOUT_MS,
        retention_interval_ms: int = INTERVAL_MS_MIN,
    ) -> None:
        """See ScalingView and RetentionQueue."""
        self.coverage = Coverage()
        self.scaling = ScalingView(minute_ms, plan_timeout_ms)
        self.retention = RetentionQueue(retention_interval_ms)

    def start_leading(self) -> None:
        """Clear all."""
        self.coverage = Coverage()
        self.scaling.start_leading()
        self.retention.start_leading()

    def heartbeat(
        self, state: State, request: broker_pb2.BrokerHeartbeatRequest, now_ms: float
    ) -> list[broker_pb2.ShardCover]:
        """Note what a broker that is alive reports of its shards; return what it should cover."""
        self.scaling.heard(request.name, request.incarnation, request.loads, now_ms)
        self.coverage.reported(each for each in request.covered if _may_report(state, request, each))
        return self.coverage.asked_of(state.owners, request.name, now_ms)

    def commands(self, state: State, size_of: SizeOf, now_ms: float, time_ms: int) -> list[pd_state_pb2.Command]:
        """Return the commands of this round, bounded. `time_ms`: cluster time."""
        return [
            *islice(self._unfinished(state, now_ms), UNFINISHED_TOPICS_MAX),
            *self.retention.commands(state, self.coverage, size_of, now_ms, time_ms),
            *self.scaling.commands(state, now_ms, time_ms),
        ]

    def _unfinished(self, state: State, now_ms: float) -> Iterator[pd_state_pb2.Command]:
        """Yield the next part of truncations, updates and deletions; of a truncation, as far as snapshots cover it."""
        for topic_id in islice(state.topics.unfinished, UNFINISHED_LOOKED_AT_MAX):
            work = state.topics.work.find(topic_id)
            to_trim = work.to_trim if work is not None else ()
            covered = [each for each in to_trim if self.coverage.want((topic_id, each.shard_id), each.offset, now_ms)]
            deleting = state.topics.topics[topic_id].state == DELETING
            if covered or deleting or (work is not None and work.HasField("configure_from")):
                yield pd_state_pb2.Command(
                    continue_topic=pd_state_pb2.ContinueTopic(topic_id=topic_id, covered=covered[:COMMAND_SHARDS_MAX])
                )


def _may_report(state: State, request: broker_pb2.BrokerHeartbeatRequest, covered: broker_pb2.ShardCover) -> bool:
    """Return whether a shard is the reporter's, or has no owner: any broker may cover one that has ended."""
    owner = state.owners.assignments.find((covered.topic_id, covered.shard_id))
    return owner is None or (owner.broker, owner.incarnation) == (request.name, request.incarnation)
