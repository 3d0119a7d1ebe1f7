"""`pdctl object scrub`: the object store compared with the placement driver's state."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_list, field
from pdctl.progress import progress
from pdctl.session import EXIT_FAILED, Session, confirm, output_option, session_of
from pdctl.units import Duration, show_bytes, show_count
from rangelog_core.errors import MissingExtra, PreconditionFailed

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import common_pb2
    from rangelog_tier.scrubbing import TierScrub

SHOWN_MAX = 10_000
"""Findings that are kept to be shown; the others are counted, and repaired like these."""
_COLUMNS = [
    field("FOUND", "kind"),
    field("OBJECT", "object_id"),
    field("SIZE", "size_bytes", show_bytes),
    field("KEY", "key"),
    field("WHAT", "detail"),
    ("DONE", lambda row: row["done"] or "-"),
]
_ALL = "all"


@click.command()
@click.argument("stream", required=False)
@click.option("--repair", is_flag=True, help="Remove orphans; have missing and damaged objects uploaded again.")
@click.option("--verify", is_flag=True, help="Read every object and compare its digest.")
@click.option("--grace", type=Duration(), default="24h", show_default=True, help="What is younger is never an orphan.")
@click.option("--tier-url", metavar="URL", help="The object store, where it has another URL here. Else the cluster's.")
@click.option("--yes", is_flag=True, help="Do not ask before a repair.")
@output_option
@session_of
def scrub(
    session: Session,
    stream: str | None,
    repair: bool,
    verify: bool,
    grace: int,
    tier_url: str | None,
    yes: bool,
    output: str,
) -> None:
    """Compare the object store with the state, for one stream or for all; without --repair nothing is changed.

    \b
    missing   the state has the object, the store does not
    damaged   the store has it with another size or, with --verify, another digest
    orphan    the state has forgotten the object, and it is older than --grace
    foreign   no object that this cluster ever named: it is shown, and left alone

    --repair removes orphans. It has missing and damaged objects uploaded again if whole hot copies are there; otherwise they
    stay as they are. The exit code is 1 when something was found.

    \b
    Examples:
      pdctl object scrub
      pdctl object scrub flights --verify
      pdctl object scrub --repair --grace 7d
    """  # \b is click's
    if repair:
        confirm(stream or _ALL, "orphans are deleted, and lost objects are given up for a new upload", yes=yes)
    try:
        from rangelog_tier.scrubbing import TierScrub
    except ImportError as error:
        raise MissingExtra("the object store is read with an extra: pip install 'rangelog[tier]'") from error

    async def run(pd: PdClient) -> dict[str, Any]:
        known_as, store = await _open(pd, tier_url, session.timeout_s)
        described = None
        try:
            if stream is not None:
                described = await _stream(pd, stream, session.timeout_s)
            work = TierScrub(
                pd,
                store,
                tier_url=known_as,
                timeout_s=session.timeout_s,
                grace_ms=grace,
                verify=verify,
                repair=repair,
            )
            return await _collect(work, described)
        finally:
            store.close()

    result = session.with_pd(run)
    if output == "table":
        emit_list(result["findings"], output, _COLUMNS, empty="the object store has what the state has")
        _sum_up(result)
    else:
        emit_data(result, output)
    if any(result["found"].values()):
        sys.exit(EXIT_FAILED)


async def _collect(work: TierScrub, stream: common_pb2.Stream | None) -> dict[str, Any]:
    findings: list[dict[str, Any]] = []
    with progress("scrubbing", shown=sys.stderr.isatty(), unit="objects") as advance:
        async for each in work.run(stream):
            if len(findings) < SHOWN_MAX:
                findings.append(dataclasses.asdict(each))
            advance(work.counts.stored)
    counts = dataclasses.asdict(work.counts)
    found = counts.pop("found")
    return {"findings": findings, "found": found, "seen": counts}


def _sum_up(result: dict[str, Any]) -> None:
    seen, found = result["seen"], result["found"]
    click.echo(
        f"{show_count(seen['stored'], 'object')} stored, {seen['committed']} committed; {seen['prepared']} being uploaded "
        f"({seen['expired']} past the deadline), {seen['deleted']} to be deleted, {seen['young']} unknown within the grace",
        err=True,
    )
    if any(found.values()):
        click.echo(", ".join(f"{count} {kind}" for kind, count in found.items() if count), err=True)
    if sum(found.values()) > len(result["findings"]):
        click.echo(f"the first {len(result['findings'])} are shown", err=True)


async def _open(pd: PdClient, url: str | None, timeout_s: float) -> tuple[str, Any]:
    """Return what the placement driver calls the tier, and the open store."""
    from rangelog_proto.v1 import pd_pb2
    from rangelog_tier import open_object_store

    known_as = (
        await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=timeout_s)
    ).tier_url
    if not (url or known_as):
        raise PreconditionFailed("this cluster has no tier: give the placement drivers a tier_url")
    return known_as, open_object_store(url or known_as)


async def _stream(pd: PdClient, name: str, timeout_s: float) -> common_pb2.Stream:
    from rangelog_proto.v1 import pd_pb2

    return (
        await pd.call(pd_pb2.DescribeStreamRequest(name=name), pd_pb2.DescribeStreamResponse, timeout_s=timeout_s)
    ).stream
