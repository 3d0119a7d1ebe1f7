"""`pdctl stream read | tail`: records out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pdctl.record_formats import OUTPUTS
from pdctl.record_output import READ_PREFERENCE, RecordPrinter
from pdctl.session import Session, chosen_output, session_of
from pdctl.stream_places import BeforeEnd, StreamPlace, end_of, start_of
from pdctl.units import show_time

_COMMIT_RECORDS = 1_000
_SHAPE_OF: dict[str | None, str] = {"table": "text", "json": "json", "yaml": "yaml"}

if TYPE_CHECKING:
    from rangelog import Client


def _shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format and -o to a command, which gets `shape`."""

    @functools.wraps(command)
    def call(*args: Any, shape: str, output: str | None, **others: Any) -> Any:
        return command(*args, shape=_SHAPE_OF.get(output, shape), **others)

    with_output = click.option(
        "-o", "--output", type=click.Choice(["table", "json", "yaml"]),
        help="Instead of --format. table: as text. json: an object per line. yaml: one list.", callback=chosen_output,
    )(call)  # fmt: skip
    return click.option(
        "--format", "shape", type=click.Choice(OUTPUTS), default="value", show_default=True,
        help="value: the bytes and a newline. text: with offset, time and key. json: an object per record. raw: the values' "
        "bytes alone. prefixed: four bytes of length before each value.",
    )(with_output)  # fmt: skip


@click.command()
@click.argument("name")
@click.option("--start", type=StreamPlace(), default="earliest", show_default=True, metavar="PLACE",
              help="An offset, earliest, latest, a time with its zone, -1h (ago) or -10 (records before the end).")  # fmt: skip
@click.option("--end", type=StreamPlace(()), metavar="PLACE",
              help="Stop before this offset or time; -1h and -10 as for --start.")  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--key", help="Only records with this key.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--cursor", metavar="NAME", help="Begin at this cursor of the stream; where there is none, at --start.")
@click.option("--commit", is_flag=True, help="Move the cursor behind what was printed.")
@_shape_options
@click.option("--read-preference", type=READ_PREFERENCE, default="hot_first", show_default=True)
@session_of
def read(
    session: Session,
    name: str,
    start: Any,
    end: Any,
    limit: int | None,
    key: str | None,
    follow: bool,
    cursor: str | None,
    commit: bool,
    shape: str,
    read_preference: str,
) -> None:
    """Read the records that are acked now, and stop; with --follow wait for more. A time is that of a record's writer.

    \b
    Examples:
      pdctl stream read flights --limit 3
      pdctl stream read flights --start -10 --follow
      pdctl stream read flights --start -1h --end -10m --key UA
      pdctl stream read flights --start 2026-01-31T12:00Z --format json
      pdctl stream read flights --cursor billing --commit --limit 1000
    """
    if commit and cursor is None:
        raise click.UsageError("--commit needs --cursor NAME, which it moves")
    if cursor is not None and (key is not None or follow):
        raise click.UsageError("--key and --follow do not go with --cursor")
    if follow and isinstance(end, datetime | BeforeEnd):
        raise click.UsageError("with --follow, --end is an offset")
    printer = RecordPrinter(shape, limit, key=key)
    options: dict[str, Any] = {"read_preference": read_preference, "timeout_s": session.timeout_s}
    _say_if_in_future(start)

    async def run(client: Client) -> None:
        await client.describe_stream(name, timeout_s=session.timeout_s)  # fails in time if no server answers
        begin = start_of(start)
        until = None if end is None else await end_of(client, name, end, session.timeout_s)
        if cursor is None:
            await _print(client.reader(name, start=begin, end=until, follow=follow, **options), printer)
        else:
            reader = client.reader(name, cursor=cursor, start=begin, end=until, **options)
            await _print_from_cursor(reader, printer, commits=commit)

    session.with_client(run)


def _say_if_in_future(start: Any) -> None:
    if isinstance(start, datetime) and start > datetime.now(UTC):
        when = show_time(int(start.timestamp() * 1000))
        click.echo(f"pdctl: --start {when} is in the future: only records with such a time are shown", err=True)


@click.command()
@click.argument("name")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(min=0), default=10, show_default=True, help="How many to begin with."
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--key", help="Only records with this key, of the last ones and of new ones.")
@_shape_options
@session_of
def tail(session: Session, name: str, count: int, follow: bool, key: str | None, shape: str) -> None:
    """Show the last records, and with -f all new ones.

    \b
    Example:
      pdctl stream tail flights -n 5 -f
    """
    printer = RecordPrinter(shape, key=key)

    async def run(client: Client) -> None:
        await client.describe_stream(name, timeout_s=session.timeout_s)
        start = start_of(BeforeEnd(count))
        await _print(client.reader(name, start=start, follow=follow, timeout_s=session.timeout_s), printer)

    session.with_client(run)


async def _print(reader: Any, printer: RecordPrinter) -> None:
    async for chunk in reader.chunks():
        if printer.write_chunk(chunk):
            return


async def _print_from_cursor(reader: Any, printer: RecordPrinter, *, commits: bool) -> None:
    """Print records one by one, so that a commit covers what was printed and no more."""
    async for record in reader:
        if printer.write(record):
            break
        if commits and printer.count % _COMMIT_RECORDS == 0:
            printer.flush()
            await reader.commit()
    printer.flush()
    if commits:
        await reader.commit()
