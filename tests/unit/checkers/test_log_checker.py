"""Each kind of violation is made on purpose and found, and what merely looks like one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.history import Ended, Event, Final, History, Invoked, Saw
from tests.support.log_checker import check_log
from tests.support.log_report import EXAMPLES_MAX, KINDS, Report

S = "s"


def identities(writer: str, first: int, count: int) -> list[bytes]:
    """Those of a writer's records."""
    return [f"{writer}:{first + index}".encode() for index in range(count)]


def append(
    history: History, writer: str, sequence: int, count: int, offset: int, time_s: float, epoch: int = 1
) -> list[bytes]:
    """Appends that are invoked at `time_s` and acked half a second later."""
    names = identities(writer, sequence, count)
    history.invoked(S, writer, sequence, names, time_s, epoch)
    history.ok(S, writer, sequence, offset, time_s + 0.5, count)
    return names


def story() -> History:
    """A history without fault: a at 0-4, b (epoch 2) at 5-7; of a, one more UNKNOWN and one FAILED, in no log."""
    history = History()
    log = append(history, "a", 0, 5, 0, 1.0)
    history.invoked(S, "a", 5, identities("a", 5, 1), 2.0, 1)
    history.unknown(S, "a", 5, 3.0)
    history.invoked(S, "a", 6, identities("a", 6, 1), 2.5, 1)
    history.failed(S, "a", 6, 3.0)
    log += append(history, "b", 0, 3, 5, 4.0, epoch=2)
    history.saw(S, "r", 0, log[:4], 5.0, "hot", 8)
    history.saw(S, "r", 4, log[4:], 6.0, "hot", 8)
    history.final(S, "hot", 0, log, range(8))
    history.final(S, "tier", 0, log[:5], range(5), whole=False)
    return history


def kinds(*histories: History) -> set[str]:
    """What the checker finds."""
    report = check_log(*(each.events for each in histories))
    assert all(str(each).startswith(each.kind) and "\n" not in str(each) for each in report.violations)
    return set(report.counts)


def replaced(kind: type, change: Callable[[Any], Event | None], which: int = 0) -> History:
    """The story with its `which`-th event of a kind changed or (None) left out."""
    history = story()
    places = [index for index, event in enumerate(history.events) if isinstance(event, kind)]
    new = change(history.events[places[which]])
    history.events[places[which] : places[which] + 1] = [new] if new is not None else []
    return history


def test_a_history_without_fault_is_clean() -> None:
    """Nothing is found where nothing is wrong, and everything is counted."""
    report = check_log(story().events)
    assert report.clean, report.violations
    assert report.summary() == (
        "log: acked=8 failed=1 unknown=1 unknown_found=0 final=8 read=8 lost=0 duplicated=0 misordered=0"
    )
    assert report.figures()["acked"] == 8


def test_lost_at_the_end_and_in_the_middle() -> None:
    """An acked record that is not in the log is lost, and the hole is a gap."""
    assert kinds(replaced(Final, lambda f: Final(S, "hot", 0, f.identities[:7]))) >= {"lost"}
    history = story()
    history.events = [event for event in history.events if not isinstance(event, Final)]
    names = identities("a", 0, 5)
    history.final(S, "hot", 0, names[:2])
    history.final(S, "hot", 3, [*names[3:], *identities("b", 0, 3)])
    assert kinds(history) == {"lost", "gap", "dirty_read"}


def test_what_was_trimmed_is_not_lost() -> None:
    """A trim that was asked for takes records away, what lies behind it it does not."""
    history = replaced(Final, lambda f: None)
    history.events = [event for event in history.events if not isinstance(event, Final)]
    log = identities("a", 0, 5) + identities("b", 0, 3)
    history.final(S, "hot", 3, log[3:])
    assert kinds(history) == {"lost", "gap"}
    history.trimmed(S, 3, 7.0)
    assert kinds(history) == set()
    history.trimmed(S, 2, 7.5)
    assert kinds(history) == set()


def test_a_duplicate_in_the_log() -> None:
    """One append at two offsets is found, also when its outcome was UNKNOWN."""
    history = story()
    unknown = identities("a", 5, 1)
    history.events = [event for event in history.events if not isinstance(event, Final)]
    log = identities("a", 0, 5) + identities("b", 0, 3)
    history.final(S, "hot", 0, [*log, log[7]])
    assert kinds(history) == {"duplicated"}
    history.events.pop()
    history.final(S, "hot", 0, [*log, *unknown, *unknown])
    assert "duplicated" in kinds(history)


