"""The table of producers: what a batch is to it, its floors, its snapshots."""

from __future__ import annotations

import pytest

from rangelog_broker.shards import producer_table
from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.producer_table import (
    IDLE_MS,
    MARK_INTERVAL_MS,
    PRODUCERS_PER_PIECE,
    WINDOW,
    AckedBatch,
    ProducerTable,
    Standing,
)
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import DATED_EPOCHS, OWN_IDS, Producer
from rangelog_core.errors import Corruption

ONE, TWO = OWN_IDS + 1, OWN_IDS + 2


def filled(counts: dict[tuple[int, int], int]) -> ProducerTable:
    """So many batches of two records of each (producer, epoch), one after the other."""
    table, offset = ProducerTable(), 0
    for (producer_id, epoch), count in counts.items():
        for sequence in range(count):
            table.note(AckedBatch(Producer(producer_id, epoch, sequence), offset, offset + 2))
            offset += 2
    return table


def standing(table: ProducerTable, producer_id: int, epoch: int, sequence: int) -> tuple[Standing, int]:
    found = table.find(Producer(producer_id, epoch, sequence))
    return found.standing, found.offset


def test_what_a_batch_is_to_the_log() -> None:
    """Next, held at its offset, forgotten, or behind a gap."""
    table = filled({(1, 0): 8})
    assert [standing(table, 1, 0, sequence) for sequence in (0, 2, 3, 7, 8, 9)] == [
        (Standing.FORGOTTEN, -1), (Standing.FORGOTTEN, -1), (Standing.HELD, 6), (Standing.HELD, 14), (Standing.NEXT, -1),
        (Standing.GAP, -1),
    ]  # fmt: skip
    assert table.find(Producer(1, 0, 7)).end_offset == 16


def test_who_is_not_known_begins_at_the_beginning() -> None:
    """An unknown producer, and a higher epoch of a known one."""
    table = filled({(1, 3): 2})
    assert [standing(table, 2, 0, sequence)[0] for sequence in (0, 1)] == [Standing.NEXT, Standing.GAP]
    assert [standing(table, 1, 4, sequence)[0] for sequence in (0, 1)] == [Standing.NEXT, Standing.GAP]
    found = table.find(Producer(1, 2, 0))
    assert (found.standing, found.epoch) == (Standing.FENCED, 3)


def test_a_child_inherits_epochs_and_no_sequences() -> None:
    """Also those that its parent inherited."""
    parent = ProducerTable(filled({(1, 3): 2, (2, 1): 1}).epochs())
    parent.note(AckedBatch(Producer(2, 5, 0), 0, 1))
    child = ProducerTable(parent.epochs())
    assert standing(child, 1, 2, 0)[0] is Standing.FENCED
    assert standing(child, 1, 3, 0)[0] is Standing.NEXT
    assert standing(child, 1, 3, 2)[0] is Standing.GAP
    assert standing(child, 2, 4, 0)[0] is Standing.FENCED
    assert standing(child, 2, 5, 0)[0] is Standing.NEXT


def test_an_expired_producer_needs_a_new_epoch() -> None:
    """A late retry of its first batch is not taken for a new one."""
    table = filled({(ONE, 3): 1, (TWO, 0): 1})
    assert table.expire(2) == 1
    assert len(table) == 1
    assert standing(table, ONE, 3, 0)[0] is Standing.FENCED
    assert standing(table, ONE, 4, 0)[0] is Standing.NEXT
    assert standing(table, TWO, 0, 0)[0] is Standing.HELD
    assert standing(ProducerTable.restore(table.snapshot()), ONE, 3, 0)[0] is Standing.FENCED


def test_a_snapshot_without_an_expired_producer_is_followed_by_its_later_batches() -> None:
    """One owner lets a producer expire; the next one, from an earlier snapshot, does not, and takes its next batch."""
    table = filled({(ONE, 3): 2, (TWO, 0): 1})
    table.expire(4)
    restored = ProducerTable.restore(table.snapshot())
    for sequence in (2, 3):
        offset = 2 + 2 * sequence
        restored.note(AckedBatch(Producer(ONE, 3, sequence), offset, offset + 2))
    assert standing(restored, ONE, 3, 4)[0] is Standing.FENCED
    assert standing(restored, ONE, 4, 0)[0] is Standing.NEXT
    restored.expire(100)
    restored.note(AckedBatch(Producer(ONE, 3, 4), 10, 12))
    assert standing(restored, ONE, 4, 0)[0] is Standing.NEXT
    assert list(ProducerTable.restore(restored.snapshot()).snapshot()) == list(restored.snapshot())


def test_a_child_whose_parents_table_let_a_producer_expire_has_its_batches() -> None:
    """The child's first owner had the floors of a table without the expiry."""
    child = ProducerTable({ONE: 4})
    child.note(AckedBatch(Producer(ONE, 3, 0), 0, 1))
    child.note(AckedBatch(Producer(ONE, 3, 1), 1, 2))
    assert child.epochs() == {ONE: 4}
    with pytest.raises(Corruption):
        child.note(AckedBatch(Producer(ONE, 3, 3), 2, 3))


def test_a_batch_in_flight_outlives_the_expiry_of_its_producer() -> None:
    """The table lets the producer expire while its next batch is on its way into the log."""
    owner = ShardOwner(ShardState(ProducerTable()), 0)
    owner.offer(Producer(ONE, 3, 0), 2)
    owner.confirmed(2)
    owner.offer(Producer(ONE, 3, 1), 2)
    assert owner.table.expire(2) == 1
    owner.confirmed(4)
    assert standing(owner.table, ONE, 3, 2)[0] is Standing.FENCED


DATE = DATED_EPOCHS + 1_000


