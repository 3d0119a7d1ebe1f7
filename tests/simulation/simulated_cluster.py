"""A cluster of production cores on virtual time: appender, recovery, replica, placement driver's state machine.

One seed, one run: a heap of events, a seeded Random that draws delays, losses and faults, no thread, socket or clock. Every
ack that a writer gives is remembered; at the end the faults stop, a last writer opens the stream, and everything acked
must be there, byte for byte, with the ranges tiling the offsets.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rangelog.batch import batch_crc, check_batch, decode_records
from rangelog.errors import RangelogError
from rangelog.ids import Incarnation, ReplicaId
from rangelog_pd.placement import Candidate, Health, place
from rangelog_pd.state.machine import Machine, response_of
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from rangelog_server.ranges.replica import NewBatch, Replica

SERVERS = 5
RANGE_BYTES = 64 * 1024


@dataclass
class SimulatedServer:
    """A range server: replicas in memory, a log on a disk that keeps only what was flushed."""

    name: str
    up: bool = True
    paused_until: float = 0.0
    generation: int = 0  # raised by each crash: what was under way is gone
    replicas: dict[int, Replica] = field(default_factory=dict)
    batches: dict[int, dict[int, bytes]] = field(default_factory=dict)
    disk: list[tuple[Any, ...]] = field(default_factory=list)
    unflushed: list[tuple[tuple[Any, ...], Callable[[], None]]] = field(default_factory=list)
    flushing: bool = False

    @property
    def id(self) -> ReplicaId:
        """Its identity as a member of replica sets."""
        return ReplicaId(self.name, Incarnation(1))


class Violation(AssertionError):
    """A broken promise; says the seed."""


class Simulation:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.machine = Machine()
        self.servers = {f"s{number}": SimulatedServer(f"s{number}") for number in range(SERVERS)}
        self.acked: dict[int, bytes] = {}
        self.counters: Counter[str] = Counter()
        self.writers: list[Any] = []  # SimulatedWriter
        self.calm = False
        self.loss = self.random.choice([0.0, 0.02, 0.1])
        self.slow_ms = self.random.choice([2.0, 20.0, 200.0])
        self._request_ids = itertools.count(1)
        for server in self.servers.values():
            request = pd_pb2.RegisterServerRequest(server=server.name, incarnation=1, boot=1, data_address="x:1")
            self.command(register_server=request)
        config = common_pb2.StreamConfig(range_size_bytes_max=RANGE_BYTES)
        self.command(create_stream=pd_pb2.CreateStreamRequest(name="s", config=config))

    # ---- time

    def after(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (self.now + delay_ms, next(self._numbers), call))

    def run(self, until_ms: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until_ms:
            self.now, _, call = heapq.heappop(self._events)
            call()
            for writer in self.writers:
                writer.perform()
        self.now = until_ms

    def delay(self) -> float:
        """A message's way: mostly short, sometimes long."""
        return self.random.expovariate(1.0) * (self.slow_ms if self.random.random() < 0.1 else 1.0)

    def lost(self) -> bool:
        """Whether this message never arrives."""
        return not self.calm and self.random.random() < self.loss

    # ---- the placement driver: one linearizable state machine behind a network that loses answers

    def command(self, **action: Any) -> bytes:
        """Apply now; returns the response or raises."""
        request = next(iter(action.values()))
        request_id = getattr(getattr(request, "request", request), "request_id", "")
        command = pd_state_pb2.Command(version=1, request_id=request_id, now_ms=int(self.now), **action)
        result = self.machine.apply(0, command.SerializeToString())
        self.machine.state.validate()
        return response_of(result)

    def request_id(self) -> str:
        """Never the same twice."""
        return f"r{next(self._request_ids)}"

    def placement(self, exclude: tuple[str, ...], *, strictly: bool) -> list[common_pb2.Replica]:
        """As the leader would choose."""
        candidates = [
            Candidate(server.name, 1, "", Health.ALIVE if server.up else Health.DEAD, (self.random.randrange(9),))
            for server in self.servers.values()
        ]
        chosen = place(candidates, replicas=3, acks=2, exclude=exclude, strictly=strictly)
        return [common_pb2.Replica(server=each.server, incarnation=1) for each in chosen]

    # ---- range servers

    def deliver(self, server: SimulatedServer, call: Callable[[], None]) -> None:
        """Run `call` on a server that is up, after any pause."""
        generation = server.generation

        def arrive() -> None:
            if not server.up or server.generation != generation:
                return
            if server.paused_until > self.now:
                self.after(server.paused_until - self.now, arrive)
                return
            call()

        self.after(self.delay(), arrive)

    def log(self, server: SimulatedServer, entry: tuple[Any, ...], done: Callable[[], None]) -> None:
        """Group commit: what waits when the flush starts is durable when it ends."""
        server.unflushed.append((entry, done))
        if not server.flushing:
            self._flush(server)

    def _flush(self, server: SimulatedServer) -> None:
        group, server.unflushed = server.unflushed, []
        if not group:
            server.flushing = False
            return
        server.flushing = True
        generation = server.generation

        def flushed() -> None:
            if server.generation != generation:
                return
            server.disk += [entry for entry, _ in group]
            for _, done in group:
                done()
            self._flush(server)

        self.after(self.random.expovariate(1.0) * 0.5, flushed)

    def replica(self, server: SimulatedServer, source: common_pb2.Range, epoch: int) -> Replica:
        """Find or make; a server that never heard of the range truly holds nothing of it."""
        found = server.replicas.get(source.index)
        if found is None:
            found = server.replicas[source.index] = Replica(1, source.index, source.start_offset, epoch)
            server.batches[source.index] = {}
            server.disk.append(("new", source.index, source.start_offset, epoch))
        return found

    def crash(self, server: SimulatedServer) -> None:
        """Power off: what was not flushed is gone; replies under way are lost."""
        server.up = False
        server.generation += 1
        server.unflushed.clear()
        server.flushing = False
        self.counters["crash"] += 1
        for writer in self.writers:
            writer.connection_broke(server)

    def restart(self, server: SimulatedServer) -> None:
        """Replay the disk."""
        server.up = True
        server.generation += 1
        server.replicas, server.batches = {}, {}
        for kind, index, *rest in server.disk:
            if kind == "new":
                server.replicas[index] = Replica(1, index, rest[0], rest[1])
                server.batches[index] = {}
            elif kind == "batch":
                header = check_batch(rest[0])
                server.replicas[index].replay_append(header, batch_crc(rest[0]))
                server.batches[index][header.base_offset] = rest[0]
            elif kind == "fence":
                server.replicas[index].seal(rest[0])
            elif kind == "end":
                server.replicas[index].commit_end(rest[0])
        self.counters["restart"] += 1

    def append(
        self,
        server: SimulatedServer,
        source: common_pb2.Range,
        epoch: int,
        data: list[bytes],
        confirm: int,
        *,
        recovery: bool,
        reply: Callable[[int | RangelogError], None],
    ) -> None:
        """What a range server does with an append."""
        replica = self.replica(server, source, epoch)
        new = [NewBatch(check_batch(each), batch_crc(each), each) for each in data]
        try:
            fresh = replica.append(epoch, new, confirm, recovery=recovery)
        except RangelogError as error:
            reply(error)
            return
        replica.validate()
        end = replica.end_offset
        if not fresh:
            self.counters["duplicate append"] += 1
            reply(replica.durable_offset)
        for batch in fresh:
            server.batches[source.index][batch.header.base_offset] = batch.data

            def durable(end: int = batch.header.end_offset) -> None:
                durable_offset = replica.flushed(end)
                replica.validate()
                reply(durable_offset)

            self.log(server, ("batch", source.index, batch.data), durable)
        assert replica.end_offset == end

    # ---- checking

    def fail(self, what: str) -> None:
        """Stop with the seed."""
        raise Violation(f"SEED={self.seed}: {what}")

    def note_ack(self, offset: int, payload: bytes) -> None:
        """An application was told that this record is safe."""
        if self.acked.get(offset, payload) != payload:
            self.fail(f"offset {offset} was acked twice, with different records")
        self.acked[offset] = payload

    def check_all_there(self) -> None:
        """Every acked record lies in the sealed range that covers it, on at least two replicas."""
        copies: Counter[int] = Counter()
        for source in self.machine.state.ranges[1].values():
            end = source.end_offset if source.state == common_pb2.RANGE_STATE_SEALED else None
            for member in source.replicas:
                server = self.servers[member.server]
                replica = server.replicas.get(source.index)
                if replica is None:
                    continue
                limit = replica.durable_offset if end is None else min(end, replica.durable_offset)
                for base, data in sorted(server.batches[source.index].items()):
                    for record in decode_records(data) if base < limit else ():
                        if record.offset >= limit:
                            continue
                        expected = self.acked.get(record.offset)
                        if expected is not None and expected != record.value:
                            self.fail(f"{server.name} holds another record at {record.offset} than was acked")
                        copies[record.offset] += 1
        for offset in self.acked:
            if copies[offset] < 2:
                self.fail(f"acked offset {offset} is on {copies[offset]} replicas")
