"""For tests of writers: a place to write, faults of its file system, and what its files hold, decoded from their bytes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rangelog_files.event_file import EventFileDecoder
from rangelog_files.events import Event
from rangelog_files.open_prefix import EventPlace
from rangelog_files.property_store import PROPERTIES_NAME, PropertyStore, PropertyWatch
from rangelog_files.stream_properties import EventStreamProperties
from rangelog_files.threaded_writer import ThreadedEventWriter
from rangelog_files.writable_files import WritableFiles
from rangelog_tier.file_store import FileStore

STREAM = "who"
DAY_MS = 86_400_000
START_MS = 1_401_408_000_000  # 2014-05-30, the first moment of a day


class WrittenEvent(NamedTuple):
    """An event as its file has it."""

    path: str
    offset: int
    timestamp_ms: int
    event: Event


class FaultyFiles(WritableFiles):
    """Fails in the calls that a test names; a write fails after half of its bytes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: Callable[[str, int], int | None] = lambda call, number: None
        """The error number with which this call, the so many-th of all, fails."""

    def _note(self, call: str) -> int | None:
        self.calls.append(call)
        return self.fails(call, len(self.calls) - 1)

    def _check(self, call: str) -> None:
        if (number := self._note(call)) is not None:
            raise OSError(number, f"injected into {call}")

    def make_directory(self, path: Path) -> bool:
        self._check("make_directory")
        return super().make_directory(path)

    def create(self, path: Path) -> int:
        self._check("create")
        return super().create(path)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        number = self._note("write")
        if number is None:
            return super().write(descriptor, data)
        super().write(descriptor, data[: len(data) // 2])
        raise OSError(number, "injected into write")

    def flush(self, descriptor: int) -> None:
        self._check("flush")  # what is in the page cache can be read: no test cuts the power

    def flush_directory(self, path: Path) -> None:
        self._check("flush_directory")


class StoodClock:
    """A clock in ms since 1970 that a test moves."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class WrittenStream:
    """A stream in a directory, with its faults and its clock."""

    def __init__(self, root: Path, properties: EventStreamProperties | None = None) -> None:
        self.root = root
        self.files = FaultyFiles()
        self.clock = StoodClock()
        self.properties = PropertyStore(FileStore(root), STREAM)
        self.properties.create(properties or EventStreamProperties())

    @property
    def place(self) -> EventPlace:
        return EventPlace(self.root, STREAM, self.files, self.watch, self.clock)

    def watch(self) -> PropertyWatch:
        return PropertyWatch(self.properties, self.root / STREAM / PROPERTIES_NAME)

    def writer(self, prefix: str | None = "file.0") -> ThreadedEventWriter:
        return ThreadedEventWriter(self.place, prefix, append_timeout_s=60.0)

    def paths(self) -> list[str]:
        """The event files, in order."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(f"{STREAM}/*/*/*.dat"))

    def decoder(self, path: str) -> tuple[EventFileDecoder, list[WrittenEvent]]:
        decoder = EventFileDecoder()
        decoder.feed((self.root / path).read_bytes())
        found: list[WrittenEvent] = []
        while (block := decoder.next_block()) is not None:
            found += [
                WrittenEvent(path, block.offset + number, block.timestamp_ms, event)
                for number, event in enumerate(block.events())
            ]
        return decoder, found

    def events(self, generation: int | None = None) -> list[WrittenEvent]:
        """All events of whole blocks, file after file."""
        folder = "" if generation is None else f"{STREAM}/{generation:05}/"
        return [event for path in self.paths() if path.startswith(folder) for event in self.decoder(path)[1]]

    def bodies(self) -> list[bytes]:
        return [each.event.body for each in self.events()]


def no_room_at(number: int) -> Callable[[str, int], int | None]:
    """The call of this number finds the disk full, and no later one."""
    return lambda call, at: errno.ENOSPC if at == number else None
