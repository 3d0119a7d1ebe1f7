"""Random lives of a cluster, restored from its bucket: the tiered part of the true final state comes back, and nothing else.

What a snapshot and manifests cannot know is the limit: trims, deletions and streams after the last of them that was written.
"""

from __future__ import annotations

from random import Random

import pytest

from rangelog_proto.v1 import common_pb2
from tests.support.lost_clusters import COMMITTED, LostCluster, restored
from tests.unit.pd.conftest import Pd

SEEDS = 24
STEPS = 60


def live_until(random: Random) -> LostCluster:
    """A cluster whose snapshot is of any time."""
    lost = LostCluster()
    at = random.randrange(STEPS)
    for number in range(STEPS):
        lost.step(random)
        if number == at:
            lost.take_snapshot()
    return lost


def tiered_end(lost: LostCluster, stream_id: int, *, uploads: bool = False) -> int:
    """Where the tiered part ends: by committed objects; `uploads`: and by whole ones of the bucket that go on from them."""
    position = lost.pd.state.streams[stream_id].trim_offset
    found = sorted(
        (each.start_offset, each.end_offset)
        for each in lost.pd.state.objects.values()
        if each.stream_id == stream_id and each.key in lost.sizes and (uploads or each.state == COMMITTED)
    )
    for start, end in found:
        if start <= position < end:
            position = end
    return position


def check_numbers(lost: LostCluster, pd: Pd) -> None:
    """No epoch, id or key of the former cluster is given out again."""
    for stream_id, row in pd.state.streams.items():
        before = lost.pd.state.streams.find(stream_id)
        if before is not None:
            assert row.epoch > before.epoch
            assert row.range_count > before.range_count
    assert pd.state.next_stream_id > lost.pd.state.next_stream_id
    assert pd.state.next_object_id > lost.pd.state.next_object_id
    for each in pd.state.objects.values():
        assert lost.sizes[each.key] == each.size_bytes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_with_manifests_of_the_end_exactly_the_tiered_part_of_each_stream_comes_back(seed: int) -> None:
    """Each live stream with objects is restored from its trim offset to its first hole; no deleted one is, unless named."""
    lost = live_until(Random(seed))
    for stream_id in [*lost.pd.state.streams, *lost.deleted]:
        lost.write_manifest(stream_id)
    plan = lost.plan()
    pd = restored(plan)
    check_numbers(lost, pd)
    for stream_id, truth in lost.pd.state.streams.items():
        row = pd.state.streams.find(stream_id)
        if row is None:
            known = stream_id in lost.rows.streams or lost.live(stream_id)
            assert not known, "only a stream that nobody wrote down is unknown"
            continue
        if lost.live(stream_id):
            assert row.trim_offset == truth.trim_offset
            assert tiered_end(lost, stream_id) <= row.next_offset <= tiered_end(lost, stream_id, uploads=True)
        for of in pd.state.ranges.of(stream_id).values():
            assert of.hot_dropped and of.tiered_end_offset == of.end_offset
    for stream_id in set(pd.state.streams) - set(lost.pd.state.streams):
        name = lost.deleted[stream_id]
        had_objects = any(each.state == COMMITTED for each in lost.rows.objects.get(stream_id, ()))
        assert name in plan.doubtful or not had_objects or not lost.manifests


@pytest.mark.parametrize("seed", range(SEEDS, 2 * SEEDS))
def test_with_late_manifests_no_tiered_record_is_missing(seed: int) -> None:
    """What was committed is in the restored stream, whether snapshot, manifest or bucket show it; trims may be earlier ones."""
    lost = live_until(Random(seed))
    for stream_id in list(lost.manifests):
        if stream_id not in lost.pd.state.streams:
            del lost.manifests[stream_id]  # a deletion's manifest goes within a second
    plan = lost.plan()
    pd = restored(plan)
    check_numbers(lost, pd)
    for stream_id, truth in lost.pd.state.streams.items():
        row = pd.state.streams.find(stream_id)
        if row is None:
            assert stream_id not in lost.rows.streams and stream_id not in lost.manifests
            continue
        written = lost.manifests.get(stream_id)
        assert row.trim_offset <= truth.trim_offset
        assert row.trim_offset >= (written.trim_offset if written is not None else 0)
        if row.name not in plan.holes and lost.live(stream_id) and row.trim_offset == truth.trim_offset:
            assert row.next_offset >= tiered_end(lost, stream_id)


@pytest.mark.parametrize("seed", range(2 * SEEDS, 2 * SEEDS + 10))
def test_behind_the_last_hole(seed: int) -> None:
    """With --trim-to-after-hole each stream has its last run of objects, and is trimmed to its start."""
    lost = live_until(Random(seed))
    for stream_id in [*lost.pd.state.streams, *lost.deleted]:
        lost.write_manifest(stream_id)
    plan = lost.plan(trim_to_after_hole=True)
    pd = restored(plan)
    for stream_id in lost.pd.state.streams:
        live = lost.live(stream_id)
        if live and stream_id in pd.state.streams:
            assert pd.state.streams[stream_id].next_offset >= live[-1].end_offset


def test_lost_records_are_exactly_those_without_an_object() -> None:
    """ListedObjects are the spans between objects and the one behind the last, up to where the stream was known to end."""
    for seed in range(30):
        lost = live_until(Random(1_000 + seed))
        lost.take_snapshot()
        for stream_id in [*lost.pd.state.streams, *lost.deleted]:
            lost.write_manifest(stream_id)
        plan = lost.plan()
        for stream_id, truth in lost.pd.state.streams.items():
            offsets = set(range(truth.trim_offset, truth.next_offset))
            for each in lost.pd.state.objects.values():
                in_tier = each.state in (COMMITTED, common_pb2.OBJECT_STATE_PREPARED) and not each.replaces
                if each.stream_id == stream_id and in_tier and each.state == COMMITTED:
                    offsets -= set(range(each.start_offset, each.end_offset))
            listed = {
                offset
                for each in plan.lost
                if each.stream_id == stream_id
                for offset in range(each.start_offset, each.end_offset)
            }
            assert listed <= offsets
            uploads = [
                each
                for each in lost.pd.state.objects.values()
                if each.stream_id == stream_id and each.state == common_pb2.OBJECT_STATE_PREPARED
            ]
            for each in uploads:
                offsets -= set(range(each.start_offset, each.end_offset))
            assert offsets <= listed
