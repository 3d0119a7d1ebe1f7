"""Random walks of producers over a topic that splits and merges: the producer's core against the cores of owners (T1, T2, T4).

Shards 0 → 1, 2 → 3. Batches arrive in any order, again, or never; owners are deposed with batches in flight; a producer
learns of maps late; a later instance of it begins while the earlier one goes on. The log of a shard is a list: of what a
deposed owner had in flight a prefix is there. One entry of the placement driver ends parents and makes children current.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rangelog._produce.core import WINDOW, AskFor, MappedShard, ProducerCore, RecordsAcked, SendBatch
from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import AckedBatch, ProducerTable, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import Producer
from rangelog_core.errors import ProducerFenced

HALF, WHOLE = 8, 16
RANGES = {0: (0, WHOLE), 1: (0, HALF), 2: (HALF, WHOLE), 3: (0, WHOLE)}
PREDECESSORS: dict[int, tuple[int, ...]] = {0: (), 1: (0,), 2: (0,), 3: (1, 2)}
CURRENT = {1: (0,), 2: (1, 2), 3: (3,)}
Named = tuple[int, int, int]  # producer, epoch, order


@dataclass
class Log:
    """One shard: its log, what its owner has in flight, the owner."""

    batches: list[tuple[AckedBatch, list[Named]]] = field(default_factory=list)
    landing: list[tuple[AckedBatch, list[Named]]] = field(default_factory=list)
    owner: ShardOwner | None = None
    heard: int = 0
    closed: bool = False
    ended: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1][0].end_offset if self.batches else 0

    def settle(self, landed: int) -> None:
        self.batches += self.landing[:landed]
        self.landing.clear()
        self.heard = len(self.batches)


class Instance:
    """One instance of a producer, and what it was told."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.core = ProducerCore(batch_bytes_max=3, batch_records_max=3)
        self.keys: list[int] = []
        self.acked: dict[int, tuple[int, int]] = {}
        self.sent: dict[tuple[int, int], list[int]] = {}

    def named(self, order: int) -> Named:
        return self.producer_id, self.epoch, order


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.logs = {shard_id: Log() for shard_id in RANGES}
        self.map_version = 1
        self.instances: list[Instance] = []
        self.flying: list[tuple[Instance, SendBatch]] = []
        self.waiting: list[tuple[Instance, SendBatch, InFlight]] = []
        self.asking: list[tuple[Instance, AskFor]] = []
        self.seen: Counter[str] = Counter()
        self.open(0)
        for producer_id in range(2):
            self.begin(producer_id, 1)

    # ---- the topic

    def table_of(self, shard_id: int) -> ProducerTable:
        """From the log, and the epochs that its ancestors saw."""
        floors: dict[int, int] = {}
        for before in PREDECESSORS[shard_id]:
            for producer_id, epoch in self.table_of(before).epochs().items():
                floors[producer_id] = max(epoch, floors.get(producer_id, 0))
        table = ProducerTable(floors)
        for batch, _ in self.logs[shard_id].batches:
            table.note(batch)
        return table

    def open(self, shard_id: int) -> None:
        log = self.logs[shard_id]
        log.settle(self.draw.randint(0, len(log.landing)))
        log.owner, log.closed = ShardOwner(ShardState(self.table_of(shard_id)), log.end), False
        self.waiting = [each for each in self.waiting if each[1].shard_id != shard_id]

    def takeover(self) -> None:
        shard_id = self.draw.choice(CURRENT[self.map_version])
        self.open(shard_id)
        self.seen["takeover"] += 1
        for instance in self.instances:
            if self.draw.random() < 0.7:
                instance.core.disconnected(shard_id)
                instance.core.connected(shard_id)

    def close(self) -> None:
        """An owner closes its shard for a scale; what it has in flight lands, or not."""
        log = self.logs[self.draw.choice(CURRENT[self.map_version])]
        if self.map_version < 3 and not log.closed:
            log.settle(self.draw.randint(0, len(log.landing)))
            log.closed, log.owner = True, None

    def scale(self) -> None:
        if self.map_version < 3 and all(self.logs[each].closed for each in CURRENT[self.map_version]):
            for each in CURRENT[self.map_version]:
                self.logs[each].ended = True
            self.map_version += 1
            for each in CURRENT[self.map_version]:
                self.open(each)
            self.seen["scale"] += 1

    def flush_log(self) -> None:
        log = self.logs[self.draw.choice(CURRENT[self.map_version])]
        count = self.draw.randint(0, len(log.landing))
        log.batches += log.landing[:count]
        del log.landing[:count]
        if log.owner is not None:
            log.heard = self.draw.randint(log.heard, len(log.batches))
            if log.heard:
                log.owner.confirmed(log.batches[log.heard - 1][0].end_offset)

    # ---- producers

    def begin(self, producer_id: int, epoch: int) -> None:
        instance = Instance(producer_id, epoch)
        self.instances.append(instance)
        self.learn(instance)

    def restart(self) -> None:
        newest = max(self.instances, key=lambda each: (self.draw.random() < 0.5, each.epoch))
        if len(self.instances) < 5:
            epochs = [each.epoch for each in self.instances if each.producer_id == newest.producer_id]
            self.begin(newest.producer_id, max(epochs) + 1)
            self.seen["restart"] += 1

    def learn(self, instance: Instance, version: int = 0) -> None:
        """Of the newest map, or of an earlier one, by an answer that was late."""
        version = version or self.map_version
        ended = [each for earlier in range(1, version) for each in CURRENT[earlier]]
        instance.core.mapped(
            version,
            [
                MappedShard(shard_id, *RANGES[shard_id], shard_id in ended, PREDECESSORS[shard_id])
                for shard_id in (*ended, *CURRENT[version])
            ],
        )
        for shard_id in CURRENT[version]:
            if self.draw.random() < 0.8 and not self.logs[shard_id].ended:
                instance.core.connected(shard_id)
        self.take(instance)

    def learn_one(self) -> None:
        self.learn(self.draw.choice(self.instances), self.draw.randint(1, self.map_version))

    def append(self) -> None:
        instance = self.draw.choice(self.instances)
        if instance.core.error is None and len(instance.keys) < 40:
            for _ in range(self.draw.randint(1, 4)):
                position = self.draw.choice([0, HALF - 1, HALF, WHOLE - 1])
                assert instance.core.append(position, 1) == len(instance.keys)
                instance.keys.append(position)
            instance.core.flush()
            self.take(instance)

    def reconnect(self) -> None:
        instance = self.draw.choice(self.instances)
        shard_id = self.draw.choice(list(RANGES))
        instance.core.disconnected(shard_id)
        if self.draw.random() < 0.8:
            instance.core.connected(shard_id)
        self.take(instance)

    def take(self, instance: Instance) -> None:
        """Do what the core wants."""
        for effect in instance.core.effects():
            if isinstance(effect, SendBatch):
                key = effect.shard_id, effect.sequence
                assert instance.sent.setdefault(key, list(effect.orders)) == list(effect.orders), (
                    "one number, one batch"
                )
                self.flying.append((instance, effect))
            elif isinstance(effect, AskFor):
                self.asking.append((instance, effect))
            else:
                self.note_acked(instance, effect)

    def note_acked(self, instance: Instance, effect: RecordsAcked) -> None:
        for number, order in enumerate(effect.orders):
            assert order not in instance.acked, "a record is acked once"
            instance.acked[order] = effect.shard_id, effect.offset + number

    # ---- messages

    def arrive(self) -> None:
        """Any batch that was ever sent, once more or for the first time."""
        if not self.flying:
            return
        at = self.draw.randrange(len(self.flying))
        instance, batch = self.flying[at]
        if self.draw.random() < 0.6:
            del self.flying[at]
        log = self.logs[batch.shard_id]
        if log.owner is None or log.ended:
            return
        producer = Producer(instance.producer_id, instance.epoch, batch.sequence)
        found = log.owner.offer(producer, len(batch.orders))
        if isinstance(found, InFlight):
            self.waiting.append((instance, batch, found))
        elif found.standing is Standing.NEXT:
            acked = AckedBatch(producer, found.offset, found.end_offset)
            log.landing.append((acked, [instance.named(order) for order in batch.orders]))
            self.waiting.append((instance, batch, InFlight(found.offset, found.end_offset)))
        elif found.standing is Standing.HELD:
            self.tell(instance, batch, found.offset)
        elif found.standing is Standing.GAP:
            instance.core.missing(batch.shard_id, batch.sequence)
            self.seen["gap"] += 1
        elif found.standing is Standing.FENCED:
            instance.core.fenced(ProducerFenced("later", epoch=found.epoch))
            self.seen["fenced"] += 1
        self.take(instance)

    def answer(self) -> None:
        """Owners tell of what is acked."""
        still = []
        for instance, batch, place in self.waiting:
            log = self.logs[batch.shard_id]
            if log.owner is None or place.end_offset > log.owner.confirm_offset:
                still.append((instance, batch, place))
            elif self.draw.random() < 0.6:
                self.tell(instance, batch, place.offset)
        self.waiting = still

    def tell(self, instance: Instance, batch: SendBatch, offset: int) -> None:
        if instance.core.error is None:
            instance.core.acked(batch.shard_id, batch.sequence, offset)
            self.take(instance)

    def resolve(self) -> None:
        """An ended shard is asked, of the table up to its end."""
        if not self.asking:
            return
        instance, question = self.asking.pop(self.draw.randrange(len(self.asking)))
        if instance.core.error is not None:
            return
        if self.draw.random() < 0.3:
            instance.core.not_answered(question.shard_id)
        else:
            producer = Producer(instance.producer_id, instance.epoch, question.sequence)
            found = self.table_of(question.shard_id).find(producer)
            assert found.standing is not Standing.FORGOTTEN, "what has no outcome is among what is remembered"
            if found.standing is Standing.FENCED:
                instance.core.fenced(ProducerFenced("later", epoch=found.epoch))
            else:
                held = found.standing is Standing.HELD
                self.seen["asked: yes" if held else "asked: no"] += 1
                instance.core.answered(question.shard_id, question.sequence, found.offset if held else None)
        self.take(instance)

    # ---- the walk

    def run(self, steps: int) -> None:
        weights = {
            self.append: 6, self.arrive: 12, self.flush_log: 6, self.answer: 6, self.learn_one: 2, self.reconnect: 3,
            self.resolve: 4, self.takeover: 0.5, self.close: 0.5, self.scale: 1, self.restart: 0.15,
        }  # fmt: skip
        for _ in range(steps):
            self.draw.choices(list(weights), list(weights.values()))[0]()
            for instance in self.instances:
                for shard_id in RANGES:
                    numbered = [sequence for at, sequence in instance.sent if at == shard_id]
                    assert sorted(numbered) == list(range(len(numbered))), "without gaps, from 0"
        self.calm()
        self.check()

    def calm(self) -> None:
        """All that can be finished is, by the latest instances."""
        for shard_id in CURRENT[self.map_version]:
            if self.logs[shard_id].closed:
                self.open(shard_id)
        for _ in range(400):
            for instance in self.instances:
                self.learn(instance)
                for shard_id in CURRENT[self.map_version]:
                    instance.core.connected(shard_id)
                self.take(instance)
            for _ in range(len(self.flying)):
                self.arrive()
            for log in self.logs.values():
                log.batches += log.landing
                log.landing = []
                if log.owner is not None:
                    log.heard = len(log.batches)
                    log.owner.confirmed(log.end)
            self.answer()
            for _ in range(len(self.asking)):
                self.resolve()
            self.flying = self.flying[-50:]
            if all(each.core.error is not None or len(each.acked) == len(each.keys) for each in self.instances):
                return
        raise AssertionError("what the latest instances appended is not acked in the calm")

    def check(self) -> None:
        records: dict[Named, tuple[int, int]] = {}
        order_of_key: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for shard_id, log in self.logs.items():
            for batch, named in log.batches:
                for number, name in enumerate(named):
                    assert name not in records, f"{name} is there twice"
                    records[name] = shard_id, batch.offset + number
                    instance = next(each for each in self.instances if (each.producer_id, each.epoch) == name[:2])
                    position = instance.keys[name[2]]
                    low, high = RANGES[shard_id]
                    assert low <= position < high
                    order_of_key.setdefault((name[0], position), []).append(name[1:])
        for instance in self.instances:
            for order, place in instance.acked.items():
                assert records[instance.named(order)] == place, "what was acked is there, where it was said to be"
        for key, found in order_of_key.items():
            assert found == sorted(found), f"records of {key} are out of order"


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_walks(first: int) -> None:
    """Every acked record once, those of a key in the order in which they were appended, over a split and a merge."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 40):
        walk = Walk(seed)
        walk.run(300)
        seen += walk.seen
    assert set(seen) == {"takeover", "scale", "restart", "gap", "fenced", "asked: yes", "asked: no"}


def test_no_batch_is_far_ahead_of_the_oldest_without_an_outcome() -> None:
    """Acks of later ones make no room: what an owner remembers is counted from its newest."""
    core = ProducerCore(batch_bytes_max=1, batch_records_max=1)
    core.mapped(1, [MappedShard(0, 0, WHOLE, False, ())])
    core.connected(0)
    for _ in range(2 * WINDOW):
        core.append(0, 1)
    core.flush()
    assert [effect.sequence for effect in core.effects() if isinstance(effect, SendBatch)] == list(range(WINDOW))
    for sequence in range(1, WINDOW):
        core.acked(0, sequence, sequence)
    assert not [effect for effect in core.effects() if isinstance(effect, SendBatch)]
    core.acked(0, 0, 0)
    sent = [effect.sequence for effect in core.effects() if isinstance(effect, SendBatch)]
    assert sent == list(range(WINDOW, 2 * WINDOW))
