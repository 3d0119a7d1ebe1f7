"""`pdctl stream append`: records into a stream, from arguments, lines, JSON or bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from pdctl.live_writer import live_writer, refuse_live_writer
from pdctl.output import emit_done
from pdctl.record_input import RecordInput, input_options, submit_all
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_count
from rangelog_core.errors import RangelogError

if TYPE_CHECKING:
    from rangelog import Client


@click.command()
@click.argument("name")
@input_options("append")
@click.option("--take-over", is_flag=True, help="Fence the writer that is connected, if there is one.")
@output_option
@session_of
def append(session: Session, name: str, given: RecordInput, take_over: bool, output: str) -> None:
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

    async def work(client: Client) -> tuple[int, int]:
        if take_over:
            await _say_who_ends(session, client, name)
        else:
            await session.answer(refuse_live_writer(session, client, name))
        return await _append(client, name, given, session.timeout_s)

    first, count = session.with_client(work)
    said = f"appended {show_count(count, 'record')} from offset {first}" if count else "nothing to append"
    emit_done(said, {"stream": name, "first_offset": first, "count": count}, output)


async def _say_who_ends(session: Session, client: Client, name: str) -> None:
    writer = await session.answer(live_writer(session, client, name))
    if writer is not None:
        click.echo(f"pdctl: taking {name} over from {writer or 'a client without a name'}, which is fenced", err=True)


async def _append(client: Client, name: str, given: RecordInput, timeout_s: float) -> tuple[int, int]:
    """Return the first offset and the number of records.

    An error message has the number of acked records; an interruption prints it. Acks are counted by the confirm offset:
    callbacks may come after the end of a flush.
    """
    async with client.writer(name, open_timeout_s=timeout_s, append_timeout_s=timeout_s) as writer:
        first = writer.next_offset
        try:
            await submit_all(writer, given, _retrieve, verb="append")
        except RangelogError as error:
            acked = show_count(writer.confirm_offset - first, "record")
            error.message = f"{error.message} (acked before: {acked} from offset {first})"
            raise
        except asyncio.CancelledError:
            end, acked_end = writer.next_offset, writer.confirm_offset
            doubt = f", {end - acked_end} may be in the stream" if end > acked_end else ""
            verb = "is" if acked_end - first == 1 else "are"
            said = f"{show_count(acked_end - first, 'record')} {verb} acked from offset {first}{doubt}"
            click.echo(f"pdctl: interrupted: {said}", err=True)
            raise
        return first, writer.next_offset - first


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the exception as retrieved: flush raises it, and asyncio would log it again."""
    if not future.cancelled():
        future.exception()
