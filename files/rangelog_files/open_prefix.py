"""The part that all writers of a stream of event files share: the lock of a prefix, its files, the queue of a group commit.

What holds: a prefix has one writer at a time; a writer without a prefix of its own has the first free one of the stream's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.record import BytesLike, looks_like_seconds
from rangelog_files.event_target import EventTarget
from rangelog_files.events import Event
from rangelog_files.group_commit import CommitQueue
from rangelog_files.layout import checked_name
from rangelog_files.property_store import PropertyWatch
from rangelog_files.writable_files import WritableFiles, make_directories, typed_errors
from rangelog_files.writer_lock import CONTROL_FOLDER, WriterLock

PREFIX_DEFAULT = "file"
"""Writers without a prefix of their own are file.0, file.1, …"""
APPEND_TIMEOUT_S = 30.0


class EventPlace(NamedTuple):
    """Where a writer writes, and by what: the file system, the properties and the clock, in ms since 1970."""

    root: Path
    stream: str
    files: WritableFiles
    watch: Callable[[], PropertyWatch]
    clock_ms: Callable[[], int]


class OpenPrefix:
    """The lock, the files and the queue of a writer."""

    def __init__(self, place: EventPlace, prefix: str | None) -> None:
        """Take the lock of a prefix. Raises PreconditionFailed, StreamNotFound, StorageFull, AccessDenied, InvalidArgument."""
        look = place.watch().look
        writers = look().writers
        with typed_errors(f"the stream {place.stream!r}"):
            folder = make_directories(place.files, place.root, f"{place.stream}/{CONTROL_FOLDER}")
        now_ms = place.clock_ms()
        number = None
        if prefix is not None:
            self.lock = WriterLock(folder, checked_name(prefix, "prefix"), now_ms)
        else:
            number, self.lock = _first_free(folder, writers, now_ms)
            prefix = f"{PREFIX_DEFAULT}.{number}"
        self.target = EventTarget(
            place.files, place.root, place.stream, prefix, look=look, clock_ms=place.clock_ms, number=number
        )
        self.queue: CommitQueue[Event] = CommitQueue(threading.Lock())

    def close(self) -> None:
        """Write the end mark and release the lock."""
        try:
            self.target.close()
        finally:
            self.lock.release()


def _first_free(folder: Path, writers: int, now_ms: int) -> tuple[int, WriterLock]:
    for number in range(writers):
        with suppress(PreconditionFailed):
            return number, WriterLock(folder, f"{PREFIX_DEFAULT}.{number}", now_ms)
    raise PreconditionFailed(
        f"the stream has its {writers} writers already: raise its property `writers`, or give this one a prefix"
    )


def event_of(
    value: BytesLike, key: BytesLike | None, headers: Mapping[str, bytes] | None, timestamp: datetime | int | None
) -> Event:
    """Return an event, with what a caller gives. Raises InvalidArgument."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidArgument("a timestamp without a time zone: give it one, such as datetime.UTC")
        timestamp = round(timestamp.timestamp() * 1_000)
    elif looks_like_seconds(timestamp):
        raise InvalidArgument(f"the timestamp {timestamp} looks like seconds: milliseconds since 1970, or a datetime")
    return Event(_bytes(value, "value"), dict(headers or {}), None if key is None else _bytes(key, "key"), timestamp)


def _bytes(value: object, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise InvalidArgument(f"the {what} of an event is bytes, not {type(value).__name__}")
