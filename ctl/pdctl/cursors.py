"""`pdctl cursor …`: named positions of consumers in a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.session import OFFSET, NothingFound, Session, confirm, output_option, session_of
from pdctl.units import show_time
from rangelog_core.errors import Unavailable

if TYPE_CHECKING:
    from rangelog import Client, Cursor, StreamInfo

_COLUMNS = [
    field("NAME", "name"),
    field("OFFSET", "offset"),
    field("BEHIND", "behind", lambda value: "?" if value is None else value),
    field("SET", "set_ms", show_time),
    field("STATE", "expired", lambda value: "expired" if value else "live"),
    field("METADATA", "metadata", lambda value: value or "-"),
]
_MORE = [
    field("STREAM", "stream"),
    field("VERSION", "version"),
    field("CREATED", "created_ms", show_time),
]


class _Place(click.ParamType["int | str"]):
    """An offset, earliest or latest."""

    name = "place"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Parse."""
        text = str(value)
        return text if text in ("earliest", "latest") else int(OFFSET.convert(text, param, ctx))  # type: ignore[arg-type]


@click.group()
def cursor() -> None:
    """Cursors: named positions of consumers in a stream."""


@cursor.command("set")
@click.argument("stream")
@click.argument("name")
@click.argument("place", type=_Place(), metavar="OFFSET|earliest|latest")
@click.option("--metadata", default="", help="Up to 512 bytes that are kept beside it.")
@click.option("--yes", is_flag=True, help="Do not ask before a cursor that is there is moved.")
@output_option
@session_of
def set_cursor(
    session: Session, stream: str, name: str, place: int | str, metadata: str, yes: bool, output: str
) -> None:
    """Set a cursor, forward or back, to the offset of the next record that its consumer is to process.

    \b
    Examples:
      pdctl cursor set flights billing earliest
      pdctl cursor set flights billing 1000 --yes
    """

    async def look(client: Client) -> tuple[Cursor | None, int]:
        known = await session.answer(client.cursors(stream).get(name))
        return known, await session.answer(_offset(client, stream, place))

    known, offset = session.with_client(look)
    if known is not None and known.offset != offset:
        confirm(name, f"This moves cursor {name} of {stream} from {known.offset} to {offset}", yes=yes)
    version = known.version if known is not None else 0

    async def work(client: Client) -> dict[str, Any]:
        cursors = client.cursors(stream)
        made = await session.answer(cursors.set(name, offset, metadata=metadata, expected_version=version))
        return _view(stream, made, await _end(session, client, stream))

    emit_one(session.with_client(work), output, [*_COLUMNS, *_MORE])


@cursor.command("get")
@click.argument("stream")
@click.argument("name")
@output_option
@session_of
def get_cursor(session: Session, stream: str, name: str, output: str) -> None:
    """Show a cursor.

    \b
    Example:
      pdctl cursor get flights billing
    """

    async def work(client: Client) -> dict[str, Any]:
        found = await session.answer(client.cursors(stream).get(name))
        if found is None:
            raise _nothing(stream, name)
        return _view(stream, found, await _end(session, client, stream))

    emit_one(session.with_client(work), output, [*_COLUMNS, *_MORE])


@cursor.command("list")
@click.argument("stream")
@output_option
@session_of
def list_cursors(session: Session, stream: str, output: str) -> None:
    """List the cursors of a stream by name. An expired one keeps nothing until it is set again.

    \b
    Example:
      pdctl cursor list flights
    """

    async def work(client: Client) -> list[dict[str, Any]]:
        async def listed() -> list[Cursor]:
            return [each async for each in client.cursors(stream).list()]

        found = await session.answer(listed())
        end = await _end(session, client, stream) if found else None
        return [_view(stream, each, end) for each in found]

    emit_list(session.with_client(work), output, _COLUMNS, empty=f"stream {stream} has no cursors")


@cursor.command("delete")
@click.argument("stream")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def delete_cursor(session: Session, stream: str, name: str, yes: bool, output: str) -> None:
    """Delete a cursor: its consumer loses its position, and retention waits for it no longer.

    \b
    Example:
      pdctl cursor delete flights billing --yes
    """
    confirm(name, f"This deletes cursor {name} of {stream}", yes=yes)

    async def work(client: Client) -> None:
        if not await session.answer(client.cursors(stream).delete(name)):
            raise _nothing(stream, name)

    session.with_client(work)
    emit_done(f"{name} is deleted", {"stream": stream, "cursor": name, "deleted": True}, output)


def what_a_trim_removes(session: Session, name: str, trim_offset: int) -> str:
    """Return what a trim removes, and which cursors it passes."""

    async def behind(client: Client) -> list[Cursor]:
        return [each async for each in client.cursors(name).list() if each.offset < trim_offset]

    async def look(client: Client) -> tuple[StreamInfo, list[Cursor]]:
        return await session.answer(client.describe_stream(name)), await session.answer(behind(client))

    stream, cursors = session.with_client(look)
    count = max(0, min(trim_offset, stream.next_offset) - stream.trim_offset)
    what = f"This deletes {count} records of {name}, from offset {stream.trim_offset} up to {trim_offset}, for good"
    if cursors:
        listed = ", ".join(f"{each.name} at {each.offset}" for each in cursors[:5])
        what += f"; cursors that have not passed them: {listed}{', …' if len(cursors) > 5 else ''}"
    return what


async def _offset(client: Client, stream: str, place: int | str) -> int:
    if isinstance(place, int):
        return place
    if place == "earliest":
        return (await client.describe_stream(stream)).trim_offset
    return await client.end_offset(stream)


async def _end(session: Session, client: Client, stream: str) -> int | None:
    """Return the end of the stream's acked records; None where too few servers answer."""
    try:
        return await session.answer(client.end_offset(stream))
    except Unavailable:
        return None


def _nothing(stream: str, name: str) -> NothingFound:
    return NothingFound(f"stream {stream} has no cursor {name}: see `pdctl cursor list {stream}`")


def _view(stream: str, found: Cursor, end: int | None) -> dict[str, Any]:
    """A cursor, and how many records it is behind the end."""
    return {
        "stream": stream,
        "stream_id": found.stream_id,
        "name": found.name,
        "offset": found.offset,
        "behind": None if end is None else max(0, end - found.offset),
        "metadata": found.metadata,
        "version": found.version,
        "set_ms": found.set_ms,
        "created_ms": found.created_ms,
        "expired": found.expired,
    }
