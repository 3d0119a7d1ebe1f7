"""Reads what a bucket has of a cluster that is gone: its newest whole snapshot, the manifests, the list of objects.

What holds: nothing is written. A damaged file is named and passed over; one of a later program ends the restore, since what it
says may matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rangelog_core import tier_snapshot
from rangelog_core.errors import (
    Corruption,
    InvalidArgument,
    ObjectNotFound,
    RangelogError,
    UnsupportedVersion,
)
from rangelog_core.ids import check_name, shard_of_stream_name
from rangelog_core.manifest import StreamManifest, parse_manifest
from rangelog_core.object_keys import MANIFESTS, SNAPSHOTS, STREAMS, manifest_prefix, parse_snapshot_key
from rangelog_proto.v1.restore_pb2 import TierSnapshotHeader
from rangelog_tier.encrypted_file import decrypt
from rangelog_tier.encryption_keys import keys_of
from rangelog_tier.object_store import ObjectStore
from rangelog_tier.restore.describing import describe
from rangelog_tier.restore.known import DescribedObject, KnownBucket, SavedRows, snapshot_rows
from rangelog_tier.restore.plan import RestoreOptions, RestorePlan
from rangelog_tier.restore.planning import ID_MAX, make_plan, needed
from rangelog_tier.storing import stored_digest

THREADS = 16
NO_SNAPSHOT = "none"
"""In place of a snapshot's id: the manifests have to do."""

Show = Callable[[str], None]
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(slots=True)
class BucketReading:
    """The contents that were read, and those that were passed over."""

    bucket: KnownBucket
    cluster_id: str
    snapshot_id: str
    header: TierSnapshotHeader
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SnapshotList:
    """The snapshots in a bucket, by cluster; of each the newest first."""

    ids: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)


def list_snapshots(store: ObjectStore) -> SnapshotList:
    """List the snapshots in a bucket. Raises Unavailable."""
    found = SnapshotList()
    for info in store.list(SNAPSHOTS):
        parsed = parse_snapshot_key(info.key)
        if parsed is not None:
            cluster_id, snapshot_id = parsed
            found.ids.setdefault(cluster_id, []).insert(0, snapshot_id)
            found.keys[cluster_id, snapshot_id] = info.key
    return found


def choose_cluster(store: ObjectStore, found: SnapshotList, wanted: str | None) -> str:
    """Return the cluster to restore: the wanted one, or the only one that none of the others was restored from.

    Raises InvalidArgument.
    """
    if wanted is not None:
        if wanted not in found.ids:
            known = ", ".join(found.ids) or "none"
            raise InvalidArgument(f"the bucket has no snapshot of cluster {wanted!r}; there are those of: {known}")
        return wanted
    former = set()
    for cluster_id, ids in found.ids.items():
        for snapshot_id in ids:
            try:
                header, _ = _read(store, found.keys[cluster_id, snapshot_id], cluster_id)
            except (Corruption, UnsupportedVersion, ObjectNotFound):
                continue
            former.add(header.restored_from)
            break
    left = [each for each in found.ids if each not in former]
    if len(left) == 1:
        return left[0]
    if not found.ids:
        raise InvalidArgument(
            f"the bucket has no snapshot of a placement driver below {SNAPSHOTS}: check the URL and its prefix, or pass "
            f"--snapshot {NO_SNAPSHOT} to restore the streams that manifests name"
        )
    raise InvalidArgument(
        f"the bucket has snapshots of {len(found.ids)} clusters ({', '.join(found.ids)}): choose one by --cluster-id"
    )


@dataclass(slots=True)
class SnapshotReading:
    """The snapshot that a restore goes by, and what was passed over; without rows where there is to be none."""

    cluster_id: str
    snapshot_id: str
    header: TierSnapshotHeader
    rows: SavedRows
    problems: list[str] = field(default_factory=list)


