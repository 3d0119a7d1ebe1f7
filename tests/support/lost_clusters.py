"""A cluster with a tier, as far as a restore can tell: the real state machine, a bucket of sizes, manifests of any age."""

from __future__ import annotations

from random import Random

from rangelog_core.manifest import ManifestObject, StreamManifest
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, restore_pb2
from rangelog_tier.restore.applying import requests
from rangelog_tier.restore.known import DescribedObject, KnownBucket, SavedRows, snapshot_rows
from rangelog_tier.restore.plan import RestoreOptions, RestorePlan
from rangelog_tier.restore.planning import make_plan, needed
from tests.unit.pd.conftest import Pd

SERVERS = ("rs1", "rs2", "rs3")
COMMITTED = common_pb2.OBJECT_STATE_COMMITTED
DELETED = common_pb2.OBJECT_STATE_DELETED


class LostCluster:
    """One cluster from its first stream to its end. `restored` is what comes out of its bucket."""

    def __init__(self) -> None:
        self.pd = Pd()
        for name in SERVERS:
            self.pd.register(name)
        self.sizes: dict[str, int] = {}
        self.told: dict[str, common_pb2.Object] = {}
        """Every object that was ever uploaded, by its own words."""
        self.manifests: dict[int, StreamManifest] = {}
        self.rows = SavedRows()
        self.deleted: dict[int, str] = {}

    # ---- what happens to it

    def create(self, name: str) -> int:
        return self.pd.create_stream(name, tiered=True).stream_id

    def append(self, stream_id: int, records: int) -> common_pb2.Range:
        """A writer opens the stream, appends, and seals its range."""
        row = self.pd.state.streams[stream_id]
        epoch = self.pd.open_writer(row.name).stream.epoch
        last = self.pd.state.ranges.of(stream_id).last()
        if last is not None and last.state == common_pb2.RANGE_STATE_OPEN:
            return self.pd.seal(stream_id, last.index, epoch, last.start_offset + records).range
        made = self.pd.create_range(stream_id, epoch, row.next_offset, *SERVERS)
        return self.pd.seal(stream_id, made.index, epoch, made.start_offset + records).range

    def open_range(self, stream_id: int) -> None:
        row = self.pd.state.streams[stream_id]
        epoch = self.pd.open_writer(row.name).stream.epoch
        self.pd.create_range(stream_id, epoch, row.next_offset, *SERVERS)

    def upload(self, of: common_pb2.Range, end: int, *, commit: bool = True) -> None:
        """The next object of a sealed range."""
        prepared = self.pd.prepare(of.stream_id, of.index, of.tiered_end_offset, end, "rs1")
        self._store(prepared)
        if commit:
            self.pd.commit(prepared, size_bytes=1_000)

    def _store(self, prepared: common_pb2.Object) -> None:
        self.sizes[prepared.key] = 1_000
        told = common_pb2.Object(epoch=prepared.epoch, size_bytes=1_000, digest="sha256:" + "ab" * 32)
        self.told[prepared.key] = told

    def repack(self, stream_id: int, objects: list[common_pb2.Object], *, commit: bool = True) -> None:
        request = pd_pb2.PrepareRepackRequest(
            stream_id=stream_id, object_ids=[each.object_id for each in objects], packer="p"
        )
        timed = pd_state_pb2.TimedPrepareRepack(request=request, deadline_ms=self.pd.wall_ms + 60_000)
        prepared = self.pd.do(pd_pb2.PrepareRepackResponse, prepare_repack=timed).object
        self._store(prepared)
        if commit:
            request2 = pd_pb2.CommitRepackRequest(
                object_id=prepared.object_id, packer="p", size_bytes=1_000, digest="sha256:" + "ab" * 32
            )
            self.pd.do(pd_pb2.CommitRepackResponse, commit_repack=request2)

    def delete(self, stream_id: int) -> None:
        name = self.pd.state.streams[stream_id].name
        self.pd.delete_stream(name)
        self.deleted[stream_id] = name

    def collect(self) -> None:
        """Tombstones leave the bucket; the manifests of their streams are written before."""
        gone = [each for each in self.pd.state.objects.values() if each.state == DELETED]
        for stream_id in {each.stream_id for each in gone}:
            self.write_manifest(stream_id)
        for each in gone:
            self.sizes.pop(each.key, None)
        collect = pd_state_pb2.CollectObjects(object_ids=[each.object_id for each in gone])
        self.pd.apply(pd_state_pb2.Command(collect_objects=collect))

    def write_manifest(self, stream_id: int) -> None:
        """As a range server does: none for a stream that is deleted, or without live objects."""
        stream = self.pd.state.streams.find(stream_id)
        live = self.live(stream_id) if stream is not None else []
        if stream is None or not live:
            self.manifests.pop(stream_id, None)
            return
        self.manifests[stream_id] = StreamManifest(
            stream=stream.name, stream_id=stream_id, shard=None, trim_offset=stream.trim_offset, written_ms=1,
            objects=tuple(map(_manifest_object, live)), repack_count=stream.repack_count,
        )  # fmt: skip

    def live(self, stream_id: int) -> list[common_pb2.Object]:
        trim = self.pd.state.streams[stream_id].trim_offset
        found = [
            each
            for each in self.pd.state.objects.values()
            if each.stream_id == stream_id and each.state == COMMITTED and each.end_offset > trim
        ]
        return sorted(found, key=lambda each: each.start_offset)

    def take_snapshot(self) -> None:
        self.rows = snapshot_rows(b"".join(self.pd.machine.freeze_rows()))

    def step(self, random: Random, names: int = 3) -> None:
        """Something happens."""
        streams = list(self.pd.state.streams)
        kind = random.choices(
            ("create", "append", "upload", "repack", "trim", "delete", "collect", "manifest", "open"),
            (2, 8, 12, 4, 3, 1, 1, 4, 1),
        )[0]
        if kind == "collect":
            self.collect()
        elif kind == "create" or not streams:
            name = f"s{random.randrange(names)}"
            if name not in self.pd.state.names:
                self.create(name)
        else:
            self._step_of(kind, random.choice(streams), random)

    def _step_of(self, kind: str, stream_id: int, random: Random) -> None:
        if kind == "append":
            self.append(stream_id, random.randrange(0, 9))
        elif kind == "upload":
            for each in self.pd.state.ranges.of(stream_id).values():
                if each.state == common_pb2.RANGE_STATE_SEALED and each.tiered_end_offset < each.end_offset:
                    if random.random() < 0.15:
                        continue  # a hole
                    end = random.randrange(each.tiered_end_offset, each.end_offset) + 1
                    self.upload(each, end, commit=random.random() < 0.9)
                    return
        elif kind == "repack":
            self._repack_some(stream_id, random)
        elif kind == "trim":
            row = self.pd.state.streams[stream_id]
            self.pd.trim(random.randrange(row.trim_offset, row.next_offset + 1), row.name)
        elif kind == "delete":
            self.delete(stream_id)
        elif kind == "manifest":
            self.write_manifest(stream_id)
        elif kind == "open":
            last = self.pd.state.ranges.of(stream_id).last()
            if last is None or last.state == common_pb2.RANGE_STATE_SEALED:
                self.open_range(stream_id)

    def _repack_some(self, stream_id: int, random: Random) -> None:
        live, ranges = self.live(stream_id), self.pd.state.ranges.of(stream_id)
        starts = {each.start_offset for each in ranges.values()}
        ends = {each.end_offset for each in ranges.values() if each.state == common_pb2.RANGE_STATE_SEALED}
        for low in range(len(live) - 1):
            run = [live[low]]
            for after in live[low + 1 :]:
                if after.start_offset != run[-1].end_offset:
                    break
                run.append(after)
                whole = run[0].start_offset in starts and after.end_offset in ends
                if whole and random.random() < 0.7:
                    self.repack(stream_id, run, commit=random.random() < 0.9)
                    return

    # ---- what a restore makes of it

    def bucket(self) -> KnownBucket:
        return KnownBucket(self.rows, dict(self.manifests), dict(self.sizes))

    def plan(self, **options: bool) -> RestorePlan:
        bucket = self.bucket()
        described = {}
        for key in needed(bucket):
            if key in self.told:
                described[key] = DescribedObject(self.told[key], "")
        return make_plan(bucket, described, RestoreOptions(**options))


