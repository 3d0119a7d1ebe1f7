"""Reads only the headers of a stream's batches: for brokers, which derive from them what each producer has sent.

What holds: each batch that starts in the span is returned once, in order. Of tiered ranges only batches whose header has an
extension are kept by the tier, and returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rangelog._read.cold import ColdReader
from rangelog._read.hot import Fetched
from rangelog._read.reader import SpanReader
from rangelog_core.batch import BatchHeader
from rangelog_core.errors import Corruption
from rangelog_proto.v1 import common_pb2


class HeaderFields(NamedTuple):
    """The header of a batch, and its extension's fields by tag."""

    header: BatchHeader
    fields: Mapping[int, bytes]


class ColdHeaders(ColdReader):
    """As ColdReader, with the headers in place of rows."""

    async def read(self, stream: common_pb2.Stream, position: int, end: Callable[[], int]) -> tuple[Any, int]:
        """Return the headers of the batches that start in the object at `position`, from there on, and the object's end."""
        fetcher = await self._stores.fetcher()
        objects = await self._objects(stream.stream_id, position)
        if not objects or not objects[0].start_offset <= position < objects[0].end_offset:
            raise Corruption(f"no object covers offset {position}, which the placement driver lists as tiered")
        return await asyncio.to_thread(_headers_of, fetcher.store, objects[0], position), objects[0].end_offset


def _headers_of(store: Any, described: common_pb2.Object, position: int) -> list[HeaderFields]:
    from rangelog_tier.object_reader import ObjectReader

    reader = ObjectReader(store, described)
    found: list[HeaderFields] = []
    for group in reader.row_groups(position, described.end_offset):
        for header, fields in reader.batch_headers(group):
            if header.base_offset >= max(position, group.first):
                found.append(HeaderFields(header, fields))
    return found


class HeaderReader(SpanReader[Sequence[HeaderFields]]):
    """Reads the headers of the batches of an acked span. Use `chunks`."""

    def _open(self, fetched: Fetched) -> tuple[Sequence[Any], int]:
        return [HeaderFields(header, fields) for header, _, fields in fetched.batches], fetched.end_offset

    async def _from_batches(self, batches: Sequence[Any], start: int, end: int) -> Sequence[HeaderFields]:
        return [each for each in batches if start <= each.header.base_offset < end]

    async def _from_arrow(self, table: Any) -> Sequence[HeaderFields]:
        end = self._end  # an object may go on behind it, even into later ranges
        return [each for each in table if end is None or each.header.base_offset < end]

    def _first_at(self, chunk: Sequence[HeaderFields], timestamp_ms: int) -> int | None:
        return None
