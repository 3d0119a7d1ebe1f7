"""What must hold at the end of a run: of every copy on every disk, of every object. The histories judge themselves."""

from __future__ import annotations

from typing import Any

from rangelog_core.batch import decode_records
from rangelog_core.errors import RangelogError
from rangelog_core.manifest import parse_manifest
from rangelog_core.object_keys import MANIFESTS
from rangelog_proto.v1 import common_pb2
from rangelog_server.ranges.reading import make_plan, read_batches
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_fields import check_batch_fields, check_object_fields


def check_copies(cluster: VirtualCluster, stream_id: int, log: dict[int, bytes], *, fields: bool = True) -> None:
    """Every replica of every range holds the log's bytes, as far as it holds any that count.

    `fields`: batches have the header fields that the simulation draws for those of writers.
    """
    state: Any = cluster.state
    for each in state.ranges.of(stream_id).values():
        sealed = each.state == common_pb2.RANGE_STATE_SEALED
        for server in cluster.servers.values():
            replica = server.store.replicas.get((stream_id, each.index)) if server.store else None
            if replica is None or replica.core.trust.value == "quarantined":
                continue
            assert server.store is not None
            end = replica.core.durable_offset
            end = min(end, each.end_offset) if sealed else min(end, replica.core.confirm_offset)
            plan = make_plan(replica, 0, replica.core.batch_count)
            try:
                batches = read_batches(server.store.wal, plan)
            except RangelogError:
                cluster.note("copy found rotten at the end")
                continue
            for batch in batches:
                if fields:
                    check_batch_fields(cluster.seed, server.name, batch)
                for record in decode_records(batch):
                    if record.offset < end and record.offset in log:
                        identity = record.value.partition(b"|")[0]
                        assert log[record.offset] == identity, f"{server.name} holds another record at {record.offset}"


def manifest_problem(cluster: VirtualCluster) -> str:
    """Return what the manifests in the store lack; empty: they name every live object.

    One that names what was never committed fails the run.
    """
    state: Any = cluster.state
    named: dict[int, set[str]] = {}
    for key, data in cluster.tier.manifests(cluster.tier_url, MANIFESTS):
        found = parse_manifest(data, key)
        named[found.stream_id] = {each.key for each in found.objects}
    uncommitted = {each.key for each in state.objects.values() if not each.committed_ms and not each.size_bytes}
    for stream_id, keys in named.items():
        assert not keys & uncommitted, f"the manifest of stream {stream_id} names what was never committed"
    for stream_id, stream in state.streams.items():
        for each in state.ranges.of(stream_id).values():
            for one in state.objects_of(stream_id, each.index):
                live = one.state == common_pb2.OBJECT_STATE_COMMITTED and one.end_offset > stream.trim_offset
                if live and one.key not in named.get(stream_id, ()):
                    return f"the manifest of stream {stream_id} lacks {one.key}"
    return ""


def check_objects(cluster: VirtualCluster, stream_id: int, log: dict[int, bytes], *, fields: bool = True) -> None:
    """Objects of a stream do not overlap, and hold the log's records."""
    from rangelog._read.arrow_chunk import read_object, records_from_arrow

    state: Any = cluster.state
    cluster.tier.end_trouble()
    objects = cluster.tier.open(cluster.tier_url)
    found = [
        one
        for each in state.ranges.of(stream_id).values()
        for one in state.objects_of(stream_id, each.index)
        if one.state == common_pb2.OBJECT_STATE_COMMITTED
    ]
    position = 0
    for described in sorted(found, key=lambda one: one.start_offset):
        if described.start_offset < position:
            raise AssertionError(f"two objects hold offset {described.start_offset}")
        position = described.end_offset
        if fields:
            check_object_fields(cluster.seed, objects, described)
        rows = read_object(objects, described, described.start_offset, described.end_offset)  # type: ignore[arg-type]
        for table in rows:
            for record in records_from_arrow(table):
                if record.offset in log:
                    identity = record.value.partition(b"|")[0]
                    assert log[record.offset] == identity, f"an object holds another record at {record.offset}"
