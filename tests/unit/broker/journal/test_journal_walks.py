"""Random walks of journals: owners that are deposed with entries in flight, proposers in doubt, snapshots, trims (T8).

The stream below is a list with an epoch: of what a deposed owner had in flight a prefix is in the log, the rest never is.
An owner hears of acks late, also after it was deposed. After every walk each result that anybody was given is the one that the
whole log gives, each command is in the state once, and who replays what is left has the state of who replays all.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rangelog_broker.journal.entry import Command, Own, decode_entry
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.owner import Owner, OwnerLimits, Proposed
from rangelog_broker.journal.replay import JournalReplay
from rangelog_broker.journal.sessions import Result
from rangelog_core.errors import Corruption
from rangelog_core.versions import FEATURE_LEVEL
from tests.support.journal_machines import Chain

LIMITS = OwnerLimits(snapshot_entries=6, snapshot_bytes_min=1 << 30)
Key = tuple[int, int]


class Stream:
    """A single-writer stream: records from `start` on; `ever` has all there ever were."""

    def __init__(self) -> None:
        self.ever: list[bytes] = []
        self.start = 0
        self.epoch = 0

    def recover(self, *, whole: bool = False) -> Fold:
        start = 0 if whole else self.start
        recovery = JournalReplay(Chain(), start)
        while recovery.next_offset < len(self.ever):
            recovery.feed(recovery.next_offset, self.ever[recovery.next_offset])
        return recovery.finish(len(self.ever))


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.stream = Stream()
        self.in_flight: dict[int, list[bytes]] = {}  # by epoch, from the log's end on; none of a deposed owner's
        self.owners: dict[int, Owner] = {}
        self.known_confirm: dict[int, int] = {}  # what each owner may yet hear
        self.sessions: list[int] = []
        self.doubtful: list[Command] = []
        self.next_sequence: Counter[int] = Counter()
        self.given: dict[Key, Result] = {}  # results that proposers were given
        self.of_offset: dict[tuple[int, int], Command] = {}  # by epoch and offset
        self.settled: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        self.now_ms = 1_000
        self.takeover()

    @property
    def owner(self) -> Owner:
        return self.owners[self.stream.epoch]

    # ---- steps

    def takeover(self) -> None:
        """The fence settles the end; then the log is read, then the new owner begins."""
        stream = self.stream
        landing = self.in_flight.pop(stream.epoch, [])
        landed = self.draw.randint(0, len(landing))
        stream.ever += landing[:landed]
        self.known_confirm[stream.epoch] = len(stream.ever)
        stream.epoch += 1
        fold = stream.recover()
        assert state_of(fold) == state_of(stream.recover(whole=True))
        self.owners[stream.epoch] = Owner(fold, stream.epoch, limits=LIMITS)
        self.in_flight[stream.epoch] = []
        self.seen["takeover"] += 1
        if landed < len(landing):
            self.seen["lost in flight"] += 1

    def send(self, proposed: Proposed) -> None:
        if proposed.value is None:
            self.seen["asked again while in flight"] += 1
        else:
            waiting = self.in_flight[self.stream.epoch]
            assert proposed.offset == len(self.stream.ever) + len(waiting)
            waiting.append(proposed.value)

    def open_session(self) -> None:
        self.send(self.owner.open_session(self.clock(), self.draw.getrandbits(63) | 1 << 63))

    def propose(self) -> None:
        if not self.sessions:
            self.open_session()
            return
        session = self.draw.choice(self.sessions)
        sequence = self.next_sequence[session]
        self.next_sequence[session] += 1
        bad = self.draw.choices((b"", b"refuse", b"fail", b"quote"), (85, 10, 4, 1))[0]
        word = bad or b"%d/%d" % (session, sequence)
        command = Command(self.clock(), session, sequence, min(self.settled[session], sequence), word)
        self.doubtful.append(command)
        self.say(command)

    def say(self, command: Command) -> None:
        epoch = self.stream.epoch
        told = self.owner.propose(command._replace(now_ms=self.clock()))
        if isinstance(told, Result):
            self.seen["known at once"] += 1
            self.give(command, told)
        else:
            self.of_offset[epoch, told.offset] = command
            self.send(told)

    def ask_again(self) -> None:
        if self.doubtful:
            self.say(self.draw.choice(self.doubtful))

    def prove(self) -> None:
        self.send(self.owner.prove())

    def raise_level(self) -> None:
        level = min(FEATURE_LEVEL, self.owner.fold.level + self.draw.randint(0, 6))
        proposed = self.owner.raise_level(level)
        if proposed is not None:
            self.seen["level"] += 1
            self.send(proposed)

    def own(self) -> None:
        self.send(self.owner.propose_own(Own(self.clock(), b"own")))

    def flush(self) -> None:
        """A prefix of what is in flight is in the log; who appended it may hear of it later."""
        waiting = self.in_flight[self.stream.epoch]
        count = self.draw.randint(0, len(waiting))
        self.stream.ever += waiting[:count]
        del waiting[:count]
        self.known_confirm[self.stream.epoch] = len(self.stream.ever)

    def ack(self) -> None:
        """Any owner, also a deposed one, hears of acks, perhaps not of all."""
        epoch = self.draw.choice(list(self.owners))
        owner = self.owners[epoch]
        reached = owner.fold.applied_offset
        known = min(self.known_confirm.get(epoch, 0), owner.next_offset)
        for offset, result in owner.confirmed(self.draw.randint(reached, max(reached, known))):
            command = self.of_offset.get((epoch, offset))
            if command is not None:
                self.give(command, result)
            elif decode_entry(self.stream.ever[offset]).__class__.__name__ == "Open":
                self.sessions.append(int.from_bytes(result.unwrap(), "little"))
        trim = owner.take_trim()
        if trim:
            self.seen["trim"] += 1
            self.stream.start = max(
                self.stream.start, self.draw.randint(self.stream.start, max(self.stream.start, trim))
            )

    def give(self, command: Command, result: Result) -> None:
        key = command.session, command.sequence
        assert self.given.setdefault(key, result) == result, "one command, one result"
        self.doubtful = [each for each in self.doubtful if (each.session, each.sequence) != key]
        open_ones = [each.sequence for each in self.doubtful if each.session == command.session]
        self.settled[command.session] = min(open_ones, default=self.next_sequence[command.session])

    def snapshot(self) -> None:
        owner = self.owner
        if owner.snapshot_due:
            owner.start_snapshot()
        proposed = owner.next_piece()
        if proposed is not None:
            self.seen["piece"] += 1
            self.send(proposed)

    def clock(self) -> int:
        """Of the present owner: the clocks of brokers differ."""
        self.now_ms += self.draw.randint(0, 20)
        return self.now_ms + 500 * (self.stream.epoch % 3)

    def run(self, steps: int) -> None:
        weights = {
            self.propose: 8, self.ask_again: 3, self.own: 1, self.prove: 1, self.flush: 6, self.ack: 8, self.snapshot: 6,
            self.takeover: 0.5, self.open_session: 1, self.raise_level: 0.2,
        }  # fmt: skip
        for _ in range(steps):
            self.draw.choices(list(weights), list(weights.values()))[0]()
        self.takeover()
        for command in list(self.doubtful):
            self.say(command)
        waiting = self.in_flight[self.stream.epoch]
        self.stream.ever += waiting
        waiting.clear()
        self.known_confirm[self.stream.epoch] = len(self.stream.ever)
        while self.doubtful:
            self.ack()


def state_of(fold: Fold) -> tuple[object, ...]:
    assert isinstance(fold.machine, Chain)
    assert fold.level == fold.machine.level == fold.sessions.level
    return (
        fold.applied_offset,
        fold.now_ms,
        fold.level,
        fold.machine.digest,
        fold.machine.commands,
        list(fold.sessions.snapshot()),
    )


def check(walk: Walk) -> None:
    whole, left = walk.stream.recover(whole=True), walk.stream.recover()
    assert state_of(whole) == state_of(left)
    assert isinstance(whole.machine, Chain)
    times = Counter(each for each in whole.machine.commands if each != b"own")
    assert set(times.values()) <= {1}
    for (session, sequence), result in walk.given.items():
        if not result.error_code:
            assert times[b"%d/%d" % (session, sequence)] == 1, "what was acked is there, once"


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_every_walk_ends_with_one_state(first: int) -> None:
    """Whoever replays the log, whatever is left of it."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 20):
        walk = Walk(seed)
        walk.run(250)
        check(walk)
        seen += walk.seen
    assert set(seen) == {
        "takeover", "lost in flight", "asked again while in flight", "known at once", "piece", "trim", "level",
    }  # fmt: skip


def test_a_gap_is_corruption() -> None:
    """A record that is missing is not passed over."""
    recovery = JournalReplay(Chain(), 0)
    with pytest.raises(Corruption, match="missing"):
        recovery.feed(1, b"")
