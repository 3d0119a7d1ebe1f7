"""The replication policy of a range: star's answers, and that the writer's core asks for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from rangelog.protocol import appender, recovery
from rangelog.protocol.append_effects import Confirmed, Effect, Send, SendConfirm
from rangelog.protocol.appender import Appender, OpenRange
from rangelog.protocol.quorum import confirmed_offset
from rangelog.protocol.recovery import Answer, Commit, Copy, Recovery
from rangelog.protocol.replication import ReplicaProgress, Star
from rangelog_core.batch import encode_batch
from rangelog_core.ids import Incarnation, ReplicaId

A, B, C = (ReplicaId(name, Incarnation(1)) for name in "abc")


def members(*durable_offsets: int) -> list[ReplicaProgress]:
    """One live member for each durable offset."""
    return [
        ReplicaProgress(replica, at, at, live=True) for replica, at in zip((A, B, C), durable_offsets, strict=False)
    ]


def test_star_sends_to_every_member() -> None:
    """In the order of the placement driver's list."""
    three = members(0, 0, 0)
    assert Star(2).receivers(three) == three


@pytest.mark.parametrize("acks", [1, 2, 3])
def test_star_confirms_what_any_a_members_hold(acks: int) -> None:
    """Every combination of three offsets, whoever has them; a member that was excluded counts with what it has."""
    for offsets in itertools.product(range(4), repeat=3):
        held = members(*offsets)
        held[0].failed = True
        confirm = Star(acks).confirmed_offset(held)
        assert confirm == confirmed_offset(offsets, acks)
        assert sum(at >= confirm for at in offsets) >= acks, "A members hold it"
        assert sum(at > confirm for at in offsets) < acks, "and no more than that"


def test_star_keeps_batches_for_a_member_that_lags() -> None:
    """Until it holds them, or is excluded; what is not confirmed is kept in any case."""
    held = members(7, 5, 4)
    assert Star(2).kept_from(held, 5) == 4
    held[2].failed = True
    assert Star(2).kept_from(held, 5) == 5
    assert Star(2).kept_from(members(7, 7, 7), 5) == 5


def test_star_goes_on_while_a_sound_members_are_left() -> None:
    """Of three members with two acks, one may be lost or slow, and no other beside it."""
    three = members(0, 0, 0)
    assert (Star(2).spare(3), Star(3).spare(3), Star(2).spare(2)) == (1, 0, 0)
    assert Star(2).goes_on(three, without=three[0])
    assert not Star(3).goes_on(three, without=three[0])
    three[1].slow = True
    assert Star(2).goes_on(three)
    assert not Star(2).goes_on(three, without=three[0])
    three[2].live = False
    assert not Star(2).goes_on(three)


class HeadAndTail(Star):
    """A policy that differs from star in each answer: the first member is sent to, the last one's acks count."""

    @property
    def holders(self) -> int:
        """Two, whatever A is."""
        return 2

    def receivers(self, members: Sequence[ReplicaProgress]) -> Sequence[ReplicaProgress]:
        """The first."""
        return members[:1]

    def confirmed_offset(self, members: Sequence[ReplicaProgress]) -> int:
        """The last one's."""
        return members[-1].durable_offset

    def kept_from(self, members: Sequence[ReplicaProgress], confirm_offset: int) -> int:
        """The confirm offset."""
        return confirm_offset


def submitted(core: Appender) -> Sequence[Effect]:
    """The effects of one more record."""
    base = core.next_offset
    data = encode_batch(stream_id=1, range_index=0, epoch=1, base_offset=base, timestamps_ms=[1], values=[b"v"])
    core.submit(0.0, base, base + 1, data)
    return core.effects()


def sent_to(effects: Sequence[Effect]) -> set[ReplicaId]:
    """The replicas to which batches go."""
    return {replica for effect in effects if isinstance(effect, Send) for replica in effect.replicas}


def test_the_writer_sends_by_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """First, again after a break, and after a seal that was refused; the confirm offset goes to all who are connected."""
    monkeypatch.setattr(appender, "Star", HeadAndTail)
    core = Appender(1, OpenRange(0, 0, 3, (A, B, C), 0.0, 1 << 30, 0), 0.0)
    core.effects()
    assert sent_to(submitted(core)) == set(), "nobody is connected"
    for replica in (C, B, A):
        core.connected(1.0, 0, replica)
    assert sent_to(core.effects()) == {A}
    assert sent_to(submitted(core)) == {A}
    core.leave_wanted(2.0, 0)
    core.probed(3.0, possible=True)
    assert sent_to(submitted(core)) == set(), "it waits for the seal"
    core.seal_refused(4.0)
    assert sent_to(core.effects()) == {A}
    for replica in (A, B):
        core.acked(5.0, 0, replica, 3)
    assert core.effects() == (), "their acks confirm nothing"
    core.acked(6.0, 0, C, 3)
    assert core.effects() == [Confirmed(3), SendConfirm(0, [A, B, C], 3)]


def test_a_seal_copies_to_the_holders_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With C = 2: at A = 3 two equal answers suffice, at A = 1 one answer is copied to another replica."""
    monkeypatch.setattr(recovery, "Star", HeadAndTail)
    core = Recovery((A, B, C), 3, 0, grace_ms=0)
    core.effects()
    for replica in (A, B):
        core.answered(1.0, replica, Answer.TRUTHFUL, 5)
    core.lost(1.0, C, "no answer")
    assert core.effects() == [Commit(5)]
    core = Recovery((A, B, C), 1, 0, grace_ms=0)
    core.effects()
    for replica, durable_offset in ((A, 4), (B, 6), (C, 4)):
        core.answered(1.0, replica, Answer.TRUTHFUL, durable_offset)
    assert core.effects() == [Copy(B, A, 4, 6)]
