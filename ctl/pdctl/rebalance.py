"""`pdctl cluster rebalance`: moves sealed replicas so that all range servers have as much to store."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_done, emit_list, field
from pdctl.session import EXIT_FAILED, Session, output_option, session_of
from pdctl.units import Duration, Size, show_bytes, show_count
from rangelog_core.errors import PreconditionFailed, RequestTimeout

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import placement_pb2

POLL_S = 0.5
_MOVES_SHOWN_MAX = 20
_SHARES = [
    field("SERVER", "server"),
    field("ZONE", "zone", lambda zone: zone or "-"),
    field("NOW", "before_bytes", show_bytes),
    field("AFTER", "after_bytes", show_bytes),
    field("CAPACITY", "capacity_bytes", lambda size: show_bytes(size) if size else "-"),
]
_MOVES = [
    field("STREAM", "stream"),
    field("RANGE", "range_index"),
    field("FROM", "source"),
    field("TO", "target"),
    field("SIZE", "size_bytes", show_bytes),
]


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be moved.")
@click.option("--apply", "apply_", is_flag=True, help="Move it.")
@click.option("--max-bytes", type=Size(), metavar="SIZE", default=0, help="Copy at most this much.")
@click.option("--wait", is_flag=True, help="With --apply: go on until nothing is left to move.")
@click.option("--wait-timeout", type=Duration(), metavar="DURATION", default="1h", show_default=True, help="Of --wait.")
@output_option
@session_of
def rebalance(
    session: Session, dry_run: bool, apply_: bool, max_bytes: int, wait: bool, wait_timeout: int, output: str
) -> None:
    """Move sealed replicas from range servers with much to store to those with little.

    Replicas stay as far apart as they are, and on servers that their stream's policy allows; there are never fewer copies.
    Nothing is moved while repairs are going on. Open ranges are not moved.

    \b
    Examples:
      pdctl cluster rebalance --dry-run
      pdctl cluster rebalance --apply --max-bytes 50GiB --wait
    """

    if dry_run == apply_:
        raise click.UsageError("choose --dry-run or --apply")
    if wait and dry_run:
        raise click.UsageError("--wait goes with --apply")
    if dry_run:
        _show_plan(session.with_pd(lambda pd: _plan(pd, max_bytes, session.timeout_s)), output)
        return
    deadline_s = time.monotonic() + wait_timeout / 1_000 if wait else 0.0
    done = session.with_pd(lambda pd: _Applying(pd, session.timeout_s, max_bytes).run(deadline_s))
    emit_done(_line(done), done, output)


async def _plan(client: PdClient, bytes_max: int, timeout_s: float) -> dict[str, Any]:
    from rangelog_proto.v1 import placement_pb2

    found = await client.call(
        placement_pb2.PlanRebalanceRequest(bytes_max=bytes_max),
        placement_pb2.PlanRebalanceResponse,
        timeout_s=timeout_s,
    )
    return {
        "refusal": found.refusal,
        "bytes": found.bytes,
        "moves": [
            {
                "stream": each.stream_name,
                "stream_id": each.stream_id,
                "range_index": each.range_index,
                "source": each.source.server,
                "target": each.target.server,
                "size_bytes": each.size_bytes,
            }
            for each in found.moves
        ],
        "servers": [
            {
                "server": each.server,
                "zone": each.zone,
                "before_bytes": each.before_bytes,
                "after_bytes": each.after_bytes,
                "capacity_bytes": each.capacity_bytes,
            }
            for each in found.shares
        ],
    }


def _show_plan(plan: dict[str, Any], output: str) -> None:
    if output != "table":
        emit_data(plan, output)
    else:
        emit_list(plan["servers"], output, _SHARES, empty="no range server is alive")
        click.echo()
        emit_list(plan["moves"][:_MOVES_SHOWN_MAX], output, _MOVES, empty="")
        if len(plan["moves"]) > _MOVES_SHOWN_MAX:
            click.echo(f"and {len(plan['moves']) - _MOVES_SHOWN_MAX} more: see -o json")
        if plan["refusal"]:
            click.echo(f"nothing may be moved now: {plan['refusal']}")
        else:
            click.echo(f"{show_count(len(plan['moves']), 'move')}, {show_bytes(plan['bytes'])} to copy")
    if plan["refusal"]:
        sys.exit(EXIT_FAILED)


def _line(done: dict[str, Any]) -> str:
    line = f"{done['moved']} of {show_count(done['moves'], 'move')} done, {show_bytes(done['moved_bytes'])} copied"
    if done["skipped"]:
        line += f", {done['skipped']} skipped (the last one: {done['last_skipped']})"
    if done["waiting_for"]:
        line += f", waiting: {done['waiting_for']}"
    return line if done["done"] else f"{line}; {done['under_way']} under way: see `pdctl task list`"


class _Applying:
    """Applies plans until nothing is left to move. A leader that does not know the rebalance any more is asked for another."""

    def __init__(self, client: PdClient, timeout_s: float, bytes_max: int) -> None:
        self._client, self._timeout_s, self._bytes_max = client, timeout_s, bytes_max
        self._before = {"moves": 0, "moved": 0, "moved_bytes": 0, "skipped": 0}
        self._shown = ""

    async def run(self, deadline_s: float) -> dict[str, Any]:
        """Apply once; with a deadline, until nothing is left. Raises RequestTimeout, which says that it goes on."""
        state = await self._apply()
        if not deadline_s:
            return self._describe(state)
        while state.moves:
            went_on = await self._follow(state, deadline_s)
            described = self._describe(state)
            for name in self._before:
                self._before[name] = described[name]
            state.Clear()
            is_room = not self._bytes_max or self._before["moved_bytes"] < self._bytes_max
            if went_on and is_room:
                state = await self._apply_when_free(deadline_s)
        state.done = True
        return self._describe(state)

    async def _apply(self) -> placement_pb2.RebalanceState:
        from rangelog_proto.v1 import placement_pb2

        left = self._bytes_max - self._before["moved_bytes"] if self._bytes_max else 0
        request = placement_pb2.ApplyRebalanceRequest(request_id=uuid.uuid4().hex, bytes_max=left)
        return (
            await self._client.call(request, placement_pb2.ApplyRebalanceResponse, timeout_s=self._timeout_s)
        ).rebalance

    async def _apply_when_free(self, deadline_s: float) -> placement_pb2.RebalanceState:
        """Apply again once nothing is being copied any more."""
        while True:
            try:
                return await self._apply()
            except PreconditionFailed:
                if time.monotonic() >= deadline_s:
                    raise
                await asyncio.sleep(POLL_S)

    async def _follow(self, state: placement_pb2.RebalanceState, deadline_s: float) -> bool:
        """Follow a rebalance to its end; return whether it changed anything. Raises RequestTimeout."""
        from rangelog_proto.v1 import placement_pb2

        request = placement_pb2.DescribeRebalanceRequest()
        while True:
            described = self._describe(state)
            self._show(_line(described))
            if state.done:
                return state.moved > 0
            if time.monotonic() >= deadline_s:
                raise RequestTimeout(f"not done in time: {_line(described)}")
            await asyncio.sleep(POLL_S)
            found = (
                await self._client.call(request, placement_pb2.DescribeRebalanceResponse, timeout_s=self._timeout_s)
            ).rebalance
            if found.rebalance_id != state.rebalance_id:
                self._show("another placement driver leads: what was begun is finished, the rest is planned again")
                return True
            state.CopyFrom(found)

    def _describe(self, state: placement_pb2.RebalanceState) -> dict[str, Any]:
        return {name: count + getattr(state, name) for name, count in self._before.items()} | {
            "under_way": state.under_way,
            "last_skipped": state.last_skipped,
            "waiting_for": state.waiting_for,
            "done": state.done,
        }

    def _show(self, line: str) -> None:
        if line != self._shown:
            self._shown = line
            click.echo(line, err=True)
