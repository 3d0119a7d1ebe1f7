"""What a leader has still to record: outcomes are kept, refusals are counted."""

from __future__ import annotations

from rangelog_pd.reconcile.audit_trail import NOTES_MAX, REFUSALS_MS, REFUSED_MAX, AuditTrail, RefusedCall
from rangelog_proto.v1 import audit_pb2 as pb

REFUSED = RefusedCall("client:a", "DeleteStream", "RIGHT_MISSING")


def test_outcomes_are_kept_until_they_are_recorded() -> None:
    """In their order, also when a try failed."""
    trail = AuditTrail()
    notes = [pb.AuditNote(of_sequence=number) for number in range(1, 4)]
    for note in notes[:2]:
        trail.ended(note)
    taken = trail.take(0.0)
    assert taken == notes[:2]
    trail.ended(notes[2])
    trail.put_back(taken)
    assert trail.take(0.0) == notes
    assert trail.take(0.0) == []


def test_equal_refusals_are_one_entry_a_minute() -> None:
    """The first is recorded at once; a caller that is refused all the time does not fill the log."""
    trail = AuditTrail()
    trail.refused(REFUSED, "h", "no", 0.0)
    (first,) = trail.take(0.0)
    assert (first.principal, first.call, first.outcome, first.count) == ("client:a", "DeleteStream", "RIGHT_MISSING", 0)
    for _ in range(1_000):
        trail.refused(REFUSED, "h2", "no", 1.0)
    assert trail.take(REFUSALS_MS - 1) == []
    (second,) = trail.take(REFUSALS_MS)
    assert (second.count, second.peer) == (1_000, "h2")
    assert trail.take(2 * REFUSALS_MS) == []
    trail.refused(REFUSED, "h", "no", 3 * REFUSALS_MS)
    assert len(trail.take(3 * REFUSALS_MS)) == 1, "it is forgotten after a quiet minute"


def test_refusals_that_are_too_many_are_counted() -> None:
    """Nothing is dropped in silence, and memory is bounded."""
    trail = AuditTrail()
    for number in range(REFUSED_MAX + 7):
        trail.refused(RefusedCall(f"client:{number}", "DeleteStream", "RIGHT_MISSING"), "h", "no", 0.0)
    taken = trail.take(0.0)
    assert len(taken) == min(REFUSED_MAX, NOTES_MAX)
    assert [each.dropped_count for each in taken] == [7] + [0] * (len(taken) - 1)


def test_one_command_has_a_bounded_number_of_notes() -> None:
    """The rest comes with the next."""
    trail = AuditTrail()
    for number in range(NOTES_MAX + 1):
        trail.ended(pb.AuditNote(of_sequence=number + 1))
    assert [len(trail.take(0.0)) for _ in range(3)] == [NOTES_MAX, 1, 0]


def test_another_term_begins_with_nothing() -> None:
    """The entries of calls that this leader did not end have no outcome."""
    trail = AuditTrail()
    trail.ended(pb.AuditNote(of_sequence=1))
    trail.refused(REFUSED, "h", "no", 0.0)
    trail.clear()
    assert trail.take(0.0) == []
