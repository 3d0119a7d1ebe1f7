"""Tables, indexes and queues: rows never change, indexes follow rows, nothing that is due is lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rangelog_pd.reconcile.attention import FRESH_MAX, WAITING_MAX, Attention
from rangelog_pd.reconcile.due_queue import RETRY_MS, DueQueue
from rangelog_pd.reconcile.sizes import StreamSizes
from rangelog_pd.state.changes import CHANGES_MAX, Changes
from rangelog_pd.state.indexes import Names
from rangelog_pd.state.tables import RangeTable
from rangelog_proto.v1 import common_pb2


def test_a_row_that_was_handed_out_stays_what_it_was(pd: Any, stream: int) -> None:
    """A seal puts another row: whoever holds the open one, a snapshot among them, still sees it open."""
    before = pd.state.range(stream, 0)
    frozen = pd.machine.freeze()
    pd.seal(stream, 0, 1, 10)
    assert before.state == common_pb2.RANGE_STATE_OPEN
    assert pd.state.range(stream, 0).state == common_pb2.RANGE_STATE_SEALED
    pd.machine.restore(b"".join(frozen))
    assert pd.state.range(stream, 0).state == common_pb2.RANGE_STATE_OPEN, "the snapshot is of when it was frozen"


def test_ranges_are_found_by_offset_without_walking_them() -> None:
    """The first that is open or ends beyond an offset, whatever was removed from the front."""
    table = RangeTable()
    for index in range(20):
        row = common_pb2.Range(
            stream_id=7, index=index, start_offset=index * 10, end_offset=index * 10 + 10, state="RANGE_STATE_SEALED"
        )
        table.put((7, index), row)
    table.put((7, 20), common_pb2.Range(stream_id=7, index=20, start_offset=200, state="RANGE_STATE_OPEN"))
    for index in range(3):
        table.remove((7, index))
    ranges = table.of(7)
    assert list(ranges) == list(range(3, 21))
    assert [ranges.index_beyond(offset) for offset in (0, 30, 39, 40, 199, 200, 9_999)] == [3, 3, 3, 4, 19, 20, 20]
    assert len(table.of(8)) == 0 and table.of(8).last() is None


@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.integers(0, 13), st.integers(0, 130))
def test_ranges_with_gaps_are_as_a_list_has_them(count: int, removed: set[int], index: int, offset: int) -> None:
    """Whatever was removed, from the front, the middle or the end: order, length, first, last, and the search by offset."""
    table = RangeTable()
    for each in range(count):
        row = common_pb2.Range(
            stream_id=7, index=each, start_offset=each * 10, end_offset=each * 10 + 10, state="RANGE_STATE_SEALED"
        )
        table.put((7, each), row)
    for each in removed:
        table.remove((7, each))
    table.put((7, 12), common_pb2.Range(stream_id=7, index=12, start_offset=120, state="RANGE_STATE_OPEN"))
    kept = [each for each in range(count) if each not in removed] + [12]
    ranges = table.of(7)
    assert list(ranges) == kept and len(ranges) == len(kept)
    assert list(reversed(ranges)) == kept[::-1]
    assert [each for each in range(14) if each in ranges] == kept
    assert list(ranges.indexes_from(index)) == [each for each in kept if each >= index]
    first = ranges.first_from(index)
    assert (first.index if first is not None else None) == next((each for each in kept if each >= index), None)
    last = ranges.last()
    assert last is not None and last.index == 12
    assert ranges.index_beyond(offset) == next(each for each in kept if each == 12 or each * 10 + 10 > offset)


@given(st.lists(st.tuples(st.booleans(), st.text("abc", min_size=1, max_size=3)), max_size=200), st.integers(1, 5))
def test_names_come_in_order_page_by_page(changes: list[tuple[bool, str]], size: int) -> None:
    """Whatever was added and removed, the pages of a prefix are the sorted names with it."""
    names: Names[common_pb2.Stream] = Names(lambda row: row.name, lambda row: row.stream_id)
    known: dict[str, common_pb2.Stream] = {}
    for number, (adds, name) in enumerate(changes):
        if adds and name not in known:
            known[name] = common_pb2.Stream(name=name, stream_id=number + 1)
            names.changed(None, known[name])
        elif not adds and name in known:
            names.changed(known.pop(name), None)
        if number % 7 == 0:
            names.page("", "", 1)
    found, after = [], ""
    while page := names.page("a", after, size):
        found += page
        after = page[-1]
    assert found == sorted(name for name in known if name.startswith("a"))


@given(st.lists(st.text("A_b", min_size=1, max_size=3), max_size=30, unique=True), st.integers(1, 5))
def test_hidden_names_are_on_a_page_only_when_it_asks_for_them(given_names: list[str], size: int) -> None:
    """A page of all names passes over the hidden ones; one of their start has them."""
    names: Names[common_pb2.Stream] = Names(lambda row: row.name, lambda row: row.stream_id, hidden="_")
    for number, name in enumerate(given_names):
        names.changed(None, common_pb2.Stream(name=name, stream_id=number + 1))
    for prefix in ("", "_", "_b", "A"):
        found, after = [], ""
        while page := names.page(prefix, after, size):
            found += page
            after = page[-1]
        shown = (name for name in given_names if prefix or not name.startswith("_"))
        assert found == sorted(name for name in shown if name.startswith(prefix))


def test_changes_that_were_forgotten_are_not_passed_over() -> None:
    """A follower that is too far behind is told so, and one of another state as well."""
    changes = Changes()
    row = common_pb2.Stream(stream_id=1)
    for _ in range(CHANGES_MAX + 5):
        changes.note(None, row)
    assert changes.since(changes.last) == []
    assert len(changes.since(5) or []) == CHANGES_MAX
    assert changes.since(4) is None
    assert changes.since(changes.last + 1) is None


def test_what_is_due_comes_again_until_it_is_done() -> None:
    """A command that was lost is proposed again; a time that changed counts with its new value only."""
    times = {1: 10, 2: 20}
    queue: DueQueue[int] = DueQueue(times)
    queue.put(1, times)
    assert list(queue.take(9, times)) == []
    assert list(queue.take(10, times)) == [1], "once, however often it was put"
    assert list(queue.take(10 + RETRY_MS - 1, times)) == [2]
    assert list(queue.take(10 + RETRY_MS, times)) == [1]
    times[2] = 90_000
    queue.put(2, times)
    del times[1]
    assert list(queue.take(80_000, times)) == []
    assert list(queue.take(90_000, times)) == [2]
    assert len(queue) == 1, "what is not in force is forgotten"


def test_a_heartbeat_looks_at_a_bounded_number_of_ranges_and_at_each_in_turn() -> None:
    """What is told is always looked at; the fresh before those that wait; each of those has its turn."""
    attention = Attention()
    for index in range(1_000):
        attention.attend((1, index))
    looked_at: list[tuple[int, int]] = []
    for _ in range(1_000 // FRESH_MAX + 1):
        for key in attention.take():
            looked_at.append(key)
            attention.settle(key, issued=key[1] == 0, done=key[1] % 2 == 1)
    assert {key[1] for key in looked_at} == set(range(1_000))
    waiting = len(attention.waiting)
    assert waiting == 499
    seen: dict[tuple[int, int], None] = {}
    for _ in range(-(-waiting // WAITING_MAX)):
        taken = list(attention.take())
        assert len(taken) <= WAITING_MAX + 1 and taken[0] == (1, 0)
        for key in taken:
            seen[key] = None
            attention.settle(key, issued=key[1] == 0, done=False)
    assert len(seen) == 500
    attention.attend((1, 2))
    assert list(attention.take())[:2] == [(1, 0), (1, 2)], "a change is looked at before those that wait"


def test_the_size_of_a_stream_follows_its_ranges() -> None:
    """A range that is reported again counts once, one that is gone no more."""
    sizes = StreamSizes()
    for index, size_bytes in enumerate((100, 200, 300)):
        sizes.set(1, index, size_bytes)
    sizes.set(1, 1, 250)
    sizes.forget(1, 0)
    assert sizes.total(1) == 550
    assert sizes.grown() == [1]
    assert sizes.grown() == [], "once"
