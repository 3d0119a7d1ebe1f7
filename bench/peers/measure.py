"""The command line of every peer: measure it in its settings, with the workload that rangelog itself is measured with.

    build/bench-peers/venv/bin/python bench/peers/nats_jetstream.py --quick --only throughput

One line of JSON on standard output for each figure; what goes on, on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from servers import Missing

from rangelog_bench.measurement import Measurement, medians
from rangelog_bench.system import System
from rangelog_bench.workload import OF_PEERS, QUICK, Effort, run_round

try:
    import uvloop

    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
except ImportError:
    new_loop = None


def say(text: str) -> None:
    """Tell the user what goes on."""
    print(text, file=sys.stderr, flush=True)


def end_once(*_: object) -> None:
    """As Ctrl-C, so that the servers are stopped; later SIGTERMs (`timeout` sends two) do not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.raise_signal(signal.SIGINT)


def main(make: Callable[[str], System], settings: Sequence[str]) -> None:
    """Entry point; exits with 1 when something could not be measured, 0 when the peer is not there at all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--setting", action="append", choices=settings, help="default: all")
    parser.add_argument("--only", action="append", choices=sorted(OF_PEERS), help="default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--compile-seconds", type=float, help="warm-up of each kind where compilers run meanwhile")
    given = parser.parse_args()
    effort = QUICK if given.quick else Effort()
    effort = replace(effort, seconds=given.seconds or effort.seconds, rounds=given.rounds or effort.rounds)
    if given.compile_seconds is not None:
        effort = replace(effort, compile_s=given.compile_seconds)
    signal.signal(signal.SIGTERM, end_once)
    failed: list[str] = []
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            for setting in given.setting or settings:
                failed += runner.run(_measure(lambda name=setting: make(name), effort, given.only or sorted(OF_PEERS)))
    except Missing as reason:
        say(f"skipped: {reason}")
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    for what in failed:
        say(f"not measured: {what}")
    sys.exit(1 if failed else 0)


async def _measure(make: Callable[[], System], effort: Effort, only: Sequence[str]) -> list[str]:
    found: list[Measurement] = []
    failed: list[str] = []

    def emit(each: Measurement) -> None:
        found.append(each)
        say(f"{each.system}, {each.setting}: {each.metric} {each.record_size} B: {each.value:g} {each.unit}")

    for _ in range(effort.rounds):
        system = make()
        try:
            await system.start()
            failed += await run_round(system, effort, only, emit)
        finally:
            await system.stop()
    for each in medians(found):
        print(each.to_json(), flush=True)
    return failed
