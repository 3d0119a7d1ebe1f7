"""What `pdctl stream append` and `pdctl topic produce` make of their input: parts of it, and a record of each part.

What holds: what `--format json`, `raw` or `prefixed` of `stream read` and `topic consume` prints, the same format reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

from pdctl.lines import LineSplitter, Splitter
from pdctl.record_formats import INPUTS, JSON_LINE_BYTES_MAX, PrefixSplitter, WholeInput, parse_record
from pdctl.record_text import parse_headers
from pdctl.topics.line_keys import LineKeys, key_before, key_in_field, same_key
from rangelog_core.limits import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from rangelog_core.record import AppendRecord, moment_of

ToRecord = Callable[[bytes], AppendRecord]


def input_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format of the input, and --crlf."""
    command = click.option(
        "--crlf", is_flag=True, help="Lines end with CRLF: take the carriage return off. Without it every byte is kept."
    )(command)
    return click.option(
        "--format", "shape", type=click.Choice(INPUTS), default="value", show_default=True,
        help="value: a line is a record. json: a line is what reading with --format json prints. raw: all input is one record. "
        "prefixed: four bytes of length before each record.",
    )(command)  # fmt: skip


def check_values(values: Sequence[str], shape: str) -> None:
    """Raise click.UsageError for a format that arguments cannot have."""
    if values and shape in ("raw", "prefixed"):
        raise click.UsageError(f"--format {shape} is for --file and standard input: leave it out with values")


def splitter(shape: str, *, crlf: bool = False) -> Splitter:
    """Return what divides the input. Raises click.UsageError."""
    if crlf and shape in ("raw", "prefixed"):
        raise click.UsageError(f"--crlf is for lines: leave it out with --format {shape}")
    splitters: dict[str, Callable[[], Splitter]] = {
        "value": lambda: LineSplitter(crlf=crlf),
        "json": lambda: LineSplitter(JSON_LINE_BYTES_MAX),
        "raw": WholeInput,
        "prefixed": PrefixSplitter,
    }
    return splitters[shape]()


def part_name(shape: str) -> str:
    """Return what messages call a part of the input."""
    return "line" if shape in ("value", "json") else "record"


def to_record(
    shape: str, key: str | None, separator: str | None, headers: Sequence[str], key_field: str | None = None
) -> ToRecord:
    """Return what makes a record of a part. Raises click.UsageError where options exclude each other."""
    pairs = parse_headers(headers)
    given = [
        name
        for name, value in (("--key", key), ("--key-separator", separator), ("--key-field", key_field))
        if value is not None
    ]
    if shape == "json":
        if given or pairs:
            raise click.UsageError("--format json has keys and headers in its lines: leave out the options for them")
        return parse_record
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    keys: LineKeys = same_key(os.fsencode(key) if key is not None else None)
    if separator is not None:
        if not separator:
            raise click.UsageError("--key-separator is a text of at least one character")
        keys = key_before(os.fsencode(separator.replace("\\t", "\t")))
    elif key_field is not None:
        keys = key_in_field(key_field)

    def made(part: bytes) -> AppendRecord:
        found, value = keys(part)
        return AppendRecord(value, found, pairs)

    return made


def time_of(record: AppendRecord) -> datetime | int | None:
    """Return a record's time so that no client takes it for seconds."""
    ms = record.timestamp_ms
    return ms if ms is None or not TIMESTAMP_MS_MIN <= ms <= TIMESTAMP_MS_MAX else moment_of(ms)
