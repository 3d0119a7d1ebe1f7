"""Snapshots in the tier: whatever a bucket holds, a restore gets rows that the state takes, or one of our errors.

What holds: no other kind of error, no memory beyond what the file says of itself; a plan that is made is put into an empty
state whole, or one of its rows is refused.
"""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from random import Random

import google_crc32c

from rangelog_core import tier_snapshot
from rangelog_core.errors import RangelogError
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import pd_state_pb2, restore_pb2
from rangelog_tier.restore.applying import requests
from rangelog_tier.restore.known import KnownBucket, snapshot_rows
from rangelog_tier.restore.reading import plan_of
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed
from tests.fuzz.fuzz_targets_state import KNOWN, NOW_MS, history

_START = struct.Struct("<8sIIQQI")


@cache
def seeds() -> tuple[bytes, ...]:
    """The snapshots of a small cluster at some moments."""
    machine = Machine()
    found = []
    for index, each in enumerate(history(), 1):
        machine.apply(index, each)
        if index in (8, 14, 22, len(history())):
            target = io.BytesIO()
            header = restore_pb2.TierSnapshotHeader(cluster_id="x", applied_index=index, cluster_version=FEATURE_LEVEL)
            tier_snapshot.write(target, header, machine.freeze_rows())
            found.append(target.getvalue())
    return tuple(found)


def run(data: bytes) -> bool:
    """Read, plan, and put the plan into an empty state."""
    _, state = tier_snapshot.read(data, source="x")
    rows = snapshot_rows(state)
    sizes = {each.key: each.size_bytes for found in rows.objects.values() for each in found}
    plan = plan_of(KnownBucket(rows, {}, sizes), {}, None)
    machine, plan_id = Machine(), plan.plan_id()
    begin = restore_pb2.BeginRestoreRequest(
        plan_id=plan_id, row_count=plan.row_count, next_stream_id=plan.next_stream_id, next_object_id=plan.next_object_id,
        next_topic_id=plan.next_topic_id, next_cursor_version=plan.next_cursor_version,
    )  # fmt: skip
    _apply(machine, begin_restore=begin)
    for request in requests(plan, plan_id, 0):
        _apply(machine, restore_rows=request)
    _apply(machine, end_restore=restore_pb2.EndRestoreRequest(plan_id=plan_id))
    machine.state.validate_indexes()
    return True


def _apply(machine: Machine, **action: object) -> None:
    command = pd_state_pb2.Command(version=FEATURE_LEVEL, now_ms=NOW_MS, **action)  # type: ignore[arg-type]
    response_of(machine.apply(machine.applied.last + 1, command.SerializeToString()))


def fitting(data: bytes, random: Random) -> bytes:
    """The same file with the length and the checksum that it should have."""
    if len(data) < _START.size:
        return data
    magic, version, _, _, size, header_size = _START.unpack_from(data)
    start = _START.pack(magic, version, 0, len(data), size, header_size)
    crc = google_crc32c.extend(google_crc32c.value(start), data[_START.size :])
    return _START.pack(magic, version, crc, len(data), size, header_size) + data[_START.size :]


def changed_rows(data: bytes, random: Random) -> bytes:
    """A snapshot of other rows."""
    try:
        header, state = tier_snapshot.read(data, source="x")
    except RangelogError:
        return data
    found, position = [state[:4]], 4
    while position + 4 <= len(state):
        (size,) = struct.unpack_from("<I", state, position)
        section = pd_state_pb2.Section.FromString(state[position + 4 : position + 4 + size])
        position += 4 + size
        if section.rows and random.random() < 0.3:
            section.rows = encoded_changed(section.rows, pd_state_pb2.SnapshotRows, random, KNOWN)
        encoded = section.SerializeToString()
        found.append(struct.pack("<I", len(encoded)) + encoded)
    changed = b"".join(found)
    told, packed = header.SerializeToString(), zlib.compress(changed, 1)
    start = _START.pack(b"RLTSNAP1", 1, 0, 0, len(changed), len(told))
    return fitting(start + told + packed, random)


TARGETS = (
    Target(
        "tier-snapshot", lambda: list(seeds()), run, fitting, (changed_rows,), plain_share=0.15, peak_bytes_max=8 * MIB,
    ),
)  # fmt: skip
