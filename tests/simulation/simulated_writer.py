"""One writer of the simulated cluster: the production appender and recovery cores, driven on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulated_cluster import RANGE_BYTES, SimulatedServer, Simulation

from rangelog.batch import encode_batch
from rangelog.errors import NoPlacement, RangelogError, WriterFenced
from rangelog.ids import ReplicaId
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
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from rangelog_server.ranges.replica import Outcome


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
