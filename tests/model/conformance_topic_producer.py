"""The producers' side of the walks through a topic: ProducerCore, one for each instance.

The core numbers whatever it may as soon as it may. It is connected to a shard only while the model numbers a batch for it.
"""

from __future__ import annotations

from rangelog._produce.core import AskFor, MappedShard, ProducerCore, RecordsAcked, SendBatch
from rangelog_core.errors import ProducerFenced
from tests.model.conformance_topic_driver import HALF
from tests.model.topic_state import CURRENT, ROUTE, Producer, Sent, Topic, bits


class ProducerSide:
    """One instance of a producer."""

    def __init__(self, instance: Topic, who: int) -> None:
        sends = instance.sends
        self.first = sum(len(keys) for _, _, keys in sends[:who])
        self.keys = sends[who][2]
        self.epoch = sends[who][1]
        self.core = ProducerCore(batch_bytes_max=1 << 20, batch_records_max=instance.batch_records)
        self._instance = instance
        self.appended = 0
        self.numbered: dict[tuple[int, int], Sent] = {}
        self.sent: list[Sent] = []  # numbered by the core, not yet by the model
        self.asking: dict[int, int] = {}  # by shard
        self.acked: dict[int, tuple[int, int]] = {}

    def mapped(self, version: int, shards: list[MappedShard]) -> None:
        """The core has a map."""
        self.core.mapped(version, shards)
        self._take()

    def number(self, producer: Producer, item: Sent) -> bool:
        """Let the core number a batch; return whether it would be this one."""
        if self.sent and self.sent[0] == item:
            self.sent.pop(0)
            return True
        upto = max(item.records) - self.first + 1
        known = max(upto, self.appended) + self.first
        waiting = [r for r in producer.queue if r < known and self._route(producer, r) == item.shard]
        if tuple(waiting[: self._instance.batch_records]) != item.records and sorted(producer.queue) == list(
            producer.queue
        ):
            return False  # the core has more records than this step takes
        self.append(upto)
        self.core.connected(item.shard)
        self.core.disconnected(item.shard)
        self._take()
        assert self.sent[:1] == [item], f"the core numbers {self.sent[:1]}, the model {item}"
        self.sent.pop(0)
        return True

    def append(self, upto: int) -> None:
        """The application appends records, until there are so many."""
        while self.appended < upto:
            assert self.core.append(self.keys[self.appended] * HALF, 1) == self.appended
            self.appended += 1

    def connect(self, producer: Producer) -> None:
        """All that is there is appended, and the core is connected to every current shard: it numbers what it may."""
        self.append(len(self.keys))
        for shard in CURRENT[producer.level]:
            self.core.connected(shard)
            self.core.disconnected(shard)
        self._take()

    def ack(self, item: Sent, offset: int) -> None:
        """The core has an ack."""
        self.core.acked(item.shard, item.sequence, offset)
        self._take()
        self._check_acked(item, offset)

    def answer(self, item: Sent, offset: int | None) -> None:
        """The core has the answer of an ended shard, for which it has asked."""
        asked = self.numbered.get((item.shard, self.asking.get(item.shard, -1)))
        if asked is not None and asked.records[0] in self.acked:  # an ack was faster; the answer comes now
            del self.asking[item.shard]
            self.core.answered(asked.shard, asked.sequence, self.acked[asked.records[0]][1])
            self._take()
        assert self.asking.pop(item.shard, None) == item.sequence, f"the core has not asked for {item}"
        self.core.answered(item.shard, item.sequence, offset)
        self._take()
        if offset is not None:
            self._check_acked(item, offset)

    def fence(self) -> None:
        """The core learns of a later instance."""
        self.core.fenced(ProducerFenced("a later instance", epoch=self.epoch + 1))
        self._take()

    def reconnect(self, shard: int, sequence: int) -> None:
        """A new connection, and a gap: the core sends again what has no outcome, under the same numbers."""
        self.core.connected(shard)
        self.core.missing(shard, sequence)
        self.core.disconnected(shard)
        self._take()

    def compare(self, producer: Producer) -> None:
        """Assert that the core stands where the model does."""
        assert bits(self.acked) == producer.acked
        if self.core.error is not None:
            return
        queued = [record for record in producer.queue if record < self.first + self.appended]
        ahead = len({record for item in self.sent for record in item.records})
        assert self.core.queued_count == len(queued) - ahead, "what waits for a number"
        assert self.core.unresolved_count == len(producer.unresolved) + len(self.sent)

    # ---- inside

    def _take(self) -> None:
        for effect in self.core.effects():
            if isinstance(effect, SendBatch):
                item = Sent(effect.shard_id, effect.sequence, tuple(self.first + order for order in effect.orders))
                known = self.numbered.get(item[:2])
                assert known in (None, item), f"{known} and {item} have one number"
                if known is not None:
                    continue  # sent again
                self.numbered[item[:2]] = item
                self.sent.append(item)
            elif isinstance(effect, AskFor):
                self.asking[effect.shard_id] = effect.sequence
            elif isinstance(effect, RecordsAcked):
                for place, order in enumerate(effect.orders):
                    assert self.first + order not in self.acked, "acked once"
                    self.acked[self.first + order] = effect.shard_id, effect.offset + place

    def _check_acked(self, item: Sent, offset: int) -> None:
        for place, record in enumerate(item.records):
            assert self.acked.get(record) == (item.shard, offset + place), f"record {record}"

    def _route(self, producer: Producer, record: int) -> int:
        return ROUTE[producer.level][self.keys[record - self.first]]
