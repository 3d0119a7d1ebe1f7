"""Writer processes side by side on one stream of event files, and what they reach."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rangelog_files.event_store import open_files
from rangelog_files.layout import parse_path

pytestmark = pytest.mark.integration
BENCH = Path(__file__).resolve().parents[2] / "bench"
WRITER = """
import sys
from rangelog_files.event_store import open_files
with open_files(sys.argv[1]) as store, store.threaded_writer() as writer:
    print(writer.prefix, flush=True)
    sys.stdin.readline()
    for number in range(200):
        writer.append(f"{writer.prefix}-{number}".encode())
"""


def test_r4_r12_four_writer_processes_share_no_file(tmp_path: Path) -> None:
    """Each has a prefix of its own, all begin at one moment, and a reader has all events in the order of each."""
    url = f"file://{tmp_path}/who"
    with open_files(url, create=True):
        pass
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    prefixes = [each.stdout.readline().strip() for each in running if each.stdout is not None]
    assert sorted(prefixes) == [f"file.{number}" for number in range(4)]
    for each in running:
        each.communicate("begin\n", timeout=60)
        assert each.returncode == 0
    found = asyncio.run(_read(url))
    assert Counter(prefix for prefix, _ in found) == dict.fromkeys(prefixes, 200)
    for prefix in prefixes:
        assert [body for of, body in found if of == prefix] == [f"{prefix}-{number}" for number in range(200)]


async def _read(url: str) -> list[tuple[str, str]]:
    async with open_files(url) as store:
        return [(parse_path(record.path).prefix, record.value.decode()) async for record in store.reader()]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("event_file_writers")


@pytest.mark.measure
def test_r9_r10_threads_that_share_flushes(bench: Any, tmp_path: Path) -> None:
    """8 and 64 threads reach at least 5 and 15 times the rate of a flush, and 64 wait no longer than three slow ones."""
    rates = bench.by_threads(tmp_path, 3.0, 3)
    alone = rates["flushes"]
    times = {name: rate.events_per_s / alone.events_per_s for name, rate in rates.items()}
    assert times["1 threads"] > 0.75, "an append is a write and a flush, and little else"
    assert times["8 threads"] > 5 and times["64 threads"] > 15, times
    assert rates["64 threads"].p99_ms <= 3 * alone.p99_ms


@pytest.mark.measure
def test_r12_four_processes_write_three_and_a_half_times_as_much(bench: Any, tmp_path: Path) -> None:
    """With flushes of 10 ms each, as of disks of their own: what one process reaches adds up."""
    with open_files(f"file://{tmp_path}/{bench.STREAM}", create=True):
        pass
    one, four = (bench.by_processes(tmp_path, count, 0.01, 3.0) for count in (1, 4))
    assert four >= 3.5 * one, (one, four)
