"""Walks through the seal model, taken by the product in step: replicas on their logs, recoveries, the writer, the driver.

Each label of a step is carried out with the product's own classes; then what the model says of every replica, of the end
and of what is confirmed must be what the product holds. What the model does not offer, the product must refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from rangelog.protocol.appender import ROLL_RETRY_MS, Appender, Confirmed, OpenRange, Probe, SealRange
from rangelog.protocol.appender import AppenderPhase as WriterPhase
from rangelog.protocol.recovery import Answer, Commit, Copy, Recovery, RecoveryPhase
from rangelog_core.errors import (
    Corruption,
    NoPlacement,
    PreconditionFailed,
    RangelogError,
    SealBelowFloor,
    WriterFenced,
)
from rangelog_core.ids import ReplicaId
from rangelog_server.ranges.replica import DiskTrust, SealOutcome
from tests.model import seal_state as m
from tests.model.conformance_driver import Driver
from tests.model.conformance_readers import ReaderSide
from tests.model.conformance_servers import Server, record
from tests.model.conformance_walks import Step
from tests.model.seal_model import SealModel

GRACE_MS = 1_000.0
WEIGHTS = {
    "opens": 0.25,
    "gives": 0.15,
    "is lost": 0.4,
    "DISK": 0.15,
    "DAMAGED": 0.1,
    "freezes": 0.3,
    "TAIL ROTS": 0.5,
    "tells": 0.5,
}
"""How likely a step with this word is beside the others: else walks are over before much is written."""
_ANSWERS = {
    SealOutcome.FENCED: Answer.TRUTHFUL,
    SealOutcome.DOUBTFUL: Answer.DOUBTFUL,
    SealOutcome.UNKNOWN: Answer.UNKNOWN,
}
_TRUSTS = {m.SOUND: DiskTrust.SOUND, m.TORN: DiskTrust.DOUBTFUL, m.DAMAGED: DiskTrust.QUARANTINED}

STEPS = {
    r"append (\d) reaches r(\d)": "_append",
    r"r(\d) flushes": "_flush",
    r"r(\d) LOSES ITS DISK": "_lose_disk",
    r"r(\d) IS DAMAGED in the middle": "_damage",
    r"r(\d)'s TAIL ROTS from (\d) on": "_rot",
    r"r(\d) LOSES POWER, nothing is left of its last write": "_lose_power",
    r"r(\d) LOSES POWER, its last write is torn": "_tear",
    r"the writer gets r(\d)'s ack up to (\d)": "_ack",
    r"the writer freezes at (\d)": "_freeze",
    r"the writer commits the end (\d): (\w+)": "_writer_commits",
    r"the writer is told the floor (\d), not the end (\d)": "_writer_is_refused",
    r"the placement driver has no place, the writer goes on": "_go_on",
    r"r(\d) learns from the writer that the range ends at (\d)": "_learn",
    r"W(\d) opens the stream": "_open",
    r"W(\d) fences r(\d), the answer is lost": "_fence",
    r"W(\d) fences r(\d): (\d)": "_fence",
    r"W(\d) decides on (\d) .*": "_decide",
    r"W(\d) commits the end (\d): (\w+)": "_commit",
    r"W(\d) copies (\d) to r(\d)": "_copy",
    r"W(\d) gives r(\d) up for (good|now)": "_give_up",
    r"r(\d), told what is confirmed, serves up to (\d)": "_serve_confirmed",
    r"r(\d) tells a reader that it holds (\d)": "_tell",
    r"a reader proves (\d) and is answered (\d)": "_prove",
}
"""The labels of the model's steps, and the method of `SealWalk` that takes each; the words in brackets are its arguments."""


@dataclass(slots=True)
class _Recoverer:
    """One client that opens the stream."""

    epoch: int
    core: Recovery
    commits: list[Commit] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)

    def take(self) -> None:
        """Note what is to be done now; fences are sent when the model says so."""
        for effect in self.core.effects():
            if isinstance(effect, Copy):
                self.copies.append(effect)
            elif isinstance(effect, Commit):
                self.commits.append(effect)

    @property
    def decided(self) -> bool:
        """Whether it has chosen an end."""
        return self.core.phase is not RecoveryPhase.FENCING


