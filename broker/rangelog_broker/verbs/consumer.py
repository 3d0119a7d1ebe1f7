"""The state of one consumer of a door, as a core: one batch at a time, which is repeated until it is committed.

What holds:

* A batch that is not committed is answered again, whatever became of the answer: a client that lost one loses no record.
* A commit names its batch, so that it never covers records which its client has not seen. It may be repeated, also when the
  next batch was handed out already.
* Records of a shard that others have by now are not handed out again, and the client hears of the shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rangelog import GroupRecord, ShardOfTopic
from rangelog.errors import PreconditionFailed
from rangelog_broker.verbs.counts import size_of

SHOWN_MAX = 5
"""Shards that a message names."""


class ConsumerCore:
    """See the module."""

    def __init__(self) -> None:
        self.number = 0
        """Of the last batch, from 1."""
        self.records: list[GroupRecord] = []
        """Of the batch that is not committed."""
        self.size_bytes = 0
        self._ends: dict[ShardOfTopic, int] = {}
        self._lost: list[ShardOfTopic] = []
        self._former_lost: list[ShardOfTopic] = []

    @property
    def is_open(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._ends)

    def took(self, record: GroupRecord, *, wanted: bool = True) -> None:
        """Take a record into the batch; one that is not wanted is committed with it, and not handed out."""
        if not self._ends:
            self.number += 1
            self._former_lost, self._lost = self._lost, []
        self._ends[ShardOfTopic(record.topic, record.shard_id)] = record.offset + 1
        if wanted:
            self.records.append(record)
            self.size_bytes += size_of(record)

    def drop_lost(self, position: Mapping[ShardOfTopic, int]) -> Sequence[ShardOfTopic]:
        """Drop the records of shards that the consumer does not have any more, or was given again; return these shards.

        `position`: the offset behind what was handed out, of each shard that it has.
        """
        lost = [shard for shard, end in self._ends.items() if position.get(shard) != end]
        for shard in lost:
            del self._ends[shard]
        if lost:
            self._lost += lost
            self.records = [each for each in self.records if ShardOfTopic(each.topic, each.shard_id) in self._ends]
            self.size_bytes = sum(map(size_of, self.records))
        return lost

    def settled(self, number: int) -> Sequence[ShardOfTopic] | None:
        """Return the shards that a batch had lost at its commit; None: it is still to be committed.

        Raises PreconditionFailed for a batch that was not handed out, or long ago.
        """
        if 0 < number == self.number:
            return None if self._ends else self._lost
        if 0 < number == self.number - 1:
            return self._former_lost
        raise PreconditionFailed(
            f"batch {number} was not handed out lately, the last one is {self.number}: nothing is committed"
        )

    def committed(self, position: Mapping[ShardOfTopic, int]) -> Sequence[ShardOfTopic]:
        """Note that the batch is committed; return the shards of it that others had before: all else is committed.

        `position`: as for `drop_lost`, behind the commit.
        """
        self._lost += [shard for shard, end in self._ends.items() if position.get(shard, -1) < end]
        self._ends, self.records, self.size_bytes = {}, [], 0
        return self._lost

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the batch by topic."""
        sizes: dict[str, int] = {}
        for each in self.records:
            sizes[each.topic] = sizes.get(each.topic, 0) + size_of(each)
        return sizes


def named(shards: Sequence[ShardOfTopic]) -> str:
    """Return shards as messages name them.

    >>> named([ShardOfTopic("default/t", 0), ShardOfTopic("default/t", 3)])
    'default/t/0, default/t/3'
    """
    text = ", ".join(f"{topic}/{shard}" for topic, shard in shards[:SHOWN_MAX])
    return text if len(shards) <= SHOWN_MAX else f"{text} and {len(shards) - SHOWN_MAX} more"
