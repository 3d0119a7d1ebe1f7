"""Which shards a group asks back to balance: as the rule that is written down plainly here says, at any size."""

from __future__ import annotations

import random

import pytest

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.groups.group import RELEASES_AT_ONCE, Group
from rangelog_broker.groups.loads import Loads
from rangelog_proto.v1 import group_pb2


def test_loads() -> None:
    """Among equals the first name has least and the last has most; a change counts at once."""
    loads = Loads({"b": 1, "a": 1, "c": 1})
    assert (loads.least(), loads.most()) == ("a", "c")
    loads.add("c", -1)
    assert (loads.least(), loads.most(), loads["c"]) == ("c", "b", 0)
    loads.add("a", 5)
    loads.add("a", -5)
    assert (loads.least(), loads.most()) == ("c", "b")


def plainly(group: Group) -> set[ShardKey]:
    """What is to be asked back: from who has most to who has least, the heaviest that makes the two more alike."""
    shards = {key: shard for key, shard in sorted(group.shards.items()) if shard.member}
    kept = {
        name: [key for key, shard in shards.items() if shard.member == name and not shard.release]
        for name in group.members
    }
    promised = {name: sum(shards[key].weight for key in keys) for name, keys in kept.items()}
    asked = {key for key, shard in shards.items() if shard.release}
    for key in sorted(asked):
        promised[min(promised, key=lambda name: (promised[name], name))] += shards[key].weight
    for _ in range(RELEASES_AT_ONCE):
        most = max(promised, key=lambda name: (promised[name], name))
        least = min(promised, key=lambda name: (promised[name], name))
        movable = [key for key in kept[most] if shards[key].weight < promised[most] - promised[least]]
        if not movable:
            break
        key = max(movable, key=lambda each: (shards[each].weight, each))
        kept[most].remove(key)
        asked.add(key)
        promised[most] -= shards[key].weight
        promised[least] += shards[key].weight
    return asked


@pytest.mark.parametrize("seed", range(20))
def test_what_is_asked_back(seed: int) -> None:
    """Over joins, weights and releases, in any order; all brokers ask for the same."""
    draw = random.Random(seed)
    group, names = Group(), [f"m{number}" for number in range(8)]
    group.join("m0", 60_000, [1, 2], {}, 0)
    for topic_id in (1, 2):
        group.learn(topic_id, 1, [group_pb2.GroupShardFacts(shard_id=each) for each in range(draw.randint(1, 60))])
    for _ in range(30):
        match draw.randrange(4):
            case 0:
                group.join(draw.choice(names), 60_000, [], {}, 0)
            case 1:
                keys = draw.sample(sorted(group.shards), min(5, len(group.shards)))
                group.weigh([(key, draw.choice((1, 1, 2, 5, 9))) for key in keys])
            case 2:
                given = [(key, each) for key, each in sorted(group.shards.items()) if each.release]
                for key, each in given[: draw.randrange(4)]:
                    group.release(each.member, key, each.since)
            case _:
                if len(group.members) > 1:
                    group.leave(draw.choice(sorted(group.members)))
        before = {key for key, shard in group.shards.items() if shard.release}
        group.weigh([])  # balances anew
        after = {key for key, shard in group.shards.items() if shard.release}
        for key in after - before:
            group.shards[key].release = False
        assert plainly(group) == after
        for key in after:
            group.shards[key].release = True


def test_a_listing_without_news_hands_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each join brings all shards again; only what is new, or left to be asked back, is a reason to go over them."""
    group, handed = Group(), [0]
    hand_out = Group._hand_out

    def count(self: Group) -> None:
        handed[0] += 1
        hand_out(self)

    monkeypatch.setattr(Group, "_hand_out", count)

    def learn(shard_count: int, end_offset: int = 0) -> int:
        before = handed[0]
        facts = [group_pb2.GroupShardFacts(shard_id=each, end_offset=end_offset) for each in range(shard_count)]
        group.learn(1, 1, facts)
        return handed[0] - before

    group.join("a", 60_000, [1], {}, 0)
    shard_count = 5 * RELEASES_AT_ONCE
    assert [learn(shard_count), learn(shard_count), learn(shard_count + 1), learn(shard_count + 1, 7)] == [1, 0, 1, 1]
    group.join("b", 60_000, [1], {}, 0)
    asked = [sum(shard.release for shard in group.shards.values())]
    while learn(shard_count + 1, 7):
        asked.append(sum(shard.release for shard in group.shards.values()))
    assert asked == [RELEASES_AT_ONCE, 2 * RELEASES_AT_ONCE, (shard_count + 1) // 2]
