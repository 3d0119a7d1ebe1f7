"""The tables of retention: the cuts of each topic's retention set, and where subscribed groups stand.

What holds: the numbers of a topic's cuts rise with their dates. All rows of a topic go with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_pd.state.tables import Table, discard
from rangelog_proto.v1 import topic_pb2

CUTS_MAX = 32
CUT_POSITIONS_MAX = 32_000
"""Of all cuts of a topic: one with many shards has fewer cuts."""
GROUPS_MAX = 100
"""Subscribed groups of one topic."""


class CutTables:
    """All rows about cuts."""

    def __init__(self) -> None:
        self.numbers: dict[int, list[int]] = {}
        """The cuts of a topic, oldest first."""
        self.groups: dict[int, dict[str, None]] = {}
        """The subscribed groups of a topic."""
        self.cuts: Table[tuple[int, int], topic_pb2.RetentionCut] = Table(self._cut_changed)
        self.consumed: Table[tuple[int, str], topic_pb2.ConsumedCut] = Table(self._consumed_changed)

    def of(self, topic_id: int) -> list[topic_pb2.RetentionCut]:
        """Return the cuts of a topic, oldest first."""
        return [self.cuts[topic_id, number] for number in self.numbers.get(topic_id, ())]

    def consumed_of(self, topic_id: int) -> list[topic_pb2.ConsumedCut]:
        """Return where the subscribed groups of a topic stand."""
        return [self.consumed[topic_id, group] for group in self.groups.get(topic_id, ())]

    def add(self, cut: topic_pb2.RetentionCut) -> None:
        """Add the newest cut of its topic; of too many, those that are nearest in time to their neighbours are removed."""
        numbers = self.numbers.get(cut.topic_id, [])
        cut.number = numbers[-1] + 1 if numbers else 1
        self.cuts.put((cut.topic_id, cut.number), cut)
        most = max(4, min(CUTS_MAX, CUT_POSITIONS_MAX // max(1, len(cut.shard_ids))))
        while len(self.numbers[cut.topic_id]) > most:
            kept = self.of(cut.topic_id)
            gaps = [(kept[n + 1].taken_ms - kept[n - 1].taken_ms, n) for n in range(1, len(kept) - 1)]
            self.cuts.remove((cut.topic_id, kept[min(gaps)[1]].number))

    def remove_topic(self, topic_id: int) -> None:
        """Remove all rows of a topic."""
        for number in list(self.numbers.get(topic_id, ())):
            self.cuts.remove((topic_id, number))
        for group in list(self.groups.get(topic_id, ())):
            self.consumed.remove((topic_id, group))

    def load(self, cuts: Iterable[topic_pb2.RetentionCut], consumed: Iterable[topic_pb2.ConsumedCut]) -> None:
        """Put all rows of a snapshot."""
        for cut in sorted(cuts, key=lambda each: (each.topic_id, each.number)):
            self.cuts.put((cut.topic_id, cut.number), cut)
        for each in consumed:
            self.consumed.put((each.topic_id, each.group), each)

    def _cut_changed(self, before: topic_pb2.RetentionCut | None, after: topic_pb2.RetentionCut | None) -> None:
        if after is not None and before is None:
            self.numbers.setdefault(after.topic_id, []).append(after.number)
        elif before is not None and after is None:
            numbers = self.numbers[before.topic_id]
            numbers.remove(before.number)
            if not numbers:
                del self.numbers[before.topic_id]

    def _consumed_changed(self, before: topic_pb2.ConsumedCut | None, after: topic_pb2.ConsumedCut | None) -> None:
        if after is not None:
            self.groups.setdefault(after.topic_id, {})[after.group] = None
        elif before is not None:
            discard(self.groups, before.topic_id, before.group)

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        return [self.numbers, self.groups]


def cut_of(row: topic_pb2.RetentionCut | topic_pb2.ConsumedCut) -> dict[int, int]:
    """Return the offsets of a row by shard id."""
    return dict(zip(row.shard_ids, row.offsets, strict=True))
