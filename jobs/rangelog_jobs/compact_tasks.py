"""One repack of the job `compact`, in one of Spark's workers.

What holds: a task that is run again, or twice at once, repacks nothing twice: the placement driver replaces only objects that
still count. Objects that others trimmed, deleted or repacked since the plan was made are left alone, and reported.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangelog import Client
from rangelog_core.errors import Corruption, ObjectNotFound, PreconditionFailed, StreamNotFound
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.stores import tier_of
from rangelog_proto.v1 import common_pb2
from rangelog_tier.repacking import Repack, Repacker


@dataclass(frozen=True, slots=True)
class RepackTask:
    """The work of one worker: a stream, the span [start, end) of offsets, the ids of its objects in order, and their ranges."""

    stream: str
    stream_id: int
    start: int
    end: int
    object_ids: list[int]
    parts: str


def run_repack(cluster: ClusterAddress, item: dict[str, Any]) -> dict[str, Any]:
    """Do one repack; return plain values: the sizes before and after, or why nothing was done."""
    task = RepackTask(**item)
    client = cluster.client()
    told: dict[str, Any] = {"stream": task.stream, "start": task.start, "end": task.end, "before": len(task.object_ids)}
    try:
        work = client.run(_look_up(client.asynchronous, task))
        with tempfile.TemporaryDirectory(prefix="rangelog-compact-") as directory:
            store, tier_url = tier_of(cluster)
            packer = Repacker(client.asynchronous.metadata.pd, store, Path(directory), tier_url=tier_url)
            made = client.run(packer.repack(work))
    except (PreconditionFailed, StreamNotFound) as error:
        return told | {"skipped": error.message}
    except (Corruption, ObjectNotFound) as error:
        return told | {"failed": error.message}
    return told | {"bytes_before": work.size_bytes, "bytes_after": made.size_bytes}


async def _look_up(client: Client, task: RepackTask) -> Repack:
    """Return the objects as they are now. Raises PreconditionFailed if they are not those of the plan."""
    found: list[common_pb2.Object] = []
    position = task.start
    while position < task.end:
        page = await client.metadata.objects(task.stream_id, position)
        found += [each for each in page if each.end_offset <= task.end]
        if not page or page[-1].end_offset > task.end:
            break
        position = page[-1].end_offset
    if [each.object_id for each in found] != task.object_ids:
        raise PreconditionFailed("its objects are not those of the plan any more")
    return Repack(task.stream_id, task.stream, found, task.parts)
