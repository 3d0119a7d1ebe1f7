"""May these servers go down now? The decision, against a model that tries it out; and what counts as a copy."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rangelog_pd.reconcile import impact
from rangelog_pd.reconcile.impact import Copies, judge

ABC = ("rs1", "rs2", "rs3")
_NAMES = st.sampled_from([f"rs{number}" for number in range(1, 6)])
_RANGES = st.lists(
    st.builds(
        Copies,
        st.tuples(st.integers(1, 3), st.integers(0, 50)),
        st.booleans(),
        st.integers(1, 3),
        st.booleans(),
        st.frozensets(_NAMES, max_size=4),
    ),
    max_size=12,
)


def tried_out(each: Copies, going: frozenset[str]) -> str:
    """What becomes of one range when the servers are switched off one by one: the model."""
    if each.is_tiered:
        return "fine"
    left = set(each.holders)
    for name in sorted(going):
        left.discard(name)
    if not left:
        return "lost"
    if len(left) < each.acks:
        return "stalled" if each.is_open else "short"
    return "fine"


@given(_RANGES, st.frozensets(_NAMES, min_size=1))
def test_the_answer_is_that_of_trying_it_out(ranges: list[Copies], going: frozenset[str]) -> None:
    """Each range is in the list that the model puts it in, and the answer is yes where it is in none."""
    found = judge(ranges, going)
    wanted: dict[str, list[Any]] = {"lost": [], "short": [], "stalled": [], "fine": []}
    for each in ranges:
        wanted[tried_out(each, going)].append((each.key, len(each.holders - going)))
    assert (found.lost, found.short, found.stalled) == (wanted["lost"], wanted["short"], wanted["stalled"])
    assert (found.lost_count, found.short_count, found.stalled_count) == tuple(
        len(wanted[kind]) for kind in ("lost", "short", "stalled")
    )
    assert found.is_harmless == (len(wanted["fine"]) == len(ranges)) and found.range_count == len(ranges)


@given(_RANGES, st.frozensets(_NAMES, min_size=1), _NAMES)
def test_more_servers_down_are_never_better(ranges: list[Copies], going: frozenset[str], one_more: str) -> None:
    """What is not harmless does not become so when yet another server goes."""
    assert judge(ranges, going).is_harmless or not judge(ranges, going | {one_more}).is_harmless


def test_lists_are_bounded_and_counts_are_whole() -> None:
    """A thousand ranges without a copy: as many are listed as asked for, all are counted."""
    ranges = [Copies((1, index), is_open=False, acks=2, is_tiered=False, holders=frozenset()) for index in range(1_000)]
    found = judge(ranges, ("rs1",), listed_max=7)
    assert (len(found.lost), found.lost_count) == (7, 1_000)


# ---- what counts as a copy


def ask(pd: Any, *names: str) -> tuple[int, int, int]:
    """How many ranges would be lost, short, stalled."""
    pd.view.upkeep.follow(pd.state)
    found = impact.check(pd.state, pd.view, names, pd.now_ms)
    return found.lost_count, found.short_count, found.stalled_count


def test_a_sealed_range_with_three_whole_copies(pd: Any, whole: int) -> None:
    """One server may go, two may not, three leave nothing; a server without a copy does not matter."""
    assert ask(pd, "rs4") == ask(pd, "rs1") == ask(pd, "rs1", "rs4") == (0, 0, 0)
    assert ask(pd, "rs1", "rs2") == (0, 1, 0)
    assert ask(pd, *ABC) == (1, 0, 0)


def test_the_tier_counts_once_it_has_all_of_a_range(pd: Any, whole: int) -> None:
    """Not while a record is missing in it; then all servers may go."""
    pd.commit(pd.prepare(whole, 0, 0, 9, "rs1"))
    assert ask(pd, *ABC) == (1, 0, 0)
    pd.commit(pd.prepare(whole, 0, 9, 10, "rs1"))
    assert ask(pd, *ABC) == (0, 0, 0)


def test_an_incomplete_damaged_silent_or_unknown_copy_is_none(pd: Any, whole: int, make_report: Any) -> None:
    """Only what a living server reports whole counts."""
    for state in ("INCOMPLETE", "QUARANTINED", "FENCED"):
        pd.beat("rs2", make_report(whole, 0, state, end=3))
        assert ask(pd, "rs1") == (0, 1, 0), state
    pd.beat("rs2", make_report(whole, 0, "SEALED", end=10))
    assert ask(pd, "rs1") == (0, 0, 0)
    pd.pass_ms(2_000)
    pd.beat("rs1", complete=False)
    pd.beat("rs2", complete=False)
    assert ask(pd, "rs1") == (0, 1, 0), "rs3 is silent"
    pd.view.start_leading(pd.now_ms)
    assert ask(pd, "rs1") == (1, 0, 0), "a new leader knows nothing yet"
    assert impact.unreported(pd.state, pd.view, ("rs1",), pd.now_ms) == ["rs2", "rs3", "rs4"]


def test_a_replaced_copy_counts_while_it_is_there(pd: Any, whole: int, make_report: Any) -> None:
    """The drained server's copy is what the range lives on until its new member is whole."""
    sealed = make_report(whole, 0, "SEALED", end=10)
    pd.beat("rs2", make_report(whole, 0, "INCOMPLETE", end=3))
    pd.replace(whole, 0, "rs1", "rs4")
    pd.beat("rs1", sealed)
    pd.directives("rs1")
    assert ask(pd, "rs3") == (0, 1, 0) and ask(pd, "rs1") == (0, 1, 0), "asked of a server that is no member"
    assert ask(pd, "rs1", "rs3") == (1, 0, 0)


