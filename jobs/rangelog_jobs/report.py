"""The job `report`: how much is in the streams, by day and by key, what is kept where, and how far groups are behind.

Records are read once for volumes and once more for the heaviest keys; Spark gets a row of sizes for each, without payload.
"""

from __future__ import annotations

import argparse
import functools
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import InvalidArgument, StreamNotFound
from rangelog_jobs.argument_types import add_output, add_streams
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.console import Console
from rangelog_jobs.fan_out import spread, watched
from rangelog_jobs.job import EXIT_OK, Job, JobCall, JobTable
from rangelog_jobs.page import bar, check_writable, page, show_size, show_time, table, tag, write_whole
from rangelog_jobs.report_plan import StreamState, group_lags, look_at
from rangelog_jobs.report_tasks import COLUMNS, measure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = 1
KEYS_DEFAULT = 10
_KEY_SHOWN = 60
_DAYS_SHOWN = 14


@dataclass(frozen=True, slots=True)
class DayVolume:
    """The records of one day (UTC), and the bytes of their keys and values."""

    day: str
    record_count: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class KeyVolume:
    """The records of one key; `key`: as text, or X'…' in hexadecimal; None: those without a key."""

    key: str | None
    record_count: int
    payload_bytes: int


@dataclass
class StreamVolume:
    """A stream in the report.

    Attributes:
        name: The stream.
        start: The trim offset.
        end: One past the last acked record.
        record_count: Records that were read.
        payload_bytes: Bytes of their keys and values.
        key_count: Distinct keys, approximately.
        oldest_ms: The earliest timestamp; None: no record.
        newest_ms: The latest.
        retention_ms: Age at which records are trimmed; 0: never.
        retention_bytes: Size above which they are; 0: never.
        hot_bytes: On range servers, per replica, by samples; None: not known.
        tiered_bytes: Size of the live objects.
        object_count: Their number.
        days: By day.
        keys: The heaviest keys, by bytes.
    """

    name: str
    start: int
    end: int
    record_count: int = 0
    payload_bytes: int = 0
    key_count: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    retention_ms: int = 0
    retention_bytes: int = 0
    hot_bytes: int | None = None
    tiered_bytes: int = 0
    object_count: int = 0
    days: list[DayVolume] = field(default_factory=list)
    keys: list[KeyVolume] = field(default_factory=list)


@dataclass
class VolumeReport:
    """The whole report. `groups`: rows of group, topic, members, shards, records, seconds; `note`: why they are not known."""

    cluster: str
    made_ms: int
    streams: list[StreamVolume]
    groups: list[dict[str, Any]]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"rangelog.report_version": VERSION} | asdict(self)

    def to_text(self) -> str:
        """Return lines for people."""
        lines = []
        for each in self.streams:
            lines.append(
                f"{each.name}  [{each.start}, {each.end})  {each.record_count:,} records, {show_size(each.payload_bytes)}, "
                f"about {each.key_count:,} keys"
            )
            lines.append(
                f"  {show_time(each.oldest_ms)} to {show_time(each.newest_ms)}; hot {show_size(each.hot_bytes)} per replica, "
                f"tiered {show_size(each.tiered_bytes)} in {each.object_count} objects"
            )
            days = each.days[-_DAYS_SHOWN:]
            lines += [f"  {day.day}  {day.record_count:>14,}  {show_size(day.payload_bytes):>12}" for day in days]
            lines += [
                f"  key {_shown(key.key)}  {key.record_count:,} records  {show_size(key.payload_bytes)}"
                for key in each.keys
            ]
        for row in self.groups:
            lines.append(
                f"group {row['group']}  {row['topic']}  {row['records']:,} records behind, {row['seconds']:.0f} s, "
                f"{row['members']} members"
            )
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def to_html(self) -> str:
        """Return one page that needs no other file."""
        rows = [
            (
                each.name, f"{each.start:,} – {each.end:,}", f"{each.record_count:,}", show_size(each.payload_bytes),
                f"{each.key_count:,}", show_time(each.oldest_ms), show_time(each.newest_ms), show_size(each.hot_bytes),
                show_size(each.tiered_bytes), f"{each.object_count:,}",
            )
            for each in self.streams
        ]  # fmt: skip
        headings = [
            "stream", "#offsets", "#records", "#keys and values", "#keys, about", "oldest", "newest", "#hot, per replica",
            "#tiered", "#objects",
        ]  # fmt: skip
        lags = [
            (row["group"], row["topic"], row["members"], f"{row['records']:,}", f"{row['seconds']:.0f}")
            for row in self.groups
        ]
        parts: list[object] = [
            tag("p", f"Cluster {self.cluster}, {show_time(self.made_ms)}.", "quiet"),
            tag("h2", "Streams"),
            table(headings, rows, empty="The cluster has no such streams."),
            tag("h2", "Groups"),
            table(["group", "topic", "#members", "#records behind", "#seconds"], lags, empty=self.note or "None."),
        ]
        for each in self.streams:
            parts += _details(each)
        return page("rangelog report", parts)


def _details(stream: StreamVolume) -> list[object]:
    most = max((each.payload_bytes for each in stream.days), default=0) or 1
    days = [
        (day.day, f"{day.record_count:,}", show_size(day.payload_bytes), bar(day.payload_bytes / most))
        for day in stream.days
    ]
    keys = [(_shown(key.key), f"{key.record_count:,}", show_size(key.payload_bytes)) for key in stream.keys]
    return [
        tag("h2", stream.name),
        table(["day (UTC)", "#records", "#keys and values", ""], days, empty="No records."),
        table(["heaviest keys", "#records", "#keys and values"], keys, empty="No keys were looked at."),
    ]