def test_named_producers_do_not_expire() -> None:
    """There are as many as there are names, and their epochs are their users'."""
    table = filled({(1, 3): 1, (OWN_IDS - 1, DATE): 1})
    assert table.expire(100) == 0


def test_dated_producers_share_one_floor() -> None:
    """What expires leaves nothing; who is not known takes a later date; who is known goes on; a child inherits nothing."""
    table = filled({(ONE, DATE): 2, (TWO, DATE + 5): 1, (ONE + 2, DATE - 9): 1})
    assert table.expire(6) == 2
    for each in (table, ProducerTable.restore(table.snapshot())):
        assert [standing(each, ONE, DATE, sequence)[0] for sequence in (0, 2)] == [Standing.FENCED] * 2
        found = each.find(Producer(ONE + 7, DATE + 5, 0))
        assert (found.standing, found.epoch) == (Standing.FENCED, DATE + 6)
        assert standing(each, ONE + 7, DATE + 6, 0)[0] is Standing.NEXT
        assert standing(each, ONE + 2, DATE - 9, 1)[0] is Standing.NEXT, "it is known"
        assert standing(each, ONE + 2, DATE - 8, 0)[0] is Standing.NEXT, "of a later epoch nothing can be forgotten"
        assert standing(each, ONE + 7, 0, 0)[0] is Standing.NEXT, "a program of before has no dates"
        assert (each.epochs(), len(each)) == ({}, 1)


def test_a_log_goes_on_behind_a_snapshot_without_a_dated_producer() -> None:
    """As with floors of their own: another owner knew it, and has taken more of its batches."""
    table = filled({(ONE, DATE): 2})
    table.expire(100)
    table.note(AckedBatch(Producer(ONE, DATE, 2), 4, 6))
    assert standing(table, ONE, DATE, 2) == (Standing.HELD, 4)
    with pytest.raises(Corruption):
        table.note(AckedBatch(Producer(TWO, DATE + 1, 2), 6, 8))


def test_idle_is_who_has_no_batch_since_a_day_ago() -> None:
    """By the ends of the log that were noted, also over a snapshot, and when the clock goes back."""
    table, now_ms = filled({(ONE, DATE): 1}), 5 * IDLE_MS
    for step in range(23):
        assert table.expire_idle(now_ms + step * MARK_INTERVAL_MS, 2) == 0
    table.note(AckedBatch(Producer(TWO, DATE, 0), 2, 4))
    table = ProducerTable.restore(table.snapshot())
    assert table.expire_idle(now_ms + IDLE_MS - 1, 4) == 0
    assert table.expire_idle(now_ms + IDLE_MS, 4) == 1
    assert table.expire_idle(now_ms, 4) == 0, "the clock went back: what it noted since does not count"
    assert table.expire_idle(now_ms + IDLE_MS - 1, 4) == 0
    assert table.expire_idle(now_ms + IDLE_MS, 4) == 1
    assert not len(table)


def test_programs_that_begin_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table holds those of a day and a snapshot, or the bound; what is gone leaves no more than a number behind."""
    per_hour, hours = 200, 500  # 2,000 an hour are a million: 10 s of CPU
    table, most, snapshot = ProducerTable(), 0, 0
    for hour in range(hours):
        for number in range(hour * per_hour, (hour + 1) * per_hour):
            table.note(AckedBatch(Producer(OWN_IDS + number, DATE + hour * 60, 0), number, number + 1))
        table.expire_idle(hour * MARK_INTERVAL_MS, (hour + 1) * per_hour)
        most = max(most, len(table))
    snapshot = sum(map(len, table.snapshot()))
    assert 24 * per_hour <= most <= 25 * per_hour, f"{hours * per_hour} programs"
    assert snapshot < 3 << 20
    monkeypatch.setattr(producer_table, "OWN_PRODUCERS_MAX", 1_000)
    table.expire_idle(hours * MARK_INTERVAL_MS, hours * per_hour)
    table = ProducerTable.restore(table.snapshot())
    assert len(table) == 1_000
    assert standing(table, OWN_IDS + hours * per_hour - 1, DATE + 499 * 60, 0)[0] is Standing.HELD


@pytest.mark.parametrize(("epoch", "sequence"), [(3, 0), (3, 3), (2, 2), (4, 1)])
def test_a_log_that_cannot_be_is_corruption(epoch: int, sequence: int) -> None:
    """A batch twice, with a gap, of an older epoch."""
    table = filled({(1, 3): 2})
    with pytest.raises(Corruption):
        table.note(AckedBatch(Producer(1, epoch, sequence), 4, 5))


def test_a_snapshot_is_the_table() -> None:
    """In pieces of limited size, as it was when it was taken."""
    table = filled(
        {(OWN_IDS + producer_id, 1): 1 + producer_id % 9 for producer_id in range(2 * PRODUCERS_PER_PIECE + 50)}
    )
    table.expire(100)
    before = list(table.snapshot())
    pieces = table.snapshot()
    table.note(AckedBatch(Producer(10**6, 0, 0), 10**9, 10**9 + 1))
    assert list(pieces) == before
    assert len(before) == 4
    assert all(len(piece) < 1 << 19 for piece in before)
    assert list(ProducerTable.restore(before).snapshot()) == before


def test_other_bytes_are_corruption() -> None:
    """Cut at any length, or of an unknown kind; a producer with more batches than it can have."""
    (piece,) = filled({(1, 0): WINDOW + 1}).snapshot()
    for length in range(2, len(piece)):
        with pytest.raises(Corruption):
            ProducerTable.restore([piece[:length]])
    with pytest.raises(Corruption):
        ProducerTable.restore([b"X" + piece[1:]])
    with pytest.raises(Corruption):
        ProducerTable.restore([piece[:29] + b"\xff" + piece[30:]])
