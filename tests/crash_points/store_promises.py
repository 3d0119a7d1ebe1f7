"""What a range server has promised, and what it was ever told: the judge of a store that was recovered after a crash.

A promise (an ack, a fence, an end, a drop that was reported durable) must hold on any disk that a crash leaves. What was
only submitted may be there or not. Nothing else may be there. A range that was dropped may come again: each time is a life.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rangelog_core.batch import check_batch
from rangelog_core.errors import RangelogError
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.ranges.store import Store

Key = tuple[int, int]


@dataclass(slots=True)
class Life:
    """One replica from its first entry until it is dropped."""

    batches: list[bytes] = field(default_factory=list)  # submitted
    acked_end: int = 0  # promised
    epochs: list[int] = field(default_factory=lambda: [1])  # submitted
    fenced_epoch: int = 0  # promised
    end: int | None = None  # submitted
    ended: bool = False  # promised
    confirmed: int = 0  # submitted
    dropping: bool = False  # submitted
    dropped: bool = False  # promised

    @property
    def empty(self) -> bool:
        """Whether nothing was promised of it."""
        return not (self.acked_end or self.fenced_epoch or self.ended)

    @property
    def next_offset(self) -> int:
        """Where the next batch goes."""
        return check_batch(self.batches[-1]).end_offset if self.batches else 0

    def problem(self, store: Store, hosted: HostedReplica) -> str:
        """Say how a recovered replica differs from what it may be; "" when it does not."""
        core = hosted.core
        core.validate()
        if core.trust is DiskTrust.QUARANTINED or (core.trust is DiskTrust.DOUBTFUL and not _torn(core.problem)):
            return f"{core.trust.value} after a mere crash: {core.problem}"
        try:
            found = read_batches(store.wal, make_plan(hosted, 0, core.batch_count))
        except RangelogError as error:
            return f"unreadable: {error.message}"
        sealed = core.sealed_end_offset
        whole = [data for data in self.batches if sealed is None or check_batch(data).base_offset < sealed]
        checks = {
            "bytes that were never written there": found != whole[: len(found)],
            "an acked batch is lost": core.durable_offset
            < min(self.acked_end, core.end_offset if sealed is None else sealed)
            or (sealed is None and core.durable_offset < self.acked_end),
            "a fence is lost": core.epoch < self.fenced_epoch or (bool(self.fenced_epoch) and not core.fenced),
            "an epoch out of nothing": core.epoch not in self.epochs,
            "a fence out of nothing": core.fenced and not self.fenced_epoch and self.epochs == [1] and self.end is None,
            "an end is lost": self.ended and sealed != self.end,
            "an end out of nothing": sealed is not None and sealed != self.end,
            "the confirm offset is above the writer's": core.confirm_offset > max(self.confirmed, self.end or 0),
            "what is not flushed counts as durable": core.durable_offset != core.end_offset,
        }
        return ", ".join(name for name, wrong in checks.items() if wrong)


def _torn(problem: str) -> bool:
    return problem.startswith(("the tail of the log", "the log was damaged before this range was seen"))


class Promises:
    """See the module."""

    def __init__(self) -> None:
        self.lives: dict[Key, list[Life]] = {}

    def life(self, key: Key) -> Life:
        """The life that a range is in, begun if it must."""
        lives = self.lives.setdefault(key, [])
        if not lives or lives[-1].dropping:
            lives.append(Life())
        return lives[-1]

    def problems(self, store: Store) -> list[str]:
        """What a recovered store has lost, or has that nobody gave it."""
        # A crash damages nothing that was flushed; a start that was cut short before there was a log left none.
        gone = not any(self.lives.values())
        found = [
            f"start-up: {said}"
            for said in store.problems
            if not _torn(said) and not (gone and said.startswith("the log is gone"))
        ]
        if store.problems and not store.server.doubt_unknown:
            found.append("a torn tail, and unknown ranges are not in doubt")
        for key in {**self.lives, **store.replicas}:
            said = self._range_problem(store, key)
            if said:
                found.append(f"range {key}: {said}")
        return found

    def _range_problem(self, store: Store, key: Key) -> str:
        lives, hosted = self.lives.get(key, []), store.replicas.get(key)
        first = sum(1 for life in lives if life.dropped)
        if hosted is None:
            last = next((number for number in range(len(lives) - 1, -1, -1) if lives[number].dropping), -1)
            kept = [life for life in lives[max(first, last + 1) :] if not life.empty]
            return "it is gone" if kept else ""
        said = "a dropped replica is back" if lives else "it was never here"
        for number in range(len(lives) - 1, first - 1, -1):
            said = lives[number].problem(store, hosted)
            if not said or not lives[number].empty:
                return said
        return said

    @classmethod
    def of_recovered(cls, store: Store) -> Promises:
        """What a store serves once it has started is a promise from then on."""
        found = cls()
        for key, hosted in store.replicas.items():
            core = hosted.core
            life = found.life(key)
            life.batches = read_batches(store.wal, make_plan(hosted, 0, core.batch_count))
            life.acked_end, life.epochs = core.durable_offset, [core.epoch]
            life.fenced_epoch = core.epoch if core.fenced else 0
            life.end, life.ended = core.sealed_end_offset, core.sealed_end_offset is not None
            life.confirmed = core.confirm_offset
        return found


class Acks:
    """An appender: what it hears is a promise."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def acked(self, hosted: HostedReplica, request_id: int) -> None:
        """See Appender."""
        self._life.acked_end = max(self._life.acked_end, hosted.core.durable_offset)

    def send_acks(self) -> None:
        """See Appender."""

    def settled(self, size_bytes: int) -> None:
        """See Appender."""
