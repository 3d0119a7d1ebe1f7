"""Courses that seeds reach too rarely: two leaders after each other, each of which begins a change of the members; and a voter
that was alone while all others were replaced."""

from __future__ import annotations

from rangelog_pd.consensus.rules.member_changes import STRANGERS_MAX
from tests.simulation.raft_group import RaftGroup
from tests.simulation.raft_process import Answer
from tests.simulation.raft_world import PlainWorld
from tests.support.tape import Tape

NAMES = ["a", "b", "c", "d"]


class _Course:
    def __init__(self) -> None:
        self.world = PlainWorld(11)
        self.group = RaftGroup(self.world, NAMES, snapshot_entries=1000, make_machine=Tape)

    def wait(self, what: str, holds: object, seconds: float = 10.0) -> None:
        if not self.world.run_until(self.world.now + seconds, holds):  # type: ignore[arg-type]
            raise AssertionError(f"the course did not come about: {what}")

    def block(self, one: str, others: list[str]) -> None:
        self.world.blocked |= {pair for other in others for pair in ((one, other), (other, one))}


def change_before_an_entry_of_the_own_term() -> list[str]:
    """`first` appends "e votes", which only e gets; `second` is elected without it, and wants to remove `first`.

    If it may do so before an entry of its own term is committed, it commits with one other member of three; then `first` is
    elected by itself, e and the member that was left out, and contradicts what was committed. Returns what went wrong.
    """
    course = _Course()
    world, group = course.world, course.group
    course.wait("a leader", lambda: group.leader() is not None)
    first = str(group.leader())
    others = [name for name in NAMES if name != first]
    group.join("e", first)
    course.block("e", others)
    course.wait("e is connected", lambda: "e" in _raft(group, first).peers.connected)
    world.run_until(world.now + 1.0)
    group.pause("e")
    answers: list[Answer] = []
    group.add("e", first, answers.append)
    course.wait("e learns", lambda: bool(answers))
    assert isinstance(answers[0], int), answers
    world.run_until(world.now + 0.3)  # all know that it is committed
    # `first` and e are alone from now on, and e hears the rest.
    course.block(first, others)
    group.resume("e")
    course.wait("e votes, for the two", lambda: "e" in _raft(group, "e").configuration.voters, 1.0)

    voted: list[str] = []
    group.watch.on_vote = voted.append

    def elected() -> bool:
        givers = [name for name in dict.fromkeys(voted) if name in others]
        if len(givers) == 3 and group.leader() in (None, first):
            # The last one gave its vote: the new leader does not reach it any more.
            world.blocked.update({(name, givers[2]) for name in givers[:1]})
        return any(group.processes[name].consensus.is_leader() for name in others)

    course.wait("another leader", elected, 20.0)
    second = next(name for name in others if group.processes[name].consensus.is_leader())
    left_out = list(dict.fromkeys(name for name in voted if name in others))[2]
    world.blocked |= {(second, left_out), (left_out, second)}
    if _raft(group, left_out)._log.journal.last_index >= _raft(group, second)._log.journal.last_index:
        return ["the course did not come about: the third member has what the new leader appended"]
    third = next(name for name in others if name not in (second, left_out))
    leading = _raft(group, second)
    course.wait("the third member has its entry", lambda: leading.acknowledged_index(third) == leading.last_index, 1.0)
    asked: list[Answer] = []
    group.remove(first, second, asked.append)
    group.propose(second, b"a command", asked.append)
    world.run_until(world.now + 0.5)

    world.blocked.clear()
    for name in (second, third):
        course.block(name, [first, left_out, "e"])
    world.run_until(world.now + 8.0)
    group.propose(first, b"another command", asked.append)
    world.run_until(world.now + 2.0)
    world.blocked.clear()
    world.run_until(world.now + 8.0)
    group.close()
    return group.violations


def alone_while_all_others_are_replaced() -> list[str]:
    """A voter hears nobody for half a minute, in which its term rises and the other members of its configuration go.

    Those that came know it, and it does not know them; as many processes as it bears strangers wait in vain to be added, and
    dial it. It must become one of the group again. Returns what went wrong.
    """
    course = _Course()
    world, group = course.world, course.group
    course.wait("a leader", lambda: group.leader() is not None)
    alone = next(name for name in NAMES if name != group.leader())
    course.block(alone, [*NAMES, "e", "f", "g"])
    for old, new in zip([name for name in NAMES if name != alone], "efg", strict=True):
        course.wait("a leader", lambda: group.leader() not in (None, alone))
        leader = str(group.leader())
        answers: list[Answer] = []
        group.join(new, leader)
        world.run_until(world.now + 1.0)
        group.add(new, leader, answers.append, replaces=old)
        course.wait("the answer", lambda answers=answers: bool(answers))
        course.wait(f"{new} replaces {old}", lambda old=old: old not in group.configuration().by_name, 20.0)
    strangers = [f"x{number}" for number in range(2 * STRANGERS_MAX)]
    for name in strangers:
        group.join(name, alone)
    world.run_until(world.now + 20.0)
    if _raft(group, alone).raftCurrentTerm <= max(_raft(group, name).raftCurrentTerm for name in "efg"):
        return ["the course did not come about: its term did not rise"]
    world.blocked.clear()
    members = sorted(group.configuration().by_name)
    world.run_until(world.now + 20.0, lambda: len({_raft(group, name).configuration for name in members}) == 1)
    known = {name: sorted(_raft(group, name).configuration.by_name) for name in members}
    heard: list[Answer] = []
    group.propose(str(group.leader()), b"a command", heard.append)
    world.run_until(world.now + 3.0)
    if known[alone] != members or group.applied_index(alone) != group.applied_index(str(group.leader())):
        group.violate(f"{alone} does not come back: {known[alone]} instead of {members}")
    group.close()
    return group.violations


def _raft(group: RaftGroup, name: str):  # type: ignore[no-untyped-def]
    raft = group.processes[name].raft
    assert raft is not None
    return raft
