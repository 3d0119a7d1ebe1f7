"""One and three members in this process: results, refusals, failures and restarts."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rangelog_cli.local.ports import free_ports
from rangelog_core.errors import (
    Corruption,
    InternalError,
    InvalidArgument,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    StorageFull,
    Unavailable,
)
from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_pd.consensus.interface import Consensus
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from rangelog_pd.consensus.rules import proposals
from rangelog_pd.consensus.rules.timings import Timings
from tests.support.waiting import until, until_arrived

SECRET = "the shared secret"
PATIENT = Timings.of_elections(600_000, 900_000)


class Tape:
    """A state that is the list of its commands; some commands misbehave."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()

    def apply(self, index: int, command: bytes) -> bytes:
        """Append and answer how many there are."""
        self.gate.wait(5)
        if command == b"raise":
            raise ValueError("a defect")
        self.commands.append(command)
        return b"%d" % len(self.commands)

    def freeze(self) -> list[bytes]:
        """Lines."""
        return [b"\n".join(self.commands)]

    def restore(self, data: bytes) -> None:
        """Lines back."""
        if data.startswith(b"unreadable"):
            raise Corruption("the state does not decode")
        self.commands = data.split(b"\n") if data else []


def addresses_of(consensus: PySyncObjConsensus) -> dict[str, str]:
    """The members that it was started with."""
    return {member.name: member.raft_address for member in consensus.initial.members}


def single(directory: Path, tape: Tape, *, snapshot_entries: int = 5000) -> PySyncObjConsensus:
    """A group of one."""
    return PySyncObjConsensus("a", {"a": "127.0.0.1:0"}, directory, tape, secret="", snapshot_entries=snapshot_entries)


async def led(consensus: PySyncObjConsensus) -> PySyncObjConsensus:
    """Start and wait for leadership."""
    await consensus.start()
    await until(consensus.is_leader, "leadership")
    return consensus


async def test_one_member_keeps_its_state_over_restarts(tmp_path: Path) -> None:
    """Results come from apply; after a restart the state is back before a barrier returns, with and without snapshots."""
    expected: list[bytes] = []
    for round_number in range(4):
        tape = Tape()
        consensus = await led(single(tmp_path, tape, snapshot_entries=25))
        typed: Consensus = consensus
        await typed.barrier(timeout_s=5)
        assert tape.commands == expected
        for number in range(20):
            command = b"%d-%d" % (round_number, number)
            expected.append(command)
            assert await consensus.propose(command, timeout_s=5) == b"%d" % len(expected)
        await consensus.close()
        await consensus.close()
    assert (tmp_path / "raft" / "snapshot").exists()


async def test_one_member_answers_without_waiting_for_a_tick(tmp_path: Path) -> None:
    """A read and a command are answered at once, however long the member waits for messages, which never come."""
    consensus = await led(single(tmp_path, Tape()))
    raft = consensus._raft
    assert raft is not None
    raft._timings = replace(raft._timings, tick_s=60.0)
    for number in range(10):
        await consensus.barrier(timeout_s=10)
        assert await consensus.propose(b"x", timeout_s=10) == b"%d" % (number + 1)
    await consensus.close()


async def test_oversized_commands_are_refused_and_the_largest_pass(tmp_path: Path) -> None:
    """COMMAND_BYTES_MAX is the limit, exactly."""
    tape = Tape()
    consensus = await led(single(tmp_path, tape))
    await consensus.propose(bytes(COMMAND_BYTES_MAX), timeout_s=5)
    with pytest.raises(InvalidArgument):
        await consensus.propose(bytes(COMMAND_BYTES_MAX + 1), timeout_s=5)
    assert len(tape.commands) == 1
    await consensus.close()


async def test_an_apply_that_raises_is_an_answer_and_stops_nothing(tmp_path: Path) -> None:
    """A defect in the state machine is InternalError for its proposer, and the next command is applied."""
    tape = Tape()
    consensus = await led(single(tmp_path, tape))
    with pytest.raises(InternalError):
        await consensus.propose(b"raise", timeout_s=5)
    assert await consensus.propose(b"fine", timeout_s=5) == b"1"
    await consensus.close()
    again = await led(single(tmp_path, tape := Tape()))
    await again.barrier(timeout_s=5)
    assert tape.commands == [b"fine"]
    await again.close()


