"""Reading a topic, as a core: which shards are read from where, when each is finished, and where the reader is.

What holds:

* The position is a cut of the topic at every moment: a reader that starts there gets what this one has not got, and nothing
  else. It starts at the start cut, and goes on by records and by successions (see `shard_graph`).
* A shard is finished when it was read to its end and has ended: then its end is in the placement driver's map. It stays in the
  position until all shards of its succession are finished; then these are replaced by their followers, at offset 0. So all
  that precedes a shard is read before its first record.
* With an end cut a shard of it is read up to its offset there, what precedes it up to the end, and nothing behind it.
* Each shard is opened once.

Events are the methods; each may add effects, which `effects()` hands out once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.values import ShardInfo


class OpenShard(NamedTuple):
    """Read a shard from an offset on, up to `end_offset` if it is given; report `read`."""

    shard_id: int
    offset: int
    end_offset: int | None


class CloseShard(NamedTuple):
    """Nothing more is read of this open shard."""

    shard_id: int


Effect = OpenShard | CloseShard


class TopicReading:
    """See the module."""

    def __init__(
        self, shards: Iterable[ShardInfo], start: Mapping[int, int], end: Mapping[int, int] | None = None
    ) -> None:
        """Start at a cut.

        `shards`: all shards of the topic, of one map version.

        Raises ShardNotFound, KeyRangeGap, KeyRangeOverlap, InvalidArgument and OffsetOutOfRange for what is not a cut of it.
        """
        self._graph = ShardGraph(shards)
        self._graph.check_cut(start)
        if end is not None:
            self._graph.check_cut(end)
        self._end = end
        self._before_end = self._graph.ancestors(end) if end is not None else {}
        self._position = dict(start)
        self._open: dict[int, None] = {}
        self._over: dict[
            int, None
        ] = {}  # shards of the position of which nothing more is read, and which nothing replaces
        self._effects: list[Effect] = []
        self._look(list(start))

    # ---- events

    def mapped(self, shards: Iterable[ShardInfo]) -> None:
        """Take over the shards that became current or ended up to a later map version: all of them, at once."""
        changed = [shard for shard in shards if self._graph.shards.get(shard.shard_id) != shard]
        self._graph.update(changed)
        self._look([shard.shard_id for shard in changed if shard.shard_id in self._position])

    def read(self, shard_id: int, offset: int) -> None:
        """The application has all records of an open shard below an offset. A lower one than before changes nothing."""
        if offset > self._position.get(shard_id, offset):
            self._position[shard_id] = offset
            self._look([shard_id])

    # ---- state

    def predecessors(self, shard_id: int) -> Sequence[int]:
        """Return the shards that are read to their ends before a shard."""
        return self._graph.shards[shard_id].predecessors

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to read, now and later."""
        return len(self._over) == len(self._position)

    def position(self) -> dict[int, int]:
        """Return shard id → offset: a cut."""
        return dict(self._position)

    def is_open(self, shard_id: int) -> bool:
        """Whether a shard is being read."""
        return shard_id in self._open

    def effects(self) -> Sequence[Effect]:
        """Return the effects to perform now, in order; each effect once."""
        effects, self._effects = self._effects, []
        return effects

    # ---- inside

    def _look(self, shard_ids: list[int]) -> None:
        """Open, close and follow, where that is due for these shards of the position, and for what replaces them."""
        pending = list(reversed(shard_ids))
        while pending:
            shard_id = pending.pop()
            if shard_id not in self._position or shard_id in self._over:
                continue
            limit = self._limit(shard_id)
            if limit is None or self._position[shard_id] < limit:
                if shard_id not in self._open:
                    self._open[shard_id] = None
                    self._effects.append(OpenShard(shard_id, self._position[shard_id], limit))
                continue
            self._close(shard_id)
            if self._stops_at(shard_id):
                self._over[shard_id] = None
            else:
                pending += reversed(self._follow(shard_id))

    def _close(self, shard_id: int) -> None:
        if shard_id in self._open:
            del self._open[shard_id]
            self._effects.append(CloseShard(shard_id))

    def _limit(self, shard_id: int) -> int | None:
        """Return the offset up to which a shard is read; None: it is not known yet."""
        end_offset = self._graph.shards[shard_id].end_offset
        if self._end is None or shard_id in self._before_end:
            return end_offset
        return self._end.get(shard_id, 0)  # nothing, behind the end cut

    def _stops_at(self, shard_id: int) -> bool:
        """Whether nothing replaces a shard in the position: it is not before the end cut, or its topic is sealed."""
        if self._end is not None and shard_id not in self._before_end:
            return True
        return not self._graph.shards[shard_id].successors

    def _follow(self, shard_id: int) -> Sequence[int]:
        """Replace the shards of a succession by their followers, if all are finished; return what is new."""
        found = self._graph.succession(shard_id)
        if found is None or not all(self._is_finished(each) for each in found.ended):
            return ()
        for each in found.ended:
            self._close(each)  # its end may be as new as that of the last one
            del self._position[each]
        self._position.update(dict.fromkeys(found.followers, 0))
        return found.followers

    def _is_finished(self, shard_id: int) -> bool:
        end_offset = self._graph.shards[shard_id].end_offset
        return end_offset is not None and self._position.get(shard_id, -1) >= end_offset
