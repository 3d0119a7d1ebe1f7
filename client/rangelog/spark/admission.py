"""How far one micro-batch reads: records are shared out among streams and shards in proportion to what waits in each.

What holds: no more than the budget is admitted, and all of it if so much waits; what was left out for being little comes first
the next time. A position in a topic stays a cut: shards are replaced by their successors once all that end together have been
read to their ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rangelog._topics.shard_graph import ShardGraph

_K = TypeVar("_K", int, str)


def share_out(waiting: Mapping[_K, int], budget: int) -> dict[_K, int]:
    """Return how many records are admitted of each, at most `budget` in all."""
    total = sum(waiting.values())
    if total <= budget:
        return dict(waiting)
    found = {key: count * budget // total for key, count in waiting.items()}
    left = budget - sum(found.values())
    for key in sorted(waiting, key=lambda each: (found[each] > 0, found[each] * total - waiting[each] * budget)):
        if left and found[key] < waiting[key]:
            found[key] += 1
            left -= 1
    return found


def advance(graph: ShardGraph, position: Mapping[int, int], ends: Mapping[int, int], budget: int) -> dict[int, int]:
    """Return the cut that is at most so many records behind another one.

    `ends`: of the current shards, up to where records were acked. Shards that have ended count up to their end.
    """
    cut = dict(position)
    while True:
        waiting = {}
        for shard_id, offset in cut.items():
            end = graph.shards[shard_id].end_offset
            waiting[shard_id] = max(0, (ends.get(shard_id, offset) if end is None else end) - offset)
        for shard_id, count in share_out(waiting, budget).items():
            cut[shard_id] += count
            budget -= count
        if not _succeed(graph, cut) or budget <= 0:
            return cut


def _succeed(graph: ShardGraph, cut: dict[int, int]) -> bool:
    """Replace shards that have been read to their ends by those that follow them; return whether any was replaced."""
    changed = False
    for shard_id in list(cut):
        succession = graph.succession(shard_id) if shard_id in cut else None
        if succession is None or any(cut.get(each, -1) != graph.shards[each].end_offset for each in succession.ended):
            continue
        for each in succession.ended:
            del cut[each]
        cut.update(dict.fromkeys(succession.followers, 0))
        changed = True
    return changed
