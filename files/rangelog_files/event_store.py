"""A stream of event files, with the verbs of the client: writers, readers, properties, truncation.

What holds: a truncation begins a new generation: after it has returned, new readers see no earlier event, readers that follow
go on in the new generation, and every event that is appended later is in it. Properties change by compare-and-set; readers that
follow, and writers, take a change up within an interval.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rangelog_core.errors import ConfigInvalid, PreconditionFailed, StreamExists, StreamNotFound
from rangelog_files.block_filters import checked_offset_filter
from rangelog_files.event_reader import system_ms
from rangelog_files.event_writer import INFLIGHT_BYTES_MAX, EventWriter
from rangelog_files.layout import checked_name, generation_folder, parse_generation, parse_partition
from rangelog_files.local_files import LocalFiles
from rangelog_files.merging import FilePosition
from rangelog_files.open_prefix import APPEND_TIMEOUT_S, EventPlace
from rangelog_files.property_store import LOOK_INTERVAL_S, PROPERTIES_NAME, PropertyStore, PropertyWatch
from rangelog_files.readable_files import ObjectFiles, ReadableFiles
from rangelog_files.stream_properties import EventStreamProperties
from rangelog_files.stream_reader import EventStreamReader, ReadPlace, times_from
from rangelog_files.threaded_writer import ThreadedEventWriter
from rangelog_files.verifying import VerifiedFile, verify_files
from rangelog_files.writable_files import WritableFiles, make_directories, typed_errors
from rangelog_tier.object_store import ObjectStore
from rangelog_tier.opening import open_object_store


def open_files(
    url: str, *, create: bool = False, look_interval_s: float = LOOK_INTERVAL_S, clock_ms: Callable[[], int] = system_ms
) -> EventStore:
    """Return a stream of event files; use it with `async with`, or with `with`.

    Args:
        url: `file:///data/who`: the stream `who` in the directory /data. `s3://bucket/prefix/who?endpoint=…`: to be read only.
        create: Make the stream if it does not exist.
        look_interval_s: How often properties are read again, noticed or not, in seconds.
        clock_ms: The clock, in ms since 1970.

    Raises:
        ConfigInvalid: The URL is not valid.
        InvalidArgument: The last part of the URL is not the name of a stream.

    Example:
        ```python
        async with rangelog.open_files("file:///data/who", create=True) as store:
            async with store.writer() as writer:
                await writer.append(b"on", key=b"lamp")
            async for record in store.reader():
                print(record.value)
        ```
    """
    return EventStore(url, create=create, look_interval_s=look_interval_s, clock_ms=clock_ms)


class EventStore:
    """One stream of event files. Made by `open_files`."""

    def __init__(self, url: str, *, create: bool, look_interval_s: float, clock_ms: Callable[[], int]) -> None:
        self._base_url, self.stream = _split_url(url)
        self._create = create
        self._interval_s = look_interval_s
        self._clock_ms = clock_ms
        self._root = Path(unquote(urlsplit(self._base_url).path)) if self._base_url.startswith("file:") else None
        self._objects: ObjectStore | None = None

    async def __aenter__(self) -> EventStore:
        await asyncio.to_thread(self.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __enter__(self) -> EventStore:
        self._objects = open_object_store(self._base_url, create=self._create)
        if self._create:
            with suppress(StreamExists):
                self._make(EventStreamProperties())
        return self

    def __exit__(self, *_: object) -> None:
        objects, self._objects = self._objects, None
        if objects is not None:
            objects.close()

    # ---- the stream

    async def create(self, **values: Any) -> EventStreamProperties:
        """Make the stream, with values of its properties: ttl_s, writers, partition_s, index_interval_bytes.

        Raises StreamExists, ConfigInvalid, StorageFull, AccessDenied, Unavailable.
        """
        properties = EventStreamProperties().changed(**values) if values else EventStreamProperties()
        return await asyncio.to_thread(self._make, properties)

    async def properties(self) -> EventStreamProperties:
        """Return the present properties. Raises StreamNotFound, Corruption, Unavailable."""
        return await asyncio.to_thread(self._present)

    async def change_properties(self, expected_version: int | None = None, **values: Any) -> EventStreamProperties:
        """Change properties, and return them.

        Args:
            expected_version: Change this version alone; None: whatever version there is.
            values: ttl_s, writers, partition_s, index_interval_bytes.

        Raises:
            PreconditionFailed: The properties are of another version.
            ConfigInvalid: There is no such property, or it has no such value.
            StreamNotFound: The stream does not exist.
        """

        def change(found: EventStreamProperties) -> EventStreamProperties:
            if expected_version is not None and found.version != expected_version:
                raise PreconditionFailed(
                    f"the properties are of version {found.version}, not {expected_version}: read them again"
                )
            return found.changed(**values)

        store = self._store()
        if expected_version is None:
            return await asyncio.to_thread(store.update, change)
        found = await asyncio.to_thread(store.get)
        properties = change(found)
        await asyncio.to_thread(store.replace, found, properties)
        return properties

    async def truncate(self) -> int:
        """Begin the next generation, one for this call, and return its number. Earlier files stay until `drop_unread`.

        Raises StreamNotFound, StorageFull, AccessDenied, Unavailable.
        """
        return (await asyncio.to_thread(self._truncate)).generation

    async def drop_unread(self) -> list[str]:
        """Remove the files that no reader is given any more, and return their directories.

        These are the earlier generations, and the partitions whose events are all older than `ttl_s`. For a local directory.
        """
        return await asyncio.to_thread(self._drop_unread)

    async def verify(self) -> list[VerifiedFile]:
        """Read all files of the present generation, and return what each holds. Raises StreamNotFound, Unavailable."""
        return await asyncio.to_thread(self._verify)

    # ---- writers and readers

    def writer(
        self,
        prefix: str | None = None,
        *,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        append_timeout_s: float = APPEND_TIMEOUT_S,
    ) -> EventWriter:
        """Return a writer for this event loop.

        Args:
            prefix: The prefix of its files, which has no other writer at this time; None: the first free of the stream's.
            inflight_bytes_max: Bound of the bytes that are appended and not acked.
            append_timeout_s: Limit of an append, in seconds.
        """
        return EventWriter(
            self._place(), prefix, inflight_bytes_max=inflight_bytes_max, append_timeout_s=append_timeout_s
        )

    def threaded_writer(
        self, prefix: str | None = None, *, append_timeout_s: float = APPEND_TIMEOUT_S
    ) -> ThreadedEventWriter:
        """Return a writer for threads, with the arguments of `writer`."""
        return ThreadedEventWriter(self._place(), prefix, append_timeout_s=append_timeout_s)

    def reader(
        self,
        *,
        start: str | datetime | timedelta | Sequence[FilePosition] = "earliest",
        end: datetime | None = None,
        follow: bool = False,
        share: tuple[int, int] | None = None,
        leave_damaged: bool = False,
    ) -> EventStreamReader:
        """Return a reader: an asynchronous iterator of events, merged over the writers by the times at which they were written.

        Args:
            start: "earliest", "latest"; a datetime: what was written at that time or later; a timedelta: so long ago; or the
                `position` of a former reader.
            end: Stop before what was written at this time.
            follow: Wait for new events. Otherwise the reader ends with what is there when it starts.
            share: (number, readers): its share of the events among so many readers, by the hash of their offsets.
            leave_damaged: Pass over the rest of a damaged file, and note it in `damaged`, instead of raising Corruption.

        Raises:
            InvalidArgument: An argument is not valid.
        """
        times, positions = times_from(start, end, self._clock_ms())
        place = ReadPlace(
            self.stream, self._readable, self._present, self._clock_ms,
            None if share is None else checked_offset_filter(*share), leave_damaged,
        )  # fmt: skip
        return EventStreamReader(place, times, positions, follow=follow, look_interval_s=self._interval_s)

    # ---- inside

    def _store(self) -> PropertyStore:
        return PropertyStore(self._open(), self.stream)

    def _open(self) -> ObjectStore:
        if self._objects is None:
            raise ConfigInvalid("the files are not open: use them with `async with`")
        return self._objects

    def _local(self) -> Path:
        if self._root is None:
            raise ConfigInvalid(
                "events are written to a local directory, file:///…: an object store cannot be appended to; copy closed files"
            )
        return self._root

    def _place(self) -> EventPlace:
        root = self._local()
        store = self._store()
        path = root / self.stream / PROPERTIES_NAME
        return EventPlace(
            root, self.stream, WritableFiles(),
            lambda: PropertyWatch(store, path, interval_s=self._interval_s), self._clock_ms,
        )  # fmt: skip

    def _readable(self) -> ReadableFiles:
        return LocalFiles(self._root) if self._root is not None else ObjectFiles(self._open())

    def _present(self) -> EventStreamProperties:
        """Return the properties; of files that were copied here without any: their highest generation."""
        try:
            return self._store().get()
        except StreamNotFound:
            generation = max(self._generations(), default=None)
            if generation is None:
                raise
            return EventStreamProperties(generation=generation)

    def _generations(self) -> list[int]:
        if self._root is not None:
            names: Any = WritableFiles().names(self._root / self.stream)
        else:
            names = {info.key.split("/")[1] for info in self._open().list(f"{self.stream}/") if info.key.count("/") > 1}
        return sorted(number for number in map(parse_generation, names) if number is not None)

    def _make(self, properties: EventStreamProperties) -> EventStreamProperties:
        """Make the stream, in the generation of the files that are there already."""
        root = self._local()
        made = EventStreamProperties(
            1, max([1, *self._generations()]), properties.ttl_s, properties.writers, properties.partition_s,
            properties.index_interval_bytes,
        )  # fmt: skip
        with typed_errors(f"the stream {self.stream!r}"):
            make_directories(WritableFiles(), root, generation_folder(self.stream, made.generation))
        self._store().create(made)
        return made

    def _truncate(self) -> EventStreamProperties:
        root, store = self._local(), self._store()

        def next_generation(found: EventStreamProperties) -> EventStreamProperties:
            properties = found.truncated()
            with typed_errors(f"the stream {self.stream!r}"):  # first: who reads of a generation finds its directory
                make_directories(WritableFiles(), root, generation_folder(self.stream, properties.generation))
            return properties

        return store.update(next_generation)

    def _verify(self) -> list[VerifiedFile]:
        files, generation = self._readable(), self._present().generation
        return list(verify_files(files, files.list_files(self.stream, generation)))

    def _drop_unread(self) -> list[str]:
        root, properties = self._local(), self._present()
        dropped = [generation_folder(self.stream, each) for each in self._generations() if each < properties.generation]
        if properties.ttl_s is not None:
            folder = generation_folder(self.stream, properties.generation)
            oldest_s = (self._clock_ms() / 1_000) - properties.ttl_s
            partitions = map(parse_partition, WritableFiles().names(root / folder))
            dropped += [f"{folder}/{each.text}" for each in partitions if each is not None and each.end_s <= oldest_s]
        for path in dropped:
            with typed_errors(path):
                shutil.rmtree(root / path)
        return dropped


def _split_url(url: str) -> tuple[str, str]:
    """Return the URL of the directory of all streams, and the name of one. Raises ConfigInvalid, InvalidArgument."""
    try:
        parts = urlsplit(url)
    except (ValueError, AttributeError, TypeError):
        raise ConfigInvalid("bad URL of event files: write file:///directory/NAME or s3://bucket/prefix/NAME") from None
    base, _, name = parts.path.rstrip("/").rpartition("/")
    if parts.scheme not in ("file", "s3") or (parts.scheme == "file" and (parts.netloc or not base)):
        raise ConfigInvalid("bad URL of event files: write file:///directory/NAME or s3://bucket/prefix/NAME")
    return parts._replace(path=base or "/").geturl(), checked_name(unquote(name), "name of a stream")
