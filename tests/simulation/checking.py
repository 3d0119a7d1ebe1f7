"""What must hold at the end of a run: of the histories, of every copy on every disk, of every object."""

from __future__ import annotations

from typing import Any

from history import Ended, Event, Final, Invoked, Saw, Trimmed
from log_checker import check_log
from virtual_clients import STREAM, Histories
from virtual_cluster import VirtualCluster

from rangelog.batch import decode_records
from rangelog.errors import RangelogError
from rangelog_proto.v1 import common_pb2
from rangelog_server.ranges.reading import make_plan, read_batches


def check_histories(histories: Histories, final: list[tuple[int, bytes]]) -> None:
    """Nothing acked is lost, nothing is there twice or out of order, nobody saw what is not there. See log_checker."""
    writers: dict[str, list[tuple[float, int, Event]]] = {}
    for number, each in enumerate(histories.appends):
        events = writers.setdefault(each.writer, [])
        invoked = Invoked(STREAM, each.writer, each.epoch, each.sequence, (each.identity,), each.invoked)
        events.append((each.invoked, number, invoked))
        if each.outcome != "unknown":
            offset = each.offset if each.outcome == "ok" else None
            ended = Ended(STREAM, each.writer, each.sequence, 1, each.outcome, each.returned, offset)
            events.append((each.returned, number, ended))
    readers = [
        [Saw(STREAM, name, offset, (identity,), "unknown", time_s) for offset, identity, time_s in seen]
        for name, seen in histories.reads.items()
    ]
    trims = [Trimmed(STREAM, offset, time_s) for offset, time_s in histories.trims]
    first = final[0][0] if final else 0
    end = [Final(STREAM, "reader", first, tuple(identity for _, identity in final))]
    assert [offset for offset, _ in final] == list(range(first, first + len(final))), "the last read has a hole"
    in_order = [[event for _, _, event in sorted(events, key=lambda one: one[:2])] for events in writers.values()]
    report = check_log(*in_order, *readers, trims, end)
    assert report.clean, f"{report.summary()}: {report.violations[0]}"


def check_copies(cluster: VirtualCluster, log: dict[int, bytes]) -> None:
    """Every replica of every range holds the log's bytes, as far as it holds any that count."""
    state: Any = cluster.state
    for each in state.ranges[1].values():
        sealed = each.state == common_pb2.RANGE_STATE_SEALED
        for server in cluster.servers.values():
            replica = server.store.replicas.get((1, each.index)) if server.store else None
            if replica is None or replica.core.health.value == "quarantined":
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
                for record in decode_records(batch):
                    if record.offset < end and record.offset in log:
                        identity = record.value.partition(b"|")[0]
                        assert log[record.offset] == identity, f"{server.name} holds another record at {record.offset}"


def check_objects(cluster: VirtualCluster, log: dict[int, bytes]) -> None:
    """Objects of a range leave no hole, do not overlap, and hold the log's records."""
    from rangelog.tier.cold import read_object, records_from_arrow

    state: Any = cluster.state
    cluster.objects.trouble = 0.0
    for each in state.ranges[1].values():
        position = each.start_offset
        found = [one for one in state.objects_of(1, each.index) if one.state == common_pb2.OBJECT_STATE_COMMITTED]
        for described in sorted(found, key=lambda one: one.start_offset):
            if described.start_offset < position:
                raise AssertionError(f"two objects hold offset {described.start_offset}")
            position = described.end_offset
            rows = read_object(cluster.objects, described, described.start_offset, described.end_offset)  # type: ignore[arg-type]
            for table in rows:
                for record in records_from_arrow(table):
                    if record.offset in log:
                        identity = record.value.partition(b"|")[0]
                        assert log[record.offset] == identity, f"an object holds another record at {record.offset}"