def read_snapshot(store: ObjectStore, *, cluster_id: str | None, snapshot_id: str | None) -> SnapshotReading:
    """Read the snapshot to restore by. Raises InvalidArgument, Corruption, UnsupportedVersion, Unavailable."""
    if snapshot_id == NO_SNAPSHOT:
        return SnapshotReading(cluster_id or "", "", TierSnapshotHeader(), SavedRows())
    problems: list[str] = []
    listed = list_snapshots(store)
    chosen = choose_cluster(store, listed, cluster_id)
    header, rows = _newest(store, listed, chosen, snapshot_id, problems)
    return SnapshotReading(chosen, str(header.applied_index), header, rows, problems)


def read_bucket(store: ObjectStore, snapshot: SnapshotReading, show: Show = lambda _: None) -> BucketReading:
    """Read all that a plan needs but for the objects themselves. `store`: all stores of the tier. Raises InvalidArgument,
    UnsupportedVersion, Unavailable."""
    rows, problems = snapshot.rows, list(snapshot.problems)
    show("manifests")
    manifests = read_manifests(store, problems)
    show("list of objects")
    sizes = {info.key: info.size_bytes for info in store.list(STREAMS)}
    if not manifests and not rows.streams and not rows.topics and not sizes:
        raise InvalidArgument("the bucket holds no stream: check the URL and its prefix")
    bucket = KnownBucket(rows, manifests, sizes)
    return BucketReading(bucket, snapshot.cluster_id, snapshot.snapshot_id, snapshot.header, problems)


def _newest(
    store: ObjectStore, listed: SnapshotList, cluster_id: str, wanted: str | None, problems: list[str]
) -> tuple[TierSnapshotHeader, SavedRows]:
    """Return the newest snapshot that is whole, or the wanted one. Raises InvalidArgument, Corruption, UnsupportedVersion."""
    ids = listed.ids[cluster_id] if wanted is None else [wanted]
    for each in ids:
        key = listed.keys.get((cluster_id, each))
        if key is None:
            raise InvalidArgument(
                f"cluster {cluster_id} has no snapshot {each!r} in the bucket; there are: {', '.join(listed.ids[cluster_id])}"
            )
        try:
            header, state = _read(store, key, cluster_id)
            return header, snapshot_rows(state)
        except (Corruption, ObjectNotFound) as error:
            if wanted is not None:
                raise
            problems.append(f"{error.message}: passed over, an earlier one is used")
    raise Corruption(
        f"no snapshot of cluster {cluster_id} is whole ({len(ids)} tried): pass --snapshot {NO_SNAPSHOT} to restore the "
        "streams that manifests name"
    )


def _read(store: ObjectStore, key: str, cluster_id: str) -> tuple[TierSnapshotHeader, bytes]:
    data = decrypt(store.get(key), keys_of(store), source=f"the snapshot {key}")
    header, state = tier_snapshot.read(data, source=key)
    if header.cluster_id != cluster_id or parse_snapshot_key(key) != (cluster_id, str(header.applied_index)):
        raise Corruption(
            f"{key}: it is that of cluster {header.cluster_id} at {header.applied_index}, under another name"
        )
    return header, state


def read_manifests(store: ObjectStore, problems: list[str]) -> dict[int, StreamManifest]:
    """Return the manifests of all streams. Raises UnsupportedVersion, Unavailable."""

    def one(key: str) -> StreamManifest | str | None:
        try:
            found = parse_manifest(store.get(key), f"the manifest {key}")
            _check_manifest(found, key)
            return found
        except ObjectNotFound:
            return None
        except (Corruption, InvalidArgument) as error:
            return f"{error.message}: passed over"

    manifests: dict[int, StreamManifest] = {}
    for found in _on_threads(one, [info.key for info in store.list(MANIFESTS)]):
        if isinstance(found, str):
            problems.append(found)
        elif found is not None:
            manifests[found.stream_id] = found
    return manifests


