"""Automatic scaling: what is split and merged, that it comes to rest, and what becomes of a plan that nobody carries out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rangelog_broker.hosting.rates import MovingRates, decay
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange, check_tiling, equal_key_ranges
from rangelog_pd.reconcile.scaling_policy import KEY_RANGES_MAX, KEYS_MIN, PARENTS_MAX, ShardRates, is_hot, next_scale
from rangelog_pd.reconcile.scaling_view import LOOK_AGAIN_MS, MINUTE_MS, PLAN_TIMEOUT_MS, REST_MINUTES, ScalingView
from rangelog_pd.state.topic_states import ACTIVE, SCALING
from rangelog_proto.v1 import broker_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part

EVENTS, BYTES = topic_pb2.SCALING_KIND_EVENTS, topic_pb2.SCALING_KIND_BYTES


def policy(target: int = 100, factor: int = 2, least: int = 1, most: int = 3_000) -> topic_pb2.ScalingPolicy:
    return topic_pb2.ScalingPolicy(kind=EVENTS, target_per_s=target, factor=factor, shards_min=least, shards_max=most)


def shards(*averages: int, mature: bool = True) -> list[ShardRates]:
    """Equal shards with the same rate for long."""
    keys = equal_key_ranges(len(averages))
    return [ShardRates(number, keys[number], (rate,) * 4, mature) for number, rate in enumerate(averages)]


@pytest.mark.parametrize(
    ("averages", "hot"),
    [
        ((501, 0, 0, 0), True),  # far above, since two minutes
        ((500, 201, 0, 0), True),
        ((500, 200, 101, 101), True),  # a little above, since long
        ((500, 200, 101, 100), False),
        ((100, 100, 100, 100), False),
    ],
)
def test_hot_is_far_above_for_short_or_above_for_long(averages: tuple[int, ...], hot: bool) -> None:
    """Each window has its own bound."""
    assert is_hot(averages, 100) == hot


def test_hot_shards_are_split_into_equal_parts_in_one_plan() -> None:
    """All that are hot, each into as many parts as the policy wants; the reason names the hottest."""
    wanted = next_scale(policy(factor=4), shards(150, 80, 200, 80), 4)
    assert wanted is not None
    assert wanted.parents == [0, 2]
    quarter = KEY_SPACE_END // 4
    cover = [KeyRange(0, quarter), KeyRange(2 * quarter, 3 * quarter)]
    assert check_tiling(wanted.key_ranges, cover) == wanted.key_ranges
    assert len(wanted.key_ranges) == 8
    assert "shard 2: 200/200/200/200, the target is 100 events/s" in wanted.reason


@pytest.mark.parametrize(("most", "parts"), [(4, 0), (5, 2), (6, 3), (7, 4), (8, 6), (9, 7), (99, 8)])
def test_splits_keep_to_the_largest_number_of_shards(most: int, parts: int) -> None:
    """A shard gets fewer parts where there is no room for all of them, and is not split where there is none for two."""
    wanted = next_scale(policy(factor=4, most=most), shards(150, 80, 200, 80), 4)
    assert (len(wanted.key_ranges) if wanted is not None else 0) == parts


def test_cold_neighbours_are_merged_in_pairs() -> None:
    """Two and two, as long as they are together well below the target."""
    wanted = next_scale(policy(), shards(10, 20, 30, 29, 45, 10), 6)
    assert wanted is not None
    assert wanted.parents == [0, 1, 2, 3, 4, 5]
    assert wanted.key_ranges == equal_key_ranges(3)
    assert "shards 0 and 1: 10/10/10/10 and 20/20/20/20" in wanted.reason


@pytest.mark.parametrize(
    ("given", "least"),
    [
        (shards(30, 30, 31), 1),  # together not below six tenths
        (shards(50, 10), 1),  # not below half
        (shards(10, 10, mature=False), 1),  # the owner is new: its averages say nothing yet
        (shards(10, 10), 2),  # the least number of shards
        ([shards(1, 1, 1)[0], shards(1, 1, 1)[2]], 1),  # no neighbours
    ],
)
def test_what_is_not_surely_cold_stays(given: list[ShardRates], least: int) -> None:
    """A merge costs a pause, and a wrong one a split as well."""
    assert next_scale(policy(least=least), given, len(given)) is None


def test_merges_leave_the_least_number_of_shards() -> None:
    """Not all pairs at once where that would be too many."""
    wanted = next_scale(policy(least=5), shards(1, 1, 1, 1, 1, 1), 6)
    assert wanted is not None and wanted.parents == [0, 1]


def test_a_plan_is_bounded() -> None:
    """The shards of one plan are closed together."""
    many = next_scale(policy(), shards(*[999] * 100), 100)
    cold = next_scale(policy(), shards(*[1] * 100), 100)
    assert many is not None and len(many.parents) == PARENTS_MAX
    assert cold is not None and len(cold.parents) == PARENTS_MAX
    wide = next_scale(policy(factor=64), shards(*[999] * 100), 100)
    assert wide is not None and len(wide.key_ranges) == KEY_RANGES_MAX


def test_a_shard_of_one_hot_key_is_not_split_for_ever() -> None:
    """A split does not help it: at some width it stays."""
    narrow = ShardRates(0, KeyRange(0, KEYS_MIN - 1), (999,) * 4, True)
    assert next_scale(policy(), [narrow], 1) is None
    assert next_scale(policy(), [narrow._replace(keys=KeyRange(0, KEYS_MIN))], 1) is not None


def live(load: Callable[[int], float], hours: int, given: topic_pb2.ScalingPolicy) -> list[tuple[int, int]]:
    """Run a topic whose load is even over the keys; return (minute, shards) of each scale."""
    topic = {KeyRange(0, KEY_SPACE_END): (MovingRates(), [0])}
    scales: list[tuple[int, int]] = []
    step_s, rest_until = 10, 0
    after = decay(step_s)
    for second in range(0, hours * 3_600, step_s):
        for keys, (rates, taken) in topic.items():
            taken[0] += round(load(second) * step_s * (keys.high - keys.low) / KEY_SPACE_END)
            rates.count(taken[0], 0, after)
        if second < rest_until:
            continue
        known = [
            ShardRates(number, keys, tuple(rates.events_averages), rates.mature)
            for number, (keys, (rates, _)) in enumerate(sorted(topic.items(), key=lambda item: item[0]))
        ]
        wanted = next_scale(given, known, len(known))
        if wanted is not None:
            for each in wanted.parents:
                del topic[known[each].keys]
            topic.update({keys: (MovingRates(), [0]) for keys in wanted.key_ranges})
            scales.append((second // 60, len(topic)))
            rest_until = second + REST_MINUTES * 60
    return scales


@pytest.mark.parametrize("rate", [30, 99, 101, 130, 170, 250, 990])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_with_a_constant_load_scales_end(rate: int, factor: int) -> None:
    """At a number of shards each of which takes at most about the target, and more than a quarter of it on average."""
    scales = live(lambda second: rate, 12, policy(factor=factor))
    assert all(minute < 300 for minute, _ in scales), scales
    count = scales[-1][1] if scales else 1
    assert rate / count <= 103
    assert count == 1 or rate / count > 25


@pytest.mark.parametrize("period_s", [20, 120, 600, 1_200])
@pytest.mark.parametrize("middle", [60, 100, 150, 380])
def test_with_an_oscillating_load_scales_end(middle: int, period_s: int) -> None:
    """From nothing to twice the middle and back: shards do not follow what the windows even out."""

    def load(second: int) -> float:
        return middle * (1 + math.sin(2 * math.pi * second / period_s))

    scales = live(load, 16, policy())
    assert all(minute < 480 for minute, _ in scales), scales
    assert len(scales) <= 6, scales


# ---- the leader's part


class Owner:
    """A broker that owns all shards and reports the averages that a test gives."""

    def __init__(self, pd: Any, kind: Any = EVENTS, **fields: Any) -> None:
        self.pd, self.topics = pd, TopicCalls(pd)
        self.view = ScalingView()
        register = broker_pb2.RegisterBrokerRequest(name="b", incarnation=1, address="b:1")
        pd.do(broker_pb2.RegisterBrokerResponse, register_broker=register)
        scaling = topic_pb2.ScalingPolicy(kind=kind, target_per_s=100, **fields)
        self.topic_id = self.topics.create(shards=4, config=topic_pb2.TopicConfig(scaling=scaling)).topic_id
        self.assign()

    def assign(self) -> None:
        made = [broker_pb2.Assignment(topic_id=key[0], shard_id=key[1], broker="b", incarnation=1)
                for key in self.pd.state.owners.unowned]  # fmt: skip
        self.pd.do(broker_pb2.RegisterBrokerResponse, assign_shards=pd_state_pb2.AssignShards(assignments=made))

    def report(self, rates: dict[int, int], incarnation: int = 1, *, mature: bool = True) -> None:
        loads = [
            broker_pb2.ShardLoad(
                topic_id=self.topic_id, shard_id=each, events_averages=[rate] * 4, bytes_averages=[rate * 10] * 4,
                mature=mature,
            )
            for each, rate in rates.items()
        ]  # fmt: skip
        self.view.heard("b", incarnation, loads, self.pd.now_ms)

    def round(self) -> list[pd_state_pb2.Command]:
        """Propose and apply."""
        found = self.view.commands(self.pd.state, self.pd.now_ms, self.pd.wall_ms)
        for command in found:
            self.pd.apply(command)
        return found

    def parents(self) -> Sequence[int]:
        return self.pd.state.topics.work_of(self.topic_id).scale.parents


@pytest.fixture
def owner(pd: Any) -> Owner:
    return Owner(pd)


def test_the_leader_starts_a_scale_of_a_hot_shard(owner: Owner) -> None:
    """As soon as it hears of it; the plan has the reason."""
    owner.report({0: 50, 1: 600, 2: 50, 3: 50})
    owner.round()
    assert owner.topics.topic(owner.topic_id).state == SCALING
    assert list(owner.parents()) == [1]
    assert "shard 1" in owner.pd.state.topics.work_of(owner.topic_id).scale.reason
    owner.pd.pass_ms(int(LOOK_AGAIN_MS))
    assert owner.round() == [], "one plan at a time"


def test_only_topics_that_were_reported_are_looked_at(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round without news costs nothing, however many topics there are."""
    owner.report({0: 50, 1: 50, 2: 50, 3: 50})
    owner.round()
    looked: list[int] = []
    monkeypatch.setattr(ScalingView, "_judge", lambda self, state, topic_id, *args: looked.append(topic_id))
    owner.pd.pass_ms(600_000)
    owner.round()
    assert looked == []
    owner.report({2: 51})
    owner.round()
    assert looked == [owner.topic_id]