async def test_a_late_answer_is_unknown_and_what_was_never_taken_is_not(tmp_path: Path) -> None:
    """A timeout after the proposal was taken is OutcomeUnknown (it is applied later); before that it is Unavailable."""
    tape = Tape()
    consensus = await led(single(tmp_path, tape))
    tape.gate.clear()
    first = asyncio.create_task(consensus.propose(b"taken", timeout_s=0.3))
    await until(lambda: consensus.lock.locked(), "the tick thread is in apply")
    with pytest.raises(Unavailable):
        await consensus.propose(b"never taken", timeout_s=0.1)
    with pytest.raises(OutcomeUnknown):
        await first
    tape.gate.set()
    await consensus.barrier(timeout_s=5)
    assert tape.commands == [b"taken"]
    await consensus.close()


async def test_outstanding_proposals_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a proposal is refused at once, and there is room again when the others are answered."""
    monkeypatch.setattr(proposals, "OUTSTANDING_MAX", 10)
    tape = Tape()
    consensus = await led(single(tmp_path, tape))
    tape.gate.clear()
    waiting = [asyncio.create_task(consensus.propose(b"%d" % number, timeout_s=5)) for number in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await consensus.propose(b"more", timeout_s=5)
    tape.gate.set()
    await asyncio.gather(*waiting)
    await consensus.propose(b"now", timeout_s=5)
    assert len(tape.commands) == 11
    await consensus.close()


async def test_concurrent_proposals_share_flushes(tmp_path: Path) -> None:
    """A thousand proposals at once cost far fewer than a thousand flushes."""
    tape = Tape()
    consensus = await led(single(tmp_path, tape))
    assert consensus._raft is not None
    journal = consensus._raft._log.journal
    before = journal.flushes
    await asyncio.gather(*(consensus.propose(b"%d" % number, timeout_s=10) for number in range(1000)))
    assert journal.flushes - before < 200
    await consensus.close()


@pytest.mark.parametrize(
    ("failure", "expected"),
    [(OSError(5, "Input/output error"), InternalError), (OSError(28, "No space left on device"), StorageFull)],
)
async def test_a_failing_disk_stops_the_member_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, expected: type[Exception]
) -> None:
    """A failed flush is never retried: nothing is acknowledged any more and `failed` says why."""
    consensus = await led(single(tmp_path, Tape()))
    await consensus.propose(b"before", timeout_s=5)
    watcher = asyncio.create_task(consensus.failed())

    def fail(_: int) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises((OutcomeUnknown, Unavailable)):
            await consensus.propose(b"x", timeout_s=5)
        assert isinstance(await asyncio.wait_for(watcher, 5), expected)
    for attempt in (consensus.propose(b"y", timeout_s=1), consensus.barrier(timeout_s=1)):
        with pytest.raises(Unavailable):
            await attempt
    assert not consensus.is_leader()
    await consensus.close()
    again = await led(single(tmp_path, tape := Tape()))
    await again.barrier(timeout_s=5)
    assert tape.commands[:1] == [b"before"] and b"y" not in tape.commands
    await again.close()


async def damaged(directory: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change one of the files of a member that was stopped, and expect that it does not start."""
    path = directory / "raft" / name
    data = path.read_bytes()
    path.write_bytes(change(data))
    consensus = single(directory, Tape())
    with pytest.raises(Corruption):
        await consensus.start()
    assert isinstance(await consensus.failed(), Corruption)
    await consensus.close()
    path.write_bytes(data)


