"""Which shards of a topic to split and which to merge, from moving averages of their rates. Pure functions.

What holds:

* Hot is a shard whose short averages are far above the target, or whose long ones are above it. Cold are two neighbours whose
  averages are all below half of the target and together below six tenths of it, observed over the longest window.
* So neither the parts of a hot shard are cold together, if there are two of them, nor is what two cold ones become hot: with
  a constant load, and with one that varies within the windows, scales end.
* A shard of a single hot key cannot be helped by a split: shards narrower than KEYS_MIN are not split.

Source: the scaling policy of Pravega's segment stores (averages over 2, 5, 10 and 20 minutes, factors of 5, 2 and 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange, equal_key_ranges
from rangelog_proto.v1 import topic_pb2

SHORT_FACTOR, MEDIUM_FACTOR = 5, 2
"""How far above the target the averages over 2 and 5 minutes are in a hot shard."""
COLD_PART = 0.5
COLD_PAIR_PART = 0.6
KEYS_MIN = KEY_SPACE_END >> 16
"""Narrower shards are not split: a twentieth of what a shard has in a topic of the largest size."""
PARENTS_MAX = 16
"""Shards that one plan ends: they are closed together, and all of them must have ended before any child takes a record."""
KEY_RANGES_MAX = 256
"""Shards that one plan creates: a bounded part of what fits in one command."""


class ShardRates(NamedTuple):
    """A current shard and its averages over 2, 5, 10 and 20 minutes, shortest first, in what the policy counts by."""

    shard_id: int
    keys: KeyRange
    averages: tuple[int, ...]
    mature: bool


class Scale(NamedTuple):
    """A scale that is wanted."""

    parents: list[int]
    key_ranges: list[KeyRange]
    reason: str


def is_hot(averages: Sequence[int], target: int) -> bool:
    """Whether a shard takes too much.

    Example:
        >>> is_hot((600, 90, 50, 30), target=100), is_hot((130, 130, 120, 110), target=100), is_hot((300, 150, 90, 60), 100)
        (True, True, False)
    """
    short, medium, *long = averages
    return short > SHORT_FACTOR * target or medium > MEDIUM_FACTOR * target or min(long) > target


def is_cold(shard: ShardRates, target: int) -> bool:
    """Whether a shard takes so little that it may be merged."""
    return shard.mature and max(shard.averages) < COLD_PART * target


def next_scale(policy: topic_pb2.ScalingPolicy, shards: Sequence[ShardRates], current_count: int) -> Scale | None:
    """Return the scale that a topic needs most, or None.

    `shards`: those to be looked at, in order of keys; `current_count`: of all current shards of the topic.
    """
    return _splits(policy, shards, current_count) or _merges(policy, shards, current_count)


def _splits(policy: topic_pb2.ScalingPolicy, shards: Sequence[ShardRates], count: int) -> Scale | None:
    parents: list[ShardRates] = []
    key_ranges: list[KeyRange] = []
    for shard in shards:
        parts = min(policy.factor, policy.shards_max - count + 1)
        if parts < 2 or len(parents) == PARENTS_MAX or len(key_ranges) + parts > KEY_RANGES_MAX:
            break
        if is_hot(shard.averages, policy.target_per_s) and shard.keys.high - shard.keys.low >= KEYS_MIN:
            parents.append(shard)
            key_ranges += equal_key_ranges(parts, shard.keys)  # no weights of keys are reported
            count += parts - 1
    if not parents:
        return None
    hottest = max(parents, key=lambda shard: shard.averages)
    return Scale(
        [shard.shard_id for shard in parents],
        key_ranges,
        f"{len(parents)} shards take too much; shard {hottest.shard_id}: {_in_words(hottest.averages)}, "
        f"the target is {policy.target_per_s} {_unit(policy)}",
    )


def _merges(policy: topic_pb2.ScalingPolicy, shards: Sequence[ShardRates], count: int) -> Scale | None:
    pairs: list[tuple[ShardRates, ShardRates]] = []
    place = 0
    while place + 1 < len(shards) and count > policy.shards_min and 2 * len(pairs) + 2 <= PARENTS_MAX:
        first, second = shards[place], shards[place + 1]
        if _may_merge(first, second, policy.target_per_s):
            pairs.append((first, second))
            count -= 1
            place += 1
        place += 1
    if not pairs:
        return None
    first, second = pairs[0]
    return Scale(
        [shard.shard_id for pair in pairs for shard in pair],
        [KeyRange(low.keys.low, high.keys.high) for low, high in pairs],
        f"{len(pairs)} pairs of neighbours take little; shards {first.shard_id} and {second.shard_id}: "
        f"{_in_words(first.averages)} and {_in_words(second.averages)}, the target is {policy.target_per_s} {_unit(policy)}",
    )


def _may_merge(first: ShardRates, second: ShardRates, target: int) -> bool:
    together = max(map(sum, zip(first.averages, second.averages, strict=True)))
    adjacent = first.keys.high == second.keys.low
    return adjacent and is_cold(first, target) and is_cold(second, target) and together < COLD_PAIR_PART * target


def _in_words(averages: Sequence[int]) -> str:
    return "/".join(map(str, averages))


def _unit(policy: topic_pb2.ScalingPolicy) -> str:
    return "events/s" if policy.kind == topic_pb2.SCALING_KIND_EVENTS else "bytes/s"