class SealWalk:
    """The product's side of one walk."""

    def __init__(self, instance: m.Seal) -> None:
        self.instance = instance
        self.model = SealModel(instance)
        self.now_ms = 0.0
        self.replicas = [ReplicaId(f"s{number}", number + 1) for number in range(instance.replicas)]
        self.servers: list[Server | None] = [Server() for _ in self.replicas]
        self.driver = Driver(self.replicas, instance.acks)
        self.readers = ReaderSide(instance, self.replicas, self.driver)
        self.recoverers: dict[int, _Recoverer] = {}
        opened = OpenRange(0, 0, instance.acks, tuple(self.replicas), 0.0, 1 << 30, 0)
        self.writer = Appender(1, opened, self.now_ms)
        for offset in range(instance.records):
            self.writer.submit(self.now_ms, offset, offset + 1, record(offset))
        for replica in self.replicas:
            self.writer.connected(self.now_ms, 0, replica)
        self.frozen: int | None = None
        self.acked_offset = 0  # by the model, before the step that is taken
        self.taken = dict.fromkeys(STEPS, 0)
        self.refused = 0  # what the product was asked though the model does not offer it

    def take(self, label: str, before: bytes, after: bytes) -> bool:
        """Do as the label says; return whether the product could (False: this way to damage a disk is not open)."""
        self.acked_offset = self.instance.confirmed(before)
        for pattern, method in STEPS.items():
            match = re.fullmatch(pattern, label)
            if match is not None:
                words = [int(word) if word.isdigit() else word for word in match.groups()]
                done = getattr(self, method)(*words) is not False
                self.taken[pattern] += done
                for recoverer in self.recoverers.values():
                    recoverer.take()
                return done
        raise AssertionError(f"the product's side of {label!r} is missing")

    def _server(self, number: int) -> Server:
        server = self.servers[number]
        assert server is not None, f"r{number} has lost its disk"
        return server

    # ---- steps of the writer and of replicas

    def _append(self, offset: int, number: int) -> None:
        self._server(number).append(offset, 1)
        if not self.instance.restarts:
            self._server(number).flush()

    def _flush(self, number: int) -> None:
        self._server(number).flush()

    def _lose_disk(self, number: int) -> None:
        self.servers[number] = None

    def _damage(self, number: int) -> None:
        self._server(number).damage()

    def _rot(self, number: int, keep: int) -> bool:
        return self._server(number).rot(keep)

    def _lose_power(self, number: int) -> None:
        self._server(number).lose_power()

    def _tear(self, number: int) -> None:
        self._server(number).tear()

    def _ack(self, number: int, offset: int) -> None:
        self.writer.acked(self.now_ms, 0, self.replicas[number], offset)

    def _freeze(self, end: int) -> None:
        self.writer.effects()
        self.writer._want_roll(self.now_ms)
        assert [type(effect) for effect in self.writer.effects()] == [Probe]
        self.writer.probed(self.now_ms, possible=True)
        (asked,) = self.writer.effects()
        assert isinstance(asked, SealRange)
        assert asked.end_offset == end
        self.frozen = end

    def _writer_commits(self, end: int, told: int | str) -> None:
        if self.writer.phase is not WriterPhase.SEALING:
            return  # the product was answered before, and a repeat gets the same answer
        try:
            answer = self.driver.seal(1, end, create_next=True)
        except WriterFenced as error:
            assert told == "refused" or self.driver.epoch > 1
            self.writer.fenced(error)
            return
        assert answer == told == end
        following = OpenRange(1, end, self.instance.acks, tuple(self.replicas), self.now_ms, 1 << 30, 0)
        self.writer.sealed(self.now_ms, end, following)
        assert self.writer.phase is WriterPhase.OPEN

    def _writer_is_refused(self, floor: int, end: int) -> None:
        try:
            self.driver.seal(1, end, create_next=True)
        except SealBelowFloor as error:
            self.writer.floor_refused(self.now_ms, error.offset or 0)
        confirmed, asked = self.writer.effects()
        assert confirmed == Confirmed(floor)
        assert isinstance(asked, SealRange)
        assert asked.end_offset == floor
        self.frozen = floor

    def _go_on(self) -> None:
        assert self.frozen is not None
        self._must_refuse(lambda: self.driver.seal(1, self.frozen, create_next=True, place=False), NoPlacement)
        self.writer.seal_refused(self.now_ms)
        self.now_ms += ROLL_RETRY_MS
        self.frozen = None

    def _learn(self, number: int, end: int) -> None:
        self._server(number).commit_end(end, 1)

    # ---- steps of recoverers

    def _open(self, who: int) -> None:
        epoch = self.driver.open_writer()
        self.recoverers[who] = _Recoverer(epoch, Recovery(self.replicas, self.instance.acks, 0, grace_ms=int(GRACE_MS)))

    def _fence(self, who: int, number: int, offset: int | None = None) -> None:
        recoverer = self.recoverers[who]
        answer = self._server(number).seal(recoverer.epoch)
        if offset is not None:
            assert answer.durable_offset == offset or answer.outcome is SealOutcome.UNKNOWN
            kind = _ANSWERS[answer.outcome]
            recoverer.core.answered(self.now_ms, self.replicas[number], kind, answer.durable_offset)

    def _decide(self, who: int, end: int) -> None:
        recoverer = self.recoverers[who]
        if not recoverer.decided:
            self.now_ms += GRACE_MS
            recoverer.core.tick(self.now_ms)
        assert recoverer.decided, recoverer.core.blocked_because()
        assert recoverer.core.end_offset == end

    def _copy(self, who: int, offset: int, number: int) -> None:
        recoverer, replica = self.recoverers[who], self.replicas[number]
        server = self._server(number)
        server.append(offset, recoverer.epoch, recovery=True)
        server.flush()
        for copy in recoverer.copies:
            if copy.target == replica and copy.end_offset == offset + 1:
                recoverer.core.copied(self.now_ms, copy)

    def _commit(self, who: int, end: int, told: int | str) -> None:
        recoverer = self.recoverers[who]
        assert recoverer.commits[-1].end_offset == end
        assert recoverer.core.phase is RecoveryPhase.COMMITTING
        try:
            answer = self.driver.seal(recoverer.epoch, end)
        except WriterFenced:
            assert recoverer.epoch < self.driver.epoch, "whoever holds the epoch is answered"
            return
        assert answer == told
        recoverer.core.committed(answer)

    def _give_up(self, who: int, number: int, how: str) -> None:
        recoverer = self.recoverers[who]
        recoverer.copies.clear()
        recoverer.core.lost(self.now_ms, self.replicas[number], "lost", gone=how == "good")

    # ---- steps of readers

    def _serve_confirmed(self, number: int, offset: int) -> None:
        self.readers.served(self._server(number), self.acked_offset, offset)

    def _tell(self, number: int, held_offset: int) -> None:
        self.readers.told(self._server(number), number, held_offset)

    def _prove(self, offset: int, answer: int) -> None:
        self.readers.proves(self.servers, offset, answer, self.acked_offset)

    # ---- comparing

    def start(self) -> bytes:
        """The model's first state."""
        return self.instance.initial()

    def steps(self, state: bytes) -> Iterator[Step]:
        """What the model can do from here."""
        return ((label, bytes(changed)) for label, changed in self.model._all(state))

    def fold(self, state: bytes) -> bytes:
        """The state with the replicas in a fixed order."""
        return self.instance.canonical(state)

    def narrowed(self, state: bytes, offered: Sequence[Step]) -> Sequence[Step]:
        """The product decides in the moment it can; the model has a step of its own for that, which comes at once."""
        for who, recoverer in self.recoverers.items():
            if recoverer.decided and state[self.model.at + m.PHASE + who - 2] == m.SEALING:
                found = [step for step in offered if step[0].startswith(f"W{who} decides")]
                assert found, "the product decided where the model cannot"
                return found
        return offered

    def compare(self, state: bytes, random: Random) -> None:
        """Assert that the product stands where the model does."""
        model = self.model
        for number, column in enumerate(model.columns):
            server = self.servers[number]
            assert (server is None) == (state[column + m.DISK] == m.LOST)
            if server is not None:
                self._compare_replica(server, state, column)
        end = state[model.at + m.END]
        assert self.driver.end_offset == (None if end == m.NONE else end)
        assert end != m.NONE or self.driver.floor_offset == state[model.at + m.FLOOR]
        for who in range(self.instance.recoverers):
            self._compare_recoverer(state, who)
        if self.instance.active and self.writer.phase is not WriterPhase.STOPPED and self.writer.range_index == 0:
            assert self.writer.confirm_offset == self.instance.confirmed(state)
        if random.random() < 0.3:
            self._refuse(state, {label for label, _ in model._all(state)})

    def _compare_replica(self, server: Server, state: bytes, column: int) -> None:
        end, durable, fence, health = server.seen()
        assert health is _TRUSTS[state[column + m.DISK]] or self._sealed(server)
        if health is DiskTrust.QUARANTINED:
            return  # it holds what it holds; nobody is told
        assert (end, durable) == (state[column + m.LOG].bit_length(), state[column + m.DURABLE].bit_length())
        level = state[column + m.FENCE]
        who = next((who for who in self.recoverers if m.LEVELS[who - 2] == level), None)
        wanted = self.recoverers[who].epoch if who is not None else 0
        assert fence == wanted or (self._sealed(server) and level == 2 and fence == 1)

    @staticmethod
    def _sealed(server: Server) -> bool:
        return server.core is not None and server.core.sealed_end_offset is not None

    def _compare_recoverer(self, state: bytes, who: int) -> None:
        model = self.model
        phase, recoverer = state[model.at + m.PHASE + who], self.recoverers.get(who + 2)
        assert (phase == m.IDLE) == (recoverer is None)
        if recoverer is not None and phase == m.DECIDED:
            targets = [number for number, at in enumerate(model.columns) if state[at + m.ANSWER + who] & m.TARGET]
            assert (recoverer.core.phase is RecoveryPhase.COPYING) == bool(targets)
            assert recoverer.core.end_offset == state[model.at + m.CHOSEN + who]

    def _refuse(self, state: bytes, offered: set[str]) -> None:
        """Ask for what the model does not offer: late appends, late copies, late ends. All must be refused."""
        for number, column in enumerate(self.model.columns):
            server = self.servers[number]
            if server is None or server.core is None:
                continue
            if state[column + m.DISK] == m.DAMAGED:
                self._must_refuse(lambda s=server, r=self.replicas[number]: s.told(r))
            offset = server.core.end_offset
            if offset < self.instance.records and f"append {offset} reaches r{number}" not in offered:
                self._must_refuse(lambda s=server, o=offset: s.append(o, 1))
            for recoverer in self.recoverers.values():
                if state[column + m.FENCE] > m.LEVELS[0] and recoverer.epoch < server.core.epoch:
                    self._must_refuse(lambda s=server, o=offset, e=recoverer.epoch: s.append(o, e, recovery=True))
                    self._must_refuse(lambda s=server, e=recoverer.epoch: s.seal(e))
                    self._must_refuse(lambda s=server, e=recoverer.epoch: s.commit_end(0, e))
        if self.driver.end_offset is None and self.driver.floor_offset:
            self._must_refuse(lambda: self.driver.seal(self.driver.epoch, self.driver.floor_offset - 1), SealBelowFloor)
            few = self.replicas[: self.instance.acks - 1]
            self._must_refuse(lambda: self.driver.prove_end(self.driver.floor_offset + 1, few), PreconditionFailed)
        if not self.instance.goes_on and self.frozen is not None and self.writer.phase is WriterPhase.SEALING:
            for replica in self.replicas:
                self.writer.acked(self.now_ms, 0, replica, self.instance.records)
            assert self.writer.confirm_offset == self.frozen, "what is acked late counts for nothing"

    def _must_refuse(self, ask: Callable[[], object], *reasons: type[RangelogError]) -> None:
        try:
            ask()
        except RangelogError as error:
            if not isinstance(error, reasons or (WriterFenced, Corruption)):
                raise AssertionError(f"refused for another reason: {error!r}") from error
            self.refused += 1
        else:
            raise AssertionError("the product took what the model does not offer")
