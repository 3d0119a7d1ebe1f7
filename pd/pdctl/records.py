"""`pdctl stream append | read | tail`: records in and out, one per line."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pdctl.lines import lines_of, once
from pdctl.live_writer import refuse_live_writer
from pdctl.output import emit_data
from pdctl.progress import progress
from pdctl.record_text import json_line, parse_headers, shown_bytes, shown_headers, yaml_item
from pdctl.session import OFFSET, Session, output_option, session_of
from pdctl.units import Start, show_count, show_time
from rangelog_core.errors import InvalidArgument, RangelogError

_COMMIT_RECORDS = 1_000
_SHAPES = ["value", "text", "json"]
_OUTPUTS: dict[str | None, str] = {"table": "text", "json": "json", "yaml": "yaml"}

if TYPE_CHECKING:
    import asyncio

    from rangelog import Client, CursorReader
    from rangelog_core.record import Ack


@click.command()
@click.argument("name")
@click.argument("values", nargs=-1)
@click.option("--file", "source", type=click.File("rb"), help="A record per line of this file; - is standard input.")
@click.option("--key", help="The key of every record.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; repeatable.")
@click.option("--take-over", is_flag=True, help="Fence the writer that is connected, if there is one.")
@output_option
@session_of
def append(
    session: Session,
    name: str,
    values: tuple[str, ...],
    source: BinaryIO | None,
    key: str | None,
    headers: tuple[str, ...],
    take_over: bool,
    output: str,
) -> None:
    """Append records, each an argument or a line of input.

    Lines come from --file, else from standard input. A stream has one writer: while another one is connected, this is
    refused, unless --take-over is given, which ends that writer.

    \b
    Examples:
      pdctl stream append flights '{"carrier": "UA"}' --key UA
      pdctl stream append flights --file flights.jsonl
      tail -f app.log | pdctl stream append logs
      echo urgent | pdctl stream append logs --take-over
    """
    if values and source is not None:
        raise click.UsageError("give values or --file, not both")
    if not values and source is None and sys.stdin.isatty():
        raise click.UsageError("nothing to append: give values, --file FILE, or pipe lines in")
    pairs = parse_headers(headers)
    key_bytes = os.fsencode(key) if key is not None else None
    given = [os.fsencode(value) for value in values]
    lines = once(given) if given else lines_of(source or sys.stdin.buffer)

    async def work(client: Client) -> tuple[int, int]:
        if not take_over:
            await session.answer(refuse_live_writer(session, client, name))
        return await _append(client, name, lines, key_bytes, pairs, timeout_s=session.timeout_s)

    first, count = session.with_client(work)
    if output == "table":
        click.echo(f"appended {show_count(count, 'record')} from offset {first}" if count else "nothing to append")
    else:
        emit_data({"stream": name, "first_offset": first, "count": count}, output)


async def _append(
    client: Client,
    name: str,
    pieces: AsyncIterator[list[bytes]],
    key: bytes | None,
    headers: dict[str, bytes],
    *,
    timeout_s: float,
) -> tuple[int, int]:
    """Return the first offset and the number of records. An error message has the number of acked records."""
    count = 0

    def seen(future: asyncio.Future[Ack]) -> None:
        """Mark the exception as retrieved: flush raises it, and asyncio would log it again."""
        if not future.cancelled():
            future.exception()

    async with client.writer(name, open_timeout_s=timeout_s, append_timeout_s=timeout_s) as writer:
        first = writer.next_offset
        try:
            with progress("append", shown=sys.stderr.isatty()) as advance:
                async for lines in pieces:
                    for line in lines:
                        await writer.ready()
                        writer.submit(line, key=key, headers=headers or None).add_done_callback(seen)
                        count += 1
                    advance(count)
                await writer.flush()
        except RangelogError as error:
            if isinstance(error, InvalidArgument):  # of one line: the lines before it are appended
                with suppress(RangelogError):
                    await writer.flush()
            acked = writer.confirm_offset - first  # not by callbacks, which may come after the end of a flush
            error.message = f"{error.message} (acked before: {show_count(acked, 'record')} from offset {first})"
            raise
    return first, count


def _record_output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json", "yaml"]),
        help="Instead of --format. table: as text. json: an object per line. yaml: one list.",
    )(command)  # fmt: skip


@click.command()
@click.argument("name")
@click.option("--start", type=Start(), default="earliest", show_default=True, metavar="OFFSET|earliest|latest|TIME")
@click.option("--end", type=OFFSET, help="Stop before this offset.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--cursor", metavar="NAME", help="Begin at this cursor of the stream; where there is none, at --start.")
@click.option("--commit", is_flag=True, help="Move the cursor behind what was printed.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(_SHAPES),
    default="value",
    show_default=True,
    help="value: the bytes and a newline. text: with offset, time and key. json: a JSON object per record.",
)
@_record_output_option
@click.option(
    "--read-preference",
    type=click.Choice(["hot_first", "cold_first", "hot_only", "cold_only"]),
    default="hot_first",
    show_default=True,
)
@session_of
def read(
    session: Session,
    name: str,
    start: Any,
    end: int | None,
    limit: int | None,
    cursor: str | None,
    commit: bool,
    shape: str,
    read_preference: str,
    output: str | None,
) -> None:
    """Read the records that are acked now, and stop.

    \b
    Examples:
      pdctl stream read flights --limit 3
      pdctl stream read flights --start 2026-01-31T12:00 --format json
      pdctl stream read flights --cursor billing --commit --limit 1000
    """
    if commit and cursor is None:
        raise click.UsageError("--commit needs --cursor NAME, which it moves")
    options = {"start": start, "end": end, "read_preference": read_preference, "timeout_s": session.timeout_s}

    async def run(client: Client) -> None:
        await client.describe_stream(name, timeout_s=session.timeout_s)  # fails in time if no server answers
        shown_as = _OUTPUTS.get(output, shape)
        if cursor is None:
            await _read(client.reader(name, **options), shown_as, limit)
        else:
            reader = client.reader(name, cursor=cursor, **options)
            await _read_from_cursor(reader, shown_as, limit, commits=commit)

    session.with_client(run)


@click.command()
@click.argument("name")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(min=0), default=10, show_default=True, help="How many to begin with."
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--format", "shape", type=click.Choice(_SHAPES), default="value", show_default=True)
@_record_output_option
@session_of
def tail(session: Session, name: str, count: int, follow: bool, shape: str, output: str | None) -> None:
    """Show the last records, and with -f all new ones.

    \b
    Example:
      pdctl stream tail flights -n 5 -f
    """

    async def run(client: Client) -> None:
        described = await client.describe_stream(name, timeout_s=session.timeout_s)
        end = await client.end_offset(name)
        start = max(described.trim_offset, end - count)
        reader = client.reader(name, start=start, follow=follow, timeout_s=session.timeout_s)
        await _read(reader, _OUTPUTS.get(output, shape), None)

    session.with_client(run)


async def _read(reader: Any, shape: str, limit: int | None) -> None:
    left = limit if limit is not None else -1
    out = sys.stdout.buffer
    async for chunk in reader.chunks():
        for record in chunk:
            out.write(_render(record, shape))
            left -= 1
            if left == 0:
                out.flush()
                return
        out.flush()


async def _read_from_cursor(reader: CursorReader, shape: str, limit: int | None, *, commits: bool) -> None:
    """Print records one by one, so that a commit covers what was printed and no more."""
    out, count = sys.stdout.buffer, 0
    async for record in reader:
        out.write(_render(record, shape))
        count += 1
        if count == limit:
            break
        if commits and count % _COMMIT_RECORDS == 0:
            out.flush()
            await reader.commit()
    out.flush()
    if commits:
        await reader.commit()


def _render(record: Any, shape: str) -> bytes:
    if shape == "value":
        value: bytes = record.value
        return value + b"\n"
    if shape == "text":
        key = "-" if record.key is None else record.key.decode("utf-8", "backslashreplace")
        head = f"{record.offset}  {show_time(record.timestamp_ms)}  {key}  "
        return b"".join((head.encode(), record.value, b"\n"))
    shown = {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if record.key is None else shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": shown_headers(record.headers),
    }
    return yaml_item(shown) if shape == "yaml" else json_line(shown)
