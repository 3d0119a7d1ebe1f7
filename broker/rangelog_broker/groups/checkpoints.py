"""The checkpoints of a group: positions of all its shards that all members reached.

What holds: each shard's position in a checkpoint is fixed once. A shard that a member has is fixed where that member reports to
be when it meets the checkpoint; one that nobody has, or that is taken from its member before it reports, at its committed
position: whoever gets it next begins there. So no position is beyond what was processed. A checkpoint is complete when all
shards that the group knew at its start are fixed; a reset to it lets shards that became known later begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rangelog_core.errors import PreconditionFailed

CHECKPOINTS_MAX = 10
"""Complete ones of a group; the oldest is dropped for a new one."""


class ShardKey(NamedTuple):
    """A shard of a topic."""

    topic_id: int
    shard_id: int


@dataclass(slots=True)
class Checkpoint:
    """One checkpoint."""

    number: int
    name: str
    started_ms: int
    positions: dict[ShardKey, int]
    waiting: set[ShardKey] = field(default_factory=set)
    """Shards whose members have not reported."""


@dataclass(slots=True)
class Checkpoints:
    """Those of one group: at most one that is not complete."""

    count: int = 0
    """Begun so far."""
    pending: Checkpoint | None = None
    complete: dict[str, Checkpoint] = field(default_factory=dict)
    """By name, the oldest first."""

    @property
    def rows(self) -> int:
        """Positions that are kept."""
        pending = self.pending
        of_pending = len(pending.positions) + len(pending.waiting) if pending is not None else 0
        return of_pending + sum(len(each.positions) for each in self.complete.values())

    def begin(
        self, name: str, now_ms: int, every_ms: int, idle: Mapping[ShardKey, int], assigned: Iterable[ShardKey]
    ) -> bool:
        """Begin one; return whether that is so. `idle`: positions of shards that no member has.

        Raises PreconditionFailed while another one is not complete.
        """
        newest = self.pending or next(reversed(self.complete.values()), None)
        if every_ms and newest is not None and now_ms - newest.started_ms < every_ms:
            return False
        if name in self.complete or (self.pending is not None and self.pending.name == name):
            return False
        if self.pending is not None:
            if every_ms:
                return False
            raise PreconditionFailed(f"checkpoint {self.pending.name!r} is not complete: wait for it, or delete it")
        self.count += 1
        self.pending = Checkpoint(self.count, name, now_ms, dict(idle), set(assigned))
        self._finish()
        return True

    def fix(self, key: ShardKey, offset: int) -> None:
        """Fix a shard's position, unless that is done, or no checkpoint waits for it."""
        pending = self.pending
        if pending is not None and key in pending.waiting:
            pending.waiting.remove(key)
            pending.positions[key] = offset
            self._finish()

    def drop(self, name: str) -> None:
        """Delete one. Without such a checkpoint nothing changes."""
        if self.pending is not None and self.pending.name == name:
            self.pending = None
        self.complete.pop(name, None)

    def drop_pending(self) -> None:
        """Delete the one that is not complete."""
        self.pending = None

    def forget(self, topic_id: int) -> None:
        """Drop the positions of a topic's shards."""
        for each in (*self.complete.values(), *((self.pending,) if self.pending is not None else ())):
            for key in [key for key in each.positions if key.topic_id == topic_id]:
                del each.positions[key]
            each.waiting = {key for key in each.waiting if key.topic_id != topic_id}
        self._finish()

    def copy(self) -> Checkpoints:
        """Return a copy that later changes of this one do not reach."""
        pending = self.pending
        if pending is not None:
            pending = Checkpoint(
                pending.number, pending.name, pending.started_ms, dict(pending.positions), set(pending.waiting)
            )
        return Checkpoints(self.count, pending, dict(self.complete))

    def _finish(self) -> None:
        pending = self.pending
        if pending is None or pending.waiting:
            return
        self.pending = None
        self.complete[pending.name] = pending
        while len(self.complete) > CHECKPOINTS_MAX:
            del self.complete[next(iter(self.complete))]
