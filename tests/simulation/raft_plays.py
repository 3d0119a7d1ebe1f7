"""A simulated group whose course is directed, event by event; and courses that the mutants of consensus are tried on."""

from __future__ import annotations

from tests.simulation.raft_group import RaftGroup
from tests.simulation.raft_process import Answer
from tests.simulation.raft_world import PlainWorld
from tests.support.tape import Tape

NAMES = ["pd1", "pd2", "pd3"]


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


def read_at_a_deposed_leader() -> list[str]:
    """The leader and one follower do not hear each other; the third hears both and has voted for the follower.

    The old leader still believes that it leads, and asks the third: its answer must not let it read what is out of date.
    Returns what went wrong.
    """
    play = Play(snapshot_entries=1000)
    group, world = play.group, play.world
    old = play.lead()
    play.propose(old, 2)
    world.run_until(world.now + 1)
    new = next(name for name in NAMES if name != old)
    world.blocked |= {(old, new), (new, old)}
    believed = read = False
    for _ in range(200):
        world.run_until(world.now + 0.02)
        if group.processes[new].consensus.is_leader():
            break
    if group.processes[new].consensus.is_leader():
        believed = group.processes[old].consensus.is_leader()
        play.propose(new, 1)
        answers: list[Answer] = []
        group.read(old, answers.append)
        world.run_until(world.now + 3, lambda: bool(answers))
        read = bool(answers) and isinstance(answers[0], int) and len(play.tape(old)) < len(play.acked)
    group.close()
    if not believed:
        return ["the course did not come about: the old leader knew, or the other one did not lead"]
    return ["a deposed leader answered a read with what is out of date"] if read else []
