"""`pdctl stream …`: streams and their configuration. records.py has the commands for records."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pdctl.appending import append
from pdctl.cursors import what_a_trim_removes
from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.records import read, tail
from pdctl.session import OFFSET, Session, confirm, output_option, session_of
from pdctl.stream_options import given, range_options, retention_options, show_defaults
from pdctl.units import show_bytes, show_ms, show_time
from rangelog_core.net.pages import pages_by_token

if TYPE_CHECKING:
    from rangelog import Client

_PAGE_SIZE = 500
_AT_ONCE_MAX = 8
_CURSOR_MODES = {
    "none": "not for retention",
    "keep": "kept until passed",
    "trim": "trimmed once passed",
    "keep_and_trim": "kept until passed, then trimmed",
}


def _config(key: str, show: Callable[[Any], object] = str) -> Callable[[Any], object]:
    return lambda row: show(row["config"][key])


_COLUMNS = [
    field("NAME", "name"),
    field("RANGES", "range_count"),
    field("SEALED END", "sealed_end_offset"),
    field("TRIMMED TO", "trim_offset"),
    ("COPIES", lambda row: f"{row['config']['acks']} of {row['config']['replicas']}"),
    ("DURABILITY", _config("durability")),
    ("RETENTION", _config("retention_ms", lambda value: show_ms(value, "for ever"))),
    field("CREATED", "created_ms", show_time),
]
_MORE = [
    field("ID", "stream_id"),
    field("EPOCH", "epoch"),
    ("COMPRESSION", _config("compression")),
    ("TIERED", _config("tiered", lambda value: "yes" if value else "no")),
    ("RANGE SIZE", _config("range_size_bytes_max", show_bytes)),
    ("RANGE AGE", _config("range_age_ms_max", lambda value: show_ms(value, "any"))),
    ("RETENTION SIZE", _config("retention_bytes", lambda value: show_bytes(value) if value else "any")),
    ("HOT RETENTION", _config("hot_retention_ms", lambda value: show_ms(value, "default"))),
    ("CURSORS", _config("cursor_retention", lambda value: _CURSOR_MODES.get(value, value))),
    ("CURSOR EXPIRY", _config("cursor_expiry_ms", lambda value: show_ms(value, "default"))),
    ("ZONES", _config("zones_min", lambda value: f"at least {value}" if value else "as many as there are")),
    ("SERVER LABELS", _config("server_labels", lambda labels: ", ".join(labels) or "any")),
]


def _unknown(key: str, show: Callable[[Any], object] = str) -> Callable[[Any], object]:
    return lambda row: "unknown" if row[key] is None else show(row[key])


def _end(row: Any) -> str:
    return str(row["end_offset"]) if row["end_offset"] is not None else f"unknown: {row['end_problem']}"


def _writer(row: Any) -> str:
    if not row["epoch"]:
        return "none yet"
    connected = {True: "connected", False: "not connected", None: "nobody can say whether it is connected"}
    return f"{row['writer'] or 'unknown'}, {connected[row['writer_connected']]}"


def _bytes(row: Any) -> str:
    hot, all_copies, tiered = (show_bytes(row[key]) for key in ("hot_bytes", "hot_bytes_all_copies", "tiered_bytes"))
    return f"{hot} hot ({all_copies} in all copies), {tiered} in the tier"


def _health(row: Any) -> str:
    return ": ".join([row["health"], *(["; ".join(row["reasons"])] if row["reasons"] else [])])


_FOUND = [
    ("HEALTH", _health),
    ("END", _end),
    ("RECORDS", _unknown("record_count")),
    ("BYTES", _bytes),
    ("LAST WRITE", lambda row: show_time(row["last_write_ms"] or 0)),
    ("WRITER", _writer),
    ("RANGES BY COPIES", lambda row: ", ".join(f"{word}: {n}" for word, n in row["copies"].items()) or "none yet"),
]


_LONG = [
    field("NAME", "name"),
    ("HEALTH", lambda row: row["health"]),
    ("END", _unknown("end_offset")),
    ("RECORDS", _unknown("record_count")),
    field("HOT", "hot_bytes", show_bytes),
    field("TIERED", "tiered_bytes", show_bytes),
    ("LAST WRITE", lambda row: show_time(row["last_write_ms"] or 0)),
    ("WRITER", _writer),
    field("RANGES", "range_count"),
]


@click.group()
def stream() -> None:
    """Streams, and the records in them."""


@stream.command()
@click.argument("name")
@range_options
@retention_options
@output_option
@session_of
def create(session: Session, name: str, output: str, **options: Any) -> None:
    """Create a stream.

    \b
    Examples:
      pdctl stream create flights
      pdctl stream create clicks --retention 7d --range-size 128MiB --compression zstd
      pdctl stream create orders --zones-min 3 --server-label disk=ssd
    """
    from pdctl.views import stream_view
    from rangelog_core.stream_config import StreamConfig, config_message
    from rangelog_proto.v1 import pd_pb2

    config, _ = config_message(StreamConfig(**given(options)))
    request = pd_pb2.CreateStreamRequest(request_id=uuid.uuid4().hex, name=name, config=config)
    response = session.call(request, pd_pb2.CreateStreamResponse)
    made = stream_view(response.stream)
    emit_done(_created(made), made, output)


def _created(made: dict[str, Any]) -> str:
    config = made["config"]
    kept = f"kept for {show_ms(config['retention_ms'], '')}" if config["retention_ms"] else "kept for ever"
    size = f", the newest {show_bytes(config['retention_bytes'])}" if config["retention_bytes"] else ""
    copies = f"acked by {config['acks']} of {config['replicas']}, {config['durability']}"
    return f"created stream {made['name']}: {copies}; records are {kept}{size}; all of it: `pdctl stream show {made['name']}`"


@stream.command("list")
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("-l", "--long", "long_list", is_flag=True,
              help="Ask the range servers, too: end, records, bytes and last write of each stream.")  # fmt: skip
@output_option
@session_of
def list_streams(session: Session, prefix: str, long_list: bool, output: str) -> None:
    """List streams by name. SEALED END has no records of the open range; END, with --long, has all that are acked.

    \b
    Examples:
      pdctl stream list --prefix flight
      pdctl stream ls -l --watch
    """
    from pdctl.views import stream_view
    from rangelog_proto.v1 import pd_pb2

    async def page_through(pd: Any) -> list[dict[str, Any]]:
        request = pd_pb2.ListStreamsRequest(prefix=prefix, page_size=_PAGE_SIZE)
        pages = pages_by_token(pd, request, pd_pb2.ListStreamsResponse, session.timeout_s)
        return [stream_view(each) async for page in pages for each in page.streams]

    found, columns = session.with_pd(page_through), _COLUMNS
    if long_list:
        found, columns = _described(session, [each["name"] for each in found]), _LONG
    emit_list(found, output, columns, empty="there are no streams")
    if output == "table" and not long_list and any(each["epoch"] for each in found):
        click.echo("SEALED END is without the records of open ranges: `pdctl stream ls --long` has END", err=True)


def _described(session: Session, names: list[str]) -> list[dict[str, Any]]:
    """Return the output of `show` for each; those that were deleted meanwhile are left out."""
    from pdctl.inspection.stream_show import describe
    from rangelog_core.errors import StreamNotFound

    async def run(client: Client) -> list[dict[str, Any]]:
        limit = asyncio.Semaphore(_AT_ONCE_MAX)

        async def one(name: str) -> list[dict[str, Any]]:
            async with limit:
                try:
                    return [await describe(session, client, name)]
                except StreamNotFound:
                    return []

        return [each for found in await asyncio.gather(*map(one, names)) for each in found]

    return session.with_client(run)


@stream.command()
@click.argument("name")
@output_option
@session_of
def show(session: Session, name: str, output: str) -> None:
    """Show a stream: its end, size and last write, its writer, the copies of its ranges, and its configuration.

    The end is proved by the replicas of the open range, as it is for readers. Hot bytes are as the servers reported them last.

    \b
    Examples:
      pdctl stream show flights
      pdctl stream show flights -o json | jq '.health, .reasons'
    """
    from pdctl.inspection.stream_show import describe

    found = session.with_client(lambda client: describe(session, client, name))
    emit_one(found, output, [*_COLUMNS, *_FOUND, *_MORE])


@stream.command()
@click.argument("name")
@range_options
@retention_options
@output_option
@session_of
def update(session: Session, name: str, output: str, **options: Any) -> None:
    """Change the given options only. Replicas, acks and sizes apply to new ranges.

    \b
    Example:
      pdctl stream update flights --hot-retention 1h
    """
    from pdctl.views import stream_view
    from rangelog_core.stream_config import StreamConfigChange, config_message
    from rangelog_proto.v1 import pd_pb2

    config, fields = config_message(StreamConfigChange(**given(options)))
    if not fields:
        raise click.UsageError("nothing to change: give at least one option, such as --retention 7d")
    request = pd_pb2.UpdateStreamRequest(request_id=uuid.uuid4().hex, name=name, config=config, fields=fields)
    response = session.call(request, pd_pb2.UpdateStreamResponse)
    emit_one(stream_view(response.stream), output, [*_COLUMNS, *_MORE])


@stream.command()
@click.argument("name")
@click.option("--to", "trim_offset", type=OFFSET, required=True, help="Delete the records below this offset.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def trim(session: Session, name: str, trim_offset: int, yes: bool, output: str) -> None:
    """Delete all records below an offset, for good. It says what goes, and passes cursors.

    \b
    Example:
      pdctl stream trim flights --to 100000 --yes
    """
    from pdctl.views import stream_view
    from rangelog_proto.v1 import pd_pb2

    asks = not yes and sys.stdin.isatty()
    what = f"This deletes all records of {name} below offset {trim_offset}"
    confirm(name, what_a_trim_removes(session, name, trim_offset) if asks else what, yes=yes)
    request = pd_pb2.TrimStreamRequest(request_id=uuid.uuid4().hex, name=name, trim_offset=trim_offset)
    response = session.call(request, pd_pb2.TrimStreamResponse)
    emit_one(stream_view(response.stream), output, _COLUMNS)


@stream.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def delete(session: Session, name: str, yes: bool, output: str) -> None:
    """Delete a stream and all its records, objects included.

    \b
    Example:
      pdctl stream delete flights --yes
    """
    confirm(name, f"This deletes stream {name} with all its records", yes=yes)

    async def work(client: Client) -> None:
        await client.delete_stream(name, timeout_s=session.timeout_s)

    session.with_client(work)
    emit_done(f"{name} is deleted", {"stream": name, "deleted": True}, output)


show_defaults(create)
for _command in (append, read, tail):
    stream.add_command(_command)
