"""What is told of a stream as a whole: each kind of broken promise is made on purpose and found, and none is seen elsewhere."""

from __future__ import annotations

import pytest

from tests.support.history import Bounded, Deleted, EndTold, Event, Final, History, Invoked, Refused, Retained, Started
from tests.support.log_checker import check_log

S = "s"


def identities(first: int, count: int) -> list[bytes]:
    """Those of the writer's records."""
    return [f"w:{first + index}".encode() for index in range(count)]


def story(*, final: bool = True) -> History:
    """Two batches without fault: 0-4 acked at 1.5 with times 100, 90, …, 5-7 acked at 3.5 with times 200, 210, 220."""
    history = History()
    history.note(Invoked(S, "w", 1, 0, tuple(identities(0, 5)), 1.0, None, (100, 90, 120, 80, 110)))
    history.ok(S, "w", 0, 0, 1.5, 5)
    history.note(Invoked(S, "w", 1, 5, tuple(identities(5, 3)), 3.0, None, (200, 210, 220)))
    history.ok(S, "w", 5, 5, 3.5, 3)
    if final:
        history.note(Final(S, "reader", 0, tuple(identities(0, 8)), time_s=100.0))
    return history


def kinds(history: History, *more: Event) -> set[str]:
    """What the checker finds once these are noted as well."""
    report = check_log(history.events, more)
    assert all(str(each).startswith(each.kind) and "\n" not in str(each) for each in report.violations)
    return set(report.counts)


def end(offset: int, invoked_s: float, *, exact: bool = True) -> EndTold:
    """The end, told a tenth of a second after it was asked for."""
    return EndTold(S, "r", offset, invoked_s, invoked_s + 0.1, exact)


def test_an_exact_end_covers_what_was_acked_before_it_was_asked_for() -> None:
    """Too low is a violation only where the end claims to be exact, and only for acks that came before the question."""
    assert kinds(story(), end(4, 2.0)) == {"end_short"}
    assert kinds(story(), end(4, 2.0, exact=False)) == set()
    assert kinds(story(), end(4, 1.5)) == set()
    assert kinds(story(), end(5, 3.4), end(8, 3.6)) == set()


def test_no_end_lies_beyond_the_log() -> None:
    """What an end covers never vanishes, whether it was exact or not; what was trimmed is no end."""
    assert kinds(story(), end(9, 5.0, exact=False)) == {"dirty_end"}
    assert kinds(story(), end(9, 5.0)) == {"dirty_end"}
    assert kinds(story(), end(8, 3.1)) == set()
    assert kinds(story(), end(6, 2.0, exact=False)) == {"dirty_end"}  # the sixth was appended later
    history = story(final=False)
    history.trimmed(S, 8, 4.0)
    history.note(Final(S, "reader", 8, ()))
    assert kinds(history, end(8, 5.0)) == set()
    assert kinds(history, end(9, 5.0)) == {"dirty_end"}


def test_an_exact_end_is_not_below_one_that_was_told_before() -> None:
    """Ends told while another question was open may come in any order; an inexact one may lag behind."""
    assert kinds(story(), end(7, 3.0, exact=False), end(6, 3.2)) == {"end_went_back"}
    assert kinds(story(), end(7, 3.0), end(6, 3.2, exact=False)) == set()
    assert kinds(story(), end(7, 3.0), end(6, 3.05)) == set()


def test_a_reader_with_an_end_gives_all_of_it() -> None:
    """It begins where it was to begin and ends where its end is; only a trim excuses a hole."""
    history = story()
    history.saw(S, "b1", 2, identities(2, 3), 4.0)
    history.saw(S, "b1", 5, identities(5, 2), 4.1)
    assert kinds(history, Bounded(S, "b1", 2, 7, 4.2)) == set()
    assert kinds(history, Bounded(S, "b1", 2, 8, 4.2)) == {"gap"}
    assert kinds(history, Bounded(S, "b1", 1, 7, 4.2)) == {"gap"}
    assert kinds(history, Bounded(S, "b1", 3, 7, 4.2)) == {"gap"}
    assert kinds(history, Bounded(S, "b1", 2, 6, 4.2)) == {"gap"}
    history.trimmed(S, 2, 3.9)
    assert kinds(history, Bounded(S, "b1", 1, 7, 4.2)) == set()
    assert kinds(history, Bounded(S, "b1", 2, 8, 4.2)) == {"gap"}


def test_a_reader_with_an_end_that_gave_nothing() -> None:
    """Its end is where it began, or what it left out is gone."""
    assert kinds(story(), Bounded(S, "b1", 5, 5, 4.0)) == set()
    assert kinds(story(), Bounded(S, "b1", 5, 6, 4.0)) == {"gap"}
    history = story()
    history.trimmed(S, 6, 3.9)
    assert kinds(history, Bounded(S, "b1", 5, 6, 4.0)) == set()


