"""`pdctl stream append`: records into a stream, from arguments, lines, JSON or bytes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pdctl.lines import once, parts_of
from pdctl.live_writer import live_writer, refuse_live_writer
from pdctl.output import emit_data
from pdctl.progress import progress
from pdctl.record_input import ToRecord, check_values, input_option, part_name, splitter, time_of, to_record
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_count
from rangelog_core.errors import InvalidArgument, RangelogError

if TYPE_CHECKING:
    from rangelog import Client
    from rangelog_core.record import Ack


@click.command()
@click.argument("name")
@click.argument("values", nargs=-1)
@click.option("--file", "source", type=click.File("rb"), help="Read this file; - is standard input.")
@input_option
@click.option("--key", help="The key of every record.")
@click.option("--key-separator", metavar="TEXT", help="Each line is KEY, this text, VALUE; \\t is a tab.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; repeatable.")
@click.option("--take-over", is_flag=True, help="Fence the writer that is connected, if there is one.")
@output_option
@session_of
def append(
    session: Session,
    name: str,
    values: tuple[str, ...],
    source: BinaryIO | None,
    shape: str,
    crlf: bool,
    key: str | None,
    key_separator: str | None,
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
      printf 'UA:first\\nAA:second\\n' | pdctl stream append flights --key-separator :
      pdctl stream read flights --format json | pdctl stream append copy --format json
      tail -f app.log | pdctl stream append logs
      echo urgent | pdctl stream append logs --take-over
    """
    if values and source is not None:
        raise click.UsageError("give values or --file, not both")
    if not values and source is None and sys.stdin.isatty():
        raise click.UsageError("nothing to append: give values, --file FILE, or pipe lines in")
    check_values(values, shape)
    make = to_record(shape, key, key_separator, headers)
    given = [os.fsencode(value) for value in values]
    parts = once(given) if given else parts_of(source or sys.stdin.buffer, splitter(shape, crlf=crlf))

    async def work(client: Client) -> tuple[int, int]:
        if take_over:
            await _say_who_ends(session, client, name)
        else:
            await session.answer(refuse_live_writer(session, client, name))
        return await _append(client, name, parts, make, part_name(shape), timeout_s=session.timeout_s)

    first, count = session.with_client(work)
    if output == "table":
        click.echo(f"appended {show_count(count, 'record')} from offset {first}" if count else "nothing to append")
    else:
        emit_data({"stream": name, "first_offset": first, "count": count}, output)


async def _say_who_ends(session: Session, client: Client, name: str) -> None:
    writer = await session.answer(live_writer(session, client, name))
    if writer is not None:
        click.echo(f"pdctl: taking {name} over from {writer or 'a client without a name'}, which is fenced", err=True)


async def _append(
    client: Client,
    name: str,
    pieces: AsyncIterator[list[bytes]],
    make: ToRecord,
    noun: str,
    *,
    timeout_s: float,
) -> tuple[int, int]:
    """Return the first offset and the number of records.

    An error message has the number of acked records; an interruption prints it.
    """
    count = 0

    def seen(future: asyncio.Future[Ack]) -> None:
        """Mark the exception as retrieved: flush raises it, and asyncio would log it again."""
        if not future.cancelled():
            future.exception()

    async with client.writer(name, open_timeout_s=timeout_s, append_timeout_s=timeout_s) as writer:
        first = writer.next_offset
        try:
            with progress("append", shown=sys.stderr.isatty()) as advance:
                async for parts in pieces:
                    for part in parts:
                        await writer.ready()
                        _submit(writer, part, make, f"{noun} {count + 1}").add_done_callback(seen)
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
        except asyncio.CancelledError:
            acked = writer.confirm_offset - first
            doubt = f", {count - acked} may be in the stream" if count > acked else ""
            verb = "is" if acked == 1 else "are"
            said = f"{show_count(acked, 'record')} {verb} acked from offset {first}{doubt}"
            click.echo(f"pdctl: interrupted: {said}", err=True)
            raise
    return first, count


def _submit(writer: Any, part: bytes, make: ToRecord, which: str) -> asyncio.Future[Ack]:
    try:
        record = make(part)
        found: asyncio.Future[Ack] = writer.submit(
            record.value, key=record.key, headers=record.headers or None, timestamp=time_of(record)
        )
    except InvalidArgument as error:
        error.message = f"{which}: {error.message}"
        raise
    return found
