"""The write-ahead log and the replicas over it, against a model of dicts and lists, with crashes at every kind of step."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import (
    Corruption,
    OutOfOrder,
    PreconditionFailed,
    ProtocolViolation,
    StorageFull,
    WriterFenced,
)
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.disk import ProcessGone
from tests.fakes.faces import LogDisk
from tests.support.eager_compaction import EagerCompaction, compact, submit_moves

SEGMENT_BYTES = 8 * 1024
RANGES = [(1, 0), (1, 1), (2, 0)]
SALT = 77


class Model:
    """What must be true of one range."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []  # written, perhaps not acked
        self.acked = 0  # how many of them were
        self.epoch = 1
        self.fenced_epoch = 0  # durable
        self.end: int | None = None  # durable
        self.dropped = False
        self.maybe: dict[str, Any] = {}  # submitted, outcome unknown


class StoreMachine(RuleBasedStateMachine):
    """Appends, fences, ends, drops, recycling, kills and power cuts."""

    @initialize(seed=st.integers(0, 1 << 30))
    def start(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = LogDisk()
        self.models = {key: Model() for key in RANGES}
        self.torn = False
        self.churned = 0
        self.open()

    def open(self) -> None:
        self.wal = Wal(Path("/log"), SALT, io=self.disk, segment_bytes=SEGMENT_BYTES)
        self.store = Store(self.wal, cache_bytes=0)
        self.store.open()
        self.store.unknown_ranges_settled()
        self.wal.retry_spare()

    # ---- steps

    @rule(key=st.sampled_from(RANGES), count=st.integers(1, 4), size=st.integers(1, 900), kick=st.booleans())
    def append(self, key: tuple[int, int], count: int, size: int, kick: bool) -> None:
        model = self.models[key]
        base = sum(check_batch(data).count for data in model.batches)
        value = bytes([self.random.randrange(256)]) * size
        data = batch(base, [value] * count, stream_id=key[0], range_index=key[1])
        if self.offer(key, data):
            model.batches.append(data)
            if kick:
                self.kick()

    @rule(key=st.sampled_from(RANGES), number=st.integers(0, 50))
    def append_again(self, key: tuple[int, int], number: int) -> None:
        model = self.models[key]
        if model.batches:
            self.offer(key, model.batches[number % len(model.batches)])

    @rule(key=st.sampled_from(RANGES))
    def append_beyond_the_end(self, key: tuple[int, int]) -> None:
        model = self.models[key]
        base = sum(check_batch(data).count for data in model.batches)
        assert not self.offer(key, batch(base + 3, [b"gap"], stream_id=key[0], range_index=key[1]))

    def offer(self, key: tuple[int, int], data: bytes) -> bool:
        model = self.models[key]
        message = SimpleNamespace(stream_id=key[0], range_index=key[1], epoch=1, start_offset=0, confirm_offset=0,
                                  recovery=False, memory=False)  # fmt: skip
        new = NewBatch(check_batch(data), batch_crc(data), data)
        try:
            self.store.append(None, 0, message, [new], data)
        except WriterFenced:
            later = [one for other, one in self.models.items() if other[0] == key[0] and other[1] > key[1]]
            dropped = any("dropped" in one.maybe or one.dropped for one in later)
            assert model.fenced_epoch or model.end is not None or model.maybe or dropped
        except (OutOfOrder, StorageFull, ProtocolViolation):
            pass
        except PreconditionFailed:
            assert model.end is not None or "end" in model.maybe
        except Corruption:
            assert self.torn
        else:
            return True
        return False

    @rule(key=st.sampled_from(RANGES), epoch=st.integers(2, 5))
    def seal(self, key: tuple[int, int], epoch: int) -> None:
        model = self.models[key]
        model.maybe["epoch"] = max(epoch, model.maybe.get("epoch", 0))

        def done(hosted: HostedReplica) -> None:
            model.fenced_epoch = max(model.fenced_epoch, epoch)
            assert hosted.core.fenced

        try:
            self.store.seal(*key, epoch, 0, done)
        except (WriterFenced, StorageFull):
            return
        self.kick()

    @rule(key=st.sampled_from(RANGES), back=st.integers(0, 3))
    def commit_end(self, key: tuple[int, int], back: int) -> None:
        model = self.models[key]
        if model.dropped:
            return
        edges = [0]
        for data in model.batches:
            edges.append(edges[-1] + check_batch(data).count)
        end = model.end if model.end is not None else model.maybe.get("end")
        if end is None:
            end = edges[max(0, len(edges) - 1 - back)]
        model.maybe["end"] = end

        def done(hosted: HostedReplica) -> None:
            model.end = end

        try:
            self.store.commit_end(*key, 0, end, 1, done, by_placement_driver=True)
        except StorageFull:
            return
        model.batches = [data for data in model.batches if check_batch(data).base_offset < end]
        model.acked = min(model.acked, len(model.batches))
        self.kick()

    @rule(key=st.sampled_from(RANGES))
    def drop(self, key: tuple[int, int]) -> None:
        model = self.models[key]
        if model.end is None:
            return

        def done() -> None:
            model.dropped = True

        model.maybe["dropped"] = True
        self.store.drop(*key, done)
        self.kick()

    @rule()
    def reclaim(self) -> None:
        self.kick()
        self.store.reclaim()
        self.kick()

    @rule(segments=st.integers(1, 3))
    def move_on(self, segments: int) -> None:
        self.kick()
        compact(self.store, segments)

    @rule(steps=st.integers(1, 4))
    def begin_to_move(self, steps: int) -> None:
        """Copies that are submitted, and not flushed before whatever comes next."""
        self.kick()
        compaction = EagerCompaction(self.store.space)
        for step in range(steps):
            try:
                submit_moves(self.store, compaction, float(step + 1))
            except StorageFull:
                return

    @rule(batches=st.integers(3, 9))
    def churn(self, batches: int) -> None:
        """Another stream's range comes, is sealed and dropped: the log moves on and segments become idle."""
        self.churned += 1
        key = (9, self.churned)
        try:
            for number in range(batches):
                data = batch(number, [b"z" * 2000], stream_id=key[0], range_index=key[1])
                self.models.setdefault(key, Model()).batches.append(data)
                assert self.offer(key, data)
                self.kick()
            self.store.commit_end(*key, 0, batches, 1, lambda hosted: None, by_placement_driver=True)
            self.store.drop(*key, lambda: None)
            self.kick()
        finally:
            del self.models[key]
        self.store.reclaim()

    @rule()
    def kick(self) -> None:
        self.wal.kick()
        for key, model in self.models.items():
            if key in self.store.replicas:
                model.acked = len(model.batches)

    # ---- crashes

    @rule(power=st.booleans())
    def crash_between_steps(self, power: bool) -> None:
        self.crash(power)

    @rule(power=st.booleans(), after=st.integers(0, 6), values=st.lists(st.integers(1, 900), min_size=1, max_size=6))
    def crash_in_a_commit(self, power: bool, after: int, values: list[int]) -> None:
        for key in RANGES:
            model = self.models[key]
            for size in values:
                base = sum(check_batch(data).count for data in model.batches)
                data = batch(base, [b"c" * size], stream_id=key[0], range_index=key[1])
                if self.offer(key, data):
                    model.batches.append(data)
        self.disk.cut_after = after
        try:
            self.kick()
            compact(self.store, 2)
            self.store.reclaim()
        except ProcessGone:
            pass
        self.crash(power)

    def crash(self, power: bool) -> None:
        if power:
            self.disk.power_loss(self.random)
        else:
            self.disk.kill()
        self.open()
        self.torn = self.torn or bool(self.store.problems)
        for key, model in self.models.items():
            self.settle(key, model)

    def settle(self, key: tuple[int, int], model: Model) -> None:
        """After a restart: what was promised is there; learn what became of the rest."""
        hosted = self.store.replicas.get(key)
        if hosted is None:
            assert model.dropped or "dropped" in model.maybe or (model.acked == 0 and not model.fenced_epoch)
            if model.dropped or "dropped" in model.maybe:
                model.dropped = True
            model.batches, model.acked = [], 0
            return
        assert not model.dropped, "a dropped replica is back"
        core = hosted.core
        assert core.trust is not DiskTrust.QUARANTINED, core.problem
        assert core.trust is DiskTrust.SOUND or self.torn
        assert core.batch_count >= model.acked
        assert core.epoch >= model.fenced_epoch
        assert core.fenced or not model.fenced_epoch
        if model.end is not None:
            assert core.sealed_end_offset == model.end
        if core.sealed_end_offset is not None:
            assert core.sealed_end_offset == model.maybe.get("end")
            model.end = core.sealed_end_offset
        model.batches = model.batches[: core.batch_count]
        model.acked = core.batch_count
        model.fenced_epoch = core.epoch if core.fenced else 0
        model.maybe = {"end": model.end} if model.end is not None else {}

    # ---- what holds after each step

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def content_is_the_models(self) -> None:
        for key, hosted in self.store.replicas.items():
            model, core = self.models[key], hosted.core
            core.validate()
            assert len(hosted.places) == core.batch_count
            flushed = 0
            while flushed < core.batch_count and core.batch_span(flushed)[1] <= core.durable_offset:
                flushed += 1
            found = read_batches(self.wal, make_plan(hosted, 0, flushed))
            assert found == model.batches[:flushed]

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def counters_are_what_they_count(self) -> None:
        if not self.store.space._moving:
            self.store.space.validate()


StoreMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestStore(StoreMachine.TestCase):  # type: ignore[misc]
    """Whatever happens, acked batches, fences and ends are there after a restart, and nothing else ever is."""