def test_an_open_range_needs_as_many_living_members_as_acks(pd: Any, stream: int, make_report: Any) -> None:
    """With one of three gone appends go on, with two they stop; a damaged member is none."""
    assert ask(pd, "rs1") == (0, 0, 0)
    assert ask(pd, "rs1", "rs2") == (0, 0, 1)
    assert ask(pd, *ABC) == (1, 0, 0)
    pd.beat("rs3", make_report(stream, 0, "QUARANTINED"))
    assert ask(pd, "rs1") == (0, 0, 1)


def test_only_what_the_named_servers_hold_is_examined(pd: Any, whole: int) -> None:
    """The cost is that of their ranges; a range of others is not looked at, however bad its state is."""
    pd.create_range(whole, 1, 10, "rs2", "rs3", "rs4")
    counts = {name: impact.check(pd.state, pd.view, (name,), pd.now_ms).range_count for name in pd.state.servers}
    assert counts == {"rs1": 1, "rs2": 2, "rs3": 2, "rs4": 1}


def test_an_empty_sealed_range_has_nothing_to_lose(pd: Any, stream: int) -> None:
    """No record is in it."""
    pd.seal(stream, 0, 1, 0)
    assert ask(pd, *ABC) == (0, 0, 0)


def test_a_dead_server_may_have_the_last_copy_of_what_others_have_taken_over(pd: Any, make_report: Any) -> None:
    """Its place was given away, and it died before the new member had everything: that range is found by the work left."""
    made = pd.create_stream("one", replicas=1, acks=1)
    pd.open_writer("one")
    pd.create_range(made.stream_id, 1, 0, "rs1")
    pd.seal(made.stream_id, 0, 1, 10)
    pd.beat("rs1", make_report(made.stream_id, 0, "SEALED", end=10))
    pd.replace(made.stream_id, 0, "rs1", "rs4")
    pd.view.start_leading(pd.now_ms)
    pd.beat("rs4")
    pd.beat("rs4")
    pd.directives("rs4")
    assert impact.check(pd.state, pd.view, ("rs1",), pd.now_ms).lost_count == 0, "it is no member, and reports nothing"
    assert impact.check_copies_to_come(pd.state, pd.view, "rs1", pd.now_ms).lost_count == 1
