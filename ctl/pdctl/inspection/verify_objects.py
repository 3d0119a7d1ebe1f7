"""Verifies the objects of a range: that they are there, have the committed digest, and, deep, the records of the copies.

What holds: objects tile the tiered part of the range; one object of several ranges is read once for its digest. Blocking work
is on a thread, piece by piece, so that the rate and an interrupt count between two pieces.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pdctl.inspection import object_checks as checks
from pdctl.inspection.compare_sums import DIFFERS, MISSING, OK, UNREACHABLE, Verdict
from pdctl.inspection.pace import ReadPace
from pdctl.inspection.verify_copies import CopyVerifier
from rangelog_core.errors import ConfigInvalid, RangelogError
from rangelog_core.net.pages import object_pages
from rangelog_proto.v1 import common_pb2, pd_pb2

if TYPE_CHECKING:
    from rangelog import Client
    from rangelog_tier import ObjectStore

_PAGE_SIZE = 50


class ObjectVerifier:
    """Verifies objects, range after range. `close` it."""

    def __init__(self, client: Client, copies: CopyVerifier, pace: ReadPace, *, deep: bool, timeout_s: float) -> None:
        self._client = client
        self._copies = copies
        self._pace = pace
        self._deep = deep
        self._timeout_s = timeout_s
        self._store: ObjectStore | None = None
        self._last: tuple[int, Verdict] = (0, Verdict())
        self.count = 0

    def close(self) -> None:
        """Close the store; idempotent."""
        if self._store is not None:
            self._store.close()
            self._store = None

    async def verify(
        self, of: common_pb2.Range, start: int, end: int, source: common_pb2.Replica | None
    ) -> dict[str, Verdict]:
        """Return what was found of each object with records of [start, end); `source`: a copy to compare rows with."""
        found: dict[str, Verdict] = {}
        position = start
        request = pd_pb2.ListObjectsRequest(stream_id=of.stream_id, from_offset=start, page_size=_PAGE_SIZE)
        pages = object_pages(self._client.metadata.pd, request, self._timeout_s)
        async for described in (each async for objects in pages for each in objects):
            if described.start_offset >= end:
                break
            if described.start_offset > position:
                found[f"(no object at {position})"] = Verdict(MISSING, position, "no object covers this offset")
            position = max(position, described.end_offset)
            found[described.key] = await self._verify(of, described, start, end, source)
        if position < end:
            found[f"(no object at {position})"] = Verdict(MISSING, position, "no object covers this offset")
        return found

    async def _verify(
        self,
        of: common_pb2.Range,
        described: common_pb2.Object,
        start: int,
        end: int,
        source: common_pb2.Replica | None,
    ) -> Verdict:
        if self._last[0] != described.object_id:
            self.count += 1
            self._last = (described.object_id, await self._digest(described))
        verdict = self._last[1]
        if verdict.result != OK or not self._deep or source is None:
            return verdict
        low, high = max(start, described.start_offset), min(end, described.end_offset)
        try:
            return await self._rows(of, described, low, high, source)
        except RangelogError as error:
            return checks.failed(error, low)

    async def _digest(self, described: common_pb2.Object) -> Verdict:
        from rangelog_tier.storing import prove_pieces

        try:
            store = await self._opened()
            pieces = prove_pieces(store, described)
            while (size_bytes := await asyncio.to_thread(next, pieces, None)) is not None:
                await self._pace.spend(size_bytes)
        except RangelogError as error:
            verdict = checks.failed(error, described.start_offset)
            if verdict.result == DIFFERS and self._store is not None:
                verdict.offset = await asyncio.to_thread(checks.first_damage, self._store, described)
            return verdict
        return Verdict()

    async def _rows(
        self, of: common_pb2.Range, described: common_pb2.Object, low: int, high: int, source: common_pb2.Replica
    ) -> Verdict:
        """Compare the object's rows with the records of a right copy, one row group at a time."""
        store = await self._opened()
        reader = await asyncio.to_thread(checks.open_reader, store, described)
        for group in reader.row_groups(low, high):
            first, last = max(low, group.first), min(high, group.first + group.rows)
            rows = await asyncio.to_thread(checks.rows_of, reader, group, first, last)
            await self._pace.spend(group.span.size)
            position = first
            while position < last:
                try:
                    batches = await self._copies.fetch(of, source, position, last)
                    others = await asyncio.to_thread(checks.batches_as_rows, batches, position, last)
                except RangelogError as error:  # of the copy, not of the object
                    return Verdict(UNREACHABLE, None, f"nothing to compare with on {source.server}: {error.message}")
                part = rows.slice(position - first, others.num_rows)
                number = await asyncio.to_thread(checks.first_difference, part, others)
                if number is not None:
                    return Verdict(DIFFERS, position + number, f"another record than on {source.server}")
                position += others.num_rows
        return Verdict()

    async def _opened(self) -> ObjectStore:
        if self._store is None:
            self._store = await open_store(self._client)
        return self._store


async def open_store(client: Client) -> Any:
    """Open the cluster's object store. Raises ConfigInvalid, MissingExtra, Unavailable."""
    from rangelog_tier import open_object_store

    url = await client.metadata.tier_url()
    if not url:
        raise ConfigInvalid("the cluster names no tier: see `pdctl cluster status`")
    return await asyncio.to_thread(open_object_store, url)
