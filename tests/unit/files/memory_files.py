"""Event files in memory, and a clock, for readers and their cores."""

from __future__ import annotations

from dataclasses import dataclass, field

from rangelog_core.errors import StreamNotFound
from rangelog_files.event_file import EventFileWriter
from rangelog_files.event_reader import EventReader
from rangelog_files.events import Event
from rangelog_files.index_file import IndexWriter
from rangelog_files.layout import EventPath, TimePartition, partitions_between
from rangelog_files.merging import MergingCore

DAY_S = 86_400
DAY_MS = DAY_S * 1_000


@dataclass
class MemoryFiles:
    """A ReadableFiles whose files are bytes by path. Counts what is read."""

    data: dict[str, bytearray] = field(default_factory=dict)
    paths: dict[str, EventPath] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    listings: int = 0

    def list_files(
        self, stream: str, generation: int, from_ms: int | None = None, until_ms: int | None = None
    ) -> list[EventPath]:
        """All event files of the partitions of these times."""
        self.listings += 1
        paths = [path for path in self.paths.values() if (path.stream, path.generation) == (stream, generation)]
        if not paths:
            raise StreamNotFound(f"there is no generation {generation} of {stream}")
        wanted = partitions_between([path.partition for path in paths], from_ms, until_ms)
        return [path for path in paths if path.partition in wanted]

    def read_file(self, path: str, offset: int, length: int) -> bytes | None:
        """Bytes, none at the end, None without such a file."""
        self.opened.append(path)
        found = self.data.get(path)
        return None if found is None else bytes(found[offset : offset + length])

    def append(self, path: EventPath, data: bytes) -> None:
        """More bytes of an event file."""
        self.paths[path.data_path] = path
        self.data.setdefault(path.data_path, bytearray()).extend(data)


class Clock:
    """A clock that moves where a reader waits. `events`: what happens at a time, in ms."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.waited: list[int] = []
        self.events: list[tuple[int, object]] = []

    def now(self) -> int:
        """The time in ms."""
        return self.now_ms

    def wait(self, seconds: float) -> None:
        """Let the time pass, and what is due happen."""
        assert seconds > 0, "a wait for no time is a busy loop"
        self.waited.append(round(seconds * 1_000))
        self.now_ms += self.waited[-1]
        while self.events and self.events[0][0] <= self.now_ms:
            self.events.pop(0)[1]()  # type: ignore[operator]


class Written:
    """One writer's present file, in memory."""

    def __init__(self, files: MemoryFiles, path: EventPath, *, index_bytes: int | None = None) -> None:
        self.files, self.path = files, path
        self.file = EventFileWriter(path.data_path)
        self.index = IndexWriter(path.data_path, index_bytes) if index_bytes is not None else None
        files.append(path, self.file.begin())
        if self.index is not None:
            files.data[path.index_path] = bytearray(self.index.begin())

    def block(self, time_ms: int, *bodies: bytes) -> bytes:
        """Write a block; return its bytes."""
        if self.index is not None:
            self.files.data[self.path.index_path] += self.index.block(time_ms, self.file.offset)
        data = self.file.block(time_ms, [Event(body) for body in bodies])
        self.files.append(self.path, data)
        return data

    def end(self, time_ms: int = 0) -> None:
        """Write the end mark."""
        self.files.append(self.path, self.file.end(time_ms))


def place(prefix: str = "a", sequence: int = 0, day: int = 0, generation: int = 1) -> EventPath:
    """The path of a file of the stream `who`."""
    return EventPath("who", generation, TimePartition(day * DAY_S, DAY_S), prefix, sequence)


def reader_of(files: MemoryFiles, clock: Clock | None = None, **options: object) -> EventReader:
    """A reader of the stream `who`; options are those of reader and core."""
    clock = clock or Clock()
    own = {name: options.pop(name) for name in ("share", "leave_damaged") if name in options}
    core = MergingCore("who", options.pop("generation", 1), **options)  # type: ignore[arg-type]
    return EventReader(files, core, now_ms=clock.now, wait=clock.wait, **own)  # type: ignore[arg-type]


def bodies(reader: EventReader, timeout_s: float | None = None) -> list[bytes]:
    """The bodies of all events that come."""
    found: list[bytes] = []
    while (batch := reader.next_batch(timeout_s)) is not None:
        found += [event.body for event in batch.events]
    return found
