"""Single courses of events that the drawn ones reach rarely, played on the simulated group."""

from __future__ import annotations

from raft_group import RaftGroup
from raft_process import Answer
from raft_world import PlainWorld

NAMES = ["pd1", "pd2", "pd3"]


class Tape:
    """A state that is the list of its commands."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, command: bytes) -> bytes:
        """Append; the answer is how many there are."""
        self.commands.append(command)
        return b"%d" % len(self.commands)

    def freeze(self) -> list[bytes]:
        """Lines."""
        return [b"\n".join(self.commands)]

    def restore(self, data: bytes) -> None:
        """Lines back."""
        self.commands = data.split(b"\n") if data else []


class Play:
    """A group and what was acked."""

    def __init__(self, *, snapshot_entries: int) -> None:
        self.world = PlainWorld(7)
        self.group = RaftGroup(self.world, NAMES, snapshot_entries=snapshot_entries, make_machine=Tape)
        self.acked: list[bytes] = []

    def lead(self) -> str:
        """Wait for a leader."""
        assert self.world.run_until(self.world.now + 10, lambda: self.group.leader() is not None)
        leader = self.group.leader()
        assert leader is not None
        return leader

    def propose(self, member: str, count: int, *, size_bytes: int = 20) -> None:
        """One command after the other, each acked."""
        for _ in range(count):
            command = (b"command %d " % len(self.acked)).ljust(size_bytes, b".")
            answers: list[Answer] = []
            self.group.propose(member, command, answers.append)
            assert self.world.run_until(self.world.now + 5, lambda heard=answers: bool(heard))  # type: ignore[misc]
            assert isinstance(answers[0], bytes), answers
            self.acked.append(command)

    def isolate(self, name: str) -> None:
        """Nobody hears it, and it hears nobody."""
        self.world.blocked |= {pair for other in NAMES for pair in ((name, other), (other, name))}

    def tape(self, name: str) -> list[bytes]:
        """What a member applied."""
        machine = self.group.machine(name)
        assert isinstance(machine, Tape)
        return machine.commands


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
