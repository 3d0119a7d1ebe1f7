"""Which processes a cluster has, and what each of them logged: every one is asked itself, on its gRPC port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pdctl.logs.lines import Logged, logged
from pdctl.session import NothingFound, Session
from rangelog_core.errors import RangelogError, Unavailable

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient

AT_ONCE_MAX = 32
CALL_TIMEOUT_S = 5.0
TRIES = 2
"""A connection that fails on a busy machine is tried again before a process is said not to answer."""
PAGE_ENTRIES_MAX = 2_000
PAGES_MAX = 8
"""Pages that are read of one process at a time, before the others have their turn."""


@dataclass(frozen=True, slots=True)
class LoggingProcess:
    """One process of a cluster, and the address of its gRPC port."""

    kind: str
    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The entries to ask for. `tail`: entries of each process to begin with, the newest."""

    level: str
    since_ms: int
    tail: int


class LogFollower:
    """Reads on in the log of one process, from call to call."""

    def __init__(self, session: Session, process: LoggingProcess, wanted: LogQuery) -> None:
        self._session = session
        self._wanted = wanted
        self._run = self._after = 0
        self.process = process
        self.missed = 0

    async def take(self) -> list[Logged]:
        """Return what is new; at first, the newest entries. Notes how many were gone in `missed`. Raises RangelogError."""
        from rangelog_proto.v1 import logs_pb2

        found: list[Logged] = []
        self.missed = 0
        async with self._session.peer(self.process.address, str(self.process)) as peer:
            for _ in range(PAGES_MAX):
                request = logs_pb2.ReadLogRequest(
                    level=self._wanted.level,
                    since_ms=self._wanted.since_ms,
                    run=self._run,
                    after=self._after,
                    limit=PAGE_ENTRIES_MAX if self._run else self._wanted.tail,
                )
                page = await peer.read_log(request, timeout_s=CALL_TIMEOUT_S)
                self._run, self._after = page.run, page.last
                self.missed += page.missed
                found += [logged(self.process.name, each.number, each.wall_ms, each.line) for each in page.entries]
                if not page.more:
                    break
        return found


async def processes(session: Session, pd: PdClient, names: Sequence[str]) -> list[LoggingProcess]:
    """Return all processes that the placement driver knows, or those with these names. Raises NothingFound, RangelogError."""
    from rangelog_proto.v1 import broker_pb2, pd_pb2

    described = await pd.call(
        pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=session.timeout_s
    )
    listed = await pd.call(broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=session.timeout_s)
    known = [
        *(LoggingProcess("placement driver", each.name, each.address) for each in described.members),
        *(LoggingProcess("range server", each.name, each.control_address) for each in described.servers),
        *(LoggingProcess("broker", each.name, each.control_address) for each in listed.brokers),
    ]
    return chosen(known, names)


def chosen(known: Sequence[LoggingProcess], names: Sequence[str]) -> list[LoggingProcess]:
    """Return the processes with these names; without names all of them. Raises NothingFound for a name that none has."""
    for name in names:
        if all(each.name != name for each in known):
            raise NothingFound(f"no process is called {name!r}: there are {', '.join(each.name for each in known)}")
    return [each for each in known if not names or each.name in names]


async def take_all(followers: Sequence[LogFollower]) -> tuple[list[Logged], dict[LoggingProcess, RangelogError]]:
    """Return what is new in all logs, in no order, and which processes do not answer, with the reason."""
    limit = asyncio.Semaphore(AT_ONCE_MAX)
    found: list[Logged] = []
    failed: dict[LoggingProcess, RangelogError] = {}

    async def take(follower: LogFollower) -> None:
        async with limit:
            try:
                found.extend(await _take(follower))
            except RangelogError as error:
                failed[follower.process] = error

    await asyncio.gather(*(take(each) for each in followers))
    return found, failed


async def _take(follower: LogFollower) -> list[Logged]:
    if not follower.process.address:
        raise Unavailable("its address is not known")
    for _ in range(TRIES - 1):
        try:
            return await follower.take()
        except Unavailable:
            pass
    return await follower.take()
