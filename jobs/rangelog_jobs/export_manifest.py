"""The record of an export: a JSON document `_rangelog_export.json` in its folder, which readers of the folder ignore.

    rangelog.export_version  1; refuse a higher one
    stream, stream_id        what was exported
    format, by, value_as     how
    spans                    by offset: start, end, path (a folder below the URL), record_count, written_ms
    pending                  a span that is being written, or was when a run died: its folder is not to be read

What holds: no offset is in two spans. A run writes the pending span again, whole, before any other; then what is asked for and
not there yet. So each record is in the folders of the spans once, whichever runs died.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion

FILE_NAME = "_rangelog_export.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class ExportSpan:
    """Offsets [start, end) in one folder. `written_ms`: 0 while it is being written."""

    start: int
    end: int
    path: str
    record_count: int = 0
    written_ms: int = 0


@dataclass
class ExportManifest:
    """The manifest of one export."""

    stream: str
    stream_id: int
    format: str
    by: str
    value_as: str
    spans: list[ExportSpan] = field(default_factory=list)
    pending: ExportSpan | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"rangelog.export_version": VERSION} | asdict(self)

    def check_same(self, other: ExportManifest, url: str) -> None:
        """Raise InvalidArgument unless another run's export may go to the same folder."""
        for name in ("stream", "stream_id", "format", "by", "value_as"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others:
                what = "the stream that had the name" if name == "stream_id" else f"{name} {mine or 'none'!r}"
                raise InvalidArgument(
                    f"{url} holds an export with {what}, not {others or 'none'!r}: give this export a folder of its own"
                )

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that no span has.

        Example:
            >>> ExportManifest("s", 1, "csv", "", "string", [ExportSpan(2, 4, "p")]).missing(0, 10)
            [(0, 2), (4, 10)]
        """
        parts = []
        for span in sorted(self.spans, key=lambda each: each.start):
            if span.start > start:
                parts.append((start, min(span.start, end)))
            start = max(start, span.end)
            if start >= end:
                break
        return [each for each in [*parts, (start, end)] if each[0] < each[1]]

    def begin(self, start: int, end: int) -> ExportSpan:
        """Note that a span is being written."""
        self.pending = ExportSpan(start, end, folder_of(start, end, self.format))
        return self.pending

    def finish(self, record_count: int, written_ms: int) -> ExportSpan:
        """Note that the pending span is there."""
        assert self.pending is not None
        done = ExportSpan(self.pending.start, self.pending.end, self.pending.path, record_count, written_ms)
        self.spans = sorted([*self.spans, done], key=lambda each: each.start)
        self.pending = None
        return done


def folder_of(start: int, end: int, file_format: str) -> str:
    """Return the folder of a span; "": it is in a table."""
    return "" if file_format == "delta" else f"span={start}-{end}"


def parse_manifest(document: dict[str, Any], url: str) -> ExportManifest:
    """Return the manifest of a JSON document. Raises Corruption, UnsupportedVersion."""
    version = document.get("rangelog.export_version")
    if isinstance(version, int) and version > VERSION:
        raise UnsupportedVersion(f"{url} has version {version}, this program reads {VERSION}: upgrade it")
    try:
        fields = {name: value for name, value in document.items() if name != "rangelog.export_version"}
        form = fields["format"]
        spans = [_span(each, form) for each in fields.pop("spans")]
        pending = fields.pop("pending")
        manifest = ExportManifest(**fields, spans=spans, pending=None if pending is None else _span(pending, form))
    except (KeyError, TypeError, ValueError) as error:
        raise Corruption(f"{url} is damaged: {error}: move it away, and export into another folder") from None
    if version != VERSION or any(one.end > other.start for one, other in pairwise(spans)):
        raise Corruption(f"{url} is damaged: its spans overlap or it has no version: export into another folder")
    return manifest


def _span(fields: dict[str, Any], file_format: str) -> ExportSpan:
    """Folders are overwritten and removed by these paths, so none but a span's own is taken."""
    span = ExportSpan(**fields)
    if not (type(span.start) is type(span.end) is int and 0 <= span.start < span.end):
        raise ValueError(f"{fields!r:.100} is no span")
    if span.path != folder_of(span.start, span.end, file_format):
        raise ValueError(f"{span.path!r:.100} is not the folder of a span")
    return span
