"""Random walks of producers with dated epochs over a shard that forgets them: the producer's core against the cores of owners.

Frames of one connection arrive in order, those of a former one at any time; answers are lost with a connection. An owner lets
producers expire at any time, also with their batches on their way, and the next owner begins with any snapshot that was taken.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import count

import pytest

from rangelog._produce.core import EPOCH_MINUTES, MappedShard, ProducerCore, RecordsAcked, SendBatch
from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import AckedBatch, ProducerTable, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import DATED_EPOCHS, OWN_IDS, Producer
from rangelog_core.errors import ProducerFenced

Frame = tuple[int, SendBatch, Producer]


@dataclass
class Connection:
    """Frames that have not arrived, and what the link knows of those without an answer (`shard_link._Attachment`)."""

    frames: deque[Frame] = field(default_factory=deque)
    requests: dict[int, int] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)


class Program:
    """One producer with an id of its own."""

    def __init__(self, number: int, now: int) -> None:
        self.id = OWN_IDS + number
        self.core = ProducerCore(batch_bytes_max=3, batch_records_max=3, epoch=now, dated=True)
        self.core.mapped(1, [MappedShard(0, 0, 1, False, ())])
        self.connections = [Connection()]
        self.core.connected(0)
        self.appended = 0
        self.acked: dict[int, int] = {}

    @property
    def connection(self) -> Connection:
        return self.connections[-1]


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now = DATED_EPOCHS + 10_000
        self.batches: list[tuple[AckedBatch, list[tuple[int, int]]]] = []
        self.landing: list[tuple[AckedBatch, list[tuple[int, int]]]] = []
        self.waiting: list[tuple[Program, Connection, int, SendBatch, InFlight]] = []
        self.snapshots: list[tuple[int, list[bytes]]] = [(0, [])]
        self.owner = ShardOwner(ShardState(ProducerTable()), 0)
        self.programs: list[Program] = []
        self.requests = count()
        self.seen: Counter[str] = Counter()
        self.begin()

    # ---- the shard

    def take_over(self) -> None:
        """Another owner: some of what is in flight landed; it restores any snapshot that was taken, and folds what follows."""
        landed = self.draw.randint(0, len(self.landing))
        self.batches += self.landing[:landed]
        self.landing.clear()
        self.waiting.clear()
        count_, pieces = self.draw.choice(self.snapshots)
        table = ProducerTable.restore(pieces)
        for batch, _ in self.batches[count_:]:
            table.note(batch)
        self.owner = ShardOwner(ShardState(table), self.batches[-1][0].end_offset if self.batches else 0)
        for program in self.programs:
            if self.draw.random() < 0.7:
                self.reconnect(program)

    def flush_log(self) -> None:
        landed = self.draw.randint(0, len(self.landing))
        self.batches += self.landing[:landed]
        del self.landing[:landed]
        if self.batches:
            self.owner.confirmed(self.batches[-1][0].end_offset)
        still = []
        for program, connection, request, batch, place in self.waiting:
            if place.end_offset <= self.owner.confirm_offset:
                self.acked(program, connection, request, batch, place.offset)
            else:
                still.append((program, connection, request, batch, place))
        self.waiting = still

    def expire(self) -> None:
        """At a snapshot, as `expire_idle` does for those that were silent for a day."""
        self.flush_log()
        end = self.owner.confirm_offset
        self.seen["expired"] += self.owner.table.expire(self.draw.choice([end, max(0, end - self.draw.randint(0, 9))]))
        self.snapshots.append(
            (sum(batch.end_offset <= end for batch, _ in self.batches), list(self.owner.table.snapshot()))
        )

    # ---- producers

    def begin(self) -> None:
        if len(self.programs) < 6:
            behind = self.draw.choice([0, 0, 5_000])  # some machines have wrong clocks
            self.programs.append(Program(len(self.programs), self.now - behind))

    def append(self) -> None:
        program = self.draw.choice(self.programs)
        if program.core.error is None and program.appended < 40:
            for _ in range(self.draw.randint(1, 4)):
                assert program.core.append(0, 1) == program.appended
                program.appended += 1
            program.core.flush()
            self.take(program)

    def pass_time(self) -> None:
        self.now += self.draw.choice([1, EPOCH_MINUTES // 2, 2 * EPOCH_MINUTES])
        for program in self.programs:
            program.core.epoch += self.draw.choice([0, EPOCH_MINUTES])

    def reconnect(self, program: Program | None = None) -> None:
        program = program or self.draw.choice(self.programs)
        program.core.disconnected(0)
        program.connections.append(Connection())
        program.core.connected(0)
        self.take(program)

    def take(self, program: Program) -> None:
        for effect in program.core.effects():
            if isinstance(effect, SendBatch):
                request = next(self.requests)
                identity = Producer(program.id, *program.core.identity(0, effect.sequence))
                program.connection.frames.append((request, effect, identity))
                program.connection.requests[request] = effect.sequence
            else:
                assert isinstance(effect, RecordsAcked)
                for number, order in enumerate(effect.orders):
                    assert order not in program.acked, "a record is acked once"
                    program.acked[order] = effect.offset + number

    def acked(self, program: Program, connection: Connection, request: int, batch: SendBatch, offset: int) -> None:
        if connection.requests.pop(request, None) is not None and program.core.error is None:
            program.core.acked(0, batch.sequence, offset)
            self.take(program)

    # ---- frames

    def arrive(self) -> None:
        """The first frame of a connection reaches the owner."""
        program = self.draw.choice(self.programs)
        connection = self.draw.choice([each for each in program.connections if each.frames] or [program.connection])
        if not connection.frames:
            return
        request, batch, identity = connection.frames.popleft()
        found = self.owner.offer(identity, len(batch.orders))
        if isinstance(found, InFlight):
            self.waiting.append((program, connection, request, batch, found))
        elif found.standing is Standing.NEXT:
            names = [(program.id, order) for order in batch.orders]
            self.landing.append((AckedBatch(identity, found.offset, found.end_offset), names))
            place = InFlight(found.offset, found.end_offset)
            self.waiting.append((program, connection, request, batch, place))
        elif found.standing is Standing.HELD:
            self.acked(program, connection, request, batch, found.offset)
        elif connection is program.connection and program.core.error is None:
            connection.requests.pop(request)
            self.refused(program, connection, request, batch, found.standing, found.epoch)
            self.take(program)

    def refused(
        self, program: Program, connection: Connection, request: int, batch: SendBatch, standing: Standing, epoch: int
    ) -> None:
        if request in connection.missing:
            return
        sent_before = set(connection.requests)
        if standing is Standing.GAP:
            connection.missing = sent_before
            program.core.missing(0, batch.sequence)
        elif standing is Standing.FENCED and program.core.begin_anew(0, batch.sequence, epoch):
            connection.missing = sent_before
            self.seen["begun anew"] += 1
        else:
            self.seen["in doubt"] += 1
            program.core.fenced(ProducerFenced("expired", epoch=epoch))

    # ---- the walk

    def run(self) -> None:
        steps = {
            self.append: 6, self.arrive: 14, self.flush_log: 6, self.reconnect: 0.7, self.take_over: 0.4, self.expire: 0.5,
            self.begin: 0.4, self.pass_time: 0.3,
        }  # fmt: skip
        for _ in range(300):
            self.draw.choices(list(steps), list(steps.values()))[0]()
        for _ in range(3_000):
            self.arrive()
            self.flush_log()
            if self.draw.random() < 0.01:
                self.reconnect()
            if all(each.core.error is not None or len(each.acked) == each.appended for each in self.programs):
                break
        for program in self.programs:
            assert program.core.error is not None or len(program.acked) == program.appended, "not acked in the calm"
        places: dict[tuple[int, int], int] = {}
        last: dict[int, int] = {}
        for batch, names in self.batches:
            for offset, name in enumerate(names, batch.offset):
                assert name not in places, f"{name} is there twice"
                assert last.get(name[0], -1) < name[1], f"{name} is out of order"
                places[name], last[name[0]] = offset, name[1]
        for program in self.programs:
            for order, offset in program.acked.items():
                assert places[program.id, order] == offset, "what was acked is there, where it was said to be"


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_walks_of_producers_that_a_shard_forgets(first: int) -> None:
    """Every acked record once and in order; a producer that was forgotten goes on, but where a batch of it is in doubt."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 100):
        walk = Walk(seed)
        walk.run()
        seen += walk.seen
    assert min(seen[each] for each in ("expired", "begun anew", "in doubt")) > 5, seen