def test_a_neighbour_that_was_reported_before_is_merged(owner: Owner) -> None:
    """Only the shard whose load has changed is looked at, with those beside it."""
    owner.report({0: 90, 1: 5, 2: 90, 3: 90})
    assert owner.round() == []
    owner.report({2: 5})
    owner.round()
    assert list(owner.parents()) == [1, 2]


def test_rates_of_a_former_owner_or_of_no_policy_count_for_nothing(pd: Any) -> None:
    """The present owner's averages begin anew."""
    owner = Owner(pd)
    owner.report({1: 900}, incarnation=7)
    assert owner.round() == []
    owner.topics.update(
        owner.topic_id,
        "scaling",
        config=topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(kind=1)),  # type: ignore[arg-type]
    )
    owner.report({1: 900})
    assert owner.round() == []


def test_bytes_are_counted_where_the_policy_wants_it(pd: Any) -> None:
    """Ten bytes an event: 20 events/s are twice the target."""
    owner = Owner(pd, kind=BYTES)
    owner.report({0: 20, 1: 5, 2: 5, 3: 5})
    owner.round()
    assert list(owner.parents()) == [0]


def test_a_topic_rests_after_a_scale(owner: Owner) -> None:
    """Of whatever kind; what is still hot then is split, without another report."""
    owner.topics.scale(owner.topic_id, [0], part(0, 2), part(2, 4))
    owner.assign()
    owner.report({1: 900})
    for _ in range(REST_MINUTES - 1):
        owner.pd.pass_ms(MINUTE_MS)
        assert owner.round() == []
    owner.pd.pass_ms(MINUTE_MS)
    owner.round()
    assert list(owner.parents()) == [1]