def _shown(key: str | None) -> str:
    if key is None:
        return "(none)"
    return key if len(key) <= _KEY_SHOWN else key[:_KEY_SHOWN] + "…"


def report_streams(
    spark: SparkSession,
    cluster: ClusterAddress,
    *,
    stream: str | None = None,
    prefix: str | None = None,
    keys: int = KEYS_DEFAULT,
    console: Console | None = None,
) -> VolumeReport:
    """Report on one stream, those with a prefix, or all; and on all consumer groups.

    Args:
        spark: The session.
        cluster: The cluster.
        stream: The name of the one stream.
        prefix: The start of the names.
        keys: Heaviest keys of each stream; 0: none, and records are read once only.
        console: Where to show progress; None: nowhere.

    Raises:
        StreamNotFound: There is no such stream.
        Unavailable: The placement drivers do not answer.

    Example:
        ```python
        report = report_streams(create_session(), ClusterAddress("127.0.0.1:7100"), stream="flights")
        print(report.streams[0].record_count)
        ```
    """
    console = console or Console(quiet=True)
    client = cluster.client()
    states: list[StreamState] = []
    names = cluster.stream_names(stream, prefix)
    with console.progress("looking", "streams") as show:
        for name in names:
            try:
                states.append(client.run(look_at(client.asynchronous, name)))
            except StreamNotFound:
                if stream is not None:
                    raise
            show(len(states), len(names))
    volumes = {each.info.name: _begun(each) for each in states}
    work = [item for each in states for item in each.work()]
    if work:
        sizes = spread(spark, work).mapInArrow(functools.partial(measure, cluster), COLUMNS)
        with watched(spark, console, "volumes"):
            _add_volumes(sizes, volumes)
        if keys:
            with watched(spark, console, "keys"):
                _add_keys(sizes, volumes, keys)
    groups, note = group_lags(client)
    return VolumeReport(cluster.pd, time.time_ns() // 1_000_000, list(volumes.values()), groups, note)


def _begun(state: StreamState) -> StreamVolume:
    return StreamVolume(
        state.info.name,
        min(state.info.trim_offset, state.end),
        state.end,
        retention_ms=state.info.retention_ms,
        retention_bytes=state.info.retention_bytes,
        hot_bytes=state.hot_bytes,
        tiered_bytes=state.tiered_bytes,
        object_count=state.object_count,
    )


def _add_volumes(sizes: DataFrame, volumes: dict[str, StreamVolume]) -> None:
    """One pass for days and totals: grouping sets."""
    days = sizes.selectExpr("stream", "ms", "key", "size", "CAST(floor(ms / 86400000) AS INT) AS day")
    found = days.sparkSession.sql(
        """SELECT stream, CAST(date_from_unix_date(day) AS STRING) AS day, grouping(day) AS is_total, count(*) AS records,
        sum(size) AS bytes, approx_count_distinct(key, 0.01) AS keys, min(ms) AS oldest, max(ms) AS newest
        FROM {days} GROUP BY stream, day GROUPING SETS ((stream, day), (stream))""",
        days=days,
    )
    for row in sorted(found.collect(), key=lambda each: (each.stream, each.day or "")):
        volume = volumes[row.stream]
        if row.is_total:
            volume.record_count, volume.payload_bytes, volume.key_count = row.records, row.bytes, row["keys"]
            volume.oldest_ms, volume.newest_ms = row.oldest, row.newest
        else:
            volume.days.append(DayVolume(row.day, row.records, row.bytes))


def _add_keys(sizes: DataFrame, volumes: dict[str, StreamVolume], count: int) -> None:
    found = sizes.sparkSession.sql(
        f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY stream ORDER BY bytes DESC, key) AS place
        FROM (SELECT stream, key, count(*) AS records, sum(size) AS bytes FROM {{sizes}} GROUP BY stream, key))
        WHERE place <= {int(count)}""",  # noqa: S608  # a number
        sizes=sizes,
    )
    for row in sorted(found.collect(), key=lambda each: (each.stream, each.place)):
        volumes[row.stream].keys.append(KeyVolume(key_text(row.key), row.records, row.bytes))


def key_text(key: bytes | bytearray | None) -> str | None:
    """Return a key as text, or as X'hex' if it is not text.

    Example:
        >>> key_text(b"abc"), key_text(bytes([255]))
        ('abc', "X'ff'")
    """
    if key is None:
        return None
    try:
        text = bytes(key).decode()
    except UnicodeDecodeError:
        return f"X'{bytes(key).hex()}'"
    return text if text.isprintable() else f"X'{bytes(key).hex()}'"


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "report",
            "Show volumes by day and key, what is kept where, and the lag of groups.",
            ["report", "report --stream flights --keys 50 -o json", "report --prefix shop. --html report.html"],
            _arguments,
            _run,
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_streams(parser)
    parser.add_argument(
        "--keys",
        type=int,
        default=KEYS_DEFAULT,
        metavar="N",
        help=f"heaviest keys of a stream; default: {KEYS_DEFAULT}",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page for people")
    add_output(parser)


def _run(call: JobCall) -> int:
    given = call.arguments
    if given.keys < 0:
        raise InvalidArgument(f"--keys is a number from 0 up, not {given.keys}")
    html_file = check_writable(given.html)
    cluster = call.cluster()
    report = report_streams(
        call.session(), cluster, stream=given.stream, prefix=given.prefix, keys=given.keys, console=call.console
    )
    if html_file is not None:
        write_whole(html_file, report.to_html())
    call.emit(report.to_dict(), report.to_text())
    return EXIT_OK
