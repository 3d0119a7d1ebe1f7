"""A writer process of the demo: appends flights from where the log ends, pipelined, and notes every ack.

`python -m rangelog_demo.appender` loads the flights and stands by (`children`): so the second writer waits while the first
one works. Then it opens the stream, which fences any earlier writer and seals its open range. The end offset of the log *is*
the number of flights appended so far: the second writer needs nothing from the first one to continue without losing or
repeating a flight.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangelog_cli.local.lifeline import follow_parent
from rangelog_demo.ack_log import AckLog
from rangelog_demo.children import run_loop, stand_by, write_status
from rangelog_demo.flights import Flight, read_spool

if TYPE_CHECKING:
    from rangelog import Ack, Writer

WINDOW_RECORDS = 4_096
"""Submitted and not acked at any time. Bounds what a kill leaves in doubt, and the latency that queueing adds."""

FLIGHTS_PER_S = 20_000
"""The pace: far below what the log takes, so that each kill's effect is over before the next."""
PACE_STEP = 100
_PACE_STEP_S = 0.005
"""So many flights, or those of so many seconds, between two looks at the clock: the fewer."""


class FlightAppender:
    """Keeps a bounded number of appends in flight, at a pace. `submit` returns the future of a flight's ack."""

    def __init__(
        self,
        submit: Callable[[Flight], asyncio.Future[Any]],
        flights: Sequence[Flight],
        log: AckLog,
        *,
        flights_per_s: float = FLIGHTS_PER_S,
        window_records: int = WINDOW_RECORDS,
    ) -> None:
        self._submit = submit
        self._flights = flights
        self._log = log
        self._flights_per_s = flights_per_s
        self._pace_step = max(1, min(PACE_STEP, int(flights_per_s * _PACE_STEP_S)))
        self._window_records = window_records
        self._pending = 0
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    async def run(self, start: int) -> None:
        """Append flights[start:] and return when all are acked; raises the error of the first failed append."""
        clock = time.monotonic_ns
        began_ns = clock()
        for index in range(start, len(self._flights)):
            if index % self._pace_step == 0:
                await self._pace(began_ns, index - start)
            if self._pending >= self._window_records:
                await self._wait_below(self._window_records)
            flight = self._flights[index]
            self._pending += 1
            self._log.submitted(index, clock())
            self._submit(flight).add_done_callback(partial(self._acked, index))
        await self._wait_below(1)

    async def _pace(self, began_ns: int, appended: int) -> None:
        ahead_s = appended / self._flights_per_s - (time.monotonic_ns() - began_ns) / 1e9
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)

    def _acked(self, index: int, future: asyncio.Future[Any]) -> None:
        self._pending -= 1
        failure = future.exception()
        if failure is None:
            self._note(index, future.result())
        elif self._failure is None:
            self._failure = failure
        self._changed.set()

    def _note(self, index: int, ack: Any) -> None:
        self._log.acked(index, time.monotonic_ns(), ack.offset)

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
        await stand_by(status)
        async with client.writer(stream) as writer:
            start = writer.next_offset
            write_status(status, state="opened", start=start)
            await FlightAppender(partial(_submit, writer), flights, log).run(start)
            end = writer.next_offset
    write_status(status, state="done", start=start, end=end)
    log.close()


def _submit(writer: Writer, flight: Flight) -> asyncio.Future[Ack]:
    return writer.submit(flight.value, key=flight.key, timestamp=flight.timestamp_ms)


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "stream"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("spool", "acks", "status"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    options = parser.parse_args()
    run_loop(append(options.pds, options.stream, options.spool, options.acks, options.status))


if __name__ == "__main__":
    main()
