"""The manifests in the object store: each is written again after a commit or a trim of its stream, and before deletions.

What holds: nothing here delays or fails a commit. A manifest is read before the placement driver is asked, and replaced only if
it is still the one that was read; so on a store with If-Match no manifest is replaced by an earlier one. A stream without live
objects has no manifest. A stream's file in the directory stays until its manifest is written, so that a server that is killed
in between writes it when it starts again.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rangelog_core.errors import (
    Corruption,
    ObjectNotFound,
    PreconditionFailed,
    RangelogError,
    StreamNotFound,
    Unavailable,
    UnsupportedVersion,
)
from rangelog_core.manifest import StreamManifest, parse_manifest
from rangelog_core.net.manifest_calls import fetch_manifest, manifest_name
from rangelog_core.net.pd_client import PdClient
from rangelog_core.object_keys import manifest_key, manifest_prefix, stream_of_key
from rangelog_server_common.single_thread import SingleThread

if TYPE_CHECKING:
    from rangelog_tier import ObjectStore

DELAY_S = 1.0
"""From a commit to its manifest: the commits meanwhile are in the same one."""
DELAY_PER_OBJECT_S = 0.005
"""Added to the time between two manifests of a stream for each object in it, so that the cost per second is bounded."""
RETRY_DELAY_S_MAX = 60.0
PD_TIMEOUT_S = 10.0
DELETION_WAITS_S = 30.0
"""How long a deletion waits for the manifests; it is carried out without them then."""
WRITTEN_WITHIN_S = 30.0
"""A manifest that was read from the placement driver so long ago is read again: its stream may be deleted meanwhile."""
TRIES_MAX = 5
_RESTS_MAX = 1_000

_log = structlog.get_logger("tier")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A manifest in the store; revision None: it is damaged."""

    key: str
    etag: str
    revision: int | None


