"""`pdctl range …`: the ranges of a stream."""

from __future__ import annotations

import sys
from typing import Any

import click

from pdctl.output import emit_data, emit_done, emit_list, emit_one, field
from pdctl.session import EXIT_FAILED, INDEX, OFFSET, Session, confirm, output_option, session_of
from pdctl.units import show_bytes, show_count, show_time
from rangelog_core.errors import RangeNotFound
from rangelog_core.net.pages import goes_on

_PAGE_SIZE = 500


def _replicas(row: Any) -> str:
    if row["lost"]:
        return "lost"
    if row["hot_dropped"]:
        return "tier only"
    return ", ".join(
        each["server"] + ("" if each["health"] == "alive" else f" ({each['health']})") for each in row["replicas"]
    )


def _or_dash(text: str) -> str:
    return text or "-"


_COLUMNS = [
    field("INDEX", "index"),
    field("STATE", "state"),
    field("START", "start_offset"),
    ("END", lambda row: "-" if row["end_offset"] is None else row["end_offset"]),
    ("TIERED", lambda row: show_count(row["tiered_end_offset"] - row["start_offset"], "record")),
    ("REPLICAS", _replicas),
    field("EPOCH", "epoch"),
    field("CREATED", "created_ms", show_time),
]


_REPLICAS = [
    field("REPLICA ON", "server"),
    field("ZONE", "zone", _or_dash),
    field("RACK", "rack", _or_dash),
    field("HEALTH", "health"),
    field("WHY THERE", "reason", _or_dash),
    field("ADDRESS", "data_address"),
]
_EXPLAINED = [
    field("SERVER", "server"),
    field("ZONE", "zone", _or_dash),
    field("RACK", "rack", _or_dash),
    field("HEALTH", "health"),
    field("OPEN", "open_ranges"),
    field("BYTES/S", "bytes_per_s", show_bytes),
    field("DISK", "used_percent", lambda percent: f"{percent}%"),
    field("REPLICAS", "replicas"),
    ("WHY", lambda row: f"chosen: {row['reason']}" if row["chosen"] else f"not: {row['why_not']}"),
]


@click.group("range")
def range_group() -> None:
    """Ranges: the parts that a stream is made of."""


@range_group.command("list")
@click.argument("stream")
@click.option("--from-offset", type=OFFSET, default=0, help="Only ranges that end beyond it.")
@output_option
@session_of
def list_ranges(session: Session, stream: str, from_offset: int, output: str) -> None:
    """List a stream's ranges, in order.

    \b
    Example:
      pdctl range list flights
    """
    emit_list(_ranges(session, stream, from_offset), output, _COLUMNS, empty=f"stream {stream} has no ranges yet")


@range_group.command()
@click.argument("stream")
@click.argument("index", type=INDEX)
@output_option
@session_of
def show(session: Session, stream: str, index: int, output: str) -> None:
    """Show one range: where its replicas are, and why there.

    \b
    Example:
      pdctl range show flights 3 -o yaml
    """
    for found in _ranges(session, stream, 0, index, 1):
        if found["index"] == index:
            _with_places(session, found["replicas"])
            emit_one(found, output, [*_COLUMNS, field("SEALED", "sealed_ms", show_time)])
            if output == "table" and found["replicas"]:
                click.echo()
                emit_list(found["replicas"], output, _REPLICAS, empty="")
            return
    raise RangeNotFound(f"stream {stream!r} has no range {index}: see `pdctl range list {stream}`")


@range_group.command()
@click.argument("stream")
@output_option
@session_of
def explain(session: Session, stream: str, output: str) -> None:
    """Say which servers a new range of a stream would get now, and why not the others. Nothing is changed.

    The exit code is 1 when there is no placement.

    \b
    Example:
      pdctl range explain flights
    """

    from pdctl.views import placement_view
    from rangelog_proto.v1 import placement_pb2

    request = placement_pb2.ExplainPlacementRequest(name=stream)
    response = session.with_pd(
        lambda pd: pd.call(request, placement_pb2.ExplainPlacementResponse, timeout_s=session.timeout_s)
    )
    found = placement_view(response)
    if output == "table":
        emit_list(found["servers"], output, _EXPLAINED, empty="no range server is registered")
        if found["refusal"]:
            click.echo(f"no placement: {found['refusal']}")
    else:
        emit_data(found, output)
    if found["refusal"]:
        sys.exit(EXIT_FAILED)


@range_group.command()
@click.argument("stream")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def seal(session: Session, stream: str, yes: bool, output: str) -> None:
    """Seal a stream's open range; its writer is fenced.

    \b
    Example:
      pdctl range seal flights --yes
    """
    confirm(stream, f"This fences the writer of {stream}", yes=yes)
    end = session.with_client(lambda client: client.seal_stream(stream, timeout_s=session.timeout_s))
    emit_done(f"{stream} is sealed and ends at offset {end}", {"stream": stream, "end_offset": end}, output)


def _with_places(session: Session, replicas: list[dict[str, Any]]) -> None:
    """Add each replica's zone and rack, as its server is registered now."""
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.ListServersRequest()
    response = session.call(request, pd_pb2.ListServersResponse)
    servers = {each.name: each for each in response.servers}
    for replica in replicas:
        server = servers.get(replica["server"])
        replica["zone"], replica["rack"] = (server.zone, server.rack) if server is not None else ("", "")


def _ranges(
    session: Session, stream: str, from_offset: int, from_index: int = 0, count_max: int | None = None
) -> list[dict[str, Any]]:
    from pdctl.views import range_view
    from rangelog_proto.v1 import pd_pb2

    async def page_through(pd: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        request = pd_pb2.ListRangesRequest(
            name=stream, from_offset=from_offset, from_index=from_index, page_size=count_max or _PAGE_SIZE
        )
        while True:
            page = await pd.call(request, pd_pb2.ListRangesResponse, timeout_s=session.timeout_s)
            found += [range_view(each) for each in page.ranges]
            if not goes_on(page.more, page.ranges) or (count_max is not None and len(found) >= count_max):
                return found
            request.from_index = page.ranges[-1].index + 1

    return session.with_pd(page_through)
