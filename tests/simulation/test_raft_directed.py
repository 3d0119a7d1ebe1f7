"""Single courses of events that the drawn ones reach rarely, played on the simulated group."""

from __future__ import annotations

from tests.simulation.raft_plays import NAMES, Play, read_at_a_deposed_leader


def test_a_member_with_a_new_disk_does_not_lead_with_half_of_the_log() -> None:
    """It holds the beginning when the leader dies: with a third that was away it would make a majority that lacks
    acked commands. Nobody leads until one is back who has them all."""
    play = Play(snapshot_entries=1000)
    group, world = play.group, play.world
    leader = play.lead()
    empty, away = [name for name in NAMES if name != leader]
    play.propose(leader, 3)
    world.run_until(world.now + 1)
    play.isolate(away)
    play.propose(leader, 60, size_bytes=50_000)
    group.crash(empty, power_loss=True)
    group.wipe(empty)
    group.restart(empty)
    assert world.run_until(world.now + 5, lambda: group.last_index(empty) > 20)
    group.crash(leader, power_loss=True)
    assert group.last_index(empty) < 60
    world.blocked.clear()
    world.run_until(world.now + 15)
    assert group.leader() is None
    group.restart(leader)
    play.propose(play.lead(), 1)
    world.run_until(world.now + 10)
    assert all(play.tape(name) == play.acked for name in NAMES)
    assert group.violations == []
    group.close()


def test_a_deposed_leader_that_does_not_know_it_answers_no_read() -> None:
    """A majority has to answer in its term, and one of them has heard of a later one."""
    assert read_at_a_deposed_leader() == []
