"""Cold reads: tiered ranges come from the object store itself, so they cost the range servers nothing.

Needs the extra `tier`; without it the error says so. Blocking work runs on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rangelog._metadata import Metadata
from rangelog.errors import ConfigInvalid, Corruption, MissingExtra
from rangelog.record import Record
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    from rangelog.tier import ObjectStore

_CHUNK_END = object()


class ColdReader:
    """Reads committed objects; opens the store at first use."""

    def __init__(self, metadata: Metadata, tier_url: str | None) -> None:
        self._metadata = metadata
        self._tier_url = tier_url
        self._store: ObjectStore | None = None
        self._opened: tuple[int, int, int, Iterator[Any]] | None = None
        self._object_end = 0

    async def store(self) -> ObjectStore:
        """Return the cluster's object store. Raises MissingExtra, ConfigInvalid, Unavailable."""
        if self._store is None:
            try:
                from rangelog.tier import open_object_store
            except ImportError as error:
                raise MissingExtra(
                    "this part of the stream is in the object store: pip install 'rangelog[tier]' to read it"
                ) from error
            url = self._tier_url or await self._metadata.tier_url()
            if not url:
                raise ConfigInvalid("the cluster names no tier; pass tier_url=… to connect()")
            self._store = await asyncio.to_thread(open_object_store, url)
        return self._store

    async def read(
        self, stream: common_pb2.Stream, source: common_pb2.Range, position: int, end: int | None
    ) -> tuple[Any, int]:
        """Return the next rows from `position` on as an Arrow RecordBatch, and where they end.

        Raises Corruption, Unavailable, ObjectNotFound.
        """
        limit = min(source.tiered_end_offset, end) if end is not None else source.tiered_end_offset
        if self._opened is None or self._opened[:3] != (stream.stream_id, position, limit):
            self._opened = (stream.stream_id, position, limit, await self._open(stream, position, limit))
        rows = self._opened[3]
        self._opened = None
        table: Any = await asyncio.to_thread(next, rows, _CHUNK_END)
        if table is _CHUNK_END:
            raise Corruption(f"the object that should hold offset {position} ends before it")
        offsets = table.column("offset")
        after = position + table.num_rows
        if offsets[0].as_py() != position or offsets[-1].as_py() != after - 1:
            raise Corruption(f"an object does not hold offset {position} where its index says")
        if after < min(limit, self._object_end):
            self._opened = (stream.stream_id, after, limit, rows)
        return table, after

    async def _open(self, stream: common_pb2.Stream, position: int, limit: int) -> Iterator[Any]:
        store = await self.store()
        from rangelog.tier.cold import read_object

        covering = await self._object(stream, position)
        self._object_end = covering.end_offset
        return iter(read_object(store, covering, position, min(limit, covering.end_offset)))

    async def _object(self, stream: common_pb2.Stream, position: int) -> common_pb2.Object:
        for each in await self._metadata.objects(stream.name, position, page_size=1):
            if each.start_offset <= position < each.end_offset:
                return each
        raise Corruption(f"no object covers offset {position}, which the placement driver lists as tiered")

    async def find_timestamp(
        self, stream: common_pb2.Stream, source: common_pb2.Range, timestamp_ms: int
    ) -> int | None:
        """Return the start of the first row group that holds a record at or after a time, or None."""
        position = source.start_offset
        while position < source.tiered_end_offset:
            covering = await self._object(stream, position)
            for group in covering.row_groups:
                if group.timestamp_ms_max >= timestamp_ms:
                    return group.start_offset
            if not covering.row_groups and covering.timestamp_ms_max >= timestamp_ms:
                return covering.start_offset
            position = covering.end_offset
        return None


def records_of(chunk: Any) -> list[Record]:
    """Return Arrow rows as records."""
    from rangelog.tier.cold import records_from_arrow

    return list(records_from_arrow(chunk))