@pytest.mark.parametrize("known", ["acked", "told", "read"])
def test_a_position_that_was_known_is_not_refused(known: str) -> None:
    """Who was told of an end, was acked before it or read up to it can begin there."""
    history = story()
    if known == "told":
        history.note(end(8, 3.1))
    elif known == "read":
        history.saw(S, "r", 5, identities(5, 3), 3.2)
    asked_s = 4.0 if known == "acked" else 3.4
    assert kinds(history, Refused(S, "r2", 8, asked_s, asked_s)) == {"position_refused"}
    assert kinds(history, Refused(S, "r2", 9, asked_s, asked_s)) == set()
    assert kinds(history, Refused(S, "r2", 8, 3.0, 3.1)) == set()


def test_a_trim_is_told_only_after_it_was_asked_for() -> None:
    """A reader that is told of a trim which nobody asked for lost records."""
    told = Refused(S, "r", 2, 4.0, 4.1, trimmed=4)
    assert kinds(story(), told) == {"trimmed_early"}
    history = story()
    history.trimmed(S, 4, 4.05)
    assert kinds(history, told) == set()
    assert kinds(history, Refused(S, "r", 2, 3.0, 3.1, trimmed=4)) == {"trimmed_early"}


def test_a_start_by_time_passes_over_nothing() -> None:
    """No record that was acked before, of that time or later, lies below where the reader began; times need not rise."""
    assert kinds(story(), Started(S, "r", 105, 2, 2.0, 2.1)) == set()
    assert kinds(story(), Started(S, "r", 105, 3, 2.0, 2.1)) == {"skipped_by_time"}
    assert kinds(story(), Started(S, "r", 95, 1, 2.0, 2.1)) == {"skipped_by_time"}
    assert kinds(story(), Started(S, "r", 205, 8, 3.2, 3.3)) == set()
    assert kinds(story(), Started(S, "r", 205, 8, 3.6, 3.7)) == {"skipped_by_time"}
    history = story()
    history.trimmed(S, 3, 1.9)
    assert kinds(history, Started(S, "r", 105, 3, 2.0, 2.1)) == set()
    assert kinds(history, Started(S, "r", 105, 5, 2.0, 2.1)) == {"skipped_by_time"}


def test_a_start_by_time_is_judged_in_long_logs_too() -> None:
    """One late record far into the log, behind thousands of early ones."""
    history = History()
    names = tuple(identities(0, 5000))
    times = tuple(1_000 if at == 3_000 else 1 for at in range(5000))
    history.note(Invoked(S, "w", 1, 0, names, 1.0, None, times))
    history.ok(S, "w", 0, 0, 1.5, 5000)
    history.final(S, "reader", 0, names)
    assert kinds(history, Started(S, "r", 500, 3000, 2.0, 2.1)) == set()
    assert kinds(history, Started(S, "r", 500, 3001, 2.0, 2.1)) == {"skipped_by_time"}
    assert kinds(history, Started(S, "r", 500, 5000, 2.0, 2.1)) == {"skipped_by_time"}


def test_what_is_younger_than_the_retention_stays() -> None:
    """Gone may be what was acked longer ago than the retention when somebody looked; the rest is lost if it is not there."""
    history = story(final=False)
    history.note(Retained(S, 10.0))
    history.note(Final(S, "reader", 5, tuple(identities(5, 3)), time_s=11.6))
    assert kinds(history) == set()
    history.events[-1] = Final(S, "reader", 5, tuple(identities(5, 3)), time_s=11.4)
    assert kinds(history) == {"lost", "gap"}
    history.events[-1] = Final(S, "reader", 8, (), time_s=13.6)
    assert kinds(history) == set()
    assert kinds(history, Refused(S, "r", 0, 12.0, 12.1, trimmed=5)) == set()
    assert kinds(history, Refused(S, "r", 0, 12.0, 12.1, trimmed=6)) == {"trimmed_early"}
    assert kinds(history, Refused(S, "r", 0, 11.0, 11.1, trimmed=5)) == {"trimmed_early"}


def test_nothing_is_acked_after_the_stream_was_deleted() -> None:
    """An append that began before may still be acked; where a server did not hear of the deletion, any may."""
    history = story(final=False)
    assert kinds(history, Deleted(S, 2.9, certain=True)) == {"acked_after_delete"}
    assert kinds(history, Deleted(S, 2.9, certain=False)) == set()
    assert kinds(history, Deleted(S, 3.1, certain=True)) == set()


def test_readers_of_a_deleted_stream_are_judged_without_a_final_read() -> None:
    """Its acks are not lost; records of nobody, or others than were acked, are still found."""
    history = story(final=False)
    history.note(Deleted(S, 9.0, certain=True))
    history.saw(S, "r", 3, identities(3, 5), 5.0)
    assert kinds(history) == set()
    history.saw(S, "r", 8, [b"namesake:8"], 9.5)
    assert kinds(history) == {"phantom"}
    history = story(final=False)
    history.note(Deleted(S, 9.0, certain=True))
    history.saw(S, "r", 3, identities(4, 1), 5.0)
    assert kinds(history) == {"two_values"}


def test_failed_and_in_the_log() -> None:
    """What a writer calls failed for certain is in no log: a retry would be there twice."""
    history = story(final=False)
    history.invoked(S, "w", 8, identities(8, 1), 4.0, 1)
    history.failed(S, "w", 8, 4.5)
    history.final(S, "reader", 0, identities(0, 9))
    assert kinds(history) == {"failed_found"}
