"""`pdctl verify`: proof by checksums and digests that every copy and every object holds what the placement driver lists."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pdctl.inspection.calls import Servers, inspected_ranges, list_servers
from pdctl.inspection.compare_sums import DIFFERS, MISSING, OK, UNREACHABLE, Verdict, worst
from pdctl.inspection.pace import ReadPace
from pdctl.output import emit_data, printable
from pdctl.progress import progress
from pdctl.session import EXIT_FAILED, OFFSET, Session, output_option, session_of
from pdctl.units import Size, show_bytes, show_count
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import OFFSET_MAX

if TYPE_CHECKING:
    from rangelog import Client

LISTED_MAX = 10_000
RATE_DEFAULT = "64MiB"
TRIES = 4
"""Times that a range which changes meanwhile is verified."""


@dataclass(slots=True)
class Report:
    """The result of a verification. Ranges that are right are counted; the others are listed, the first LISTED_MAX of them."""

    stream: str
    deep: bool
    range_counts: dict[str, int] = field(default_factory=dict)
    record_count: int = 0
    object_count: int = 0
    read_bytes: int = 0
    ranges: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any], *, listed: bool) -> None:
        """Count a range; list it if it is not right, or if all are wanted."""
        self.range_counts[row["result"]] = self.range_counts.get(row["result"], 0) + 1
        self.record_count += row["end_offset"] - row["start_offset"]
        if (listed or row["result"] != OK) and len(self.ranges) < LISTED_MAX:
            self.ranges.append(row)

    @property
    def is_right(self) -> bool:
        """Whether every range is."""
        return all(word == OK for word in self.range_counts)


@click.command()
@click.argument("stream")
@click.option("--from", "start", type=OFFSET, default=0, help="Only ranges that end beyond this offset.")
@click.option("--to", "end", type=OFFSET, help="Only records below this offset.")
@click.option(
    "--deep", is_flag=True, help="Servers read every batch from disk; rows of objects are compared with batches."
)
@click.option("--all", "list_all", is_flag=True, help="List the ranges that are right as well.")
@click.option(
    "--rate", type=Size(), default=RATE_DEFAULT, show_default=True, help="Bytes read per second; 0: no bound."
)
@output_option
@session_of
def verify(
    session: Session, stream: str, start: int, end: int | None, deep: bool, list_all: bool, rate: int, output: str
) -> None:
    """Prove that every replica and every object of a stream holds what the placement driver lists.

    Each server is asked for the checksums of its batches, which must cover the range and agree; each object is read and must
    have its digest. --deep has the batches read from disk and their checksums computed, and compares objects row by row with
    a copy. A copy that a deep verification finds damaged is set aside by its server and copied again. Of an open range, the
    acked part is verified.

    Results: ok, differs (where first), missing, unreachable. The exit code is 1 unless all are ok.

    \b
    Examples:
      pdctl verify flights
      pdctl verify flights --deep --rate 16MiB
      pdctl verify flights --from 1000000 -o json
    """
    if end is not None and end <= start:
        raise InvalidArgument(f"--to {end} is not above --from {start}")
    shown = sys.stderr.isatty()
    with progress("verify", shown=shown) as advance:
        report = session.with_client(
            lambda client: _verify(
                session, client, Report(stream, deep), start, OFFSET_MAX if end is None else end, rate,
                list_all=list_all, advance=advance,
            )
        )  # fmt: skip
    if output == "table":
        _show(report)
    else:
        emit_data({"stream": stream, "ok": report.is_right} | asdict(report), output)
    if not report.is_right:
        sys.exit(EXIT_FAILED)


async def _verify(
    session: Session,
    client: Client,
    report: Report,
    start: int,
    end: int,
    rate: int,
    *,
    list_all: bool,
    advance: Callable[[int], None],
) -> Report:
    from pdctl.inspection.verify_copies import CopyVerifier
    from pdctl.inspection.verify_objects import ObjectVerifier

    pd, pace = client.metadata.pd, ReadPace(rate)
    async with Servers(session, await list_servers(pd, session.timeout_s)) as servers:
        copies = CopyVerifier(client, servers, pace, deep=report.deep)
        objects = ObjectVerifier(client, copies, pace, deep=report.deep, timeout_s=session.timeout_s)
        try:
            async for page in inspected_ranges(pd, report.stream, session.timeout_s):
                for each in page.ranges:
                    low = max(start, each.range.start_offset, page.stream.trim_offset)
                    if low < end:
                        row = await _verify_as_it_is(
                            session, client, report.stream, copies, objects, each.range, low, end
                        )
                        if row is not None:
                            report.add(row, listed=list_all)
                            advance(report.record_count)
        finally:
            objects.close()
    report.object_count, report.read_bytes = objects.count, pace.spent_bytes
    return report


async def _verify_as_it_is(
    session: Session, client: Client, stream: str, copies: Any, objects: Any, of: Any, low: int, end: int
) -> dict[str, Any] | None:
    """Verify one range; again where it was sealed, repaired or repacked meanwhile. None: it has no records there (any more)."""
    from rangelog_proto.v1 import common_pb2, pd_pb2

    row: dict[str, Any] | None = None
    for _ in range(TRIES):
        is_open = of.state == common_pb2.RANGE_STATE_OPEN
        range_end = await client.end_offset(stream) if is_open else of.end_offset
        high = min(end, range_end)
        if low >= high:
            return None
        row = await _verify_range(copies, objects, of, low, high, is_open=is_open)
        if row["result"] == OK:
            return row
        request = pd_pb2.ListRangesRequest(stream_id=of.stream_id, from_index=of.index, page_size=1)
        page = await client.metadata.pd.call(request, pd_pb2.ListRangesResponse, timeout_s=session.timeout_s)
        if not page.ranges or page.ranges[0].index != of.index or page.stream.trim_offset > low:
            return None  # trimmed meanwhile
        if _shape(page.ranges[0]) == _shape(of):
            return row
        of = page.ranges[0]
    return row


def _shape(of: Any) -> tuple[Any, ...]:
    """Return what of a range decides which copies and objects hold it."""
    members = [(each.server, each.incarnation) for each in of.replicas]
    packed_in = of.packed_in if of.HasField("packed_in") else None
    return of.state, of.end_offset, of.tiered_end_offset, of.hot_dropped, packed_in, members


async def _verify_range(copies: Any, objects: Any, of: Any, low: int, high: int, *, is_open: bool) -> dict[str, Any]:
    by_copy: dict[str, Verdict] = await copies.verify(of, low, high)
    right = next((each for each in of.replicas if by_copy[each.server].result == OK), None)
    tiered_end = min(high, of.tiered_end_offset)
    by_object: dict[str, Verdict] = {}
    if not is_open and low < tiered_end:
        by_object = await objects.verify(of, low, tiered_end, right)
    result = worst(list(by_copy.values()), is_open=is_open, acks=of.acks)
    if not by_copy and (is_open or tiered_end < high):
        result = MISSING  # nothing names a copy of what no object holds
    words = [result, *(each.result for each in by_object.values())]
    order = (DIFFERS, MISSING, UNREACHABLE)
    return {
        "range_index": of.index,
        "result": next((word for word in order if word in words), OK),
        "start_offset": low,
        "end_offset": high,
        "state": "open" if is_open else "sealed",
        "copies": [{"server": name} | asdict(verdict) for name, verdict in by_copy.items()],
        "objects": [{"key": key} | asdict(verdict) for key, verdict in by_object.items()],
    }


def _show(report: Report) -> None:
    for row in report.ranges:
        span = f"[{row['start_offset']}, {row['end_offset']})"
        click.echo(f"range {row['range_index']} {span}: {row['result']}")
        for each in (*row["copies"], *row["objects"]):
            where = each.get("server") or each.get("key")
            at = f" at {each['offset']}" if each["offset"] is not None else ""
            why = f": {each['why']}" if each["why"] else ""
            click.echo("  " + printable(f"{where} {each['result']}{at}{why}"))
    counts = ", ".join(f"{count} {word}" for word, count in report.range_counts.items()) or "no records"
    click.echo(
        f"{report.stream}: {counts} of {show_count(sum(report.range_counts.values()), 'range')}; "
        f"{show_count(report.record_count, 'record')}, {show_count(report.object_count, 'object')}, "
        f"{show_bytes(report.read_bytes)} read"
    )
