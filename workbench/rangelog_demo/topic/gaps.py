"""The pauses between the acks of each shard. Pure arithmetic over the producers' ack logs.

A pause of a shard is the time between two consecutive acks in it; for a shard that followed others in a scale its first
pause begins with their last ack. A pause of one shard is seen here also while the other shards go on.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rangelog_demo.ack_log import LoggedAck
from rangelog_demo.timeline import Kill, gap_after

if TYPE_CHECKING:
    from rangelog import ShardInfo


def ack_times(acks: Iterable[LoggedAck], shards: Sequence[ShardInfo]) -> Mapping[int, list[int]]:
    """Shard → the times of its acks in order, after the last ack of the shards that it followed."""
    times: dict[int, list[int]] = defaultdict(list)
    for ack in acks:
        if ack.acked_ns is not None:
            times[ack.shard].append(ack.acked_ns)
    ordered = {shard_id: sorted(found) for shard_id, found in times.items()}
    before = {
        shard.shard_id: max((ordered[each][-1] for each in shard.predecessors if each in ordered), default=None)
        for shard in shards
    }
    return {
        shard_id: found if (last := before.get(shard_id)) is None else [min(last, found[0]), *found]
        for shard_id, found in ordered.items()
    }


def longest_gap_ms(times_ns: Mapping[int, Sequence[int]]) -> float:
    """The longest pause of any shard in ms; 0 without one."""
    gaps = (b - a for times in times_ns.values() for a, b in itertools.pairwise(times))
    return max(gaps, default=0) / 1e6


def set_gaps(kills: Sequence[Kill], times_ns: Mapping[int, Sequence[int]]) -> None:
    """Set each kill's `gap_ms`: the longest pause of any shard that spans it, or began up to 5 s after it."""
    for kill in kills:
        next_kill_ns = min((each.killed_ns for each in kills if each.killed_ns > kill.killed_ns), default=None)
        gaps = (gap_after(times, kill.killed_ns, next_kill_ns) for times in times_ns.values())
        kill.gap_ms = max(gaps, default=0.0)
