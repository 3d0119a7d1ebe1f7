"""Event files: how fast they are read on this machine, and how little of them a time range needs.

    .venv/bin/python bench/event_files.py --data-dir build/bench --events 600000

Reading: events of 100 B, by the size of blocks, as batches of the reader's core and as records of the SDK; events per second of
time and of processor time, medians of `--rounds`. A day of thirty: the share of the bytes that is read. A line of JSON for each
figure. Writing: event_file_writers.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import rangelog
from rangelog_files.block_filters import TimeFilter
from rangelog_files.event_file import EventFileWriter
from rangelog_files.event_reader import EventReader
from rangelog_files.events import Event
from rangelog_files.index_file import IndexWriter
from rangelog_files.layout import EventPath, TimePartition
from rangelog_files.local_files import LocalFiles
from rangelog_files.merging import MergingCore

EVENT_BYTES = 100
DAY_S = 86_400
DAYS = 30
STREAM = "bench"


def emit(what: str, **figures: float | int | str) -> None:
    """Print one figure."""
    print(json.dumps({"what": what, **figures}), flush=True)


def write_days(directory: Path, events: int, per_block: int, days: int) -> None:
    """Write a file for each day, with an equal share of the events."""
    for day in range(days):
        path = EventPath(STREAM, 1, TimePartition(day * DAY_S, DAY_S), "a", 0)
        (directory / path.folder).mkdir(parents=True)
        file, index = EventFileWriter(path.data_path), IndexWriter(path.data_path)
        blocks = max(1, events // days // per_block)
        block = [Event(os.urandom(EVENT_BYTES)) for _ in range(per_block)]
        with (directory / path.data_path).open("wb") as data, (directory / path.index_path).open("wb") as entries:
            data.write(file.begin())
            entries.write(index.begin())
            for number in range(blocks):
                time_ms = (day * DAY_S + DAY_S * number // blocks) * 1_000
                entries.write(index.block(time_ms, file.offset))
                data.write(file.block(time_ms, block))
            data.write(file.end((day + 1) * DAY_S * 1_000 - 1))


def read_batches(directory: Path, times: TimeFilter) -> tuple[int, int]:
    """Read by the core; return how many events, and how many bytes were read for them."""
    reader = EventReader(LocalFiles(directory), MergingCore(STREAM, 1, times=times))
    count = 0
    while (batch := reader.next_batch()) is not None:
        count += len(batch.events)
    return count, reader.bytes_read


def read_records(directory: Path) -> int:
    """Read by the SDK; return how many events."""

    async def run() -> int:
        async with rangelog.open_files(f"{directory.as_uri()}/{STREAM}") as store:
            return sum([len(records) async for records in store.reader().batches()])

    return asyncio.run(run())


def read_all(kind: str, directory: Path) -> int:
    """Read all events; return how many."""
    return read_batches(directory, TimeFilter())[0] if kind == "batches" else read_records(directory)


def timed(work: Callable[[], int], rounds: int) -> tuple[float, float]:
    """Return the medians of events per second of time and of processor time."""
    rates: list[tuple[float, float]] = []
    for _ in range(rounds):
        begun_s, worked_s = time.perf_counter(), time.process_time()
        count = work()
        rates.append((count / (time.perf_counter() - begun_s), count / (time.process_time() - worked_s)))
    return statistics.median(rate for rate, _ in rates), statistics.median(rate for _, rate in rates)


def measure_reading(directory: Path, events: int, rounds: int) -> None:
    """By the size of blocks, and a day of thirty."""
    for per_block in (10, 100, 1_000):
        place = directory / f"blocks-{per_block}"
        write_days(place, events, per_block, 1)
        for kind in ("batches", "sdk"):
            by_time, by_processor = timed(lambda of=(kind, place): read_all(*of), rounds)  # type: ignore[misc]
            emit(f"read {kind}", per_block=per_block, events_per_s=round(by_time), per_processor_s=round(by_processor))
    place = directory / "days"
    write_days(place, events, 100, DAYS)
    day_ms = DAY_S * 1_000
    whole, day = (read_batches(place, times) for times in (TimeFilter(), TimeFilter(7 * day_ms, 8 * day_ms)))
    emit("a day of thirty", events=day[0], bytes_share=round(day[1] / whole[1], 4))


def main() -> None:
    """Measure, and remove what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("build/bench"), help="on a real disk")
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    given.data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.data_dir.absolute()) as name:
        measure_reading(Path(name), given.events, given.rounds)


if __name__ == "__main__":
    main()
