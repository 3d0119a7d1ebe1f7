"""Random walks of a coordinator: programs that die and come back, zombies, late calls, expiries, merges (T5, T1)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from rangelog_broker.transactions.coordinator import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    IDLE_MS,
    OPEN,
    PARTICIPANTS_MAX,
    TIMEOUT_MS_MAX,
    UNKNOWN,
    WAITING,
    TransactionCoordinator,
)
from rangelog_core.errors import (
    InvalidArgument,
    PreconditionFailed,
    ProducerFenced,
    RangelogError,
    TransactionNotFound,
)
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1.transaction_pb2 import (
    Participant,
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionExpire,
    TransactionInit,
    TransactionMerged,
    TransactionName,
    TransactionResult,
)
from tests.support.journal_machines import restored

Key = tuple[str, int, int]


def run(machine: TransactionCoordinator, now_ms: int = 0, **action: object) -> TransactionResult:
    command = transaction_pb2.TransactionCommand(**action)  # type: ignore[arg-type]
    return TransactionResult.FromString(machine.apply(command.SerializeToString(), now_ms))


def shard(number: int) -> Participant:
    return Participant(topic_id=1, shard_id=number)


@dataclass
class Program:
    """One instance of a program under a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int
    number: int

    def name(self, number: int | None = None) -> TransactionName:
        return TransactionName(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            epoch=self.epoch,
            number=self.number if number is None else number,
        )


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.machine = TransactionCoordinator()
        self.programs: list[Program] = []
        self.names: list[TransactionName] = []
        self.decided: dict[Key, tuple[int, tuple[bytes, ...]]] = {}
        self.merged: set[tuple[Key, int]] = set()
        self.asked: dict[Key, list[Participant]] = {}
        self.seen: Counter[str] = Counter()

    def do(self, **action: object) -> TransactionResult | None:
        if self.draw.random() < 0.05:
            copy = TransactionCoordinator()
            restored(copy, self.machine.snapshot())
            assert list(copy.snapshot()) == list(self.machine.snapshot())
            self.machine = copy
        try:
            result = run(self.machine, **action)
        except RangelogError as error:
            self.seen[type(error).__name__] += 1
            result = None
        return result

    def init(self) -> None:
        name = f"t{self.draw.randrange(2)}"
        result = self.do(init=TransactionInit(transactional_id=name, timeout_ms=1_000))
        assert result is not None
        self.programs.append(Program(name, result.producer_id, result.epoch, result.number))

    def begin(self) -> None:
        program = self._program()
        if program and self.do(begin=TransactionBegin(name=program.name(program.number + 1))):
            program.number += 1
            self.names.append(program.name())

    def commit(self) -> None:
        program = self._program()
        if program:
            parts = [shard(number) for number in range(self.draw.randrange(0, 3))]
            key = key_of(program.name())
            result = self.do(commit=TransactionCommit(name=program.name(), participants=parts))
            if result is not None:
                self.asked.setdefault(key, parts)
                self.seen["waiting"] += result.state == WAITING

    def abort(self) -> None:
        program = self._program()
        if program:
            self.do(abort=TransactionAbort(name=program.name()))

    def expire(self) -> None:
        if self.names:
            self.do(expire=TransactionExpire(name=self.draw.choice(self.names[-6:])))

    def merge(self) -> None:
        if not self.names:
            return
        name = self.draw.choice(self.names[-8:])
        view = self.machine.view(name)
        if view.state == COMMITTING:
            part = self.draw.choice(list(view.to_merge))
            self.merged.add((key_of(name), part.shard_id))
            self.do(merged=TransactionMerged(name=name, participant=part))
        else:
            self.do(merged=TransactionMerged(name=name, participant=shard(self.draw.randrange(3))))

    def _program(self) -> Program | None:
        return self.draw.choice(self.programs[-4:]) if self.programs else None

    def check(self) -> None:
        """What is decided stays; a commit comes after all before it are merged; nothing is forgotten too early."""
        open_ones: dict[str, int] = {}
        for name in self.names:
            key, view = key_of(name), self.machine.view(name)
            state = view.state
            before = self.decided.get(key)
            if state in (COMMITTING, COMMITTED, ABORTED):
                final = ABORTED if state == ABORTED else COMMITTED
                assert before is None or before[0] == final, "what is decided never changes"
                if before is None:
                    self.decided[key] = final, ()
                    self.seen["committed" if final == COMMITTED else "aborted"] += 1
                    assert final == ABORTED or open_ones.get(name.transactional_id, 0) == 0, "those before are merged"
            elif state == UNKNOWN:
                assert before is not None, "what was begun is known until it is decided"
                if before[0] == COMMITTED:
                    assert all((key, part.shard_id) in self.merged for part in self.asked[key]), "all have merged"
            if state in (OPEN, WAITING, COMMITTING):
                open_ones[name.transactional_id] = open_ones.get(name.transactional_id, 0) + 1
            if state == COMMITTED:
                assert all((key, part.shard_id) in self.merged for part in self.asked[key])


