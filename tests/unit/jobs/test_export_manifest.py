"""The manifest of an export: what is missing, what a dead run leaves, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion
from rangelog_jobs.export import ExportOptions
from rangelog_jobs.export_frame import export_columns
from rangelog_jobs.export_manifest import ExportManifest, ExportSpan, parse_manifest


def manifest(*spans: tuple[int, int], **more: Any) -> ExportManifest:
    """One with these spans."""
    made = [ExportSpan(start, end, f"span={start}-{end}", end - start, 1) for start, end in spans]
    return ExportManifest(
        **({"stream": "s", "stream_id": 1, "format": "parquet", "by": "", "value_as": "binary"} | more), spans=made
    )


@pytest.mark.parametrize(
    ("spans", "asked", "missing"),
    [
        ([], (0, 10), [(0, 10)]),
        ([(0, 10)], (0, 10), []),
        ([(0, 10)], (0, 15), [(10, 15)]),
        ([(5, 10)], (0, 15), [(0, 5), (10, 15)]),
        ([(2, 4), (6, 8)], (0, 10), [(0, 2), (4, 6), (8, 10)]),
        ([(2, 4), (6, 8)], (3, 7), [(4, 6)]),
        ([(0, 20)], (3, 7), []),
        ([(10, 20)], (3, 7), [(3, 7)]),
        ([(0, 5)], (7, 9), [(7, 9)]),
        ([], (4, 4), []),
    ],
)
def test_what_is_missing(spans: list[tuple[int, int]], asked: tuple[int, int], missing: list[tuple[int, int]]) -> None:
    """What is asked for, without what is there."""
    assert manifest(*spans).missing(*asked) == missing


def test_a_span_is_pending_until_it_is_there() -> None:
    """A run that dies between leaves it in the document."""
    one = manifest((0, 10))
    begun = one.begin(10, 15)
    assert parse_manifest(one.to_dict(), "u").pending == begun == ExportSpan(10, 15, "span=10-15")
    one.finish(5, 123)
    again = parse_manifest(one.to_dict(), "u")
    assert again == one
    assert (again.pending, again.spans[-1]) == (None, ExportSpan(10, 15, "span=10-15", 5, 123))
    assert manifest(format="delta").begin(0, 5).path == ""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stream": "t"}, "holds an export with stream 's', not 't'"),
        ({"stream_id": 2}, "the stream that had the name"),
        ({"format": "csv"}, "with format 'parquet', not 'csv'"),
        ({"by": "day"}, "with by 'none', not 'day'"),
        ({"value_as": "string"}, "with value_as 'binary', not 'string'"),
    ],
)
def test_another_export_needs_a_folder_of_its_own(more: dict[str, Any], said: str) -> None:
    """What differs is named."""
    manifest().check_same(manifest(), "u")
    with pytest.raises(InvalidArgument, match=said):
        manifest().check_same(manifest(**more), "u")


@pytest.mark.parametrize(
    "change",
    [
        {"spans": None},
        {"spans": [{"start": 0}]},
        {"spans": [{"start": 5, "end": 3, "path": "span=5-3"}]},
        {"spans": [{"start": 0, "end": 3, "path": "span=0-3"}, {"start": 2, "end": 4, "path": "span=2-4"}]},
        {"pending": 7},
        {"pending": {"start": 10, "end": 12, "path": ""}},
        {"pending": {"start": 10, "end": 12, "path": "../elsewhere"}},
        {"stranger": 1},
        {"rangelog.export_version": None},
    ],
)
def test_a_damaged_manifest_is_refused(change: dict[str, Any]) -> None:
    """It is never taken for an empty one: records would be written twice."""
    with pytest.raises(Corruption, match="is damaged"):
        parse_manifest(manifest((0, 10)).to_dict() | change, "u")


def test_a_later_version_is_refused() -> None:
    """By its number."""
    with pytest.raises(UnsupportedVersion, match="upgrade it"):
        parse_manifest(manifest().to_dict() | {"rangelog.export_version": 2}, "u")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"format": "xls"}, "format is one of parquet, csv, delta, not 'xls'"),
        ({"by": "week"}, "by is one of day, key, not 'week'"),
        ({"value_as": "json"}, "value_as is one of binary, string, not 'json'"),
        ({"url": ""}, "no place to export to"),
    ],
)
def test_options_are_checked(more: dict[str, Any], said: str) -> None:
    """By name."""
    with pytest.raises(InvalidArgument, match=said):
        ExportOptions(**({"stream": "s", "url": "/u"} | more)).checked()


def test_defaults_go_by_the_format() -> None:
    """CSV holds text only; a slash at the end does not matter."""
    assert ExportOptions("s", "/u/").checked() == ExportOptions("s", "/u", value_as="binary")
    assert ExportOptions("s", "/u", format="csv").checked().value_as == "string"


def test_columns_of_an_export() -> None:
    """Bytes as they are, as checked text, or in base64."""
    assert export_columns("parquet", "", "binary") == [
        "offset", "timestamp", "key AS key", "value AS value", "headers AS headers",
    ]  # fmt: skip
    assert "validate_utf8(CAST(value AS STRING)) AS value" in export_columns("parquet", "", "string")
    assert "base64(value) AS value" in export_columns("csv", "", "binary")
    assert export_columns("csv", "key", "string")[-1].endswith("AS by_key")
