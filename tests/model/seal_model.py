"""The seal of one range: a writer, recoverers, replicas and the placement driver; every order, delay and loss of messages.

The writer's appends and all acks may arrive at any time, in order at each replica, or never; so a crash with an intact
disk, a pause and a partition are only delays. Which end a recoverer decides on, and what it copies first, is computed by
the product's own core. What a state is: seal_state.py; readers: seal_readers.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model.seal_decision import DOUBTFUL, GONE, NO_ANSWER, TRUTHFUL, UNKNOWN, Decision, decide, decide_wrong
from tests.model.seal_readers import Readers
from tests.model.seal_state import (
    ACKED,
    ANSWER,
    ASKED,
    BELIEF,
    CHOSEN,
    DAMAGED,
    DECIDED,
    DISK,
    DISKS,
    DURABLE,
    END,
    END_CHANGED,
    EPOCH,
    FENCE,
    FLOOR,
    FLOOR_ABOVE_END,
    FROZEN,
    GHOST,
    IDLE,
    KNOWN,
    LEVELS,
    LOG,
    LOST,
    NONE,
    PHASE,
    REFUSED,
    RESTARTS,
    SEALING,
    SERVED,
    SOUND,
    TAKEN,
    TARGET,
    TOLD,
    TORN,
    WENT_BACK,
    WIDTH,
    WRITER_EPOCH,
    Seal,
    below,
    replaced,
)

UNFENCED = frozenset({"read-then-fence"})
BELOW_FLOOR = -1
"""Instead of an end: the placement driver refuses the seal, and names the floor."""


class SealModel:
    """The successors of a state."""

    def __init__(self, instance: Seal) -> None:
        self.instance = instance
        self.wrong = instance.wrong
        self.at = instance.scalars_at
        self.columns = list(range(0, self.at, WIDTH))
        self.readers = Readers(instance)

    def successors(self, state: bytes) -> Iterator[tuple[str, bytes]]:
        """Every step that can be taken from here."""
        for label, changed in self._all(state):
            yield label, self.instance.canonical(changed)

    def told(self, path: Sequence[bytes]) -> list[str]:
        """Return the labels of a path of folded states, with each replica under one name throughout."""
        state, labels = path[0], []
        for target in path[1:]:
            label, changed = next(step for step in self._all(state) if self.instance.canonical(step[1]) == target)
            labels.append(label)
            state = bytes(changed)
        return labels

    def _all(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        for number, column in enumerate(self.columns):
            name = f"r{number}"
            yield from self._write(state, column, name)
            yield from self._fail(state, column, name)
            if self.instance.active:
                yield from self._writer_learns(state, column, name)
        if self.instance.active:
            yield from self._active_seal(state)
            yield from self._late_seals(state)
        for who in range(self.instance.recoverers):
            yield from self._recover(state, who)
        if self.instance.reader:
            yield from self.readers.steps(state)

    # ---- the writer's appends, and what befalls a replica

    def _takes_appends(self, state: bytes, column: int) -> bool:
        if self.wrong == "wiped-accepts" and state[column + DISK] == LOST:
            return state[column + FENCE] <= WRITER_EPOCH
        return state[column + DISK] == SOUND and state[column + FENCE] == WRITER_EPOCH

    def _write(self, state: bytes, column: int, name: str) -> Iterator[tuple[str, bytearray]]:
        log, durable = state[column + LOG], state[column + DURABLE]
        early = self.wrong == "ack-before-fsync"
        if self._takes_appends(state, column):
            offsets = range(self.instance.records) if self.wrong == "gaps" else (log.bit_length(),)
            for offset in offsets:
                if offset < self.instance.records and not log >> offset & 1:
                    changed = replaced(state, (column + LOG, log | 1 << offset))
                    if early or not self.instance.restarts:
                        changed[column + ACKED] = max(changed[column + ACKED], changed[column + LOG].bit_length())
                    if not self.instance.restarts:
                        changed[column + DURABLE] = changed[column + LOG]
                    yield f"append {offset} reaches {name}", changed
        elif (
            self.wrong == "stale-recovery"
            and state[column + DISK] == SOUND
            and log.bit_length() > state[column + ACKED]
        ):
            yield f"{name}, fenced, acks again what it holds", replaced(state, (column + ACKED, log.bit_length()))
        if log != durable:
            acked = max(state[column + ACKED], log.bit_length())
            yield f"{name} flushes", replaced(state, (column + DURABLE, log), (column + ACKED, acked))
        if self.wrong == "read-log-end" and log.bit_length() > state[self.at + SERVED]:
            yield f"a reader is served {name}'s log", replaced(state, (self.at + SERVED, log.bit_length()))

    def _fail(self, state: bytes, column: int, name: str) -> Iterator[tuple[str, bytearray]]:
        if state[column + DISK] in (LOST, DAMAGED):
            return
        log, durable, fence = state[column + LOG], state[column + DURABLE], state[column + FENCE]
        if state[self.at + DISKS]:
            spent = (self.at + DISKS, state[self.at + DISKS] - 1)
            empty = [(column + LOG, 0), (column + DURABLE, 0)]
            fresh = (column + FENCE, WRITER_EPOCH)
            yield f"{name} LOSES ITS DISK", replaced(state, spent, *empty, fresh, (column + DISK, LOST))
            if self.instance.rot:
                yield f"{name} IS DAMAGED in the middle", replaced(state, spent, *empty, (column + DISK, DAMAGED))
                for keep in range(log.bit_length()):
                    kept = [(column + LOG, below(keep)), (column + DURABLE, below(keep))]
                    yield f"{name}'s TAIL ROTS from {keep} on", replaced(state, spent, *kept, (column + DISK, TORN))
        if state[self.at + RESTARTS]:
            changed = replaced(state, (self.at + RESTARTS, state[self.at + RESTARTS] - 1), (column + LOG, durable))
            if self.wrong == "fence-volatile":
                changed[column + FENCE] = WRITER_EPOCH
            if log != durable or changed[column + FENCE] != fence:
                yield f"{name} LOSES POWER, nothing is left of its last write", bytearray(changed)
            if log != durable and self.wrong != "ack-before-fsync":
                changed[column + DISK] = TORN
                yield f"{name} LOSES POWER, its last write is torn", changed

    # ---- the active seal

    def _writer_learns(self, state: bytes, column: int, name: str) -> Iterator[tuple[str, bytearray]]:
        frozen = state[self.at + FROZEN]
        if frozen == NONE or self.wrong in ("no-freeze", "confirm-while-frozen"):
            for offset in range(state[column + KNOWN] + 1, state[column + ACKED] + 1):
                yield f"the writer gets {name}'s ack up to {offset}", replaced(state, (column + KNOWN, offset))
        committed = state[self.at + END] == frozen
        current = state[column + FENCE] == WRITER_EPOCH
        allowed = (committed and current) or self.wrong == "late-cut"
        if frozen == NONE or not allowed or state[column + DISK] in (LOST, DAMAGED):
            return
        fence = max(2, state[column + FENCE])
        kept = state[column + LOG] & below(frozen)
        changed = replaced(state, (column + LOG, kept), (column + DURABLE, kept), (column + FENCE, fence))
        if changed != state:
            yield f"{name} learns from the writer that the range ends at {frozen}", changed

    def _active_seal(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        frozen = state[self.at + FROZEN]
        if frozen == NONE:
            confirmed = self.instance.confirmed(state)
            yield f"the writer freezes at {confirmed}", replaced(state, (self.at + FROZEN, confirmed))
            return
        changed = bytearray(state)
        told = self._commit_end(changed, WRITER_EPOCH, frozen)
        if told == BELOW_FLOOR:
            floor = self._taken_for_confirmed(state)
            if floor != frozen:
                yield (
                    f"the writer is told the floor {floor}, not the end {frozen}",
                    replaced(state, (self.at + FROZEN, floor)),
                )
        elif changed != state:
            yield f"the writer commits the end {frozen}: {'refused' if told is None else told}", changed
            if self.instance.goes_on and told == frozen:
                yield "the placement driver has no place, the writer goes on", self._thawed(state)

    def _thawed(self, state: bytes) -> bytearray:
        """Nothing was changed by the seal, and no copy of it is carried out later."""
        frozen = state[self.at + FROZEN]
        thawed = replaced(state, (self.at + FROZEN, NONE))
        if self.wrong == "late-seal":
            thawed[self.at + ASKED] |= 1 << frozen
        if self.instance.confirmed(thawed) < frozen and self.wrong != "confirm-goes-back":
            thawed[self.at + TAKEN] = frozen
        if self.instance.confirmed(thawed) < frozen:
            thawed[self.at + GHOST] |= WENT_BACK
        return thawed

    def _late_seals(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        """Copies of seals that were refused for want of a place: the placement driver keeps its answer, so nothing happens."""
        if self.wrong != "late-seal":
            return
        for end in range(self.instance.records + 1):
            changed = bytearray(state)
            if (
                state[self.at + ASKED] >> end & 1
                and self._commit_end(changed, WRITER_EPOCH, end) == end
                and changed != state
            ):
                yield f"a late copy of the seal at {end} is carried out", changed

    def _taken_for_confirmed(self, state: bytes) -> int:
        """Refused with a floor, the writer takes it for confirmed, and seals there next."""
        if self.wrong == "writer-ignores-floor":
            return state[self.at + FROZEN]
        return self.instance.records if self.wrong == "confirms-all-it-sent" else state[self.at + FLOOR]

    def _commit_end(self, changed: bytearray, level: int, wanted: int) -> int | None:
        """The placement driver takes a seal: the first wins, of the current epoch only, not below the floor.

        Return the end in force, or BELOW_FLOOR; None: another epoch came.
        """
        end = changed[self.at + END]
        if self.wrong == "pd-last-wins":
            if end not in (NONE, wanted):
                changed[self.at + GHOST] |= END_CHANGED
        elif end != NONE:
            if self.wrong == "pd-ok-without-end" and end != wanted:
                changed[self.at + GHOST] |= BELIEF
            return end
        elif level < changed[self.at + EPOCH]:
            return None
        elif wanted < changed[self.at + FLOOR] and self.wrong != "floor-ignored":
            return BELOW_FLOOR
        changed[self.at + END] = wanted
        return wanted

    # ---- failover

    def _recover(self, state: bytes, who: int) -> Iterator[tuple[str, bytearray]]:
        phase, name, level = state[self.at + PHASE + who], f"W{who + 2}", LEVELS[who]
        if phase == IDLE:
            if state[self.at + EPOCH] < level and state[self.at + END] == NONE:
                yield (
                    f"{name} opens the stream",
                    replaced(state, (self.at + PHASE + who, SEALING), (self.at + EPOCH, level)),
                )
            return
        for number, column in enumerate(self.columns):
            yield from self._fence(state, who, column, f"r{number}")
            yield from self._copy(state, who, column, f"r{number}")
            yield from self._lost(state, who, column, f"r{number}")
        if phase == SEALING:
            yield from self._decide(state, who)
        elif phase == DECIDED or (phase == TOLD and self.wrong == "pd-last-wins"):
            chosen = state[self.at + CHOSEN + who]
            if any(state[column + ANSWER + who] & TARGET for column in self.columns):
                return
            changed = bytearray(state)
            told = self._commit_end(changed, level, chosen)
            if told == BELOW_FLOOR:
                changed[self.at + GHOST] |= FLOOR_ABOVE_END
                yield f"{name} is told the floor {state[self.at + FLOOR]}, above the end {chosen}", changed
                return
            changed[self.at + PHASE + who] = REFUSED if told is None else TOLD
            if changed != state:
                yield f"{name} commits the end {chosen}: {'refused' if told is None else told}", changed

    def _fence(self, state: bytes, who: int, column: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """A fence is durable together with every append before it; the answer may be lost."""
        level, disk, fence = LEVELS[who], state[column + DISK], state[column + FENCE]
        if disk == LOST and self.wrong not in ("wiped-answers", "wiped-accepts"):
            return
        if fence > level:
            return
        kind = {TORN: DOUBTFUL, DAMAGED: UNKNOWN}.get(disk, TRUTHFUL)
        log = state[column + LOG]
        fenced = replaced(state, (column + FENCE, level))
        if state[column + DURABLE] != log:
            fenced[column + DURABLE] = log
            fenced[column + ACKED] = max(fenced[column + ACKED], log.bit_length())
        asked = state[self.at + PHASE + who] == SEALING and state[column + ANSWER + who] == NO_ANSWER
        if fence < level:
            yield f"W{who + 2} fences {name}, the answer is lost", fenced
        if not asked:
            return
        answer = (column + ANSWER + who, kind | log.bit_length() << 3)
        if self.wrong in UNFENCED:
            yield f"W{who + 2} reads {name}'s end {log.bit_length()}, unfenced", replaced(state, answer)
        else:
            yield f"W{who + 2} fences {name}: {log.bit_length()}", replaced(fenced, answer)

    def _answers(self, state: bytes, who: int) -> tuple[tuple[int, int], ...]:
        return tuple((state[at + ANSWER + who] & 7, state[at + ANSWER + who] >> 3 & 7) for at in self.columns)

    def _decide(self, state: bytes, who: int) -> Iterator[tuple[str, bytearray]]:
        answers = self._answers(state, who)
        if self.wrong in UNFENCED:
            fenced = sum(state[at + FENCE] >= LEVELS[who] for at in self.columns)
            if fenced < self.instance.replicas - self.instance.acks + 1:
                return
        if self.wrong == "third-unfenced":
            answers = self._with_unfenced(state, answers)
        decision = self._chosen(answers)
        if decision is None:
            return
        changed = replaced(state, (self.at + PHASE + who, DECIDED), (self.at + CHOSEN + who, decision.end_offset))
        for number in decision.targets:
            changed[self.columns[number] + ANSWER + who] |= TARGET
        told = ", ".join(f"r{n}: {end}" for n, (kind, end) in enumerate(answers) if kind in (TRUTHFUL, DOUBTFUL))
        yield f"W{who + 2} decides on {decision.end_offset} ({told})", changed

    def _chosen(self, answers: tuple[tuple[int, int], ...]) -> Decision | None:
        if self.wrong:
            return decide_wrong(self.wrong, answers, self.instance.acks)
        return decide(answers, self.instance.acks)

    def _with_unfenced(self, state: bytes, answers: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """Where two answered, take the third's end as well, which may still grow."""
        if sum(kind == TRUTHFUL for kind, _ in answers) != 2:
            return ()
        return tuple(
            (TRUTHFUL, state[at + LOG].bit_length()) if kind == NO_ANSWER and state[at + DISK] == SOUND else (kind, end)
            for at, (kind, end) in zip(self.columns, answers, strict=True)
        )

    def _copy(self, state: bytes, who: int, column: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """A recovery copy arrives: wanted now, or on its way since before its sender gave up."""
        chosen, log = state[self.at + CHOSEN + who], state[column + LOG]
        offset, phase = log.bit_length(), state[self.at + PHASE + who]
        if chosen == NONE or offset >= chosen or state[column + DISK] in (LOST, DAMAGED):
            return
        wanted = bool(state[column + ANSWER + who] & TARGET)
        late = self.wrong == "stale-recovery" and phase in (TOLD, REFUSED, DECIDED)
        if state[column + FENCE] != LEVELS[who] and not late:
            return
        if not wanted and not late:
            return
        source = any(other != column and state[other + LOG] >> offset & 1 for other in self.columns)
        if not source and not late:
            return
        copied = log | 1 << offset
        changed = replaced(state, (column + LOG, copied), (column + DURABLE, copied))
        if wanted:
            kind = state[column + ANSWER + who] & 7
            done = offset + 1 == chosen
            changed[column + ANSWER + who] = kind | (offset + 1) << 3 | (0 if done else TARGET)
        yield f"W{who + 2} copies {offset} to {name}", changed

    def _lost(self, state: bytes, who: int, column: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """A replica is found to be lost, for good or for now. While copies are made all are asked again."""
        phase, answer = state[self.at + PHASE + who], state[column + ANSWER + who]
        copying = phase == DECIDED and any(state[at + ANSWER + who] & TARGET for at in self.columns)
        if phase != SEALING and not copying:
            return
        gone = state[column + DISK] == LOST and self.wrong not in ("wiped-answers", "wiped-accepts")
        if answer == GONE or (answer == NO_ANSWER and not gone and not copying):
            return
        changed = replaced(state, (column + ANSWER + who, GONE if gone else NO_ANSWER))
        if copying:
            changed[self.at + PHASE + who], changed[self.at + CHOSEN + who] = SEALING, NONE
            for other in self.columns:
                if other != column and changed[other + ANSWER + who] != GONE:
                    changed[other + ANSWER + who] = NO_ANSWER
        yield f"W{who + 2} gives {name} up {'for good' if gone else 'for now'}", changed
