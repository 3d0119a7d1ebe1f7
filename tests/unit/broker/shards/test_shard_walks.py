"""Random walks of one shard: producers in doubt, owners that are deposed, snapshots, later instances (T1, T2).

The log below is a list with an epoch: of what a deposed owner had in flight a prefix is in the log, the rest never is. Batches
arrive in any order, again, or never; so do answers, also those of former owners.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import WINDOW, AckedBatch, Found, ProducerTable, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import Producer


@dataclass
class Instance:
    """One instance of a producer: no batch that it sends is WINDOW or more ahead of the oldest without an outcome."""

    producer_id: int
    epoch: int
    next_sequence: int = 0
    doubtful: list[int] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)
    fenced: bool = False


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.log: list[AckedBatch] = []
        self.landing: list[AckedBatch] = []
        self.snapshot: tuple[int, list[bytes]] = (0, [])  # batches that it holds, and the table
        self.owners = [ShardOwner(ShardState(ProducerTable()), 0)]
        self.heard = 0  # batches that the owner knows to be acked
        self.waiting: list[tuple[Instance, int, InFlight]] = []
        self.instances = [Instance(number, 1) for number in range(3)]
        self.seen: Counter[str] = Counter()

    @property
    def end(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def send(self) -> None:
        instance = self.draw.choice(self.instances)
        oldest = min(instance.doubtful, default=instance.next_sequence)
        if not instance.fenced and instance.next_sequence - oldest < WINDOW:
            instance.doubtful.append(instance.next_sequence)
            instance.next_sequence += 1

    def arrive(self) -> None:
        """A batch without an outcome, at the owner of today or at a former one."""
        instance = self.draw.choice(self.instances)
        if not instance.doubtful or instance.fenced:
            return
        sequence = self.draw.choice(instance.doubtful)
        producer = Producer(instance.producer_id, instance.epoch, sequence)
        owner = self.owners[-1] if self.draw.random() < 0.7 else self.draw.choice(self.owners)
        if owner is not self.owners[-1]:
            found = owner.table.find(producer)  # a former owner appends nothing; what it knows it may tell
            if found.standing is Standing.HELD:
                self.ack(instance, sequence, found)
                self.seen["a former owner's ack"] += 1
            return
        records = 1 + (instance.producer_id + sequence) % 3
        found = owner.offer(producer, records)
        if isinstance(found, InFlight):
            self.waiting.append((instance, sequence, found))
            self.seen["a retry in flight"] += 1
        elif found.standing is Standing.NEXT:
            self.landing.append(AckedBatch(producer, found.offset, found.end_offset))
            self.waiting.append((instance, sequence, InFlight(found.offset, found.end_offset)))
        elif found.standing is Standing.HELD:
            self.ack(instance, sequence, found)
            self.seen["a retry that is held"] += 1
        elif found.standing is Standing.FENCED:
            instance.fenced = True
            self.seen["fenced"] += 1
        else:
            assert found.standing is Standing.GAP, "what has no outcome is among what is remembered"
            self.seen["gap"] += 1

    def ack(self, instance: Instance, sequence: int, found: Found | InFlight) -> None:
        if sequence in instance.doubtful:
            instance.doubtful.remove(sequence)
        assert instance.acked.setdefault(sequence, found.offset) == found.offset, "the first ack's offset"

    def flush(self) -> None:
        count = self.draw.randint(0, len(self.landing))
        self.log += self.landing[:count]
        del self.landing[:count]

    def hear(self) -> None:
        self.heard = self.draw.randint(self.heard, len(self.log))
        if not self.heard:
            return
        confirm = self.log[self.heard - 1].end_offset
        self.owners[-1].confirmed(confirm)
        still = []
        for instance, sequence, place in self.waiting:
            if place.end_offset > confirm:
                still.append((instance, sequence, place))
            elif self.draw.random() < 0.5:  # the answer may be lost
                self.ack(instance, sequence, place)
        self.waiting = still

    def save(self) -> None:
        """A snapshot of what the owner knows to be acked; it may be written late."""
        held = self.heard if self.owners[-1].confirm_offset == self._offset_after(self.heard) else 0
        if held > self.snapshot[0]:
            self.snapshot = held, list(self.owners[-1].table.snapshot())

    def _offset_after(self, count: int) -> int:
        return self.log[count - 1].end_offset if count else 0

    def takeover(self) -> None:
        landed = self.draw.randint(0, len(self.landing))
        self.log += self.landing[:landed]
        self.landing, self.waiting = [], []
        held, pieces = self.snapshot
        table = ProducerTable.restore(pieces)
        for batch in self.log[held:]:
            table.note(batch)
        self.owners.append(ShardOwner(ShardState(table), self.end))
        self.heard = len(self.log)
        self.seen["takeover"] += 1

    def restart(self) -> None:
        """A later instance of a producer; the earlier one may go on."""
        instance = self.draw.choice(self.instances)
        newest = max(each.epoch for each in self.instances if each.producer_id == instance.producer_id)
        self.instances.append(Instance(instance.producer_id, newest + 1))

    def run(self, steps: int) -> None:
        weights = {
            self.send: 6, self.arrive: 12, self.flush: 4, self.hear: 5, self.save: 1, self.takeover: 0.6, self.restart: 0.3,
        }  # fmt: skip
        for _ in range(steps):
            self.draw.choices(list(weights), list(weights.values()))[0]()
        self.check()

    def check(self) -> None:
        offsets = {batch.producer: batch.offset for batch in self.log}
        assert len(offsets) == len(self.log), "no batch is there twice"
        for instance in self.instances:
            name = instance.producer_id, instance.epoch
            for sequence, offset in instance.acked.items():
                assert offsets[Producer(*name, sequence)] == offset, "what was acked is there, where it was said to be"
        for producer_id in {each.producer_id for each in self.instances}:
            mine = [batch.producer[1:] for batch in self.log if batch.producer.producer_id == producer_id]
            assert mine == sorted(mine), "in the order sent, an earlier instance's before a later one's"


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_walks(first: int) -> None:
    """Every batch once, in order, at the offset of its ack."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 40):
        walk = Walk(seed)
        walk.run(250)
        seen += walk.seen
    assert set(seen) == {
        "a former owner's ack", "a retry in flight", "a retry that is held", "fenced", "gap", "takeover",
    }  # fmt: skip
