"""The job `compact`: many small objects of a stream become few large ones, sorted by offset, under the feet of its readers.

What holds: each repack is one compare-and-set of the placement driver, so a job that is stopped anywhere has done some of them
and none by half. Readers that know the earlier objects read them until the placement driver's grace is over, and then find the
new ones. Each byte is rewritten a bounded number of times, however often the job runs (`rangelog_tier.repacking.plan_repacks`).
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import rangelog.sync
from rangelog import Client
from rangelog_core.errors import InvalidArgument, StreamNotFound
from rangelog_core.limits import MIB
from rangelog_jobs.argument_types import add_output, add_streams, size
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.compact_tasks import RepackTask, run_repack
from rangelog_jobs.console import Console
from rangelog_jobs.fan_out import fan_out
from rangelog_jobs.job import EXIT_OK, EXIT_WRONG, Job, JobCall, JobTable
from rangelog_jobs.page import show_size
from rangelog_tier.encryption_keys import keys_of_environment
from rangelog_tier.repacking import check_cluster, plan_new_keys, plan_repacks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES_DEFAULT = 256 * MIB
TARGET_BYTES_MIN, TARGET_BYTES_MAX = 64 * 1024, 2_048 * MIB


@dataclass
class StreamRepacks:
    """The repacks of one stream. Sizes are in bytes, as stored; `skipped`, `failed`: repacks that were not done, and why."""

    name: str
    objects_before: int
    objects_after: int
    bytes_before: int
    bytes_after: int
    repacked_bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass
class RepackReport:
    """The repacks of a run; of a dry run those that are planned, with sizes by estimate. `seconds`: of the repacks alone."""

    streams: list[StreamRepacks]
    seconds: float
    dry_run: bool = False

    @property
    def is_good(self) -> bool:
        """Whether no object was found damaged or missing."""
        return not any(each.failed for each in self.streams)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def to_text(self) -> str:
        """Return lines for people."""
        lines = []
        for each in self.streams:
            lines.append(
                f"{each.name}  {each.objects_before:,} objects, {show_size(each.bytes_before)} → "
                f"{each.objects_after:,} objects, {show_size(each.bytes_after)}"
            )
            lines += [f"  left alone: {text}" for text in each.skipped]
            lines += [f"  FAILED: {text}" for text in each.failed]
        done = sum(each.repacked_bytes for each in self.streams)
        verb = "to be repacked" if self.dry_run else f"repacked in {self.seconds:.1f} s"
        count = len(self.streams)
        return "\n".join([*lines, f"{count} {'stream' if count == 1 else 'streams'}: {show_size(done)} {verb}"])


def compact_streams(
    spark: SparkSession,
    cluster: ClusterAddress,
    *,
    stream: str | None = None,
    prefix: str | None = None,
    topic: str | None = None,
    target_bytes: int = TARGET_BYTES_DEFAULT,
    rewrite_keys: bool = False,
    dry_run: bool = False,
    console: Console | None = None,
) -> RepackReport:
    """Join the small objects of one stream, of those with a prefix, of a topic's shards, or of all streams.

    Args:
        spark: The session.
        cluster: The cluster.
        stream: The name of the one stream.
        prefix: The start of the names.
        topic: The topic.
        target_bytes: The largest object to make; those above half of it are left alone. 64 KiB to 2 GiB.
        rewrite_keys: Also rewrite objects in clear or encrypted by another key than the current one, whatever their size.
        dry_run: Say what would be done.
        console: Where to show progress; None: nowhere.

    Raises:
        InvalidArgument: The target is out of bounds; `rewrite_keys` without keys.
        EncryptionKeyMissing: A key to read or to write with is not here.
        StreamNotFound, TopicNotFound: There is no such stream or topic.
        Unavailable: The placement drivers do not answer, or have not all been upgraded.

    Example:
        ```python
        report = compact_streams(create_session(), ClusterAddress("127.0.0.1:7100"), stream="flights")
        print(report.streams[0].objects_before, report.streams[0].objects_after)
        ```
    """
    if not TARGET_BYTES_MIN <= target_bytes <= TARGET_BYTES_MAX:
        raise InvalidArgument(f"objects of {target_bytes:,} bytes: give a target of 64k to 2g")
    console = console or Console(quiet=True)
    key_id = _current_key(cluster) if rewrite_keys else None
    client = cluster.client()
    client.run(check_cluster(client.asynchronous.metadata.pd))
    names = list(cluster.shard_streams(topic)) if topic is not None else cluster.stream_names(stream, prefix)
    streams, work = _plan_all(client, names, target_bytes, key_id, console, passes_over=stream is None)
    if dry_run:
        return RepackReport(list(streams.values()), 0.0, dry_run=True)
    for each in streams.values():
        each.objects_after, each.repacked_bytes = each.objects_before, 0
    begun = time.monotonic()
    for done in fan_out(spark, functools.partial(run_repack, cluster), work, console, "compact"):
        _add(streams[done["stream"]], done)
    return RepackReport(list(streams.values()), time.monotonic() - begun)


def _plan_all(
    client: rangelog.sync.Client,
    names: Sequence[str],
    target_bytes: int,
    key_id: str | None,
    console: Console,
    *,
    passes_over: bool,
) -> tuple[dict[str, StreamRepacks], list[dict[str, Any]]]:
    """Return the plan of each stream by name, and all repacks. `passes_over`: streams that were deleted meanwhile."""
    streams: dict[str, StreamRepacks] = {}
    work: list[dict[str, Any]] = []
    with console.progress("planning", "streams") as show:
        for number, name in enumerate(names):
            try:
                plan, tasks = client.run(_plan(client.asynchronous, name, target_bytes, key_id))
            except StreamNotFound:
                if not passes_over:
                    raise
            else:
                streams[name] = plan
                work += [asdict(each) for each in tasks]
            show(number + 1, len(names))
    return streams, work


def _current_key(cluster: ClusterAddress) -> str:
    keys = cluster.encryption_keys or keys_of_environment()
    if keys is None:
        raise InvalidArgument(
            "there are no keys to rewrite objects with: set RANGELOG_ENCRYPTION_KEYS_DIR or RANGELOG_ENCRYPTION_KMS_KEY_ID"
        )
    return keys.current()


async def _plan(
    client: Client, name: str, target_bytes: int, key_id: str | None
) -> tuple[StreamRepacks, list[RepackTask]]:
    stream, ranges = await client.metadata.ranges(name, 0)
    objects = await client.metadata.all_objects(stream.stream_id, 0)
    repacks = plan_repacks(stream, ranges, objects, target_bytes)
    if key_id is not None:
        repacks += plan_new_keys(stream, ranges, objects, key_id, repacks)
    size_bytes = sum(each.size_bytes for each in objects)
    planned = sum(each.size_bytes for each in repacks)
    tasks = [
        RepackTask(
            name,
            stream.stream_id,
            each.objects[0].start_offset,
            each.objects[-1].end_offset,
            [one.object_id for one in each.objects],
            each.parts,
        )
        for each in repacks
    ]
    after = len(objects) - sum(len(each.objects) - 1 for each in repacks)
    return StreamRepacks(name, len(objects), after, size_bytes, size_bytes, planned), tasks


def _add(stream: StreamRepacks, done: dict[str, Any]) -> None:
    span = f"[{done['start']:,}, {done['end']:,})"
    if "skipped" in done:
        stream.skipped.append(f"{span}: {done['skipped']}")
    elif "failed" in done:
        stream.failed.append(f"{span}: {done['failed']}")
    else:
        stream.objects_after -= done["before"] - 1
        stream.bytes_after += done["bytes_after"] - done["bytes_before"]
        stream.repacked_bytes += done["bytes_before"]


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "compact",
            "Join small objects of neighbouring ranges into large ones; readers are not disturbed.",
            [
                "compact --stream flights",
                "compact --prefix shop. --target-size 512m --dry-run",
                "compact --topic shop/orders",
                "compact --stream flights --rewrite-keys",
            ],
            _arguments,
            _run,
            "Exit codes: 0 done, 1 an object is damaged or missing, 2 bad usage. It may be stopped at any time, and run again.",
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = add_streams(parser)
    which.add_argument("--topic", metavar="NAME", help="the shards of this topic")
    parser.add_argument(
        "--target-size",
        metavar="BYTES",
        type=size,
        default=TARGET_BYTES_DEFAULT,
        help="of the largest object; default: 256m",
    )
    parser.add_argument(
        "--rewrite-keys",
        action="store_true",
        help="also write anew what is in clear or encrypted by another key than the current one (docs/encryption.md)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    add_output(parser)


def _run(call: JobCall) -> int:
    given = call.arguments
    report = compact_streams(
        call.session(),
        call.cluster(),
        stream=given.stream,
        prefix=given.prefix,
        topic=given.topic,
        target_bytes=given.target_size,
        rewrite_keys=given.rewrite_keys,
        dry_run=given.dry_run,
        console=call.console,
    )
    call.emit(report.to_dict(), report.to_text())
    return EXIT_OK if report.is_good else EXIT_WRONG
