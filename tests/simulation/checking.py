"""What must hold at the end of a run: of every copy on every disk, of every object. The histories judge themselves."""

from __future__ import annotations

from typing import Any

from rangelog_core.batch import decode_records
from rangelog_core.errors import RangelogError
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


def check_objects(cluster: VirtualCluster, stream_id: int, log: dict[int, bytes], *, fields: bool = True) -> None:
    """Objects of a range leave no hole, do not overlap, and hold the log's records."""
    from rangelog._read.arrow_chunk import read_object, records_from_arrow

    state: Any = cluster.state
    cluster.objects.trouble = 0.0
    for each in state.ranges.of(stream_id).values():
        position = each.start_offset
        found = [
            one for one in state.objects_of(stream_id, each.index) if one.state == common_pb2.OBJECT_STATE_COMMITTED
        ]
        for described in sorted(found, key=lambda one: one.start_offset):
            if described.start_offset < position:
                raise AssertionError(f"two objects hold offset {described.start_offset}")
            position = described.end_offset
            if fields:
                check_object_fields(cluster.seed, cluster.objects, described)
            rows = read_object(cluster.objects, described, described.start_offset, described.end_offset)  # type: ignore[arg-type]
            for table in rows:
                for record in records_from_arrow(table):
                    if record.offset in log:
                        identity = record.value.partition(b"|")[0]
                        assert log[record.offset] == identity, f"an object holds another record at {record.offset}"
