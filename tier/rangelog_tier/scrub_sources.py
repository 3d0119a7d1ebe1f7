"""The sources of a scrub: the store's listing and the state's committed objects, both by key, a page at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice

from rangelog_core.errors import StreamNotFound
from rangelog_core.ids import INTERNAL_NAME_START
from rangelog_core.limits import OBJECT_PAGE_SIZE_MAX
from rangelog_core.net.pages import goes_on, pages_by_token
from rangelog_core.net.pd_client import PdClient
from rangelog_core.object_keys import STREAMS
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_tier.object_store import ObjectInfo, ObjectStore

LISTED_AT_ONCE = 1_000
_ID_MAX = (1 << 63) - 1


class StoreListing:
    """The stored objects below a prefix, by key; the store is called on threads."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._listed = iter(store.list(prefix))
        self._page: deque[ObjectInfo] = deque()
        self._ended = False

    async def peek(self) -> ObjectInfo | None:
        """Return the next object, or None at the end. Raises Unavailable."""
        if not self._page and not self._ended:
            self._page.extend(await asyncio.to_thread(lambda: list(islice(self._listed, LISTED_AT_ONCE))))
            self._ended = not self._page
        return self._page[0] if self._page else None

    @property
    def stream_id(self) -> int | None:
        """The stream in whose folder the next object is; None: it is in none."""
        return _folder(self._page[0].key) if self._page else None

    async def peek_of(self, stream_id: int) -> ObjectInfo | None:
        """Return the next object, or None where it is not in the folder of this stream."""
        info = await self.peek()
        return info if info is not None and _folder(info.key) == stream_id else None

    async def take(self) -> ObjectInfo:
        """Return the next object and go on; there must be one."""
        await self.peek()
        return self._page.popleft()


def _folder(key: str) -> int | None:
    """Return the stream in whose folder a key is, None for another spelling of its number."""
    number = key.removeprefix(STREAMS).partition("/")[0]
    canonical = key.startswith(STREAMS) and number.isascii() and number.isdecimal() and str(int(number[:20])) == number
    return int(number) if canonical and int(number) <= _ID_MAX else None


class CommittedObjects:
    """The committed objects of a stream, by offset, which is the order of their keys. `known`: the state has the stream."""

    def __init__(self, pd: PdClient, stream_id: int, timeout_s: float) -> None:
        self._pd = pd
        self._timeout_s = timeout_s
        self._request = pd_pb2.ListObjectsRequest(
            knows_encryption=True,
            stream_id=stream_id,
            page_size=OBJECT_PAGE_SIZE_MAX,
            state=common_pb2.OBJECT_STATE_COMMITTED,
        )
        self._page: deque[common_pb2.Object] = deque()
        self._more = True
        self.known = True

    async def peek(self) -> common_pb2.Object | None:
        """Return the next object, or None at the end."""
        while not self._page and self._more:
            try:
                answer = await self._pd.call(self._request, pd_pb2.ListObjectsResponse, timeout_s=self._timeout_s)
            except StreamNotFound:
                self.known = self._more = False
                break
            self._page.extend(answer.objects)
            self._more = goes_on(answer.more, answer.objects)
            if answer.objects:
                self._request.from_offset = answer.objects[-1].end_offset
        return self._page[0] if self._page else None

    async def take(self) -> common_pb2.Object:
        """Return the next object and go on; there must be one."""
        await self.peek()
        return self._page.popleft()


class KnownStreams:
    """The streams that were compared: a bit for each id, and the state's ids are dense."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, stream_id: int) -> None:
        """Note a stream that the state has."""
        at = stream_id >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        self._bits[at] |= 1 << (stream_id & 7)

    def __contains__(self, stream_id: int) -> bool:
        at = stream_id >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (stream_id & 7) & 1)

    async def others(self, pd: PdClient, timeout_s: float, only: common_pb2.Stream | None) -> AsyncIterator[int]:
        """Yield the ids of the state's streams, or of the only one that is wanted, that were not compared."""
        if only is not None:
            if only.stream_id not in self:
                yield only.stream_id
            return
        for prefix in ("", INTERNAL_NAME_START):
            request = pd_pb2.ListStreamsRequest(prefix=prefix)
            async for page in pages_by_token(pd, request, pd_pb2.ListStreamsResponse, timeout_s):
                for stream in page.streams:
                    if stream.stream_id not in self:
                        yield stream.stream_id
