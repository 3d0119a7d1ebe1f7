"""What is left of event files when the power is cut: what was acked, whatever of the rest the disk had kept."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rangelog_files.threaded_writer import ThreadedEventWriter
from rangelog_files.writable_files import WritableFiles
from tests.unit.files.written_events import START_MS, StoodClock, WrittenStream


class DurableFiles(WritableFiles):
    """Notes what a disk must have: of each file the bytes before its last flush, of names those before their directory's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.paths: dict[int, Path] = {}
        self.bytes: dict[Path, int] = {}
        self.names_made: list[Path] = []
        self.names_durable: set[Path] = set()

    def make_directory(self, path: Path) -> bool:
        made = super().make_directory(path)
        with self.lock:
            self.names_made.append(path)
        return made

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        with self.lock:
            self.paths[descriptor] = path
            self.bytes[path] = 0
            self.names_made.append(path)
        return descriptor

    def flush(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size  # as the flush begins
        with self.lock:
            self.bytes[self.paths[descriptor]] = size

    def flush_directory(self, path: Path) -> None:
        with self.lock:
            self.names_durable |= {made for made in self.names_made if made.parent == path}

    def survivors(self, root: Path) -> dict[str, int]:
        """The files whose names all the way are on the disk, and how many bytes of them."""
        with self.lock:
            sizes, durable = dict(self.bytes), set(self.names_durable)
        return {
            path.relative_to(root).as_posix(): size
            for path, size in sizes.items()
            if path in durable and all(above in durable for above in path.parents if root in above.parents)
        }


@pytest.mark.parametrize("seed", range(5))
def test_r8_what_was_acked_survives_a_power_cut_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Four threads append; at drawn moments a copy is made of what a disk must have, and all acked before is in it."""
    stream = WrittenStream(tmp_path / "live")
    files = DurableFiles()
    # The stream's own directory is made with its properties, and flushed there.
    files.names_durable.add(stream.root / "who")
    clock = StoodClock(START_MS)
    writer = ThreadedEventWriter(stream.place._replace(files=files, clock_ms=clock), "a", append_timeout_s=60.0)
    acked: list[bytes] = []
    cuts: list[tuple[list[bytes], dict[str, int]]] = []
    draw = random.Random(seed)

    def append(number: int) -> None:
        for count in range(40):
            body = b"%d-%d" % (number, count)
            writer.append(body)
            acked.append(body)
            if draw.random() < 0.1:
                before = list(acked)
                cuts.append((before, files.survivors(stream.root)))
            if draw.random() < 0.02:
                clock.now_ms += 86_400_000

    with writer, ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(append, number) for number in range(4)]:
            done.result(60)
    assert len(cuts) > 5
    for number, (before, sizes) in enumerate(cuts):
        copy = WrittenStream(tmp_path / f"copy{number}")
        for path, size in sizes.items():
            target = copy.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((stream.root / path).read_bytes()[:size])
        bodies = copy.bodies()
        assert set(before) <= set(bodies), "an acked event is not on the disk"
        assert len(bodies) == len(set(bodies))
