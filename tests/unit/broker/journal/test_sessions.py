"""Sessions: a command is applied once however often it is in the log, until its proposer has settled it."""

from __future__ import annotations

import pytest

from rangelog_broker.journal import sessions as module
from rangelog_broker.journal.entry import PIECE_BYTES_MAX, Command
from rangelog_broker.journal.sessions import RESULT_BYTES_MAX, SESSION_MS, UNSETTLED_MAX, Result, Sessions, refused
from rangelog_core.errors import Overloaded, PreconditionFailed, SessionExpired
from rangelog_core.versions import LEVEL_BROKERS


def applied(sessions: Sessions, sequence: int, *, session: int = 7, settled: int = 0, now_ms: int = 0) -> Result:
    """What an entry gives; a fresh one's result is its sequence."""
    command = Command(now_ms, session, sequence, settled, b"")
    known = sessions.begin(command, now_ms)
    if known is None:
        known = Result(b"%d" % sequence)
        sessions.keep(command, known)
    return known


def opened() -> Sessions:
    sessions = Sessions()
    assert sessions.open(7, 0).unwrap() == (7).to_bytes(8, "little")
    return sessions


def copied(sessions: Sessions) -> Sessions:
    """After a snapshot."""
    copy = Sessions()
    for piece in sessions.snapshot():
        assert len(piece) < PIECE_BYTES_MAX
        copy.restore(piece)
    return copy


def test_a_repeated_command_has_its_first_result() -> None:
    """Its effect is not repeated."""
    sessions = opened()
    assert applied(sessions, 3).unwrap() == b"3"
    assert sessions.begin(Command(0, 7, 3, 0, b"other"), 0) == Result(b"3")
    assert sessions.known(7, 3) == Result(b"3")
    assert sessions.known(7, 4) is None


def test_what_is_settled_is_forgotten_and_refused() -> None:
    """Its proposer has the result, so nobody asks; a late copy of it in the log changes nothing."""
    sessions = opened()
    for sequence in range(3):
        applied(sessions, sequence)
    applied(sessions, 3, settled=2)
    assert [sessions.known(7, each) is None for each in range(4)] == [True, True, False, False]
    with pytest.raises(PreconditionFailed, match="settled"):
        applied(sessions, 1).unwrap()
    applied(sessions, 4, settled=1)
    assert sessions.known(7, 2) is not None, "it does not go back"


def test_an_idle_session_expires() -> None:
    """And its commands are refused with an unknown outcome: their results may have been among what was forgotten."""
    sessions = opened()
    sessions.open(8, 0)
    applied(sessions, 0, now_ms=SESSION_MS - 1)
    sessions.expire(SESSION_MS)
    assert len(sessions) == 1
    with pytest.raises(SessionExpired) as caught:
        applied(sessions, 0, session=8).unwrap()
    assert caught.value.outcome_unknown
    sessions.expire(2 * SESSION_MS)
    assert (len(sessions), sessions.size_bytes) == (0, 0)


def test_results_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session and of all: what would be one too many is refused before it is applied, what is settled makes room."""
    sessions = opened()
    for sequence in range(UNSETTLED_MAX):
        applied(sessions, sequence)
    with pytest.raises(Overloaded):
        applied(sessions, UNSETTLED_MAX).unwrap()
    assert applied(sessions, UNSETTLED_MAX, settled=1).unwrap()
    monkeypatch.setattr(module, "RESULTS_BYTES_MAX", 10)
    sessions.open(8, 0)
    with pytest.raises(Overloaded):
        applied(sessions, 0, session=8).unwrap()
    monkeypatch.setattr(module, "SESSIONS_MAX", 2)
    with pytest.raises(Overloaded):
        sessions.open(9, 0).unwrap()


def _filled(sessions: Sessions) -> int:
    """How many results of the largest size session 7 may keep before it is refused."""
    for sequence in range(UNSETTLED_MAX):
        command = Command(0, 7, sequence, 0, b"")
        if sessions.begin(command, 0) is not None:
            return sequence
        sessions.keep(command, refused(PreconditionFailed("x" * (RESULT_BYTES_MAX - 32))))
    return UNSETTLED_MAX


def test_who_settles_nothing_fills_his_own_share_only() -> None:
    """Of what is kept for all sessions: others go on, and he too as soon as he settles; so after a snapshot."""
    sessions = opened()
    sessions.level = LEVEL_BROKERS
    assert _filled(sessions) < 20
    sessions.open(8, 0)
    copy = copied(sessions)
    copy.level = LEVEL_BROKERS
    for each in (sessions, copy):
        with pytest.raises(Overloaded):
            applied(each, 500).unwrap()
        assert applied(each, 0, session=8).unwrap() == b"0"
        assert applied(each, 500, settled=500).unwrap() == b"500"
        each.expire(SESSION_MS)
        assert (len(each), each.size_bytes) == (0, 0)


def test_before_all_brokers_know_of_it_a_session_has_no_share() -> None:
    """An owner of before would apply what a later one refuses."""
    assert _filled(opened()) == UNSETTLED_MAX


def test_a_snapshot_holds_all_of_it() -> None:
    """Values, errors, what is settled, the order of expiry; in pieces of limited size."""
    sessions = opened()
    for number in range(8, 40):
        sessions.open(number, number)
    for sequence in range(100):
        command = Command(50, 7, sequence, min(sequence, 5), b"")
        assert sessions.begin(command, 50) is None
        sessions.keep(command, Result(bytes(RESULT_BYTES_MAX)))
    command = Command(60, 8, 0, 0, b"")
    assert sessions.begin(command, 60) is None
    sessions.keep(command, refused(PreconditionFailed("no")))
    assert len(list(sessions.snapshot())) > 5
    copy = copied(sessions)
    assert list(copy.snapshot()) == list(sessions.snapshot())
    assert copy.size_bytes == sessions.size_bytes
    for each in (sessions, copy):
        each.expire(SESSION_MS + 49)
    assert len(copy) == len(sessions) == 2
    with pytest.raises(PreconditionFailed, match="no"):
        applied(copy, 0, session=8, now_ms=70).unwrap()


def test_a_snapshot_stays_as_it_was_taken() -> None:
    """Whatever is applied while its pieces are appended."""
    sessions = opened()
    applied(sessions, 0)
    pieces = sessions.snapshot()
    applied(sessions, 1)
    sessions.open(9, 0)
    copy = Sessions()
    for piece in pieces:
        copy.restore(piece)
    assert (len(copy), copy.known(7, 1)) == (1, None)


def test_pieces_of_other_bytes_are_corruption() -> None:
    """At any length."""
    sessions = opened()
    applied(sessions, 0)
    (piece,) = sessions.snapshot()
    for length in range(1, len(piece)):
        with pytest.raises(module.Corruption):
            Sessions().restore(piece[:length])