async def test_damage_found_at_start_is_corruption(tmp_path: Path) -> None:
    """A flipped bit or a missing end in any of the three files, and an unreadable state, keep the member from starting."""
    consensus = await led(single(tmp_path, Tape(), snapshot_entries=20))
    for number in range(60):
        await consensus.propose(b"%d" % number, timeout_s=5)
    await until((tmp_path / "raft" / "snapshot").exists, "a snapshot")
    await consensus.close()
    for name in ("journal", "vote", "snapshot"):
        await damaged(tmp_path, name, lambda data: data[:-1])
        await damaged(tmp_path, name, lambda data: data[:20] + bytes([data[20] ^ 4]) + data[21:])
        await damaged(tmp_path, name, lambda data: data[:-2] + bytes([data[-2] ^ 4]) + data[-1:])
    for name in ("journal", "vote", "snapshot"):
        path = tmp_path / "raft" / name
        path.rename(tmp_path / name)
        with pytest.raises(Corruption):
            await single(tmp_path, Tape()).start()
        (tmp_path / name).rename(path)
    other = PySyncObjConsensus("b", {"b": "127.0.0.1:0"}, tmp_path, Tape(), secret="")
    with pytest.raises(Corruption):
        await other.start()
    again = await led(single(tmp_path, Tape()))
    await again.close()


async def test_a_closed_event_loop_does_not_hurt_the_library(tmp_path: Path) -> None:
    """Answers for a loop that is gone are dropped; the entry is applied once."""
    tape = Tape()
    consensus = single(tmp_path, tape)

    def leave() -> None:
        async def inner() -> None:
            await led(consensus)
            tape.gate.clear()
            task = asyncio.create_task(consensus.propose(b"orphan", timeout_s=5))
            await until(lambda: consensus.lock.locked(), "the tick thread is in apply")
            task.cancel()

        asyncio.run(inner())

    await asyncio.to_thread(leave)
    tape.gate.set()
    await until(lambda: bool(tape.commands), "the apply")
    await consensus.close()
    assert tape.commands == [b"orphan"]


async def group(directory: Path, count: int = 3, *, snapshot_entries: int = 50) -> dict[str, PySyncObjConsensus]:
    """Members in this process, not started."""
    names = ["a", "b", "c", "d", "e"][:count]
    members = dict(zip(names, (f"127.0.0.1:{port}" for port in free_ports(count)), strict=True))
    return {
        name: PySyncObjConsensus(
            name, members, directory / name, Tape(), secret=SECRET, snapshot_entries=snapshot_entries
        )
        for name in names
    }


def tape_of(consensus: PySyncObjConsensus) -> Tape:
    """Its state."""
    tape = consensus._state_machine
    assert isinstance(tape, Tape)
    return tape


async def the_leader(members: dict[str, PySyncObjConsensus]) -> PySyncObjConsensus:
    """Wait until one leads and the others know. From then on no election begins because a member is silent for a moment."""
    running, found = list(members.values()), list[PySyncObjConsensus]()

    def agree() -> bool:
        found[:] = [each for each in running if each.is_leader()]
        return len(found) == 1 and all(each.leader() == found[0]._name for each in running)

    await until(agree, "a leader that all know")
    for each in running:
        assert each._raft is not None
        each._raft._given_timings = PATIENT
        each._raft._follow_timings()
        each._raft._move_deadline(max, PATIENT.election_min_s)  # the present one was drawn from the times before
    return found[0]


async def test_three_members_agree_and_a_follower_sends_elsewhere(tmp_path: Path) -> None:
    """Commands proposed at the leader are on all; a follower raises NotLeader and knows who leads; a late one catches up."""
    members = await group(tmp_path)
    late = members.pop("c")
    await asyncio.gather(*(each.start() for each in members.values()))
    leader = await the_leader(members)
    follower = next(each for each in members.values() if each is not leader)
    for attempt in (follower.propose(b"x", timeout_s=1), follower.barrier(timeout_s=1)):
        with pytest.raises(NotLeader):
            await attempt
    commands = [b"%d" % number for number in range(200)]
    await asyncio.gather(*(leader.propose(command, timeout_s=5) for command in commands))
    await until((tmp_path / leader._name / "raft" / "snapshot").exists, "a snapshot")
    await late.start()
    members["c"] = late
    await until(lambda: len({tuple(tape_of(each).commands) for each in members.values()}) == 1, "equal states")
    assert sorted(tape_of(late).commands) == sorted(commands)
    status = leader.status()
    assert status.has_majority and [each.reachable for each in status.members] == [True] * 3
    await asyncio.gather(*(each.close() for each in members.values()))


