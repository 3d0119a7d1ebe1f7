"""The input of `pdctl stream append` and `pdctl topic produce`: a record of each part of a file, standard input or arguments.

What holds: what `--format json`, `raw` or `prefixed` of `stream read` and `topic consume` prints, the same format reads. A bad
part is named by its number; those before it are sent.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, NamedTuple

import click

from pdctl.lines import LineSplitter, Splitter, once, parts_of
from pdctl.progress import progress
from pdctl.record_formats import BINARY, INPUTS, JSON_LINE_BYTES_MAX, PrefixSplitter, WholeInput, parse_record
from pdctl.record_text import parse_headers
from pdctl.topics.line_keys import LineKeys, key_before, key_in_field, same_key
from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.limits import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from rangelog_core.record import AppendRecord, moment_of

ToRecord = Callable[[bytes], AppendRecord]


class RecordInput(NamedTuple):
    """Parts as they arrive, what makes a record of one, and what messages call a part."""

    parts: AsyncIterator[list[bytes]]
    make: ToRecord
    noun: str = "line"


def input_options(verb: str, *, key_field: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add VALUES, --file and the options of input to a command, which gets `given`, a RecordInput, in their place."""
    options = [
        click.argument("values", nargs=-1),
        click.option("--file", "source", type=click.File("rb"), help="Read this file; - is standard input."),
        click.option(
            "--format", "shape", type=click.Choice(INPUTS), default="value", show_default=True,
            help="value: a line is a record. json: a line is what reading with --format json prints. raw: all input is one "
            "record. prefixed: four bytes of length before each record.",
        ),
        click.option(
            "--crlf", is_flag=True, help="Lines end with CRLF: take the carriage return off. Without it every byte is kept."
        ),
        click.option("--key", help="The key of every record."),
        click.option("--key-separator", metavar="TEXT", help="Each line is KEY, this text, VALUE; \\t is a tab."),
        click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; repeatable."),
    ]  # fmt: skip
    if key_field:
        options.insert(
            -1,
            click.option("--key-field", metavar="NAME", help="Each line is a JSON object, with the key in this field."),
        )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(
            *args: Any,
            values: tuple[str, ...],
            source: BinaryIO | None,
            shape: str,
            crlf: bool,
            key: str | None,
            key_separator: str | None,
            headers: tuple[str, ...],
            key_field: str | None = None,
            **others: Any,
        ) -> Any:
            if values and source is not None:
                raise click.UsageError("give values or --file, not both")
            if not values and source is None and sys.stdin.isatty():
                raise click.UsageError(f"nothing to {verb}: give values, --file FILE, or pipe lines in")
            if values and shape in BINARY:
                raise click.UsageError(f"--format {shape} is for --file and standard input: leave it out with values")
            make = _to_record(shape, key, key_separator, headers, key_field)
            lines = [os.fsencode(each) for each in values]
            parts = once(lines) if lines else parts_of(source or sys.stdin.buffer, _splitter(shape, crlf=crlf))
            given = RecordInput(parts, make, "record" if shape in BINARY else "line")
            return command(*args, given=given, **others)

        return functools.reduce(lambda made, option: option(made), reversed(options), call)

    return add


async def submit_all(
    sender: Any,
    given: RecordInput,
    noted: Callable[[asyncio.Future[Any]], None],
    *,
    verb: str,
    check: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """Submit all records to a writer or producer, and flush; of an input with a bad part those before it.

    `noted` gets the future of each record that has an outcome; `check` raises what it has learned, now and then.
    """
    count = 0
    with progress(verb, shown=sys.stderr.isatty()) as advance:
        try:
            async for parts in given.parts:
                for part in parts:
                    await sender.ready()
                    count += 1
                    _submit(sender, part, given, count, options).add_done_callback(noted)
                check()
                advance(count)
        except InvalidArgument:
            with suppress(RangelogError):  # the bad part is what the message is about
                await sender.flush()
            raise
        await sender.flush()


def _submit(sender: Any, part: bytes, given: RecordInput, number: int, options: dict[str, Any]) -> asyncio.Future[Any]:
    try:
        record = given.make(part)
        time = _time_of(record)
        found: asyncio.Future[Any] = sender.submit(
            record.value, key=record.key, headers=record.headers or None, timestamp=time, **options
        )
    except InvalidArgument as error:
        error.message = f"{given.noun} {number}: {error.message}"
        raise
    return found


def _splitter(shape: str, *, crlf: bool) -> Splitter:
    """Return what divides the input. Raises click.UsageError."""
    if crlf and shape in BINARY:
        raise click.UsageError(f"--crlf is for lines: leave it out with --format {shape}")
    splitters: dict[str, Callable[[], Splitter]] = {
        "value": lambda: LineSplitter(crlf=crlf),
        "json": lambda: LineSplitter(JSON_LINE_BYTES_MAX),
        "raw": WholeInput,
        "prefixed": PrefixSplitter,
    }
    return splitters[shape]()


def _to_record(
    shape: str, key: str | None, separator: str | None, headers: Sequence[str], key_field: str | None
) -> ToRecord:
    """Return what makes a record of a part. Raises click.UsageError where options exclude each other."""
    pairs = parse_headers(headers)
    options = {"--key": key, "--key-separator": separator, "--key-field": key_field}
    given = [name for name, value in options.items() if value is not None]
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


def _time_of(record: AppendRecord) -> datetime | int | None:
    """Return a record's time so that no client takes it for seconds."""
    ms = record.timestamp_ms
    return ms if ms is None or not TIMESTAMP_MS_MIN <= ms <= TIMESTAMP_MS_MAX else moment_of(ms)
