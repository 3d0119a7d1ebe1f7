"""The job `export`: a stream, or a part of it, as Parquet, CSV or Delta at a URL, each record once however often it is run.

Files lie in a folder for each span of offsets, `span=START-END`, written again as a whole when a run died while it was written.
`export_manifest` has what was exported; a later run adds what is new. A Delta table has no such folders: each span is one
transaction, which Delta takes once.
"""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rangelog import Client
from rangelog.ranges import StreamView, confirmed_end, trimmed
from rangelog.spark.options import Options
from rangelog.spark.planning import offset_of
from rangelog_core.errors import (
    Corruption,
    InvalidArgument,
    StreamNotFound,
)
from rangelog_jobs.argument_types import add_output
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.console import Console
from rangelog_jobs.export_frame import (
    DIVISIONS,
    FORMATS,
    VALUE_FORMS,
    default_form,
    division_column,
    to_export,
)
from rangelog_jobs.export_manifest import FILE_NAME, ExportManifest, ExportSpan, parse_manifest
from rangelog_jobs.fan_out import watched
from rangelog_jobs.job import EXIT_OK, Job, JobCall, JobTable
from rangelog_jobs.needed import need_format
from rangelog_jobs.spark_files import delete, read_json, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_TEXT = "Invalid UTF8 byte sequence"
"""What Spark says of bytes that are no text."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The source and the form of an export.

    Attributes:
        stream: The stream.
        url: The folder, or the Delta table: a path or any URL that Spark can write to.
        format: "parquet", "csv" or "delta".
        by: "day", "key" or "": the column by which the files are divided.
        value_as: "binary" or "string", of keys, values and headers; "": text for CSV, else bytes.
        start: "earliest", an offset, or a time as `rangelog.spark` takes it.
        end: "latest", or as `start`.
    """

    stream: str
    url: str
    format: str = "parquet"
    by: str = ""
    value_as: str = ""
    start: str = "earliest"
    end: str = "latest"

    def checked(self) -> ExportOptions:
        """Return the options with defaults filled in. Raises InvalidArgument."""
        for name, value, known in (
            ("format", self.format, FORMATS),
            ("by", self.by, ("", *DIVISIONS)),
            ("value_as", self.value_as, ("", *VALUE_FORMS)),
        ):
            if value not in known:
                raise InvalidArgument(f"{name} is one of {', '.join(filter(None, known))}, not {value[:100]!r}")
        if not self.url:
            raise InvalidArgument("no place to export to is given: --to URL")
        return replace(self, value_as=self.value_as or default_form(self.format), url=self.url.rstrip("/") or "/")


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of a run: the spans that it wrote, and all that are there. `url`: of the folder or table."""

    url: str
    written: list[ExportSpan]
    manifest: ExportManifest

    @property
    def record_count(self) -> int:
        """Records that this run wrote."""
        return sum(each.record_count for each in self.written)


def export_stream(
    spark: SparkSession, cluster: ClusterAddress, options: ExportOptions, *, console: Console | None = None
) -> ExportResult:
    """Export what is asked for and not there yet.

    Args:
        spark: The session.
        cluster: The cluster.
        options: The source and the form. One run at a time may write to a URL.
        console: Where to show progress; None: nowhere.

    Raises:
        InvalidArgument: An option is not valid, or the URL holds another export.
        StreamNotFound: There is no such stream.
        OffsetTrimmed: The start was trimmed.
        MissingExtra: Spark has no package for the format.
        Unavailable: The cluster or the place does not answer.

    Example:
        ```python
        options = ExportOptions("flights", "s3a://lake/flights", by="day")
        print(export_stream(spark, ClusterAddress("127.0.0.1:7100"), options).record_count)
        ```
    """
    options = options.checked()
    read = cluster.read_options(options.stream, start=options.start, end=options.end)
    client = cluster.client()
    stream_id, start, end = client.run(resolve_span(client.asynchronous, read))
    if options.format == "delta":
        need_format(spark, "delta")
    asked = ExportManifest(options.stream, stream_id, options.format, options.by, options.value_as)
    place = f"{options.url}/{FILE_NAME}"
    document = read_json(spark, place)
    manifest = asked if document is None else parse_manifest(document, place)
    manifest.check_same(asked, options.url)
    run = _Run(spark, cluster, options, manifest, place, console or Console(quiet=True))
    written: list[ExportSpan] = []
    if manifest.pending is not None:
        written += run.complete(manifest.pending)
    for low, high in manifest.missing(start, end):
        written.append(run.write(manifest.begin(low, high)))
    if document is None and not written:
        run.save()
    return ExportResult(options.url, written, manifest)


async def resolve_span(client: Client, read: Options) -> tuple[int, int, int]:
    """Return a stream's id, and the offsets that a read begins and ends with.

    Raises StreamNotFound, OffsetTrimmed, OffsetOutOfRange, InvalidArgument, Unavailable.
    """
    view = StreamView(client.metadata, read.stream, connections=client.connections)
    proved = await confirmed_end(view, client.connections)
    tail = proved.offset
    first, stream_id = view.stream.trim_offset, view.stream.stream_id
    start = await offset_of(client, read, read.stream, stream_id, read.start, first, tail)
    end = await offset_of(client, read, read.stream, stream_id, read.end, first, tail)
    if start < first:
        raise trimmed(start, first)
    proved.check_reached(max(start, end))
    if start > end:
        raise InvalidArgument(f"start {start} is beyond end {end}")
    return stream_id, start, end


class _Run:
    """One run, which writes spans one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: ClusterAddress,
        options: ExportOptions,
        manifest: ExportManifest,
        place: str,
        console: Console,
    ) -> None:
        self._spark, self._cluster, self._options = spark, cluster, options
        self._manifest, self._place, self._console = manifest, place, console

    def save(self) -> None:
        """Write the manifest."""
        write_json(self._spark, self._place, self._manifest.to_dict())

    def complete(self, pending: ExportSpan) -> list[ExportSpan]:
        """Write the span of a run that died. If it was trimmed since, it is gone: its files are removed instead."""
        first = self._cluster.client().describe_stream(self._options.stream).trim_offset
        if pending.start < first and self._options.format != "delta":
            self._undo(pending)
            return []
        return [self.write(pending)]

    def write(self, span: ExportSpan) -> ExportSpan:
        """Write the pending span and note it. After a failure the partial output is removed, as far as that is possible."""
        self.save()
        try:
            records = self._write_files(span)
        except BaseException as error:
            if self._options.format != "delta":  # what is in a table stays there
                self._undo(span)
            if isinstance(error, Exception) and _NO_TEXT in str(error):
                raise InvalidArgument(
                    f"a key, value or header of records {span.start} to {span.end - 1} is not UTF-8 text: export them with "
                    "--value-as binary, and divide them by day"
                ) from None
            raise
        done = self._manifest.finish(records, time.time_ns() // 1_000_000)
        self.save()
        return done

    def _write_files(self, span: ExportSpan) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        options = self._options
        known = self._cluster.to_options(stream=options.stream, start=str(span.start), end=str(span.end))
        frame = self._spark.read.format("rangelog").options(**known).load()
        seen = Observation()
        if options.format != "delta":  # which may have the span already, and then does not ask for the records
            frame = frame.observe(seen, count(lit(1)).alias("records"))
        writer = to_export(frame, options.format, options.by, options.value_as).write.format(options.format)
        writer = writer.options(**_format_options(options, self._manifest, span))
        column = division_column(options.by)
        if column is not None:
            writer = writer.partitionBy(column)
        with watched(self._spark, self._console, f"exporting {span.start:,} to {span.end:,}"):
            if options.format == "delta":
                writer.mode("append").save(options.url)
            else:
                writer.mode("overwrite").save(f"{options.url}/{span.path}")
        records = span.end - span.start if options.format == "delta" else int(seen.get["records"])
        now = self._cluster.client().describe_stream(options.stream)
        if now.stream_id != self._manifest.stream_id:
            raise StreamNotFound(f"stream {options.stream!r} was deleted and made anew during the export")
        if records != span.end - span.start:
            raise Corruption(
                f"{records:,} of {span.end - span.start:,} records were exported: run the audit on the stream"
            )
        return records

    def _undo(self, span: ExportSpan) -> None:
        with suppress(Exception):  # of Spark's process perhaps, which an interrupt may have ended
            delete(self._spark, f"{self._options.url}/{span.path}")
            self._manifest.pending = None
            self.save() if self._manifest.spans else delete(self._spark, self._place)


def _format_options(options: ExportOptions, manifest: ExportManifest, span: ExportSpan) -> dict[str, Any]:
    if options.format == "csv":
        form = "yyyy-MM-dd'T'HH:mm:ss.SSSX"
        return {"header": "true", "escape": '"', "timestampFormat": form, "timeZone": "UTC"}
    if options.format == "delta":  # Delta takes an application's version once
        return {"txnAppId": f"rangelog-export-{manifest.stream_id}-{span.start}", "txnVersion": str(span.end)}
    return {}


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "export",
            "Write a stream as Parquet, CSV or Delta; run again, it adds what is new.",
            [
                "export flights --to /data/flights",
                "export flights --to s3a://lake/flights --by day --value-as string",
                "export flights --to /data/january --format csv --start 2026-01-01T00:00Z --end 2026-02-01T00:00Z",
            ],
            _arguments,
            _run,
            f"The folder gets {FILE_NAME}: which offsets are in which files.",
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM")
    parser.add_argument("--to", required=True, metavar="URL", dest="url", help="a folder, or a Delta table")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="default: parquet")
    parser.add_argument("--by", choices=DIVISIONS, default="", help="divide the files by day (UTC) or by key")
    parser.add_argument("--start", default="earliest", help="an offset, a time such as 2026-01-31T12:00Z, or -1h")
    parser.add_argument("--end", default="latest", help="as --start")
    parser.add_argument("--value-as", choices=VALUE_FORMS, default="", help="default: string for csv, else binary")
    add_output(parser)


def _run(call: JobCall) -> int:
    given = call.arguments
    cluster = call.cluster()
    fields = ("stream", "url", "format", "by", "value_as", "start", "end")
    options = ExportOptions(**{name: getattr(given, name) for name in fields}).checked()
    cluster.read_options(options.stream, start=options.start, end=options.end)  # checked before Spark starts
    result = export_stream(call.session(), cluster, options, console=call.console)
    spans = [f"[{each.start}, {each.end})" for each in result.written]
    text = f"{result.record_count:,} records written to {result.url}: {', '.join(spans) or 'nothing is new'}"
    written = [{"start": each.start, "end": each.end, "path": each.path} for each in result.written]
    call.emit({"url": result.url, "record_count": result.record_count, "written": written}, text)
    return EXIT_OK
