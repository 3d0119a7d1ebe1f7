"""`pdctl server …`: the range servers."""

from __future__ import annotations

from typing import Any

import click

from pdctl.output import emit_list, emit_one, field
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_bytes, show_time
from rangelog_core.errors import RangeNotFound

_COLUMNS = [
    field("NAME", "name"),
    field("HEALTH", "health"),
    field("MODE", "mode"),
    field("ZONE", "zone", lambda zone: zone or "-"),
    field("ADDRESS", "data_address"),
    field("REPLICAS", "replica_count"),
    field("LOG ON DISK", "used_bytes", show_bytes),
    field("LAST HEARTBEAT", "last_heartbeat_ms", show_time),
]


@click.group()
def server() -> None:
    """Range servers."""


@server.command("list")
@output_option
@session_of
def list_servers(session: Session, output: str) -> None:
    """List all range servers that have registered.

    \b
    Example:
      pdctl server list
    """
    servers = _servers(session)
    has_problem = any(each["health_reason"] for each in servers)
    columns = [*_COLUMNS, field("PROBLEM", "health_reason")] if has_problem else _COLUMNS
    emit_list(servers, output, columns, empty="no range server is registered")


@server.command()
@click.argument("name")
@output_option
@session_of
def show(session: Session, name: str, output: str) -> None:
    """Show one range server.

    \b
    Example:
      pdctl server show rs1 -o yaml
    """
    for found in _servers(session):
        if found["name"] == name:
            more = [
                field("PROBLEM", "health_reason", lambda reason: reason or "-"),
                field("RACK", "rack", lambda rack: rack or "-"),
                field("HOST", "host", lambda host: host or "-"),
                field("LABELS", "labels", lambda labels: ", ".join(labels) or "-"),
                field("INCARNATION", "incarnation"),
                field("BOOT", "boot"),
                field("CONTROL", "control_address"),
                field("VERSION", "version"),
            ]
            emit_one(found, output, [*_COLUMNS, *more])
            return
    raise RangeNotFound(f"no range server {name!r}: see `pdctl server list`")


def _servers(session: Session) -> list[dict[str, Any]]:
    from pdctl.views import server_view
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.ListServersRequest()
    response = session.call(request, pd_pb2.ListServersResponse)
    return [server_view(each) for each in response.servers]
