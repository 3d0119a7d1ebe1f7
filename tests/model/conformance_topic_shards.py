"""The owners' side of the walks through a topic: ShardOwner and ProducerTable over a log that is a list."""

from __future__ import annotations

from dataclasses import dataclass, field

from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import AckedBatch, Found, ProducerTable, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import OWN_IDS, Producer
from tests.model.topic_state import PARENTS, SHARDS, Batch, Shard, Topic

AFTER_ALL = 1 << 62


@dataclass(slots=True)
class Log:
    """One shard: durable batches, those in flight, the present owner, the last snapshot."""

    batches: list[AckedBatch] = field(default_factory=list)
    landing: list[AckedBatch] = field(default_factory=list)
    owner: ShardOwner | None = None
    snapshot: tuple[int, list[bytes]] | None = None

    @property
    def end_offset(self) -> int:
        """Of what is durable."""
        return self.batches[-1].end_offset if self.batches else 0

    def offset(self, count: int) -> int:
        """Return the offset behind so many batches."""
        return self.batches[count - 1].end_offset if count else 0


class ShardSide:
    """All shards of a topic."""

    def __init__(self, instance: Topic) -> None:
        self.instance = instance
        self.logs = [Log() for _ in SHARDS]

    def producer(self, batch: Batch) -> Producer:
        """Return a batch's number as owners have it."""
        return Producer(
            OWN_IDS + self.instance.producer_of(batch.who), self.instance.epoch_of(batch.who), batch.sequence
        )

    def table(self, at: int, count: int | None = None) -> ProducerTable:
        """Fold the first batches of a log, on the epochs of its ancestors."""
        floors: dict[int, int] = {}
        for parent in PARENTS[at]:
            for producer_id, epoch in self.table(parent).epochs().items():
                floors[producer_id] = max(epoch, floors.get(producer_id, 0))
        table = ProducerTable(floors)
        for batch in self.logs[at].batches[:count]:
            table.note(batch)
        return table

    def open(self, at: int, landed: int = 0) -> None:
        """A new owner: fence, settle the end, restore the snapshot, replay what follows."""
        log = self.logs[at]
        self.settle(at, landed)
        if log.snapshot is None:
            table = self.table(at)
        else:
            count, pieces = log.snapshot
            table = ProducerTable.restore(pieces)
            for batch in log.batches[count:]:
                table.note(batch)
        log.owner = ShardOwner(ShardState(table), log.end_offset)

    def settle(self, at: int, landed: int) -> None:
        """The owner is gone; of what it had in flight some first batches land."""
        log = self.logs[at]
        log.batches += log.landing[:landed]
        log.landing.clear()
        log.owner = None

    def save(self, at: int, count: int, *, expired: bool) -> None:
        """Take a snapshot at so many batches, of the present owner's table where that is what it has."""
        log = self.logs[at]
        table = self.table(at, count)
        if expired:
            table.expire(AFTER_ALL)
        log.snapshot = count, list(table.snapshot())

    def offer(self, at: int, batch: Batch) -> Found | InFlight:
        """A batch arrives. What is taken is in flight then."""
        owner = self.logs[at].owner
        assert owner is not None, "nobody owns the shard"
        producer = self.producer(batch)
        found = owner.offer(producer, len(batch.records))
        if isinstance(found, Found) and found.standing is Standing.NEXT:
            self.logs[at].landing.append(AckedBatch(producer, found.offset, found.end_offset))
        return found

    def land(self, at: int) -> None:
        """The first batch in flight is durable, and its owner has the ack."""
        log = self.logs[at]
        log.batches.append(log.landing.pop(0))
        if log.owner is not None:
            log.owner.confirmed(log.end_offset)

    def compare(self, at: int, shard: Shard) -> None:
        """Assert that the log is the model's."""
        log = self.logs[at]
        for mine, theirs in ((log.batches, shard.log), (log.landing, shard.tail)):
            assert [each.producer for each in mine] == [self.producer(each) for each in theirs], f"shard {at}"
            assert [each.end_offset - each.offset for each in mine] == [len(each.records) for each in theirs]
        assert (log.owner is not None) == shard.taking
        if log.owner is not None:
            assert (log.owner.confirm_offset, log.owner.next_offset) == (
                log.end_offset,
                log.landing[-1].end_offset if log.landing else log.end_offset,
            )