class ManifestUpkeep:
    """The manifests that one range server writes. For the event loop; the store is called on a thread of its own."""

    def __init__(self, pd: PdClient, objects: Callable[[], Awaitable[ObjectStore]], directory: Path) -> None:
        self._pd = pd
        self._objects = objects
        self._directory = directory
        self._worker = SingleThread("manifests")
        self._due: dict[int, float] = {}  # stream → when its manifest is to be written
        self._order: list[tuple[float, int]] = []  # a heap of these, with entries that are outdated
        self._committing: dict[int, int] = {}  # stream → commits in progress
        self._rests: dict[int, float] = {}  # stream → when the next manifest may be written
        self._failures: dict[int, int] = {}
        self._problem = ""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with the streams that an earlier process left; idempotent."""
        if self._task is not None:
            return
        with suppress(OSError):
            for name in sorted(each.name for each in self._directory.iterdir()):
                if name.isdecimal():
                    self.changed(int(name))
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; what is not written stays in the directory."""
        self._worker.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @contextmanager
    def committing(self, stream_id: int) -> Iterator[None]:
        """Note a commit of the stream in the directory; after it, carried out or not, have the manifest written."""
        self._committing[stream_id] = self._committing.get(stream_id, 0) + 1
        self._touch(stream_id)
        try:
            yield
        finally:
            self._committing[stream_id] -= 1
            if not self._committing[stream_id]:
                del self._committing[stream_id]
            self.changed(stream_id)

    def noted(self, stream_id: int) -> None:
        """Note a change of the stream in the directory, and have the manifest written soon."""
        self._touch(stream_id)
        self.changed(stream_id)

    def changed(self, stream_id: int) -> None:
        """Write the manifest of a stream soon."""
        if stream_id not in self._due:
            now = asyncio.get_running_loop().time()
            self._schedule(stream_id, max(now + DELAY_S, self._rests.get(stream_id, 0.0)))

    async def write_before_deletion(self, keys: Iterable[str]) -> None:
        """Write the manifests of the streams whose objects are about to be deleted; those that fail are written later."""
        left = {stream_id for key in keys if (stream_id := stream_of_key(key)) is not None}
        try:
            async with asyncio.timeout(DELETION_WAITS_S):
                for stream_id in sorted(left):
                    await self._write(stream_id)
                    left.discard(stream_id)
        except Exception as error:  # whatever it is, the objects are to go
            self._failed(error)
        for stream_id in sorted(left):
            self.noted(stream_id)

    # ---- inside

    def _schedule(self, stream_id: int, due: float) -> None:
        self._due[stream_id] = due
        heapq.heappush(self._order, (due, stream_id))
        self._news.set()

    def _first(self) -> int | None:
        """Return the stream that is due first; None: no stream is due."""
        while self._order:
            due, stream_id = self._order[0]
            if self._due.get(stream_id) == due:
                return stream_id
            heapq.heappop(self._order)
        return None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            stream_id = self._first()
            if stream_id is None or self._due[stream_id] > loop.time():
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if stream_id is None else self._due[stream_id]):
                        await self._news.wait()
                continue
            del self._due[stream_id]
            try:
                count = await self._write(stream_id)
            except UnsupportedVersion as error:  # a later program's: it stays as it is, and so does the stream's file
                self._failed(error)
            except Exception as error:
                self._failed(error)
                failures = self._failures[stream_id] = self._failures.get(stream_id, 0) + 1
                self._schedule(stream_id, loop.time() + min(DELAY_S * 2 ** min(failures, 10), RETRY_DELAY_S_MAX))
            else:
                self._written(stream_id, loop.time() + DELAY_S + DELAY_PER_OBJECT_S * count)

    def _written(self, stream_id: int, rests_until: float) -> None:
        self._problem = ""
        self._failures.pop(stream_id, None)
        now = asyncio.get_running_loop().time()
        if len(self._rests) >= _RESTS_MAX:
            self._rests = {each: until for each, until in self._rests.items() if until > now}
        self._rests[stream_id] = rests_until
        if stream_id in self._due:
            self._schedule(stream_id, max(self._due[stream_id], rests_until))
        elif stream_id not in self._committing:
            with suppress(OSError):
                self._file(stream_id).unlink(missing_ok=True)

    def _failed(self, error: Exception) -> None:
        problem = f"{error.code}: {error.message}" if isinstance(error, RangelogError) else type(error).__name__
        if problem != self._problem:
            _log.warning("a manifest could not be written; objects are not affected", problem=problem)
        self._problem = problem

    async def _write(self, stream_id: int) -> int:
        """Write the manifest of a stream unless it is the current one; return the number of its objects."""
        objects = await self._objects()
        loop = asyncio.get_running_loop()
        for _ in range(TRIES_MAX):
            stored = await self._worker.run(functools.partial(_read, objects, stream_id))
            began = loop.time()
            found = await self._fetch(stream_id)
            if found is None:
                if stored is None:
                    return 0
                await self._worker.run(functools.partial(objects.delete, stored.key))
                continue  # a commit meanwhile may have found the manifest that is gone now
            if stored is not None and stored.revision == found.revision:
                return len(found.objects)
            if loop.time() - began > WRITTEN_WITHIN_S:
                continue
            with suppress(PreconditionFailed):  # another server was first: perhaps with less
                await self._worker.run(functools.partial(_put, objects, stored, found))
                return len(found.objects)
        raise Unavailable(f"the manifest of stream {stream_id} is being changed by others")

    async def _fetch(self, stream_id: int) -> StreamManifest | None:
        """Return the manifest by the placement driver; None: the stream is deleted, has no live objects, or has encrypted
        ones: a manifest would show the stream's name and times in clear."""
        try:
            found = await fetch_manifest(self._pd, PD_TIMEOUT_S, stream_id=stream_id)
        except StreamNotFound:
            return None
        return found if found.objects and not found.is_encrypted else None

    def _touch(self, stream_id: int) -> None:
        with suppress(OSError):  # the manifest is then written by this process only
            self._file(stream_id).touch()

    def _file(self, stream_id: int) -> Path:
        return self._directory / str(stream_id)


def _read(objects: ObjectStore, stream_id: int) -> _Stored | None:
    """Return the stored manifest of a stream. Raises UnsupportedVersion for that of a later program, Unavailable."""
    for info in objects.list(manifest_prefix(stream_id)):
        with suppress(ObjectNotFound):  # deleted meanwhile
            data, etag = objects.get_with_etag(info.key)
            try:
                return _Stored(info.key, etag, parse_manifest(data, f"the manifest {info.key}").revision)
            except Corruption:
                return _Stored(info.key, etag, None)
    return None


def _put(objects: ObjectStore, stored: _Stored | None, found: StreamManifest) -> None:
    """Store a manifest in place of the one that was read. Raises PreconditionFailed, Unavailable."""
    if stored is None:
        objects.put_if_absent(manifest_key(found.stream_id, manifest_name(found)), found.to_bytes())
    else:
        objects.replace(stored.key, found.to_bytes(), stored.etag)
