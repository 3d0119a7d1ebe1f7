"""When a writer says that there is no room: acks are impossible, and the placement driver has no other servers to give."""

from __future__ import annotations

import pytest

from rangelog.protocol.appender import Appender, NoRoom, OpenRange, Probe, SealRange
from rangelog_core.errors import OutOfOrder, RangelogError, StorageFull
from rangelog_core.ids import Incarnation, ReplicaId
from tests.unit.client.protocol.test_appender_lag import submit

A, B, C, D, E = (ReplicaId(name, Incarnation(1)) for name in "abcde")
FULL = StorageFull("no room in the log: No space left on device")


def entered(core: Appender, now_ms: float, index: int, *replicas: ReplicaId) -> None:
    """The writer leaves for a range on these replicas, which are connected."""
    core.tick(now_ms)
    assert any(isinstance(each, Probe) for each in core.effects())
    core.probed(now_ms, possible=True)
    (seal,) = (each for each in core.effects() if isinstance(each, SealRange))
    opened = OpenRange(index, seal.end_offset, 2, replicas, now_ms, 1 << 30, 0)
    core.sealed(now_ms, seal.end_offset, opened)
    for replica in replicas:
        core.connected(now_ms, index, replica)
    core.effects()


def opened(*replicas: ReplicaId) -> Appender:
    """A writer whose range has one record in flight."""
    core = Appender(1, OpenRange(0, 0, 2, replicas, 0.0, 1 << 30, 0), 0.0)
    for replica in replicas:
        core.connected(0.0, 0, replica)
    submit(core, 0.0)
    core.effects()
    return core


def told(core: Appender) -> list[tuple[str, ...]]:
    """The servers of each NoRoom since the last call."""
    return [each.servers for each in core.effects() if isinstance(each, NoRoom)]


def refuse(core: Appender, now_ms: float, index: int, *replicas: ReplicaId, error: RangelogError = FULL) -> None:
    """These replicas take no append."""
    for replica in replicas:
        core.refused(now_ms, index, replica, error)


def test_the_same_servers_again_are_all_that_there_are() -> None:
    """The first refusals are a reason to leave; those of servers that were to be avoided are not. An ack ends it."""
    core = opened(A, B, C)
    core.refused(0.0, 0, A, FULL)
    core.refused(0.0, 0, B, FULL)
    assert not core.room.without
    core.probed(0.0, possible=True)
    assert any(each.exclude_servers == ("a", "b") for each in core.effects() if isinstance(each, SealRange))
    core.sealed(1.0, 0, OpenRange(1, 0, 2, (A, B, C), 1.0, 1 << 30, 0))
    core.effects()
    refuse(core, 2.0, 1, A)
    assert not core.room.without, "two others can ack"
    refuse(core, 2.0, 1, B)
    assert told(core) == [("a", "b")]
    assert core.room.without == ("a", "b")
    entered(core, 10_000.0, 2, A, B, C)
    refuse(core, 10_001.0, 2, A, B)
    assert told(core) == [], "it was said"
    entered(core, 20_000.0, 3, A, B, C)
    for replica in (A, C):
        core.acked(20_001.0, 3, replica, 1)
    assert core.confirm_offset == 1
    assert core.room.without == ()
    submit(core, 20_002.0)
    refuse(core, 20_003.0, 3, A, B)
    assert not core.room.without, "what was full before the ack does not count"


def test_other_servers_are_tried_first() -> None:
    """Two of five are full: the next range is on the others. Where these are full as well, nothing is left."""
    core = opened(A, B, C)
    refuse(core, 0.0, 0, A, B)
    entered_at = 1.0
    core.probed(entered_at, possible=True)
    core.effects()
    core.sealed(entered_at, 0, OpenRange(1, 0, 2, (C, D, E), entered_at, 1 << 30, 0))
    refuse(core, 2.0, 1, D, E)
    assert told(core) == []
    entered(core, 10_000.0, 2, C, A, D)
    refuse(core, 10_001.0, 2, A, D)
    assert told(core) == [("a", "d")]


def test_a_placement_driver_without_servers_ends_it_at_once() -> None:
    """It refuses the next range, so there is no second one to look at."""
    core = opened(A, B, C)
    refuse(core, 0.0, 0, A, B)
    core.probed(0.0, possible=True)
    assert told(core) == []
    core.seal_refused(1.0)
    assert told(core) == [("a", "b")]


@pytest.mark.parametrize("error", [OutOfOrder("5 was expected", offset=5), RangelogError("damaged")])
def test_other_refusals_say_nothing_of_room(error: RangelogError) -> None:
    """Nor does one full server of three, however often it comes back."""
    core = opened(A, B, C)
    refuse(core, 0.0, 0, A)
    refuse(core, 0.0, 0, B, error=error)
    core.probed(0.0, possible=True)
    core.seal_refused(1.0)
    assert told(core) == []
