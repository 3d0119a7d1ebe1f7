"""The work of the verbs of `rangelog files`, by the public verbs of event files and of the client."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import rangelog
from pdctl.progress import progress
from pdctl.record_input import RecordInput, submit_all
from pdctl.record_output import RecordPrinter
from pdctl.session import Session
from rangelog_core.errors import StreamExists
from rangelog_core.record import meant_as_ms

if TYPE_CHECKING:
    from rangelog import Client
    from rangelog_files.event_reader import DamagedFile
    from rangelog_files.event_store import EventStore
    from rangelog_files.stream_properties import EventStreamProperties
    from rangelog_files.verifying import VerifiedFile


def opened(location: str, *, create: bool = False) -> EventStore:
    """Return the stream at a URL or in a directory. Raises ConfigInvalid, InvalidArgument, MissingExtra."""
    if "://" in location:
        return rangelog.open_files(location, create=create)
    return rangelog.open_files(f"file://{quote(str(Path(location).absolute()))}", create=create)


def name_of(location: str) -> str:
    """Return the name of the stream at a location."""
    return opened(location).stream


async def create(location: str, values: dict[str, Any]) -> EventStreamProperties:
    """Make a stream, and the directory that it is in. Raises StreamExists, StorageFull, AccessDenied, ConfigInvalid."""
    if "://" not in location:
        Path(location).absolute().parent.mkdir(parents=True, exist_ok=True)
    async with opened(location) as store:
        return await store.create(**values)


async def append(location: str, given: RecordInput, prefix: str | None) -> tuple[int, int]:
    """Append all, and return how many events and flushes. Raises the first error of an event."""
    count = 0

    def note(future: asyncio.Future[Any]) -> None:
        nonlocal count
        count += not future.cancelled() and future.exception() is None

    async with opened(location) as store, store.writer(prefix) as writer:
        await submit_all(writer, given, note, verb="appended")
        return count, writer.groups


async def read(location: str, printer: RecordPrinter, options: dict[str, Any]) -> list[DamagedFile]:
    """Print events; return the files that were left."""
    async with opened(location) as store:
        reader = store.reader(**options)
        async for records in reader.batches():
            if printer.write_chunk(records):
                break
        printer.flush()
        return reader.damaged


async def verify(location: str) -> list[VerifiedFile]:
    """Return what each file holds."""
    async with opened(location) as store:
        return await store.verify()


async def truncate(location: str, *, drop: bool) -> tuple[int, list[str]]:
    """Begin a generation; return its number, and the directories that were removed."""
    async with opened(location) as store:
        generation = await store.truncate()
        return generation, await store.drop_unread() if drop else []


def export_topic(session: Session, topic: str, location: str, start: Any, prefix: str | None) -> int:
    """Copy a topic into event files; return how many records."""

    async def copy(client: Client) -> int:
        with suppress(StreamExists):
            await create(location, {})
        count = 0
        async with opened(location) as store, store.writer(prefix) as writer:
            with progress("exported", shown=sys.stderr.isatty()) as advance:
                async for chunk in client.topic_reader(topic, start=start).chunks():
                    for record in chunk.records:
                        await writer.ready()
                        writer.submit(
                            record.value,
                            key=record.key,
                            headers=record.headers,
                            timestamp=meant_as_ms(record.timestamp_ms),
                        )
                    count += len(chunk.records)
                    advance(count)
                await writer.flush()
        return count

    return session.with_client(copy)


def import_topic(session: Session, location: str, topic: str, start: Any, *, create: bool) -> int:
    """Copy event files into a topic; return how many events."""

    async def copy(client: Client) -> int:
        if create:
            await client.topics.create(topic, exist_ok=True)
        count = 0
        async with opened(location) as store, client.producer(topic) as producer:
            with progress("imported", shown=sys.stderr.isatty()) as advance:
                async for records in store.reader(start=start).batches():
                    for record in records:
                        await producer.ready()
                        producer.send_nowait(
                            record.value,
                            key=record.key,
                            headers=record.headers,
                            timestamp=meant_as_ms(record.timestamp_ms),
                        )
                    count += len(records)
                    advance(count)
                await producer.flush()
        return count

    return session.with_client(copy)
