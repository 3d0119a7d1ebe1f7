"""What a group has consumed of a topic, as a consistent cut.

What holds: no record at or behind a committed position lies before the cut, and the cut tiles the key space. A shard takes part
once all that precedes its scale is finished: where a part of a scale is, the finished parents stand at their ends for it, and
what was read of its children does not count yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from rangelog_broker.groups.group import Group, Shard


def consumed_cut(group: Group, topic_id: int) -> dict[int, int] | None:
    """Return the cut, as offsets by shard; None: the topic's shards are not all known."""
    shards = {key.shard_id: shard for key, shard in group.shards.items() if key.topic_id == topic_id}
    if not shards or any(shard.facts is None for shard in shards.values()):
        return None
    parents = {number: [each for each in _facts(shard) if each in shards] for number, shard in shards.items()}
    scales = _scales(parents)
    reached: dict[int, None] = {}
    for number in sorted(shards):  # predecessors have lower ids
        if all(each in reached and group.finished(shards[each]) for each in scales[number]):
            reached[number] = None
    passed = {each for number in reached for each in parents[number]}
    return {number: _position(group, shards[number]) for number in reached if number not in passed}


def _facts(shard: Shard) -> list[int]:
    return list(shard.facts.predecessors) if shard.facts is not None else []


def _position(group: Group, shard: Shard) -> int:
    """The committed position; before the first commit, what is left of the shard begins it."""
    facts = shard.facts
    assert facts is not None
    position = group.position(shard)
    return min(position, facts.end_offset) if facts.ended else position


def _scales(parents: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Return, by child, all parents of the scale that made it: children that share a parent are of one scale."""
    found: dict[int, list[int]] = {}
    of_parent: dict[int, list[int]] = {}
    for child, own in sorted(parents.items()):
        together = list(own)
        for each in own:
            together += [other for other in of_parent.get(each, ()) if other not in together]
        for each in together:
            of_parent[each] = together
        found[child] = together
    return {child: of_parent[together[0]] if together else [] for child, together in found.items()}
