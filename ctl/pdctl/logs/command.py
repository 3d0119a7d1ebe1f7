"""`pdctl logs`: the recent log entries of all processes, in one order."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from pdctl.logs.asking import PAGE_ENTRIES_MAX, LogFollower, LoggingProcess, LogQuery, processes, take_all
from pdctl.logs.lines import Logged, as_json, as_text, as_yaml, has_text, merged
from pdctl.output import printable
from pdctl.session import EXIT_FAILED, EXIT_UNAVAILABLE, Session, output_option, session_of
from pdctl.units import Duration
from rangelog_core.errors import Unavailable

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient

LEVELS = ("debug", "info", "warning", "error", "critical")
TAIL = 200
ROUND_S = 1.0
LOOK_AGAIN_ROUNDS = 10
"""While following, the processes of the cluster are looked up again after so many rounds."""


@click.command()
@click.argument("names", nargs=-1, metavar="[SERVER]…")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True, help="The lowest level.")
@click.option("--since", "since_ms", type=Duration(), help="How far back, as 90s, 10m or 2h. Else as far as it goes.")
@click.option(
    "--tail",
    type=click.IntRange(1, PAGE_ENTRIES_MAX),
    default=TAIL,
    show_default=True,
    help="Entries of each process to begin with, the newest.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on, until Ctrl-C.")
@click.option("--grep", "text", help="Entries that have this text in the event or a field, whatever its case.")
@output_option
@session_of
def logs(
    session: Session,
    names: tuple[str, ...],
    level: str,
    since_ms: int | None,
    tail: int,
    follow: bool,
    text: str | None,
    output: str,
) -> None:
    """Show what the processes of a cluster have logged lately: placement drivers, range servers and brokers.

    Each process keeps its last 2,000 entries, up to 1 MiB, in memory; what is older is where its stderr went. The order
    is that of the processes' clocks. As JSON there is one object per line. Processes that do not answer are named on
    stderr; then the exit code is 1.

    \b
    Examples:
      pdctl logs
      pdctl logs rs1 rs2 --level warning --since 10m
      pdctl logs --follow --grep upload
      pdctl logs -o json | jq -r 'select(.level == "error") | .event'
    """
    wanted = LogQuery(level, time.time_ns() // 1_000_000 - since_ms if since_ms is not None else 0, tail)
    show = _printer(text, {"json": as_json, "yaml": as_yaml}.get(output, as_text))
    code = session.with_pd(lambda pd: _Watch(session, pd, names, wanted, show).run(follow=follow))
    if code:
        sys.exit(code)


def _printer(text: str | None, form: Callable[[Logged], str]) -> Callable[[Iterable[Logged]], None]:
    def show(entries: Iterable[Logged]) -> None:
        for each in merged(entries):
            if text is None or has_text(each, text):
                click.echo(form(each))

    return show


class _Watch:
    """The logs of one cluster, read together."""

    def __init__(
        self,
        session: Session,
        pd: PdClient,
        names: Sequence[str],
        wanted: LogQuery,
        show: Callable[[Iterable[Logged]], None],
    ) -> None:
        self._session, self._pd, self._names, self._wanted, self._show = session, pd, names, wanted, show
        self._followers: dict[LoggingProcess, LogFollower] = {}
        self._silent: frozenset[LoggingProcess] = frozenset()

    async def run(self, *, follow: bool) -> int:
        """Print what there is, and with `follow` what comes; return the exit code."""
        await self._look_up()
        answered = await self._round()
        rounds = 0
        while follow:
            await asyncio.sleep(ROUND_S)
            rounds += 1
            if rounds % LOOK_AGAIN_ROUNDS == 0:
                await self._look_up()
            await self._round()
        if not answered:
            return EXIT_UNAVAILABLE
        return EXIT_FAILED if self._silent else 0

    async def _round(self) -> int:
        """Ask all of them once; return how many answered."""
        followers = list(self._followers.values())
        found, failed = await take_all(followers)
        self._show(found)
        sys.stdout.flush()
        for process, error in failed.items():
            if process not in self._silent:
                _complain(f"{process} does not answer: {error.message}")
        for each in followers:
            if each.missed and each.process not in failed:
                _complain(f"{each.process}: {each.missed} entries were gone before they were read")
        self._silent = frozenset(failed)
        return len(followers) - len(failed)

    async def _look_up(self) -> None:
        """Find the processes. Where no placement driver leads, those that were given are asked alone."""
        try:
            found = await processes(self._session, self._pd, self._names)
        except Unavailable as error:
            if self._followers:
                return  # go on with those that are known
            found = [LoggingProcess("placement driver", each, each) for each in self._session.members()]
            if self._names:
                raise
            _complain(f"{error.message}: only the placement drivers that were given are asked")
        known = self._followers
        self._followers = {each: known.get(each) or LogFollower(self._session, each, self._wanted) for each in found}


def _complain(text: str) -> None:
    click.echo(f"pdctl: {printable(text)}", err=True)