def _check_manifest(found: StreamManifest, key: str) -> None:
    numbers = [found.stream_id, found.trim_offset, found.repack_count, found.revision]
    for each in found.objects:
        numbers += [each.start_offset, each.end_offset, each.size_bytes, each.committed_ms]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers) or not 0 < found.stream_id < ID_MAX:
        raise Corruption(f"the manifest {key} has a number that no cluster gives out")
    if not key.startswith(manifest_prefix(found.stream_id)):
        raise Corruption(f"the manifest {key} is that of stream {found.stream_id}, under another name")
    if not isinstance(found.stream, str) or not all(
        isinstance(text, str) for each in found.objects for text in (each.key, each.digest)
    ):
        raise Corruption(f"the manifest {key} has a name that is no text")
    if shard_of_stream_name(found.stream) is None:
        check_name("stream", found.stream)
    elif found.shard is None:
        raise Corruption(f"the manifest {key} is that of a shard, and names no topic")


def read_plan(
    store: ObjectStore,
    reading: BucketReading,
    options: RestoreOptions,
    *,
    verify: bool = False,
    show: Show = lambda _: None,
) -> RestorePlan:
    """Read the objects that a plan needs to know, and make it. `verify`: read all objects, and compare their digests.

    Raises UnsupportedVersion, Unavailable.
    """
    bucket = reading.bucket
    wanted = _needed(bucket)
    show(f"{len(wanted)} objects that no snapshot has")
    described = describe_all(store, bucket, wanted, reading.problems)
    plan = plan_of(bucket, described, options)
    while verify:
        show(f"{len(plan.objects)} objects, to verify them")
        damaged = _damaged(store, plan, reading.problems)
        if not damaged:
            break
        sizes = {key: size for key, size in bucket.sizes.items() if key not in damaged}
        bucket = KnownBucket(bucket.rows, bucket.manifests, sizes)
        described = describe_all(store, bucket, _needed(bucket), reading.problems)
        plan = plan_of(bucket, described, options)
    return plan


def plan_of(
    bucket: KnownBucket, described: Mapping[str, DescribedObject], options: RestoreOptions | None
) -> RestorePlan:
    """Make the plan. Raises Corruption for rows that contradict each other, which no cluster has written."""
    with _as_corruption():
        return make_plan(bucket, described, options)


def _needed(bucket: KnownBucket) -> list[str]:
    with _as_corruption():
        return needed(bucket)


@contextmanager
def _as_corruption() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Corruption("the rows of the snapshot contradict each other: try an earlier one by --snapshot") from error


def describe_all(
    store: ObjectStore, bucket: KnownBucket, keys: Sequence[str], problems: list[str]
) -> dict[str, DescribedObject]:
    """Return the objects by their own words; those that cannot be read are problems. Raises UnsupportedVersion, Unavailable."""
    in_manifests = {each.key for manifest in bucket.manifests.values() for each in manifest.objects}

    def one(key: str) -> DescribedObject | str:
        try:
            return describe(store, key, bucket.sizes[key], whole=key not in in_manifests)
        except (Corruption, ObjectNotFound, InvalidArgument) as error:
            return f"{error.message}: passed over"

    found: dict[str, DescribedObject] = {}
    for key, each in zip(keys, _on_threads(one, keys), strict=True):
        if isinstance(each, str):
            problems.append(each)
        else:
            found[key] = each
    return found


def _damaged(store: ObjectStore, plan: RestorePlan, problems: list[str]) -> set[str]:
    """Return the objects whose bytes are not those that were committed."""
    digests = {each.key: (each.size_bytes, each.digest) for each in plan.objects}

    def is_damaged(key: str) -> bool:
        size_bytes, digest = digests[key]
        try:
            return stored_digest(store, key, size_bytes) != digest
        except (ObjectNotFound, InvalidArgument):
            return True

    keys = list(digests)
    damaged = {key for key, wrong in zip(keys, _on_threads(is_damaged, keys), strict=True) if wrong}
    problems += [f"object {key} is damaged: its digest does not fit" for key in sorted(damaged)]
    return damaged


def _on_threads(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return the results in order; the first error ends it."""
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            return list(pool.map(work, items))
        except (RangelogError, KeyboardInterrupt):
            pool.shutdown(wait=False, cancel_futures=True)
            raise