def test_acked_twice() -> None:
    """One append acked at two offsets is a duplicate."""
    history = story()
    history.ok(S, "b", 1, 9, 7.0)
    assert "duplicated" in kinds(history)


def test_unknown_may_be_in_the_log_once() -> None:
    """An UNKNOWN append that landed is counted and is no violation."""
    history = History()
    log = append(history, "a", 0, 2, 0, 1.0)
    history.invoked(S, "a", 2, identities("a", 2, 2), 2.0)
    history.unknown(S, "a", 2, 3.0)  # the second has no outcome at all
    history.final(S, "hot", 0, log + identities("a", 2, 2))
    report = check_log(history.events)
    assert report.clean
    assert (report.unknown, report.unknown_found) == (2, 2)


def test_misordered() -> None:
    """A writer's later append that lies before its earlier one is found, without any time."""
    history = History()
    history.invoked(S, "a", 0, identities("a", 0, 2), 1.0)
    history.final(S, "hot", 0, identities("a", 0, 2)[::-1])
    assert kinds(history) == {"misordered"}


def test_two_values_between_an_ack_and_the_log() -> None:
    """An acked record that lies elsewhere makes two values of one offset."""
    assert "two_values" in kinds(replaced(Ended, lambda e: Ended(S, "b", 0, 3, "ok", 4.5, 6), which=3))


def test_two_values_between_copies() -> None:
    """A replica that holds something else, or the same record with other bytes, is found."""
    history = story()
    history.final(S, "replica:1", 2, [b"a:2", b"a:4"], whole=False)
    assert kinds(history) == {"two_values"}
    history = story()
    history.final(S, "replica:1", 2, [b"a:2"], [77], whole=False)
    assert kinds(history) == {"two_values"}
    history = story()
    history.events.append(Invoked(S, "c", 3, 0, (b"c:0",), 9.0, crcs=(5,)))
    history.final(S, "hot", 8, [b"c:0"], [6])
    assert kinds(history) == {"two_values"}


def test_two_values_between_readers_of_what_was_trimmed() -> None:
    """Where the log is gone, readers are still compared with acks and with each other."""
    history = History()
    history.trimmed(S, 4, 1.0)
    history.invoked(S, "a", 0, identities("a", 0, 4), 1.0)
    history.saw(S, "r1", 2, [b"a:2"], 2.0)
    history.saw(S, "r2", 2, [b"a:3"], 2.0)
    history.final(S, "hot", 4, [])
    assert kinds(history) == {"two_values"}


def test_aborted_read() -> None:
    """What failed is in no log and is seen by no reader."""
    history = story()
    history.saw(S, "r2", 8, [b"a:6"], 7.0)
    assert kinds(history) == {"aborted_read", "dirty_read"}
    history = story()
    history.final(S, "hot", 8, [b"a:6"])
    assert "failed_found" in kinds(history)


def test_a_reader_with_a_gap_and_one_that_goes_back() -> None:
    """A pass moves on by what it saw; only a trim lets it jump."""
    log = identities("a", 0, 5) + identities("b", 0, 3)
    history = story()
    history.saw(S, "r2", 1, log[1:3], 5.0)
    history.saw(S, "r2", 5, log[5:], 6.0)
    assert kinds(history) == {"gap"}
    history.trimmed(S, 5, 5.5)
    assert kinds(history) == set()
    history.saw(S, "r2", 7, log[7:], 6.5)
    assert kinds(history) == {"went_back"}


def test_a_trim_does_not_excuse_an_earlier_gap() -> None:
    """A reader that skipped before anybody asked for the trim skipped by itself."""
    history = story()
    history.saw(S, "r2", 1, [b"a:1"], 5.0)
    history.saw(S, "r2", 3, [b"a:3"], 5.1)
    history.trimmed(S, 3, 5.2)
    assert kinds(history) == {"gap"}


