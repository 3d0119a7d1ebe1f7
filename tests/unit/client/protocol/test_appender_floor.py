"""A seal that was refused below a floor: what the writer takes for acked, and where it asks to seal again."""

from __future__ import annotations

import pytest

from rangelog.protocol.appender import Appender, AppenderPhase, Confirmed, Effect, OpenRange, SealRange, Send, Stopped
from rangelog_core.batch import encode_batch
from rangelog_core.errors import InternalError
from rangelog_core.ids import Incarnation, ReplicaId

A, B, C = (ReplicaId(name, Incarnation(1)) for name in "abc")


def submit(core: Appender, count: int) -> None:
    """A batch of so many records."""
    base = core.next_offset
    data = encode_batch(
        stream_id=1, range_index=0, epoch=1, base_offset=base, timestamps_ms=[1] * count, values=[b"v"] * count
    )
    core.submit(0.0, base, base + count, data)


def frozen_at_2() -> Appender:
    """A writer that sent batches ending at 2, 5 and 7, was acked the first and froze there."""
    core = Appender(1, OpenRange(0, 0, 2, (A, B, C), 0.0, 1 << 30, 0), 0.0)
    for replica in (A, B, C):
        core.connected(0.0, 0, replica)
    for count in (2, 3, 2):
        submit(core, count)
    for replica in (A, B):
        core.acked(1.0, 0, replica, 2)
    core._want_roll(2.0)
    core.probed(3.0, possible=True)
    assert asked(core.effects()) == [2]
    return core


def asked(effects: list[Effect] | tuple[Effect, ...] | object) -> list[int]:
    """Where the writer asks to seal."""
    return [each.end_offset for each in effects if isinstance(each, SealRange)]  # type: ignore[attr-defined]


def test_the_floor_is_acked_and_sealed_at() -> None:
    """What was proved to a reader is told to the application as acked; the next try seals there."""
    core = frozen_at_2()
    core.floor_refused(4.0, 5)
    effects = list(core.effects())
    assert [each.confirm_offset for each in effects if isinstance(each, Confirmed)] == [5]
    assert asked(effects) == [5]
    assert core.phase is AppenderPhase.SEALING


def test_only_the_rest_moves_on() -> None:
    """After the seal at the floor the next range begins there, and nothing below the floor is sent again."""
    core = frozen_at_2()
    core.floor_refused(4.0, 5)
    core.effects()
    core.sealed(5.0, 5, OpenRange(1, 5, 2, (A, B, C), 5.0, 1 << 30, 0))
    core.connected(6.0, 1, A)
    sent = [batch.base_offset for each in core.effects() if isinstance(each, Send) for batch in each.batches]
    assert sent == [5]


def test_late_acks_count_for_nothing_while_the_writer_asks_again() -> None:
    """The writer stays frozen: an ack that comes between two tries confirms nothing beyond the floor."""
    core = frozen_at_2()
    core.floor_refused(4.0, 5)
    core.effects()
    for replica in (A, B, C):
        core.acked(5.0, 0, replica, 7)
    assert core.confirm_offset == 5
    assert not [each for each in core.effects() if isinstance(each, Confirmed)]


@pytest.mark.parametrize("floor_offset", [0, 2, 4, 8])
def test_a_floor_that_cannot_be_stops_the_writer(floor_offset: int) -> None:
    """Not above what is acked, in the middle of a batch, or beyond what was sent: a defect, and nothing is acked for it."""
    core = frozen_at_2()
    core.floor_refused(4.0, floor_offset)
    (stopped,) = [each for each in core.effects() if isinstance(each, Stopped)]
    assert isinstance(stopped.error, InternalError)
    assert core.confirm_offset == 2
