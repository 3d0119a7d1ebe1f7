"""`pdctl repair …`: ranges that lack copies, how far their repair is, and the acceptance of a loss."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import click

from pdctl.output import emit_data, emit_list, emit_one, field
from pdctl.session import EXIT_FAILED, INDEX, Session, confirm, output_option, session_of
from pdctl.units import show_bytes, show_count, show_time

_STATES = ("waiting", "copying", "blocked", "orphaned", "lost")
_PAGE_SIZE = 1_000


@click.group()
def repair() -> None:
    """Repairs: ranges that lack copies, and ranges whose writer is gone."""


@repair.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only ranges in this state.")
@click.option("--limit", type=click.IntRange(1, _PAGE_SIZE), default=100, show_default=True, help="So many at most.")
@output_option
@session_of
def list_repairs(session: Session, state: str | None, limit: int, output: str) -> None:
    """List the ranges that lack copies, the most urgent first.

    \b
    waiting   a member is gone; another server takes its place in turn
    copying   a new member does not have all of the range yet
    blocked   no server is free for it, or no living one has a whole copy
    orphaned  open, and its writer seems to be gone: a server asks it, and seals the range if it does not answer
    lost      no server that had it can come back, and the tier has not all of it

    \b
    Examples:
      pdctl repair list
      pdctl repair list --state lost -o json
    """  # \b is click's
    columns = [
        field("STATE", "state"),
        field("STREAM", "stream"),
        field("RANGE", "range_index"),
        ("COPIES", lambda row: f"{row['copies']} of {row['wanted']}"),
        ("SERVERS", lambda row: ", ".join(row["servers"]) or "-"),
        ("REASON", lambda row: row["reason"] or "-"),
    ]
    found = _listed(session, state, limit)
    emit_list(found["repairs"], output, columns, empty="no range lacks a copy")
    if found["more"] and output == "table":
        click.echo(f"pdctl: there are more; --limit shows up to {_PAGE_SIZE}", err=True)


@repair.command()
@output_option
@session_of
def status(session: Session, output: str) -> None:
    """Show how many ranges lack copies, and how far the repair is. Exit code 0: nothing is left to repair, 1: something is.

    \b
    Example:
      pdctl repair status
    """
    found = _listed(session, None, 1)
    summary = {key: value for key, value in found.items() if key not in ("repairs", "more")}
    columns = [
        ("REPAIRED", lambda row: f"{row['done']} of {row['done'] + row['left']}"),
        ("COPIED", lambda row: show_bytes(row["copied_bytes"])),
        ("SINCE", lambda row: show_time(row["since_ms"]) if row["since_ms"] else "-"),
        ("TOOK", lambda row: f"{row['took_ms'] / 1000:.1f} s" if row["took_ms"] else "-"),
        *(field(each.upper(), each) for each in _STATES),
    ]
    emit_one(summary, output, columns)
    if summary["left"] or summary["orphaned"]:
        sys.exit(EXIT_FAILED)


@repair.command("accept-loss")
@click.argument("stream")
@click.argument("index", type=INDEX)
@click.option(
    "--give-up-quarantined",
    is_flag=True,
    help="Of an open range: give up also a copy that is left, but of which no record is trusted.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def accept_loss(session: Session, stream: str, index: int, give_up_quarantined: bool, yes: bool, output: str) -> None:
    """Accept that a range is lost: every server that had a copy was wiped or removed, and the tier has not all of it.

    The part of the range in the tier stays readable. Readers get RECORDS_LOST for the rest, until the stream is
    trimmed up to the end of the range. An open range is lost as soon as too few of its servers are left to say
    where it ends: what those hold intact is kept, and the stream goes on 2^41 offsets behind it, where none was given.

    \b
    Example:
      pdctl repair accept-loss flights 3
    """
    confirm(stream, f"This gives up what range {index} of {stream} has outside the tier, for good", yes=yes)
    found = session.with_pd(
        lambda pd: _accept(pd, stream, index, session.timeout_s, give_up_quarantined=give_up_quarantined)
    )
    if output == "table":
        first, end = max(found["tiered_end_offset"], found["start_offset"]), found["end_offset"]
        if found["was_open"]:
            click.echo(f"what {stream} had from offset {first} on is given up; it goes on at offset {end}")
        else:
            click.echo(f"{show_count(end - first, 'record')} of {stream}, offsets {first} to {end}, are given up")
    else:
        emit_data(found, output)


async def _accept(pd: Any, stream: str, index: int, timeout_s: float, *, give_up_quarantined: bool) -> dict[str, Any]:

    from pdctl.views import range_view
    from rangelog_core.limits import OFFSETS_GIVEN_UP
    from rangelog_proto.v1 import pd_pb2, repair_pb2

    described = await pd.call(
        pd_pb2.DescribeStreamRequest(name=stream), pd_pb2.DescribeStreamResponse, timeout_s=timeout_s
    )
    request = repair_pb2.AcceptLossRequest(
        request_id=uuid.uuid4().hex,
        stream_id=described.stream.stream_id,
        range_index=index,
        give_up_quarantined=give_up_quarantined,
    )
    response = await pd.call(request, repair_pb2.AcceptLossResponse, timeout_s=timeout_s)
    was_open = response.range.end_offset - response.range.start_offset >= OFFSETS_GIVEN_UP
    return {**range_view(response.range), "was_open": was_open}


def _listed(session: Session, state: str | None, limit: int) -> dict[str, Any]:
    return session.with_pd(lambda pd: repairs_of(pd, session.timeout_s, state, limit))


async def repairs_of(pd: Any, timeout_s: float, state: str | None, limit: int) -> dict[str, Any]:
    """Return the ranges that lack copies, up to `limit` of them, and how far the repair is, with stable keys."""
    from rangelog_proto.v1 import repair_pb2

    wanted = f"REPAIR_STATE_{state.upper()}" if state else "REPAIR_STATE_UNSPECIFIED"
    request = repair_pb2.ListRepairsRequest(state=wanted, page_size=limit)
    found = await pd.call(request, repair_pb2.ListRepairsResponse, timeout_s=timeout_s)
    counts = {each: getattr(found, f"{each}_count") for each in _STATES}
    return {
        "repairs": [_row(each) for each in found.repairs],
        "more": found.more,
        **counts,
        "left": sum(counts[each] for each in _STATES if each != "orphaned"),
        "done": found.done_count,
        "copied_bytes": found.copied_bytes,
        "since_ms": found.since_ms,
        "took_ms": found.took_ms,
    }


def _row(found: Any) -> dict[str, Any]:
    from pdctl.views import word
    from rangelog_proto.v1 import repair_pb2

    return {
        "state": word(repair_pb2.RepairState, found.state),
        "stream": found.stream_name,
        "stream_id": found.range.stream_id,
        "range_index": found.range.index,
        "start_offset": found.range.start_offset,
        "end_offset": found.range.end_offset,
        "copies": found.copies,
        "wanted": found.wanted,
        "servers": [each.server for each in found.range.replicas],
        "reason": found.reason,
    }