def restored(plan: RestorePlan, pd: Pd | None = None) -> Pd:
    """An empty cluster, restored by the plan; its state is valid at the end."""
    pd = pd or Pd()
    plan_id = plan.plan_id()
    put(pd, begin_restore=begin_of(plan))
    for request in requests(plan, plan_id, 0):
        put(pd, restore_rows=request)
    put(pd, end_restore=restore_pb2.EndRestoreRequest(plan_id=plan_id))
    return pd


def begin_of(plan: RestorePlan) -> restore_pb2.BeginRestoreRequest:
    """The request that begins a plan."""
    return restore_pb2.BeginRestoreRequest(
        plan_id=plan.plan_id(),
        source_cluster_id="gone",
        snapshot_id="7",
        row_count=plan.row_count,
        next_stream_id=plan.next_stream_id,
        next_object_id=plan.next_object_id,
        next_topic_id=plan.next_topic_id,
        next_cursor_version=plan.next_cursor_version,
    )


def put(pd: Pd, **action: object) -> restore_pb2.RestoreMark:
    """Apply one command of a restore."""
    return pd.do(restore_pb2.RestoreResponse, **action).mark


def _manifest_object(found: common_pb2.Object) -> ManifestObject:
    return ManifestObject(
        key=found.key, start_offset=found.start_offset, end_offset=found.end_offset,
        record_count=found.end_offset - found.start_offset, size_bytes=found.size_bytes, digest=found.digest,
        timestamp_ms_min=0, timestamp_ms_max=0, committed_ms=found.committed_ms,
    )  # fmt: skip
