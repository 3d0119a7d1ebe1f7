"""A writer process of the demo: appends flights from where the log ends, pipelined, and notes every ack.

`python -m rangelog_cli.demo.appender` loads the flights, writes "ready" to its status file and waits for a line on standard
input: so the second writer waits while the first one works. Then it opens the stream, which fences any earlier writer and
seals its open range. The end offset of the log *is* the number of flights appended so far: the second writer needs nothing
from the first one to continue without losing or repeating a flight.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangelog_cli.demo.ack_log import AckLog
from rangelog_cli.demo.flights import Flight, read_spool
from rangelog_cli.local.lifeline import follow_parent

if TYPE_CHECKING:
    from rangelog import Writer

WINDOW_RECORDS = 4_096
"""Submitted and not acked at any time. Bounds what a kill leaves in doubt, and the latency that queueing adds."""

FLIGHTS_PER_S = 20_000
"""The pace: far below what the log takes, so that each kill's effect is over before the next."""
PACE_STEP = 100
"""Flights between two looks at the clock: 5 ms worth."""


class FlightAppender:
    """Keeps a bounded number of appends in flight."""

    def __init__(self, writer: Writer, flights: Sequence[Flight], log: AckLog) -> None:
        self._writer = writer
        self._flights = flights
        self._log = log
        self._pending = 0
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    async def run(self, start: int) -> None:
        """Append flights[start:] and return when all are acked; raises the error of the first failed append."""
        clock = time.monotonic_ns
        began_ns = clock()
        for index in range(start, len(self._flights)):
            if index % PACE_STEP == 0:
                await self._pace(began_ns, index - start)
            if self._pending >= WINDOW_RECORDS:
                await self._wait_below(WINDOW_RECORDS)
            flight = self._flights[index]
            self._pending += 1
            self._log.submitted(index, clock())
            future = self._writer.submit(flight.value, key=flight.key, timestamp=flight.timestamp_ms)
            future.add_done_callback(partial(self._acked, index))
        await self._wait_below(1)

    async def _pace(self, began_ns: int, appended: int) -> None:
        ahead_s = appended / FLIGHTS_PER_S - (time.monotonic_ns() - began_ns) / 1e9
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)

    def _acked(self, index: int, future: asyncio.Future[Any]) -> None:
        self._pending -= 1
        failure = future.exception()
        if failure is None:
            self._log.acked(index, time.monotonic_ns(), future.result().offset)
        elif self._failure is None:
            self._failure = failure
        self._changed.set()

    async def _wait_below(self, bound: int) -> None:
        while self._pending >= bound and self._failure is None:
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure


async def append(pds: str, stream: str, spool: Path, acks: Path, status: Path) -> None:
    """The whole life of a writer process."""
    import rangelog

    flights = read_spool(spool)
    log = AckLog(acks, len(flights))
    async with await rangelog.connect(pds) as client:
        _tell(status, state="ready")
        await asyncio.to_thread(sys.stdin.readline)
        async with client.writer(stream) as writer:
            start = writer.next_offset
            _tell(status, state="opened", start=start)
            await FlightAppender(writer, flights, log).run(start)
            end = writer.next_offset
    _tell(status, state="done", start=start, end=end)
    log.close()


def _tell(path: Path, **fields: object) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(fields | {"pid": os.getpid()}))
    os.replace(fresh, path)


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "stream"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("spool", "acks", "status"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    options = parser.parse_args()
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    run(append(options.pds, options.stream, options.spool, options.acks, options.status))


if __name__ == "__main__":
    main()