def test_a_plan_of_its_own_that_nobody_carries_out_is_cancelled(owner: Owner) -> None:
    """After a time; the topic rests, then the leader tries again. One that was requested stays."""
    owner.report({1: 900})
    owner.round()
    owner.pd.pass_ms(1)
    owner.round()
    owner.pd.pass_ms(int(PLAN_TIMEOUT_MS) - 2)
    assert owner.round() == []
    owner.pd.pass_ms(2)
    assert [each.WhichOneof("action") for each in owner.round()] == ["cancel_scale"]
    assert owner.topics.topic(owner.topic_id).state == ACTIVE
    owner.pd.pass_ms(REST_MINUTES * MINUTE_MS - 1)
    assert owner.round() == []
    owner.pd.pass_ms(1 + int(LOOK_AGAIN_MS))
    owner.round()
    assert list(owner.parents()) == [1]
    owner.topics.cancel_scale(owner.topic_id, 2)
    owner.topics.start_scale(owner.topic_id, [0], part(0, 2), part(2, 4))
    for _ in range(3):
        owner.pd.pass_ms(int(PLAN_TIMEOUT_MS))
        assert owner.round() == []


def test_another_leader_gives_a_plan_its_whole_time(owner: Owner) -> None:
    """It counts from when that leader sees it first."""
    owner.report({1: 900})
    owner.round()
    owner.round()
    owner.view.start_leading()
    owner.pd.pass_ms(int(PLAN_TIMEOUT_MS))
    assert owner.round() == []
    owner.pd.pass_ms(int(PLAN_TIMEOUT_MS))
    assert len(owner.round()) == 1


def test_what_is_gone_is_forgotten(owner: Owner) -> None:
    """Shards that have ended and topics that were deleted leave nothing behind."""
    owner.report({0: 50, 1: 50, 2: 50, 3: 50})
    owner.topics.scale(owner.topic_id, [0, 1], part(0, 8))
    for _ in range(4):
        owner.round()
    assert owner.view._count == 2
    owner.topics.delete(owner.topic_id, force=True)
    for _ in range(4):
        owner.round()
    assert owner.view._count == 0 and not owner.view._rates
