"""Waits until every sealed range is in the object store, and has the hot replicas of the older half dropped."""

from __future__ import annotations

import time
import uuid

from rangelog_demo.metadata import StreamMetadata, wait_for
from rangelog_demo.progress import Bar
from rangelog_proto.v1 import common_pb2

_TIER_TIMEOUT_S = 120.0
_DROP_TIMEOUT_S = 30.0
KEEP_HOT = -1
"""hot_retention_ms of a stream whose hot copies are never dropped."""


async def wait_tiered(metadata: StreamMetadata, bar: Bar) -> list[common_pb2.Range]:
    """Return the sealed ranges once objects cover each of them."""

    async def all_there() -> bool:
        sealed = [found for found in await metadata.ranges() if found.state == common_pb2.RANGE_STATE_SEALED]
        done = [found for found in sealed if found.tiered_end_offset == found.end_offset]
        bar.note = f"{len(done)} of {len(sealed)} sealed ranges"
        bar.update(100 * len(done) // max(1, len(sealed)))
        return len(done) == len(sealed)

    await wait_for(all_there, _TIER_TIMEOUT_S, "sealed ranges are missing in the object store (pdctl task list)")
    return [found for found in await metadata.ranges() if found.state == common_pb2.RANGE_STATE_SEALED]


def older_half(sealed: list[common_pb2.Range]) -> set[int]:
    """The indexes of the ranges that end within the first half of the sealed offsets; the first range always."""
    middle = sealed[-1].end_offset // 2
    return {sealed[0].index} | {found.index for found in sealed if found.end_offset <= middle}


async def drop_older_half(metadata: StreamMetadata, sealed: list[common_pb2.Range]) -> tuple[int, int]:
    """Make hot retention short enough for the older half, and endless again. Returns (dropped, still hot) sealed ranges.

    Hot retention counts from the commit of a range's object: what was tiered by the time the older half was complete goes.
    """
    if not sealed:
        return 0, 0
    older = older_half(sealed)
    tiered_ms = max(found.tiered_ms for found in sealed if found.index in older)
    await metadata.set_hot_retention(max(1, int(time.time() * 1000) - tiered_ms), str(uuid.uuid4()))

    async def older_dropped() -> bool:
        return older <= {found.index for found in await metadata.ranges() if found.hot_dropped}

    try:
        await wait_for(older_dropped, _DROP_TIMEOUT_S, "hot copies are still there (pdctl task list)")
    finally:
        await metadata.set_hot_retention(KEEP_HOT, str(uuid.uuid4()))
    dropped = sum(found.hot_dropped for found in await metadata.ranges())
    return dropped, len(sealed) - dropped