def test_dirty_reads() -> None:
    """A reader that saw what was replaced, what vanished, or what was not confirmed."""
    history = story()
    history.saw(S, "r2", 3, [b"a:5"], 7.0)
    assert kinds(history) == {"dirty_read"}
    history = story()
    history.saw(S, "r2", 7, [b"b:2", b"a:5"], 7.0)
    assert kinds(history) == {"dirty_read"}
    history = story()
    history.saw(S, "r2", 3, [b"a:3"], 7.0, "hot", 3)
    assert kinds(history) == {"dirty_read"}
    history = story()
    history.saw(S, "r2", 3, [b"a:3"], 7.0, "hot", 9)
    assert kinds(history) == {"dirty_read"}


def test_double_owner() -> None:
    """Two writers that were both acked at one offset, and epochs that fall along the log."""
    history = story()
    history.invoked(S, "c", 0, [b"c:0"], 1.2, 1)
    history.ok(S, "c", 0, 4, 1.3)
    assert kinds(history) == {"double_owner", "lost"}
    history = History()
    names = append(history, "a", 0, 1, 0, 1.0, epoch=2) + append(history, "b", 0, 1, 1, 1.0, epoch=1)
    history.final(S, "hot", 0, names)
    assert kinds(history) == {"double_owner"}


def test_real_time_order() -> None:
    """What was acked before another was even appended lies before it."""
    history = History()
    names = append(history, "a", 0, 1, 1, 1.0) + append(history, "b", 0, 1, 0, 2.0)
    history.final(S, "hot", 0, names[::-1])
    assert kinds(history) == {"not_real_time"}


def test_tiers_that_differ() -> None:
    """A tiered copy with another record, or that is shorter though it claims to be whole."""
    history = story()
    history.final(S, "tier", 4, [b"b:0"], whole=False)
    assert "hot_not_tier" in kinds(history)
    history = story()
    history.final(S, "tier", 0, identities("a", 0, 5), whole=True)
    assert kinds(history) == {"gap"}


def test_phantoms() -> None:
    """What nobody appended, and what was read before it was appended."""
    history = story()
    history.final(S, "hot", 8, [b"x:1"])
    assert kinds(history) == {"phantom"}
    history = story()
    history.saw(S, "r2", 5, [b"b:0"], 3.9)
    assert kinds(history) == {"phantom"}
    history = story()
    history.saw(S, "r2", 8, [b"x:1"], 9.0)
    assert kinds(history) == {"phantom", "dirty_read"}


def test_histories_that_cannot_be() -> None:
    """A test that notes nonsense is told so, instead of passing."""
    history = story()
    history.invoked(S, "c", 0, [b"a:0"], 9.0)
    assert kinds(history) == {"broken_history"}
    history = story()
    history.ok(S, "b", 3, 8, 9.0)
    assert kinds(history) == {"broken_history"}
    history = story()
    history.invoked(S, "b", 2, [b"b:again"], 9.0)
    assert "broken_history" in kinds(history)
    history.events = [event for event in story().events if not isinstance(event, Final | Saw)]
    assert kinds(history) == {"broken_history"}


def test_a_wild_offset_takes_no_memory() -> None:
    """An offset far away is a gap, not a table of that size."""
    history = story()
    history.final(S, "hot", 1 << 60, [b"a:5"])
    assert kinds(history) == {"gap"}


def test_streams_are_judged_apart() -> None:
    """The same names and offsets in another stream are another story."""
    history = story()
    for event in story().events:
        history.note(type(event)("other", *(getattr(event, name) for name in event.__slots__[1:])))
    report = check_log(history.events)
    assert report.clean
    assert report.acked == 16


def test_examples_are_bounded_and_reports_add_up() -> None:
    """A run that goes wrong a million times still has a short report; totals of many runs are sums."""
    report = Report(acked=3)
    for index in range(1000):
        report.wrong("lost", f"number {index}")
    both = report + Report(acked=4, unknown_found=2)
    assert len(both.violations) == EXAMPLES_MAX
    assert both.figures() == {
        **dict.fromkeys(KINDS, 0),
        "acked": 7,
        "failed": 0,
        "unknown": 0,
        "unknown_found": 2,
        "final": 0,
        "read": 0,
        "lost": 1000,
    }
    assert not both.clean


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_files_does_not_matter(order: tuple[int, int]) -> None:
    """Readers' files may come before those of the writers they read from."""
    events = story().events
    parts: list[list[Event]] = [
        [e for e in events if isinstance(e, Invoked | Ended)],
        [e for e in events if isinstance(e, Saw | Final)],
    ]
    assert check_log(*(parts[index] for index in order)).clean
