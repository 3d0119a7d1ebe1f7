"""Event files on a real disk: events per second and latency by threads, beside the flushes that the disk does alone.

    python bench/event_file_writers.py [--directory DIR] [--seconds 3] [--rounds 3] [--flush-ms 10]

Each round measures the disk (a write of the same bytes and a flush, by one thread) and then 1, 8 and 64 threads, so that
figures and bound are of the same moment; the medians of the rounds are printed. The last line has 1 and 4 writer processes,
whose flushes take `--flush-ms` more each: as on disks of their own, of which this machine may have only one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from rangelog_files.event_store import open_files
from rangelog_files.open_prefix import EventPlace
from rangelog_files.property_store import PROPERTIES_NAME, PropertyStore, PropertyWatch
from rangelog_files.threaded_writer import ThreadedEventWriter
from rangelog_files.writable_files import WritableFiles
from rangelog_tier.file_store import FileStore

BODY = bytes(100)
STREAM = "bench"


class Rate(NamedTuple):
    """What some threads did."""

    events_per_s: float
    events_per_flush: float
    p50_ms: float
    p99_ms: float


class SlowFlushes(WritableFiles):
    """The file system of a disk whose flushes take so much longer."""

    def __init__(self, more_s: float) -> None:
        self._more_s = more_s

    def flush(self, descriptor: int) -> None:
        """Flush, and then wait."""
        super().flush(descriptor)
        time.sleep(self._more_s)


def flushes(directory: Path, seconds: float) -> Rate:
    """Return what the disk does alone: a small write and a flush, again and again."""
    files, path = WritableFiles(), directory / f"flushes-{time.monotonic_ns()}"
    descriptor = files.create(path)
    taken: list[float] = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        files.write(descriptor, BODY)
        files.flush(descriptor)
        taken.append(time.perf_counter() - began_s)
    files.close(descriptor)
    files.remove(path)
    return _rate(taken, len(taken), seconds)


def _rate(taken: list[float], groups: int, seconds: float) -> Rate:
    taken = sorted(taken)
    return Rate(
        len(taken) / seconds, len(taken) / max(1, groups), taken[len(taken) // 2] * 1_000,
        taken[int(len(taken) * 0.99)] * 1_000,
    )  # fmt: skip


def appends(writer: ThreadedEventWriter, threads: int, seconds: float) -> Rate:
    """Return what so many threads append, each of which waits for its ack."""
    taken: list[list[float]] = [[] for _ in range(threads)]
    before, end_s = writer.groups, time.perf_counter() + seconds

    def append(number: int) -> None:
        own = taken[number]
        while (began_s := time.perf_counter()) < end_s:
            writer.append(BODY)
            own.append(time.perf_counter() - began_s)

    running = [threading.Thread(target=append, args=(number,)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return _rate([one for own in taken for one in own], writer.groups - before, seconds)


def by_threads(directory: Path, seconds: float, rounds: int) -> dict[str, Rate]:
    """Return the medians of the disk alone and of each number of threads."""
    found: dict[str, list[Rate]] = {}
    with open_files(f"file://{directory}/{STREAM}", create=True) as store:
        for _ in range(rounds):
            found.setdefault("flushes", []).append(flushes(directory, seconds / 2))
            for threads in (1, 8, 64):
                with store.threaded_writer() as writer:
                    writer.append(BODY)
                    found.setdefault(f"{threads} threads", []).append(appends(writer, threads, seconds))
    return {name: Rate(*map(statistics.median, zip(*rates, strict=True))) for name, rates in found.items()}


def _process(directory: str, flush_s: float, seconds: float, ready: object, results: object) -> None:
    root = Path(directory)
    store = PropertyStore(FileStore(root), STREAM)
    place = EventPlace(
        root, STREAM, SlowFlushes(flush_s), lambda: PropertyWatch(store, root / STREAM / PROPERTIES_NAME),
        lambda: time.time_ns() // 1_000_000,
    )  # fmt: skip
    with ThreadedEventWriter(place, f"p{os.getpid()}", append_timeout_s=30.0) as writer:
        writer.append(BODY)
        ready.wait()  # type: ignore[attr-defined]
        results.put(appends(writer, 4, seconds).events_per_s)  # type: ignore[attr-defined]


def by_processes(directory: Path, processes: int, flush_s: float, seconds: float) -> float:
    """Return the events per second of so many writer processes, of four threads each."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(processes), context.Queue()
    running = [
        context.Process(target=_process, args=(str(directory), flush_s, seconds, ready, results))
        for _ in range(processes)
    ]
    for each in running:
        each.start()
    total = sum(results.get(timeout=60 + seconds) for _ in running)
    for each in running:
        each.join(60)
    return float(total)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Event files on a real disk.")
    parser.add_argument("--directory", type=Path, help="on the disk to measure (default: the one of temporary files)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument(
        "--flush-ms", type=float, default=10.0, help="that a flush of a process takes longer (default 10)"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        directory = Path(folder)
        rates = by_threads(directory, asked.seconds, asked.rounds)
        alone = rates.pop("flushes")
        print(f"flush alone   {alone.events_per_s:8.0f} /s   p50 {alone.p50_ms:.2f} ms  p99 {alone.p99_ms:.2f} ms")
        for name, rate in rates.items():
            print(
                f"{name:12} {rate.events_per_s:9.0f} events/s   {rate.events_per_s / alone.events_per_s:5.1f} x a flush's rate"
                f"   {rate.events_per_flush:5.1f} events a flush   p50 {rate.p50_ms:.2f} ms  p99 {rate.p99_ms:.2f} ms"
                f"   p99 / a flush's p50 {rate.p99_ms / alone.p50_ms:.1f}, its p99 {rate.p99_ms / alone.p99_ms:.1f}"
            )
        one = by_processes(directory, 1, asked.flush_ms / 1_000, asked.seconds)
        four = by_processes(directory, 4, asked.flush_ms / 1_000, asked.seconds)
        print(f"1 process {one:.0f} events/s   4 processes {four:.0f} events/s   {four / one:.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
