"""Repairs: the fewest copies first, never without a copy at hand, and how far they are."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rangelog_pd.reconcile.repair_queue import RepairQueue
from tests.unit.pd.reconcile.test_pd_reconcile import REPLACE_AFTER_MS, silence

KEYS = [(1, index) for index in range(6)]


@given(st.lists(st.tuples(st.sampled_from(["put", "discard", "rank"]), st.sampled_from(KEYS), st.integers(0, 3))))
def test_the_queue_is_a_dict_of_ranks(steps: list[tuple[str, tuple[int, int], int]]) -> None:
    """Whatever comes and goes, each key is there once, ranked ones by rank, and nothing is left of those that went."""
    queue = RepairQueue()
    new: dict[tuple[int, int], None] = {}
    ranks: dict[tuple[int, int], int] = {}
    for what, key, rank in steps:
        if what == "put":
            queue.put(key)
            ranks.pop(key, None)
            new.pop(key, None)
            new[key] = None
        elif what == "discard":
            queue.discard(key)
            ranks.pop(key, None)
            new.pop(key, None)
        else:
            queue.rank(lambda _, rank=rank: rank, 2)  # type: ignore[misc]
            for each in list(new)[:2]:
                del new[each]
                ranks[each] = rank
        assert len(queue) == len(new) + len(ranks)
        assert set(queue) == {*new, *ranks}
        first = queue.first(100)
        assert set(first) == set(ranks)
        assert [ranks[each] for each in first] == sorted(ranks.values())


def test_the_fewest_copies_come_first(pd: Any, make_report: Any) -> None:
    """Of two ranges that lost a member, the one with a single copy left is repaired before the one with two."""
    made = pd.create_stream()
    pd.open_writer()
    for index in range(2):
        pd.create_range(made.stream_id, 1, 10 * index, "rs1", "rs2", "rs3")
        pd.seal(made.stream_id, index, 1, 10 * index + 10)
    pd.beat("rs1", *(make_report(made.stream_id, index, "SEALED", end=10 * index + 10) for index in range(2)))
    pd.beat(
        "rs2", make_report(made.stream_id, 0, "SEALED", end=10), make_report(made.stream_id, 1, "INCOMPLETE", end=3)
    )
    pd.register("rs3", incarnation=77)
    pd.beat("rs3")
    wanted = [each.replace_replica.range_index for each in pd.proposals() if each.HasField("replace_replica")]
    assert wanted == [1, 0]


def test_members_stay_while_no_copy_is_at_hand(pd: Any, whole: int, make_report: Any) -> None:
    """Two of three members were wiped and the third is away: who has the last copy is not forgotten, and is named."""
    for name in ("rs1", "rs2"):
        pd.register(name, incarnation=77)
        pd.beat(name)
    silence(pd, "rs3", REPLACE_AFTER_MS + 6_000)
    assert "replace_replica" not in pd.reconcile()
    repairs = pd.view.upkeep.repairs
    assert "rs3" in repairs.blocked[whole, 0]
    assert not repairs.lost
    pd.beat("rs3", make_report(whole, 0, "SEALED", end=10))
    assert "replace_replica" in pd.reconcile(), "it is back"
    assert "rs3" in [each.server for each in pd.state.ranges.of(whole)[0].replicas]


def test_a_range_that_no_server_can_bring_back_is_lost(pd: Any, whole: int) -> None:
    """All three members were wiped, and the tier has nothing: it is shown as lost, and no member is replaced."""
    for name in ("rs1", "rs2", "rs3"):
        pd.register(name, incarnation=77)
        pd.beat(name)
    assert pd.reconcile() == []
    assert list(pd.view.upkeep.repairs.lost) == [(whole, 0)]


def test_a_member_that_has_just_taken_a_place_brings_nothing_back(pd: Any, whole: int, make_report: Any) -> None:
    """The others were wiped before it had copied anything, or all of it: the range is lost. Not while one may have a copy."""
    lost = pd.view.upkeep.repairs.lost
    pd.register("rs3", incarnation=77)
    pd.beat("rs3")
    assert "replace_replica" in pd.reconcile()
    (new,) = [each.server for each in pd.state.ranges.of(whole)[0].replicas if each.server not in ("rs1", "rs2")]
    pd.register("rs1", incarnation=77)
    pd.beat("rs1")
    silence(pd, "rs2", REPLACE_AFTER_MS + 6_000)
    pd.beat(new)
    pd.reconcile()
    assert not lost and "rs2" in pd.view.upkeep.repairs.blocked[whole, 0]
    pd.view.start_leading(pd.now_ms)  # another leader has not heard of rs2 yet
    for name in ("rs1", new):
        pd.beat(name)
    pd.pass_ms(REPLACE_AFTER_MS + 6_000)
    for name in ("rs1", new):
        pd.beat(name)
    pd.reconcile()
    assert not lost and "rs2" in pd.view.upkeep.repairs.blocked[whole, 0]
    pd.register("rs2", incarnation=77)
    for report in ((), (make_report(whole, 0, "INCOMPLETE", end=4),)):
        pd.beat("rs2")
        pd.beat(new, *report)
        pd.reconcile()
        assert list(lost) == [(whole, 0)] and new in pd.view.upkeep.repairs.blocked[whole, 0]
    for state in ("QUARANTINED", "OPEN"):
        pd.beat(new, make_report(whole, 0, state, end=10))
        pd.reconcile()
        assert not lost, "it may have all of it"


def test_what_was_reported_before_a_seal_proves_no_loss(pd: Any, make_report: Any) -> None:
    """Heartbeats under way when a range is sealed show less than the servers have: only later ones say that it is lost."""
    made = pd.create_stream()
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1", "rs2", "rs3")
    pd.seal(made.stream_id, 0, 1, 10)
    repairs, now = pd.view.upkeep.repairs, 0
    for name in ("rs1", "rs2"):
        pd.register(name, incarnation=77)
    for now in range(0, 2 * pd.view.dead_ms, 1_000):
        for name in ("rs1", "rs2"):
            pd.beat(name)
        pd.beat("rs3", *([make_report(made.stream_id, 0, "OPEN", end=3)] if now < 2_000 else []))
        pd.reconcile()
        found = pd.state.ranges.of(made.stream_id)[0]
        lacking = pd.view.lacking(found, pd.now_ms, pd.wall_ms)
        assert ("rs3" in lacking) == bool(repairs.lost) == (now >= pd.view.dead_ms), now
        pd.pass_ms(1_000)


def test_progress_is_counted_until_nothing_is_lacking(pd: Any, whole: int, make_report: Any) -> None:
    """A replaced member is copying until it reports all of the range; then one repair is done, with its bytes."""
    repairs = pd.view.upkeep.repairs
    pd.register("rs3", incarnation=77)
    pd.beat("rs3")
    repairs.note_time(1_000)
    assert "replace_replica" in pd.reconcile()
    repairs.note_time(2_000)
    (new,) = [each.server for each in pd.state.ranges.of(whole)[0].replicas if each.server not in ("rs1", "rs2")]
    assert "copy_replica" in pd.directives(new)
    pd.reconcile()
    repairs.note_time(3_000)
    assert repairs.copying == {(whole, 0): {new: None}}
    assert repairs.since_ms == 2_000, "from the first round in which it was seen"
    pd.beat(new, make_report(whole, 0, "SEALED", end=10, size=1_000))
    pd.directives(new)
    assert (repairs.done_count, repairs.copied_bytes, repairs.copying) == (1, 1_000, {})
    repairs.note_time(4_000)
    assert repairs.since_ms == 0
