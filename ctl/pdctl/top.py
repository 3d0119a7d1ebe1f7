"""`pdctl top`: what each range server does now, by the differences of its own counters."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_list
from pdctl.output import field as column
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_bytes
from rangelog_core.errors import RangelogError

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient

AT_ONCE_MAX = 32
CALL_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Sample:
    """One look at all servers. `statuses`: what each living one says of itself; why it does not is left out."""

    at_s: float
    servers: list[Any] = field(default_factory=list)  # common.Server, as the placement driver has them
    statuses: Mapping[str, Any] = field(default_factory=dict)  # name → GetStatusResponse


def _show(show: Any) -> Any:
    return lambda value: "-" if value is None else show(value)


def _rate(value: float) -> str:
    return f"{value:,.0f}"


_COLUMNS = [
    column("NAME", "name"),
    column("HEALTH", "health"),
    column("APPENDED/S", "appended_bytes_per_s", _show(lambda value: show_bytes(int(value)))),
    column("APPENDS/S", "appends_per_s", _show(_rate)),
    column("RECORDS/S", "records_per_s", _show(_rate)),
    column("READ/S", "fetched_bytes_per_s", _show(lambda value: show_bytes(int(value)))),
    column("FLUSHES/S", "flushes_per_s", _show(_rate)),
    column("NOT DURABLE", "pending_bytes", _show(show_bytes)),
    column("OPEN", "open_ranges"),
    column("REPLICAS", "replicas"),
    column("CLIENTS", "connections", _show(str)),
    column("LOG", "log_used_bytes", show_bytes),
    column("DISK USED", "disk_used_percent", _show(lambda value: f"{value} %")),
    column("PROBLEM", "problem", lambda problem: problem or "-"),
]
_RATES = {
    "appended_bytes_per_s": "appended_bytes",
    "appends_per_s": "append_count",
    "records_per_s": "append_record_count",
    "fetched_bytes_per_s": "fetched_bytes",
    "flushes_per_s": "flush_count",
}


@click.command()
@click.option("--once", is_flag=True, help="Print one table and end, for scripts.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 60),
    default=2.0,
    show_default=True,
    help="Seconds over which rates are measured.",
)
@output_option
@session_of
def top(session: Session, once: bool, interval_s: float, output: str) -> None:
    """Show what each range server does, again and again until Ctrl-C.

    Rates are of batches and log entries as the server itself counts them; each record is on several servers. NOT DURABLE
    are bytes that wait for their flush, which is how far a disk is behind.

    \b
    Examples:
      pdctl top
      pdctl top --once -o json | jq '.[] | {name, appended_bytes_per_s}'
    """
    if not once and (output != "table" or not sys.stdout.isatty()):
        raise click.UsageError("without a terminal, or with -o json or yaml: pass --once")
    session.with_pd(lambda pd: _watch(session, pd, once=once, interval_s=interval_s, output=output))


async def _watch(session: Session, pd: PdClient, *, once: bool, interval_s: float, output: str) -> None:
    before = await take_sample(session, pd)
    while True:
        await asyncio.sleep(interval_s)
        after = await take_sample(session, pd)
        if not once:
            click.clear()
        emit_list(rows(before, after), output, _COLUMNS, empty="no range server is registered")
        if once:
            return
        before = after


async def take_sample(session: Session, pd: PdClient) -> Sample:
    """Ask the placement driver for the servers, and each living server for its counters."""
    from rangelog_proto.v1 import common_pb2, pd_pb2

    response = await pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=session.timeout_s)
    limit = asyncio.Semaphore(AT_ONCE_MAX)
    statuses: dict[str, Any] = {}

    async def ask(server: Any) -> None:
        async with limit:
            try:
                async with session.peer(server.control_address, f"range server {server.name}") as peer:
                    statuses[server.name] = await peer.get_status(timeout_s=CALL_TIMEOUT_S)
            except RangelogError:
                pass  # its row says that it does not answer

    dead = common_pb2.SERVER_HEALTH_DEAD
    await asyncio.gather(*(ask(each) for each in response.servers if each.health != dead and each.control_address))
    return Sample(time.monotonic(), list(response.servers), statuses)


def rows(before: Sample, after: Sample) -> list[dict[str, Any]]:
    """Return a row for each server. Rates are None for one that did not answer twice, or was started in between."""
    return [_row(each, before.statuses.get(each.name), after.statuses.get(each.name), after.at_s - before.at_s)
            for each in after.servers]  # fmt: skip


def _row(server: Any, earlier: Any, status: Any, passed_s: float) -> dict[str, Any]:
    from pdctl.views import server_view

    known = server_view(server)
    row: dict[str, Any] = {"name": known["name"], "health": known["health"]}
    same = earlier is not None and status is not None and _is_same_process(earlier, status) and passed_s > 0
    for name, counter in _RATES.items():
        row[name] = (getattr(status, counter) - getattr(earlier, counter)) / passed_s if same else None
    row |= {
        "pending_bytes": status.pending_bytes if status is not None else None,
        "open_ranges": server.open_range_count,
        "replicas": server.replica_count,
        "connections": status.connection_count if status is not None else None,
        "log_used_bytes": server.used_bytes,
        "disk_used_percent": _disk_percent(status),
        "problem": status.log_problem if status is not None else "does not answer",
    }
    return row


def _is_same_process(earlier: Any, status: Any) -> bool:
    return (earlier.incarnation, earlier.boot) == (status.incarnation, status.boot)


def _disk_percent(status: Any) -> int | None:
    if status is None or not status.disk_total_bytes:
        return None
    return int(100 - status.disk_free_bytes * 100 // status.disk_total_bytes)
