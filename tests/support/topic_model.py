"""A model of topics made of lists: what the placement driver's state machine is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

STREAMS_PER_ENTRY = 2
"""Streams that one entry changes, so that topics stay between two states."""
Units = tuple[int, int]
"""A key range in sixteenths of the key space."""


@dataclass
class ModelShard:
    """A shard, and what its writers did."""

    keys: Units
    predecessors: set[int] = field(default_factory=set)
    ended: bool = False
    epoch: int = 0
    ends: list[int | None] = field(default_factory=list)
    """Of its ranges; None: open."""
    trim: int = 0

    @property
    def next_offset(self) -> int:
        return next((end for end in reversed(self.ends) if end is not None), 0)

    @property
    def is_open(self) -> bool:
        return bool(self.ends) and self.ends[-1] is None


@dataclass
class ModelTopic:
    """A topic with all shards it ever had."""

    topic_id: int
    state: str = "active"
    map_version: int = 1
    shards: list[ModelShard] = field(default_factory=list)
    plan: tuple[list[int], list[Units]] | None = None
    to_trim: list[tuple[int, int]] = field(default_factory=list)
    deleted: int = 0
    is_table: bool = False

    def current(self) -> list[int]:
        return [number for number, shard in enumerate(self.shards) if not shard.ended]

    def before(self, number: int) -> set[int]:
        """All that precede a shard."""
        found: set[int] = set()
        for each in self.shards[number].predecessors:
            found |= {each} | self.before(each)
        return found

    def go_on(self) -> None:
        """The next part."""
        if self.state == "deleting":
            self.deleted += STREAMS_PER_ENTRY
        if self.state != "truncating":
            return
        for number, offset in self.to_trim[:STREAMS_PER_ENTRY]:
            self.shards[number].trim = max(self.shards[number].trim, offset)
        del self.to_trim[:STREAMS_PER_ENTRY]
        if not self.to_trim:
            self.state = "active" if self.current() else "sealed"
