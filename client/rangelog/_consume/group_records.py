"""What a member of a group hands to its application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rangelog_core.record import Record


class GroupRecord(NamedTuple):
    """A record of a topic that a group reads."""

    topic: str
    shard_id: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes]


class GroupChunk(NamedTuple):
    """Consecutive records of one shard."""

    topic: str
    shard_id: int
    records: Sequence[Record]


class ShardOfTopic(NamedTuple):
    """A shard by its topic's name."""

    topic: str
    shard_id: int


@dataclass(frozen=True, slots=True)
class ReachedCheckpoint:
    """A checkpoint that this member meets: all its records before it are processed, and none behind it was handed out.

    Attributes:
        name: The checkpoint's name.
        positions: The offset behind the last processed record, of each shard that this member has.
    """

    name: str
    positions: Mapping[ShardOfTopic, int]


class GroupListener:
    """What a member calls between two records, in the task that iterates over it. Override what is needed.

    The next record is handed out when the call has returned.
    """

    async def gained(self, shards: Sequence[ShardOfTopic]) -> None:
        """The member reads these shards from now on."""

    async def releasing(self, shards: Sequence[ShardOfTopic]) -> None:
        """The group wants these shards back: the last chance to commit. None of their records is handed out any more."""

    async def lost(self, shards: Sequence[ShardOfTopic]) -> None:
        """Others have these shards now: what was not committed of them is read again by somebody else."""

    async def checkpoint(self, checkpoint: ReachedCheckpoint) -> None:
        """The member has met a checkpoint: save what belongs to it."""
