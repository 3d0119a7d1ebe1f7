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

from rangelog.batch import batch_crc, check_batch, decode_records, encode_batch
from rangelog.errors import NoPlacement, RangelogError, WriterFenced
from rangelog.ids import Incarnation, ReplicaId
from rangelog.protocol.appender import (
    Appender,
    Confirmed,
    Connect,
    Leave,
    OpenRange,
    Probe,
    SealRange,
    Send,
    SendConfirm,
)
from rangelog.protocol.recovery import Answer, Commit, Copy, Fence, Recovery
from rangelog_pd.placement import Candidate, Health, place
from rangelog_pd.state.machine import Machine, response_of
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from rangelog_server.ranges.replica import NewBatch, Outcome, Replica

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
        self.writers: list[SimulatedWriter] = []
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


class SimulatedWriter:
    """One writer: opens the stream by the failover seal, then appends until it is fenced."""

    def __init__(self, simulation: Simulation, name: str, records: int) -> None:
        self.sim = simulation
        self.name = name
        self.left = records
        self.core: Appender | None = None
        self.recovery: Recovery | None = None
        self.epoch = 0
        self.range: common_pb2.Range | None = None
        self.payloads: dict[int, bytes] = {}
        self.confirmed = 0
        self.stopped = False
        self._links: dict[ReplicaId, int] = {}
        self._connected: dict[ReplicaId, bool] = {}
        simulation.writers.append(self)

    # ---- opening

    def open(self) -> None:
        """Raise the epoch, seal what is open, create a range."""
        request = pd_pb2.OpenWriterRequest(request_id=self.sim.request_id(), name="s")
        opened = pd_pb2.OpenWriterResponse.FromString(self.sim.command(open_writer=request))
        self.epoch = opened.stream.epoch
        self.sim.counters["open"] += 1
        if not opened.HasField("last_range"):
            self._create(0)
        elif opened.last_range.state == common_pb2.RANGE_STATE_SEALED:
            self._create(opened.last_range.end_offset)
        else:
            self.range = opened.last_range
            members = tuple(self.sim.servers[each.server].id for each in opened.last_range.replicas)
            self.recovery = Recovery(members, opened.last_range.acks, opened.last_range.start_offset)
            self._tick()

    def _tick(self) -> None:
        if self.stopped:
            return
        if self.recovery is not None:
            self.recovery.tick(self.sim.now)
            if self.sim.random.random() < 0.2:
                self.recovery.retry_lost()
        if self.core is not None:
            self.core.tick(self.sim.now)
            self._submit()
        self.sim.after(25, self._tick)

    def _create(self, start: int) -> None:
        request = pd_pb2.CreateRangeRequest(
            request_id=self.sim.request_id(), stream_id=1, epoch=self.epoch, start_offset=start
        )
        try:
            replicas = self.sim.placement((), strictly=False)
            placed = pd_state_pb2.PlacedCreateRange(request=request, replicas=replicas)
            created = pd_pb2.CreateRangeResponse.FromString(self.sim.command(create_range=placed)).range
        except NoPlacement:
            self.sim.after(100, lambda: self._create(start))
            return
        except WriterFenced:
            self.stopped = True
            return
        self.confirmed = start
        self.core = Appender(self.epoch, self._entered(created), self.sim.now)
        self._tick()

    def _entered(self, created: common_pb2.Range) -> OpenRange:
        self.range = created
        self._links.clear()
        self._connected.clear()
        members = tuple(self.sim.servers[each.server].id for each in created.replicas)
        return OpenRange(created.index, created.start_offset, created.acks, members, self.sim.now, RANGE_BYTES, 0)

    # ---- appending

    def _submit(self) -> None:
        core = self.core
        while core is not None and core.error is None and self.left > 0 and len(self.payloads) < 8:
            base = core.next_offset
            count = min(self.left, self.sim.random.randrange(1, 4))
            values = [b"%s-%d-%d" % (self.name.encode(), self.epoch, base + n) + b"." * 1500 for n in range(count)]
            data = encode_batch(
                stream_id=1,
                range_index=core.range_index,
                epoch=self.epoch,
                base_offset=base,
                timestamps_ms=[0] * count,
                values=values,
            )
            self.payloads.update(zip(range(base, base + count), values, strict=True))
            self.left -= count
            core.submit(self.sim.now, base, base + count, data)

    def connection_broke(self, server: SimulatedServer) -> None:
        """Replies under way are lost; the writer hears of it."""
        if self.core is None or self.range is None or server.id not in self._links:
            return
        self._links[server.id] += 1
        self._connected[server.id] = False
        index, core = self.range.index, self.core
        self.sim.after(self.sim.delay(), lambda: self._disconnected(core, index, server.id))

    def _disconnected(self, core: Appender, index: int, replica: ReplicaId) -> None:
        if core.range_index != index:
            return
        core.disconnected(self.sim.now, index, replica)
        self.sim.after(50, lambda: self._connect(core, index, replica))

    def _connect(self, core: Appender, index: int, replica: ReplicaId) -> None:
        if self.stopped or core.range_index != index:
            return
        if self.sim.servers[replica.server].up and not self.sim.lost():
            self._links[replica] = self._links.get(replica, 0) + 1
            self._connected[replica] = True
            core.connected(self.sim.now, index, replica)
        else:
            core.disconnected(self.sim.now, index, replica)
            self.sim.after(50, lambda: self._connect(core, index, replica))

    # ---- effects

    def perform(self) -> None:
        """Do what the cores want."""
        if self.recovery is not None:
            for effect in self.recovery.effects():
                self._perform_recovery(self.recovery, effect)
        while self.core is not None and (effects := self.core.effects()):
            for wanted in effects:
                self._perform(self.core, wanted)

    def _perform(self, core: Appender, effect: Any) -> None:
        sim = self.sim
        if isinstance(effect, Connect):
            sim.after(sim.delay(), lambda: self._connect(core, effect.range_index, effect.replica))
        elif isinstance(effect, Send):
            self._send(core, effect)
        elif isinstance(effect, SendConfirm):
            server = sim.servers[effect.replica.server]
            sim.deliver(server, lambda: self._confirm(server, effect))
        elif isinstance(effect, Confirmed):
            for offset in range(self.confirmed, effect.confirm_offset):
                sim.note_ack(offset, self.payloads.pop(offset))
            self.confirmed = effect.confirm_offset
            self._submit()
        elif isinstance(effect, Probe):
            up = [name for name, each in sim.servers.items() if each.up]
            if effect.strictly:
                up = [name for name in up if name not in effect.exclude_servers]
            possible = len(up) >= effect.servers_min and not sim.lost()
            sim.after(sim.delay(), lambda: core.probed(sim.now, possible=possible))
        elif isinstance(effect, SealRange):
            self._seal(core, effect, sim.request_id())
        elif isinstance(effect, Leave):
            for replica in effect.replicas:
                self._tell_end(effect.range_index, effect.end_offset, replica)
        else:
            self.stopped = True
            sim.counters["stopped: " + type(effect.error).__name__] += 1
            if not isinstance(effect.error, WriterFenced):
                sim.fail(f"{self.name} stopped: {effect.error}")

    def _confirm(self, server: SimulatedServer, effect: SendConfirm) -> None:
        replica = server.replicas.get(effect.range_index)
        if replica is not None:
            replica.confirm(self.epoch, effect.confirm_offset)
            if replica.readable_end() > replica.durable_offset:
                self.sim.fail("a reader would see what is not durable")

    def _send(self, core: Appender, effect: Send) -> None:
        assert self.range is not None
        sim, source, replica = self.sim, self.range, effect.replica
        server, link = sim.servers[replica.server], self._links.get(replica, 0)
        if not self._connected.get(replica):
            return  # the core hears of it soon
        data = [batch.data for batch in effect.batches]

        def reply(outcome: int | RangelogError) -> None:
            def arrive() -> None:
                if self._links.get(replica, 0) != link:
                    return  # that connection is gone
                if isinstance(outcome, int):
                    core.acked(sim.now, source.index, replica, outcome)
                else:
                    sim.counters["refused: " + type(outcome).__name__] += 1
                    core.refused(sim.now, source.index, replica, outcome)

            sim.after(sim.delay(), arrive)

        def take() -> None:
            if self._links.get(replica, 0) == link:  # TCP: what a broken connection held is gone
                sim.append(server, source, self.epoch, data, effect.confirm_offset, recovery=False, reply=reply)

        self._in_order(server, replica, take)

    def _in_order(self, server: SimulatedServer, replica: ReplicaId, take: Callable[[], None]) -> None:
        """A connection keeps order: a message arrives after those before it."""
        due = getattr(self, "_due", {})
        key = (replica, self._links.get(replica, 0))
        at = max(due.get(key, 0.0), self.sim.now + self.sim.delay())
        due[key] = at + 1e-6
        self._due = due
        generation = server.generation

        def arrive() -> None:
            if not server.up or server.generation != generation:
                return
            if server.paused_until > self.sim.now:
                self.sim.after(server.paused_until - self.sim.now, arrive)
                return
            take()

        self.sim.after(at - self.sim.now, arrive)

    def _seal(self, core: Appender, effect: SealRange, request_id: str) -> None:
        sim = self.sim
        request = pd_pb2.SealRangeRequest(
            request_id=request_id,
            stream_id=1,
            range_index=effect.range_index,
            epoch=self.epoch,
            end_offset=effect.end_offset,
            create_next=True,
        )

        def ask() -> None:
            if self.stopped:
                return
            try:
                replicas = sim.placement(effect.exclude_servers, strictly=effect.strictly)
                placed = pd_state_pb2.PlacedSealRange(request=request, replicas=replicas)
                response = pd_pb2.SealRangeResponse.FromString(sim.command(seal_range=placed))
            except NoPlacement:
                core.seal_refused(sim.now)
                return
            except WriterFenced as error:
                core.fenced(error)
                return
            if sim.lost():
                sim.counters["seal answer lost"] += 1
                sim.after(100, ask)  # the outcome is unknown: the same command again
                return
            sim.counters["active seal"] += 1
            core.sealed(sim.now, response.range.end_offset, self._entered(response.next_range))

        sim.after(sim.delay(), ask)

    def _tell_end(self, index: int, end: int, replica: ReplicaId) -> None:
        server = self.sim.servers[replica.server]

        def tell() -> None:
            found = server.replicas.get(index)
            if found is None:
                return
            try:
                news = found.commit_end(end, epoch=self.epoch)
            except WriterFenced:
                self.sim.counters["late cut refused"] += 1
                return
            kept = server.batches[index]
            server.batches[index] = {base: data for base, data in kept.items() if base < end}
            if news:
                self.sim.log(server, ("end", index, end), lambda: None)

        if not self.sim.lost():
            self.sim.deliver(server, tell)

    # ---- recovery effects

    def _perform_recovery(self, core: Recovery, effect: Fence | Copy | Commit) -> None:
        if isinstance(effect, Fence):
            self._fence(core, effect.replica)
        elif isinstance(effect, Copy):
            self.sim.counters["copy before commit"] += 1
            self._copy(core, effect)
        else:
            self._commit(effect)

    def _unanswered(self, core: Recovery, replica: ReplicaId) -> None:
        self.sim.after(300, lambda: core.lost(self.sim.now, replica, "no answer"))

    def _fence(self, core: Recovery, replica: ReplicaId) -> None:
        sim, source = self.sim, self.range
        assert source is not None
        server = sim.servers[replica.server]
        if not server.up or sim.lost():
            self._unanswered(core, replica)
            return

        def fence() -> None:
            found = sim.replica(server, source, self.epoch)
            try:
                found.seal(self.epoch)
            except WriterFenced:
                self.stopped = True
                return
            sim.log(server, ("fence", source.index, self.epoch), fenced)

        def fenced() -> None:
            answer = server.replicas[source.index].seal_answer()
            assert answer.outcome is Outcome.FENCED
            durable = answer.durable_offset
            if not sim.lost():
                sim.after(sim.delay(), lambda: core.answered(sim.now, replica, Answer.TRUTHFUL, durable))
            else:
                self._unanswered(core, replica)

        sim.deliver(server, fence)

    def _copy(self, core: Recovery, copy: Copy) -> None:
        sim, source = self.sim, self.range
        assert source is not None
        origin, target = sim.servers[copy.source.server], sim.servers[copy.target.server]
        if not origin.up or sim.lost():
            sim.after(50, lambda: core.lost(sim.now, copy.source, "gone"))
            return
        kept = origin.batches.get(source.index, {})
        data = [each for base, each in sorted(kept.items()) if copy.start_offset <= base < copy.end_offset]
        answered = [False]

        def reply(outcome: int | RangelogError) -> None:
            if isinstance(outcome, WriterFenced):
                self.stopped = True
            elif isinstance(outcome, RangelogError):
                core.lost(sim.now, copy.target, outcome.message)
            elif outcome >= copy.end_offset and not answered[0]:
                answered[0] = True
                core.copied(sim.now, copy)

        def timed_out() -> None:
            if not answered[0] and not self.stopped:
                core.lost(sim.now, copy.target, "no answer to a copy")

        sim.after(2_000, timed_out)
        sim.deliver(target, lambda: sim.append(target, source, self.epoch, data, 0, recovery=True, reply=reply))

    def _commit(self, effect: Commit) -> None:
        sim, source = self.sim, self.range
        assert source is not None
        request = pd_pb2.SealRangeRequest(
            request_id=sim.request_id(),
            stream_id=1,
            range_index=source.index,
            epoch=self.epoch,
            end_offset=effect.end_offset,
        )

        def ask() -> None:
            try:
                placed = pd_state_pb2.PlacedSealRange(request=request)
                response = pd_pb2.SealRangeResponse.FromString(sim.command(seal_range=placed))
            except WriterFenced:
                self.stopped = True
                return
            end = response.range.end_offset
            assert self.recovery is not None
            self.recovery.committed(end)
            self.recovery = None
            sim.counters["failover seal"] += 1
            for member in source.replicas:
                self._tell_end(source.index, end, sim.servers[member.server].id)
            self._create(end)

        sim.after(sim.delay(), ask)
