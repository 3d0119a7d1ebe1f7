"""What must hold at the end of a run: of the histories, of every copy on every disk, of every object."""

from __future__ import annotations

from typing import Any

from virtual_clients import Histories
from virtual_cluster import VirtualCluster

from rangelog.batch import decode_records
from rangelog.errors import RangelogError
from rangelog_proto.v1 import common_pb2
from rangelog_server.ranges.reading import make_plan, read_batches


def check_histories(histories: Histories, final: list[tuple[int, bytes]]) -> None:
    """Nothing acked is lost, nothing is there twice or out of order, nobody saw what is not there."""
    offsets = [offset for offset, _ in final]
    trimmed = histories.trimmed
    if offsets:
        assert offsets[0] <= trimmed, f"the log starts at {offsets[0]}, but was trimmed at {trimmed} only"
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "the log has a hole"
    log = dict(final)
    places: dict[bytes, int] = {}
    for offset, identity in final:
        assert identity not in places, f"{identity!r} is at {places[identity]} and at {offset}"
        places[identity] = offset
    known = {each.identity for each in histories.appends}
    for identity in places:
        assert identity in known, f"{identity!r} was appended by nobody"
    last: dict[str, int] = {}
    epochs: dict[int, int] = {}
    for each in histories.appends:
        place = places.get(each.identity)
        if each.outcome == "ok":
            if each.offset >= trimmed:
                assert place == each.offset, f"{each.identity!r} was acked at {each.offset} and is at {place}"
            epochs[each.offset] = each.epoch
        assert each.outcome != "failed" or place is None, f"{each.identity!r} failed and is in the log"
        if place is not None:
            assert last.get(each.writer, -1) < place, f"{each.identity!r} is before what was appended before it"
            last[each.writer] = place
    in_order = [epochs[offset] for offset in sorted(epochs)]
    assert in_order == sorted(in_order), "a lower epoch acked behind a higher one"
    _check_real_time(histories)
    for name, seen in histories.reads.items():
        _check_reader(name, seen, log, offsets[0] if offsets else 0)


def _check_real_time(histories: Histories) -> None:
    """What was acked before something else was appended lies before it."""
    acked = sorted((each for each in histories.appends if each.outcome == "ok"), key=lambda each: each.returned)
    began = sorted(acked, key=lambda each: each.invoked)
    highest, number = -1, 0
    for each in began:
        while number < len(acked) and acked[number].returned < each.invoked:
            highest = max(highest, acked[number].offset)
            number += 1
        assert each.offset > highest, f"{each.identity!r} lies before what was acked before it was appended"


def _check_reader(name: str, seen: list[tuple[int, bytes]], log: dict[int, bytes], first: int) -> None:
    before = -1
    for offset, identity in seen:
        assert offset > before, f"{name} went back from {before} to {offset}"
        gap = before >= 0 and offset != before + 1
        assert not gap or offset <= first, f"{name} skipped from {before} to {offset}"
        if offset >= first:
            assert log.get(offset) == identity, f"{name} saw {identity!r} at {offset}, where {log.get(offset)!r} is"
        before = offset


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
