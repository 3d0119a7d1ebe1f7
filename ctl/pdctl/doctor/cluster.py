"""`pdctl doctor cluster`: asks every process of the cluster, and says what is wrong and what to do. findings.py judges."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pdctl.doctor.findings import NOTE, OK, Clock, Gathered, findings
from pdctl.output import emit_data, printable
from pdctl.session import EXIT_FAILED, Session, output_option, session_of
from rangelog_core.errors import RangelogError

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient

CALL_TIMEOUT_S = 5.0
AT_ONCE_MAX = 32
ORPHANS_PAGE = 500
ORPHANS_MAX = 5_000
"""Open replicas without a writer that are looked at, per server."""
_WIDTH = 14


@click.command()
@output_option
@session_of
def cluster(session: Session, output: str) -> None:
    """Examine a whole cluster: every placement driver and range server is asked itself.

    Leader, members, servers, versions, clocks, disks, copies, open ranges without a writer, tasks, tier, certificates: at least
    a line each, with what to do. The exit code is 1 when there is a problem, or something could not be found out.

    \b
    Examples:
      pdctl doctor cluster
      pdctl doctor cluster -o json | jq '.[] | select(.state == "problem")'
    """
    found = findings(session.with_pd(lambda pd: examine(session, pd)))
    if output == "table":
        for each in found:
            about = "" if each.subject == "cluster" else f"{each.subject}: "
            advice = f"; {each.advice}" if each.advice else ""
            click.echo(f"{each.check:<{_WIDTH}}{each.state:<9}{printable(about + each.detail + advice)}")
    else:
        emit_data([dataclasses.asdict(each) for each in found], output)
    if any(each.state not in (OK, NOTE) for each in found):
        sys.exit(EXIT_FAILED)


async def examine(session: Session, pd: PdClient) -> Gathered:
    """Ask every process of the cluster, and return the answers."""
    from rangelog_proto.v1 import common_pb2, pd_pb2

    described = await pd.call(
        pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=session.timeout_s
    )
    limit = asyncio.Semaphore(AT_ONCE_MAX)
    clocks: dict[str, Clock] = {}

    async def ask(name: str, address: str, kind: str) -> Any:
        async with limit:
            return await _ask(session, name, address, kind, clocks)

    alive = [each for each in described.servers if each.health != common_pb2.SERVER_HEALTH_DEAD]
    members = await asyncio.gather(*(ask(each.name, each.address, "placement driver") for each in described.members))
    servers = await asyncio.gather(*(ask(each.name, each.control_address, "range server") for each in alive))
    return Gathered(
        described=described,
        members={each.name: answer for each, answer in zip(described.members, members, strict=True)},
        servers={each.name: answer for each, answer in zip(alive, servers, strict=True)},
        clocks=clocks,
        orphans=await _orphans(session, pd, alive),
        tls=session.tls() is not None,
    )


async def _ask(session: Session, name: str, address: str, kind: str, clocks: dict[str, Clock]) -> Any:
    """Return what a process says of itself, or why it does not; note its clock."""
    try:
        async with session.peer(address, f"{kind} {name}") as peer:
            call = peer.inspect_member if kind == "placement driver" else peer.get_status
            await call(timeout_s=CALL_TIMEOUT_S)  # connects: the second call is the one that is timed
            began_s, began_ms = time.monotonic(), time.time() * 1000
            answer = await call(timeout_s=CALL_TIMEOUT_S)
            took_ms = (time.monotonic() - began_s) * 1000
    except RangelogError as error:
        return error.message
    if answer.wall_ms:
        clocks[name] = Clock(answer.wall_ms, began_ms + took_ms / 2, took_ms)
    return answer


async def _orphans(session: Session, pd: PdClient, servers: Sequence[Any]) -> list[str] | None:
    """Return the open ranges that no replica has a writer for; None when a server does not answer."""
    lacking: dict[tuple[int, int], int] = {}
    for each in servers:
        keys = await _without_writer(session, each)
        if keys is None:
            return None
        for key in keys:
            lacking[key] = lacking.get(key, 0) + 1
    found = []
    for (stream_id, index), count in sorted(lacking.items()):
        name = await _open_range(session, pd, stream_id, index, count)
        if name:
            found.append(name)
    return found


async def _without_writer(session: Session, server: Any) -> list[tuple[int, int]] | None:
    from rangelog_proto.v1 import range_server_pb2

    request = range_server_pb2.ListReplicasRequest(page_size=ORPHANS_PAGE, without_writer=True)
    keys: list[tuple[int, int]] = []
    try:
        async with session.peer(server.control_address, f"range server {server.name}") as peer:
            while len(keys) < ORPHANS_MAX:
                page = await peer.list_replicas(request, timeout_s=CALL_TIMEOUT_S)
                keys += [(each.stream_id, each.range_index) for each in page.replicas]
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
    except RangelogError:
        return None
    return keys


async def _open_range(session: Session, pd: PdClient, stream_id: int, index: int, count: int) -> str:
    """Return the name of a range that is open with no writer at any of its living members; "" if it has a writer."""
    from rangelog_proto.v1 import common_pb2, pd_pb2

    request = pd_pb2.ListRangesRequest(stream_id=stream_id, from_index=index, page_size=1)
    try:
        page = await pd.call(request, pd_pb2.ListRangesResponse, timeout_s=session.timeout_s)
    except RangelogError:
        return ""  # deleted: its replicas are dropped soon
    if not page.ranges or page.ranges[0].index != index or page.ranges[0].state != common_pb2.RANGE_STATE_OPEN:
        return ""  # sealed: the replica learns of it soon
    living = [each for each in page.ranges[0].replicas if each.health != common_pb2.SERVER_HEALTH_DEAD]
    return f"{page.stream.name}/{index}" if count >= len(living) else ""
