"""A member of a group, as a core: which shards it has, how far each was read, processed and committed, what it owes the group.

What holds:

* A shard is held under the generation that handed it out. What belongs to an earlier holding of the same shard is passed over.
* Of a shard that the group wants back nothing more is handed to the application. It is given back when all that was handed out
  is processed and committed.
* What was handed out and not committed when a shard was lost is remembered until the application is told.

Events are the methods; those that open or close shards add effects, which `effects()` hands out once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rangelog_proto.v1 import group_pb2


class GroupShard(NamedTuple):
    """A shard of a topic that a group reads."""

    topic_id: int
    shard_id: int


class Begin(NamedTuple):
    """Read a shard from an offset on; report `took`, `skipped`, `found_end`."""

    shard: GroupShard
    since: int
    offset: int
    has_position: bool
    """The group has committed a position of it: it begins where somebody stopped."""


class Stop(NamedTuple):
    """Read no more of a shard."""

    shard: GroupShard
    since: int


class GroupPosition(NamedTuple):
    """An offset of a shard, under a generation."""

    shard: GroupShard
    since: int
    offset: int


@dataclass(slots=True)
class Held:
    """A shard that this member has."""

    since: int
    read: int
    """The application has all records below."""
    processed: int
    committed: int
    wanted_back: bool = False
    owed: bool = False
    """What was skipped is to be committed without a word of the application."""


class MemberCore:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[GroupShard, Held] = {}
        self._effects: list[Begin | Stop] = []
        self._gained: dict[GroupShard, None] = {}
        self._wanted_back: dict[GroupShard, None] = {}
        self._lost: dict[GroupShard, None] = {}
        self._ends: dict[
            GroupShard, int
        ] = {}  # shards whose end was found, with the generation, until they are finished
        self._spoiled: dict[GroupShard, None] = {}
        self.checkpoint = 0
        self.checkpoint_name = ""

    # ---- events

    def viewed(self, view: group_pb2.GroupView) -> None:
        """Take over what the group says that this member has."""
        now = {GroupShard(each.shard.topic_id, each.shard.shard_id): each for each in view.assigned}
        for shard, held in list(self._held.items()):
            if shard not in now or now[shard].since != held.since:
                self._lose(shard)
        for shard, each in now.items():
            if shard not in self._held:
                self._held[shard] = Held(each.since, each.offset, each.offset, each.offset)
                self._effects.append(Begin(shard, each.since, each.offset, each.has_position))
                self._gained[shard] = None
            if each.release and not self._held[shard].wanted_back:
                self._held[shard].wanted_back = True
                self._wanted_back[shard] = None
                self._effects.append(Stop(shard, each.since))
        self.checkpoint, self.checkpoint_name = view.checkpoint, view.checkpoint_name

    def expelled(self) -> None:
        """The group has taken this member out."""
        for shard in list(self._held):
            self._lose(shard)
        self.checkpoint = 0

    def took(self, shard: GroupShard, since: int, offset: int) -> None:
        """The application has the records of a shard below an offset."""
        held = self._held.get(shard)
        if held is not None and held.since == since and offset > held.read:
            held.read = offset

    def skipped(self, shard: GroupShard, since: int, offset: int) -> None:
        """The records of a shard below an offset are gone; nothing was handed out before them."""
        held = self._held.get(shard)
        if held is not None and held.since == since and offset > held.read:
            held.read = held.processed = offset
            held.owed = True

    def found_end(self, shard: GroupShard, since: int) -> None:
        """A shard was read to its end for good, or is gone."""
        if self.holds(shard, since):
            self._ends[shard] = since

    def settle(self) -> None:
        """The application has processed what it has."""
        for held in self._held.values():
            held.processed = held.read

    def committed(self, positions: Iterable[GroupPosition]) -> None:
        """Positions were committed."""
        for shard, since, offset in positions:
            held = self._held.get(shard)
            if held is not None and held.since == since:
                held.committed = max(held.committed, offset)
                held.owed = held.owed and held.committed < held.processed

    def refused(self, positions: Iterable[GroupPosition]) -> None:
        """Positions were refused: another member has these shards, or they were handed out anew."""
        for shard, since, _ in positions:
            if self.holds(shard, since):
                self._lose(shard)
                self._spoiled.pop(shard, None)  # the caller of this is told

    def released(self, shards: Iterable[GroupPosition]) -> None:
        """Shards were given back."""
        for shard, since, _ in shards:
            if self.holds(shard, since):
                held = self._held.pop(shard)
                self._ends.pop(shard, None)
                if held.read > held.committed:
                    self._spoiled[shard] = None

    # ---- state

    @property
    def shards(self) -> list[GroupShard]:
        """The shards that this member reads, in order."""
        return sorted(shard for shard, held in self._held.items() if not held.wanted_back)

    def holds(self, shard: GroupShard, since: int) -> bool:
        """Whether it has a shard, under this generation."""
        held = self._held.get(shard)
        return held is not None and held.since == since

    def may_hand_out(self, shard: GroupShard, since: int) -> bool:
        """Whether records of a shard may be handed to the application."""
        held = self._held.get(shard)
        return held is not None and held.since == since and not held.wanted_back

    def position(self) -> dict[GroupShard, int]:
        """Return the offset behind what the application has, of each shard."""
        return {shard: held.read for shard, held in sorted(self._held.items())}

    def uncommitted(self) -> list[GroupPosition]:
        """Return positions behind all that the application has, where that is not committed."""
        return self._behind({shard: held.read for shard, held in self._held.items()})

    def uncommitted_processed(self) -> list[GroupPosition]:
        """Return positions behind all that is processed, where that is not committed."""
        return self._behind({shard: held.processed for shard, held in self._held.items()})

    def owed(self) -> list[GroupPosition]:
        """Return positions behind what was skipped, which no application commits."""
        return self._behind({shard: held.processed for shard, held in self._held.items() if held.owed})

    def processed(self) -> list[GroupPosition]:
        """Return the positions behind all that is processed."""
        return [GroupPosition(shard, held.since, held.processed) for shard, held in sorted(self._held.items())]

    def to_release(self) -> list[GroupPosition]:
        """Return the shards that the group wants back and that nothing is owed of."""
        return [
            GroupPosition(shard, held.since, held.committed)
            for shard, held in sorted(self._held.items())
            if held.wanted_back and held.committed >= held.read
        ]

    def wanted_back(self) -> list[GroupPosition]:
        """Return all shards that the group wants back."""
        return [
            GroupPosition(shard, held.since, held.committed)
            for shard, held in sorted(self._held.items())
            if held.wanted_back
        ]

    def ended(self) -> list[GroupShard]:
        """Return shards whose ends were found, until they are finished or lost."""
        return sorted(self._ends)

    # ---- once each

    def effects(self) -> Sequence[Begin | Stop]:
        """Return the effects to perform now, in order; each once."""
        effects, self._effects = self._effects, []
        return effects

    def take_gained(self) -> list[GroupShard]:
        """Return shards that were handed out, each once."""
        gained, self._gained = self._gained, {}
        return [shard for shard in gained if shard in self._held]

    def take_wanted_back(self) -> list[GroupShard]:
        """Return shards that the group wants back, each once."""
        wanted, self._wanted_back = self._wanted_back, {}
        return [shard for shard in wanted if shard in self._held]

    def take_lost(self) -> list[GroupShard]:
        """Return shards that were lost without a release, each once."""
        lost, self._lost = self._lost, {}
        return list(lost)

    def take_spoiled(self) -> list[GroupShard]:
        """Return shards that were lost with records that were handed out and not committed, each once."""
        spoiled, self._spoiled = self._spoiled, {}
        return list(spoiled)

    # ---- inside

    def _behind(self, offsets: dict[GroupShard, int]) -> list[GroupPosition]:
        return [
            GroupPosition(shard, self._held[shard].since, offset)
            for shard, offset in sorted(offsets.items())
            if offset > self._held[shard].committed
        ]

    def _lose(self, shard: GroupShard) -> None:
        held = self._held.pop(shard)
        is_finished = self._ends.pop(shard, None) == held.since and held.committed >= held.read
        self._effects.append(Stop(shard, held.since))
        self._gained.pop(shard, None)
        self._wanted_back.pop(shard, None)
        if not is_finished:
            self._lost[shard] = None
        if held.read > held.committed:
            self._spoiled[shard] = None