async def test_barriers_share_rounds(tmp_path: Path) -> None:
    """A hundred barriers at once cost no entry, and each sees what was acknowledged before it."""
    members = await group(tmp_path)
    await asyncio.gather(*(each.start() for each in members.values()))
    leader = await the_leader(members)
    await leader.propose(b"x", timeout_s=5)
    before = leader.applied_index
    answers = await asyncio.gather(*(leader.barrier(timeout_s=5) for _ in range(100)))
    assert min(answers) >= before and leader.applied_index == before
    await asyncio.gather(*(each.close() for each in members.values()))


async def test_a_leader_that_stops_hands_over(tmp_path: Path) -> None:
    """A clean stop does not wait for an election timeout: by then nobody stands for election within two minutes by itself."""
    members = await group(tmp_path)
    await asyncio.gather(*(each.start() for each in members.values()))
    leader = await the_leader(members)
    await leader.propose(b"x", timeout_s=5)
    await until(lambda: all(tape_of(each).commands for each in members.values()), "caught up")
    del members[leader._name]
    await leader.close()
    new = await the_leader(members)
    assert await new.propose(b"y", timeout_s=5) == b"2"
    await asyncio.gather(*(each.close() for each in members.values()))


async def test_another_secret_or_group_keeps_a_member_out(tmp_path: Path) -> None:
    """A member with another secret or other members never connects, and the others work without it."""
    members = await group(tmp_path)
    victim = members.pop("c")
    addresses = addresses_of(victim)
    wrong_secret = PySyncObjConsensus("c", addresses, tmp_path / "c", Tape(), secret="another secret")
    await asyncio.gather(wrong_secret.start(), *(each.start() for each in members.values()))
    leader = await the_leader(members)
    await leader.propose(b"x", timeout_s=5)
    assert [each.reachable for each in leader.status().members] == [True, True, False]
    assert not tape_of(wrong_secret).commands and wrong_secret.leader() is None
    await asyncio.gather(wrong_secret.close(), *(each.close() for each in members.values()))


async def test_a_member_with_an_empty_disk_does_not_elect_a_stale_one(tmp_path: Path) -> None:
    """a and c acknowledge what b never got; c loses its disk, a is down: b and the empty c must not make a leader."""
    members = await group(tmp_path)
    await asyncio.gather(*(each.start() for each in members.values()))
    leader = await the_leader(members)
    await leader.propose(b"all", timeout_s=5)
    await until(lambda: all(tape_of(each).commands for each in members.values()), "caught up")
    stale, other = [each for each in members.values() if each is not leader]
    await stale.close()
    await leader.propose(b"two of three", timeout_s=5)
    await asyncio.gather(leader.close(), other.close())
    for file in (tmp_path / other._name / "raft").iterdir():
        file.unlink()
    addresses = addresses_of(stale)
    back = {
        name: PySyncObjConsensus(name, addresses, tmp_path / name, Tape(), secret=SECRET)
        for name in (stale._name, other._name)
    }
    await asyncio.gather(*(each.start() for each in back.values()))
    deadline_s = time.monotonic() + 2.0
    while time.monotonic() < deadline_s:
        assert not any(each.is_leader() for each in back.values())
        await asyncio.sleep(0.02)
    again = PySyncObjConsensus(leader._name, addresses, tmp_path / leader._name, Tape(), secret=SECRET)
    await again.start()
    back[leader._name] = again
    await until(lambda: any(each.is_leader() for each in back.values()), "a leader")
    for each in back.values():
        await until_arrived(lambda each=each: tape_of(each).commands, [b"all", b"two of three"], "nothing is lost")
    await asyncio.gather(*(each.close() for each in back.values()))
