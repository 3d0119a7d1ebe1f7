"""Cold reads: the client reads tiered ranges from the object store, without the range servers.

Needs the extra `tier`; without it MissingExtra is raised. Blocking work runs on threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rangelog._metadata import Metadata
from rangelog.protocol.reading import ReadPreference, Tier, tiers_for
from rangelog_core.errors import ConfigInvalid, Corruption, MissingExtra, ObjectNotFound, Unavailable
from rangelog_core.record import Record
from rangelog_core.tracing import traced
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    from rangelog._read.look_ahead import LookAhead
    from rangelog._read.object_fetcher import ObjectFetcher
    from rangelog_tier.encryption_keys import KeyProvider

_OBJECTS_PAGE_SIZE = 16


class ColdStores:
    """The object stores that one client reads from: opened at first use, shared by its readers, closed with it."""

    def __init__(self, metadata: Metadata, tier_url: str | None, keys: KeyProvider | None = None) -> None:
        self._metadata = metadata
        self._keys = keys
        self._tier_url = tier_url
        self._opened: dict[str, ObjectFetcher] = {}
        self._opening = asyncio.Lock()
        self._closed = False

    async def fetcher(self) -> ObjectFetcher:
        """Return the fetcher for the cluster's current object store. Raises MissingExtra, ConfigInvalid, Unavailable."""
        try:
            from rangelog._read.object_fetcher import ObjectFetcher
            from rangelog_tier import open_object_store
        except ImportError as error:
            raise MissingExtra(
                "this part of the stream is in the object store: pip install 'rangelog[tier]' to read it"
            ) from error
        url = self._tier_url or await self._metadata.tier_url()
        if not url:
            raise ConfigInvalid("the cluster names no tier; pass tier_url=… to connect()")
        async with self._opening:
            if url not in self._opened:
                opened = ObjectFetcher(await asyncio.to_thread(open_object_store, url, keys=self._keys))
                if self._closed:
                    opened.close()
                self._opened[url] = opened
        if self._closed:
            raise Unavailable("the client is closed")
        return self._opened[url]

    def close(self) -> None:
        """Close the stores; reads in progress fail. Idempotent."""
        self._closed = True
        for each in self._opened.values():
            each.close()


class ColdReader:
    """Reads committed objects of one stream from a position on. Opens the store at first use; `close` it."""

    def __init__(self, metadata: Metadata, stores: ColdStores) -> None:
        self._metadata = metadata
        self._stores = stores
        self._fetcher: ObjectFetcher | None = None
        self._ahead: LookAhead | None = None
        self._next: tuple[int, int] = (0, 0)

    def close(self) -> None:
        """Cancel the fetches ahead. Idempotent; the reader may be used again."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    @traced("rangelog.read.cold")
    async def read(self, stream: common_pb2.Stream, position: int, end: Callable[[], int]) -> tuple[Any, int]:
        """Return the next rows from `position` on as an Arrow RecordBatch, and their end offset.

        `end`: up to which offset later reads will be cold; objects are fetched ahead up to it.
        Raises Corruption, Unavailable, ObjectNotFound, UnsupportedVersion.
        """
        try:
            return await self._read(stream.stream_id, position, end())
        except ObjectNotFound:  # of an object that another has replaced since it was listed
            self._fetcher = None  # or that is in a store which the tier got meanwhile
            return await self._read(stream.stream_id, position, end())

    async def _read(self, stream_id: int, position: int, end: int) -> tuple[Any, int]:
        if self._ahead is None or self._next != (stream_id, position):
            self.close()
            self._ahead = await self._begin(stream_id, position, end)
        ahead = self._ahead
        try:
            table = await ahead.next()
            if table is None:
                raise Corruption(f"the object that should hold offset {position} ends before it")
            offsets = table.column("offset")
            after = position + table.num_rows
            if offsets[0].as_py() != position or offsets[-1].as_py() != after - 1:
                raise Corruption(f"an object does not hold offset {position} where its index says")
        except BaseException:
            self.close()
            raise
        self._next = (stream_id, after)
        if after >= ahead.end:
            self.close()
        return table, after

    async def _begin(self, stream_id: int, position: int, end: int) -> LookAhead:
        if self._fetcher is None:
            self._fetcher = await self._stores.fetcher()
        from rangelog._read.look_ahead import LookAhead

        return LookAhead(self._fetcher, lambda offset: self._objects(stream_id, offset), position, end)

    async def _objects(self, stream_id: int, position: int) -> list[common_pb2.Object]:
        return await self._metadata.objects(stream_id, position, page_size=_OBJECTS_PAGE_SIZE)

    async def find_timestamp(
        self, stream: common_pb2.Stream, source: common_pb2.Range, timestamp_ms: int
    ) -> int | None:
        """Return the start of the first row group that holds a record at or after a time, or None."""
        position = max(source.start_offset, stream.trim_offset)  # objects may have lost what was trimmed
        page: deque[common_pb2.Object] = deque()
        while position < source.tiered_end_offset:
            if not page:
                page.extend(await self._objects(stream.stream_id, position))
            covering = page.popleft() if page else common_pb2.Object()
            if not covering.start_offset <= position < covering.end_offset:
                raise Corruption(f"no object covers offset {position}, which the placement driver lists as tiered")
            found = _first_row_group(covering, position, timestamp_ms)
            if found is not None:
                return found if found < source.end_offset else None  # an object may have the next ranges' records, too
            position = covering.end_offset
        return None


def _first_row_group(described: common_pb2.Object, position: int, timestamp_ms: int) -> int | None:
    """Return where the first row group of an object starts that holds a record at or after a time, but at least `position`."""
    for group in described.row_groups:
        if group.start_offset + group.count > position and group.timestamp_ms_max >= timestamp_ms:
            return max(position, group.start_offset)
    if not described.row_groups and described.timestamp_ms_max >= timestamp_ms:
        return position
    return None


def cold_until(ranges: Sequence[common_pb2.Range], number: int, preference: ReadPreference) -> int:
    """Return the end of the records that are read from objects, from range `number` on, later ranges included."""
    end = ranges[number].tiered_end_offset
    for source in ranges[number + 1 :]:
        whole_before = source.start_offset == end
        if not whole_before or source.tiered_end_offset <= end:
            break
        tiers = tiers_for(source, sealed=True, position=source.start_offset, preference=preference)
        if list(tiers)[:1] != [Tier.COLD]:
            break
        end = source.tiered_end_offset
    return end


def records_of(table: Any) -> Sequence[Record]:
    """Return Arrow rows as records, each made when it is accessed. Raises Corruption."""
    from rangelog._read.arrow_chunk import ArrowChunk

    return ArrowChunk(table)
