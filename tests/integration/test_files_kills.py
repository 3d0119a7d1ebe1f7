"""Writers of event files that are killed: what was acked is read, once, and the next writer goes on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangelog_files.event_store import open_files
from rangelog_files.layout import parse_path

pytestmark = pytest.mark.integration
WRITERS = Path(__file__).parent / "helpers" / "files_writers.py"
THREADS = 16


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(WRITERS), f"file://{tmp_path}/who", str(THREADS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as started:  # fmt: skip
        try:
            yield started
        finally:
            started.kill()


def _one_life(process: subprocess.Popen[str], name: str, acks: int) -> list[str]:
    """Start a writer, kill it as soon as so many acks are heard, and return all that it has acked."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{name}\n")
    acked: list[str] = []
    pid = 0
    for line in process.stdout:
        kind, _, rest = line.strip().partition(" ")
        if kind == "ended":
            return acked
        if kind == "began":
            pid = int(rest)
        else:
            assert kind == "acked"
            acked.append(rest)
        if len(acked) == acks and pid:
            os.kill(pid, signal.SIGKILL)
            acks = -1
    raise AssertionError("the process that starts writers has ended")


async def _read(url: str) -> tuple[list[str], list[int]]:
    """Return all bodies, and the sequences that they are from, in order."""
    async with open_files(url) as store:
        records = [record async for record in store.reader()]
    sequences = sorted({parse_path(record.path).sequence for record in records})
    return [record.value.decode() for record in records], sequences


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.long)])
def test_r8_r15_what_a_killed_writer_has_acked_is_read_once(
    process: subprocess.Popen[str], tmp_path: Path, kills: int
) -> None:
    """Killed at a moment that is drawn, with 16 threads appending; the next writer has the lock at once."""
    draw = random.Random(kills)
    url = f"file://{tmp_path}/who"
    with open_files(url, create=True):
        pass
    acked: list[str] = []
    for number in range(kills):
        acked += _one_life(process, f"w{number}", draw.choice((0, 1, 2, 10, 50, 200)))
    found, sequences = asyncio.run(_read(url))
    assert len(acked) > kills
    assert not set(acked) - set(found), "acked events are lost"
    assert len(found) == len(set(found)), "an event is read twice"
    assert len(found) - len(acked) <= kills * THREADS, "more events than were ever appended at a time"
    assert sequences == sorted(set(sequences)) and len(sequences) > kills // 2
    for number in range(kills):
        for thread in range(THREADS):
            own = [int(body.rpartition("-")[2]) for body in found if body.startswith(f"w{number}-{thread}-")]
            assert own == list(range(len(own))), "the events of a thread are out of order, or one is missing"