def key_of(name: TransactionName) -> Key:
    return name.transactional_id, name.epoch, name.number


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_walks(first: int) -> None:
    """Every decision once, in order, and kept as long as anybody may ask."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 20):
        walk = Walk(seed)
        weights = {walk.init: 1, walk.begin: 6, walk.commit: 6, walk.abort: 1, walk.expire: 1, walk.merge: 8}
        for _ in range(150):
            walk.draw.choices(list(weights), list(weights.values()))[0]()
            walk.check()
        seen += walk.seen
    assert set(seen) >= {"committed", "aborted", "waiting", "PreconditionFailed", "ProducerFenced"}


def opened(machine: TransactionCoordinator, *, now_ms: int = 0) -> Program:
    result = run(machine, now_ms, init=TransactionInit(transactional_id="t", timeout_ms=1_000))
    program = Program("t", result.producer_id, result.epoch, result.number + 1)
    run(machine, now_ms, begin=TransactionBegin(name=program.name()))
    return program


def test_a_restart_aborts_what_was_open_and_not_what_was_asked_to_commit() -> None:
    """A program that crashed after its request to commit finds its transaction committed."""
    machine = TransactionCoordinator()
    first = opened(machine)
    run(machine, commit=TransactionCommit(name=first.name(), participants=[shard(1)]))
    run(machine, begin=TransactionBegin(name=first.name(2)))
    second = run(machine, init=TransactionInit(transactional_id="t", timeout_ms=1_000))
    assert (second.epoch, second.number) == (2, 2)
    assert machine.view(first.name()).state == COMMITTING
    assert machine.view(first.name(2)).state == ABORTED
    with pytest.raises(ProducerFenced) as caught:
        run(machine, begin=TransactionBegin(name=first.name(3)))
    assert caught.value.epoch == 2


def test_transactions_of_an_id_are_begun_one_after_the_other() -> None:
    """Without a gap, and not before the one before it is decided; a repeated begin is the same one."""
    machine = TransactionCoordinator()
    program = opened(machine)
    assert run(machine, begin=TransactionBegin(name=program.name())).state == OPEN
    with pytest.raises(PreconditionFailed, match="not decided"):
        run(machine, begin=TransactionBegin(name=program.name(2)))
    run(machine, commit=TransactionCommit(name=program.name(), participants=[shard(1)]))
    with pytest.raises(PreconditionFailed, match="has the number 2"):
        run(machine, begin=TransactionBegin(name=program.name(3)))
    run(machine, begin=TransactionBegin(name=program.name(2)))
    waiting = run(machine, commit=TransactionCommit(name=program.name(2), participants=[shard(1)]))
    assert waiting.state == WAITING
    with pytest.raises(PreconditionFailed, match="not decided"):
        run(machine, begin=TransactionBegin(name=program.name(3)))
    run(machine, merged=TransactionMerged(name=program.name(), participant=shard(1)))
    assert machine.view(program.name(2)).state == COMMITTING


def test_an_expiry_after_the_request_to_commit_is_too_late() -> None:
    """And a commit after the expiry is refused."""
    machine = TransactionCoordinator()
    program = opened(machine)
    run(machine, commit=TransactionCommit(name=program.name(), participants=[shard(1)]))
    run(machine, expire=TransactionExpire(name=program.name()))
    assert machine.view(program.name()).state == COMMITTING
    run(machine, begin=TransactionBegin(name=program.name(2)))
    run(machine, expire=TransactionExpire(name=program.name(2)))
    with pytest.raises(PreconditionFailed, match="open for too long"):
        run(machine, commit=TransactionCommit(name=program.name(2)))


def test_an_id_is_forgotten_when_it_is_idle_and_finished() -> None:
    """It gets another producer id then, so that nothing of its former life is taken for its own."""
    machine = TransactionCoordinator()
    program = opened(machine)
    later = run(machine, 2 * IDLE_MS, init=TransactionInit(transactional_id="other", timeout_ms=1_000))
    assert machine.view(program.name()).state == OPEN, "an unfinished one is kept"
    run(machine, 2 * IDLE_MS, abort=TransactionAbort(name=program.name()))
    run(machine, 4 * IDLE_MS, init=TransactionInit(transactional_id="third", timeout_ms=1_000))
    assert machine.view(program.name()).state == UNKNOWN
    again = opened(machine, now_ms=4 * IDLE_MS)
    assert again.producer_id not in (program.producer_id, later.producer_id)
    with pytest.raises(TransactionNotFound):
        run(machine, commit=TransactionCommit(name=program.name()))


@pytest.mark.parametrize(
    "action",
    [
        {},
        {"init": TransactionInit(transactional_id="", timeout_ms=1)},
        {"init": TransactionInit(transactional_id="t")},
        {"init": TransactionInit(transactional_id="t", timeout_ms=TIMEOUT_MS_MAX + 1)},
        {"begin": TransactionBegin(name=TransactionName(transactional_id="x"))},
        {"merged": TransactionMerged()},
    ],
)
def test_bad_commands_are_typed(action: dict[str, object]) -> None:
    """And change nothing."""
    machine = TransactionCoordinator()
    with pytest.raises(RangelogError):
        run(machine, **action)
    with pytest.raises(InvalidArgument):
        machine.apply(b"\xff", 0)
    assert list(machine.unfinished()) == []


def test_too_many_participants() -> None:
    """The transaction stays open."""
    machine = TransactionCoordinator()
    program = opened(machine)
    parts = [shard(number) for number in range(PARTICIPANTS_MAX + 1)]
    with pytest.raises(InvalidArgument):
        run(machine, commit=TransactionCommit(name=program.name(), participants=parts))
    assert [(name, each.state) for name, each in machine.unfinished()] == [("t", OPEN)]
