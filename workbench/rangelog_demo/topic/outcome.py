"""The result of the second scene: its figures, its checks and its part of the demo's last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rangelog_demo.report_parts import Check
from rangelog_demo.timeline import Kill, Timeline, make_timeline
from rangelog_demo.topic.comparison import TopicComparison
from rangelog_demo.topic.deliveries import DeliveryCheck
from rangelog_demo.topic.producer import PRODUCERS

if TYPE_CHECKING:
    from rangelog import ShardInfo

SHARDS_LAST = 4
BROKER_KILLS = 2
MEMBER_KILLS = 3


class ScaleMark(NamedTuple):
    """A scale that was committed while the producers sent. Times are CLOCK_MONOTONIC in ns."""

    shards: int
    started_ns: int
    committed_ns: int


class MemberLife(NamedTuple):
    """One member of the group: the records it was given, and what became of it."""

    name: str
    records: int
    ended: str


@dataclass
class TopicOutcome:
    """`timeline.kills` are the kills of brokers; `counts` are those in the table, `expected` those of pandas."""

    total: int
    acked: int = 0
    timeline: Timeline = field(default_factory=lambda: make_timeline([], []))
    longest_gap_ms: float = 0.0
    scales: list[ScaleMark] = field(default_factory=list)
    member_kills: list[Kill] = field(default_factory=list)
    members: Sequence[MemberLife] = ()
    shards: Sequence[ShardInfo] = ()
    comparison: TopicComparison = field(default_factory=lambda: TopicComparison([], [], PRODUCERS))
    deliveries: DeliveryCheck = field(default_factory=lambda: DeliveryCheck(0, 0, 0, 0))
    counts: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)

    @property
    def broker_kills(self) -> int:
        """Kills of brokers."""
        return len(self.timeline.kills)

    @property
    def order_violations(self) -> int:
        """Records and deliveries out of order: for the reader of the topic, and for the group."""
        return self.comparison.misordered + self.deliveries.violations

    @property
    def table_matches(self) -> bool:
        """Whether the table has the counts of pandas, for the same carriers."""
        return bool(self.expected) and self.counts == self.expected

    def checks(self) -> list[Check]:
        """Return all checks, with the expected and the found values."""
        read, given, total = self.comparison, self.deliveries, f"{self.total:,}"
        current = sum(shard.is_current for shard in self.shards)
        killed = len(self.member_kills)
        clean = f"{read.lost} lost, {read.duplicated} repeated, {read.misordered} out of order, {read.altered} altered"
        return [
            Check("flights acked to the eight producers", total, f"{self.acked:,}", self.acked == self.total),
            Check("brokers killed", str(BROKER_KILLS), str(self.broker_kills), self.broker_kills == BROKER_KILLS),
            Check("shards in the end", str(SHARDS_LAST), str(current), current == SHARDS_LAST),
            Check("records read back from the topic", total, f"{read.read:,}", read.read == self.total),
            Check("… compared with the file", "0 of anything", clean, read.ok),
            Check("acks naming another place than the record's", "0", str(read.misplaced), read.misplaced == 0),
            Check("members of the group killed", str(MEMBER_KILLS), str(killed), killed == MEMBER_KILLS),
            Check(
                "records that the group was given",
                f"{total}, in order",
                f"{given.records:,}, {given.missing} missing, {given.violations} out of order",
                given.records == self.total and not (given.missing or given.violations),
            ),
            Check(
                "counts per carrier in the table agree with pandas",
                f"{sum(self.expected.values()):,}",
                f"{sum(self.counts.values()):,}",
                self.table_matches,
            ),
        ]

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return all(check.ok for check in self.checks())

    @property
    def line(self) -> str:
        """The scene's part of the last line."""
        read = self.comparison
        return (
            f"topic_records={read.read} topic_lost={read.lost} topic_duplicated={read.duplicated} "
            f"order_violations={self.order_violations} broker_kills={self.broker_kills} "
            f"longest_topic_gap_ms={self.longest_gap_ms:.0f} table_matches={'yes' if self.table_matches else 'no'}"
        )
