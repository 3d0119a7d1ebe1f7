"""Uploads sealed ranges and removes objects, on the placement driver's word. Heavy work runs on one thread of its own.

What holds: an object is prepared, written to a file, put under a key that never was before, and only then committed with
its size and digest. A put that was done before (its answer got lost) is accepted only if the bytes there are these. Local
copies stay until the placement driver says otherwise; what fails is tried again by the executor of directives.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import structlog

from rangelog._transport.pd_client import PdClient
from rangelog.errors import ConfigInvalid, Corruption, PreconditionFailed
from rangelog.limits import MIB
from rangelog.tier import ObjectStore, open_object_store
from rangelog.tier.object_store import probe
from rangelog.tier.parquet import WrittenObject, write_object
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.data_plane import DataPlane
from rangelog_server.identity import Identity
from rangelog_server.ranges.reading import ReadPlan, make_plan, read_batches
from rangelog_server.ranges.store import Store

OBJECT_BYTES_MAX = 256 * MIB
"""Of batches in one object: bounds the temporary file and what is lost when an upload fails."""

READ_BATCHES = 64
CALL_TIMEOUT_S = 15.0

_T = TypeVar("_T")
_log = structlog.get_logger("tier")


class TierWork:
    """Uploads and deletions of one range server."""

    def __init__(
        self, pd: PdClient, identity: Identity, store: Store, plane: DataPlane, temporary: Path, url: str
    ) -> None:
        self._pd = pd
        self._identity = identity
        self._store = store
        self._temporary = temporary
        self._url = url
        self._objects: ObjectStore | None = None
        self._opening = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tier")

    def learned_url(self, url: str) -> None:
        """The placement driver's word where objects go; the setting wins."""
        self._url = self._url or url

    async def close(self) -> None:
        """Stop: what is under way is left to another server, or to the next start."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def upload_range(self, directive: pb.Directive) -> None:
        """Upload [start, end) of a sealed range, object by object. Raises what went wrong; what is committed stays."""
        wanted = directive.upload_range
        objects = await self._open()
        position = wanted.start_offset
        while position < wanted.end_offset:
            end, plan = self._next_span(directive, position)
            prepared = await self._prepare(directive, position, end)
            written = await self._in_thread(self._write_and_put, objects, prepared, plan, wanted.stream_name)
            await self._commit(prepared, written)
            _log.info("uploaded", key=prepared.key, records=end - position, size_bytes=written.size_bytes)
            position = end

    async def delete_objects(self, directive: pb.Directive) -> None:
        """Remove objects from the store; those that are gone already count as removed."""
        objects = await self._open()
        for key in directive.delete_objects.keys:
            await self._in_thread(objects.delete, key)

    # ---- inside

    async def _open(self) -> ObjectStore:
        async with self._opening:
            if self._objects is None:
                if not self._url:
                    raise ConfigInvalid("no tier is configured: start the placement drivers with --tier-url")
                self._objects = await self._in_thread(_open_and_probe, self._url)
            return self._objects

    async def _in_thread(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def _next_span(self, directive: pb.Directive, position: int) -> tuple[int, ReadPlan]:
        """Return where the next object ends, and how to read what goes into it. On the loop: it looks at the replica."""
        hosted = self._store.find(directive.stream_id, directive.range_index)
        core = hosted.core
        limit = directive.upload_range.end_offset
        if not core.complete or core.sealed_end_offset is None or core.sealed_end_offset < limit:
            raise PreconditionFailed(f"range {hosted} is not whole here: another replica uploads it")
        first = number = core.batch_number(position)
        if first < 0:
            raise Corruption(f"range {hosted} has no batch at {position}")
        size = 0
        while number < core.batch_count and core.batch_span(number)[0] < limit:
            if size and size + hosted.lengths[number] > OBJECT_BYTES_MAX:
                break
            size += hosted.lengths[number]
            number += 1
        return min(limit, core.batch_span(number - 1)[1]), make_plan(hosted, first, number)

    async def _prepare(self, directive: pb.Directive, start: int, end: int) -> common_pb2.Object:
        request = pb.PrepareObjectRequest(
            request_id=uuid.uuid4().hex,
            stream_id=directive.stream_id,
            range_index=directive.range_index,
            start_offset=start,
            end_offset=end,
            server=self._identity.name,
            incarnation=self._identity.incarnation,
        )
        return (await self._pd.prepare_object(request, timeout_s=CALL_TIMEOUT_S)).object

    async def _commit(self, prepared: common_pb2.Object, written: WrittenObject) -> None:
        request = pb.CommitObjectRequest(
            request_id=uuid.uuid4().hex,
            object_id=prepared.object_id,
            server=self._identity.name,
            incarnation=self._identity.incarnation,
            size_bytes=written.size_bytes,
            digest=written.digest,
            row_groups=written.row_groups,
            epoch=prepared.epoch,
            footer_size_bytes=written.footer_size_bytes,
            footer_crc=written.footer_crc,
        )
        await self._pd.commit_object(request, timeout_s=CALL_TIMEOUT_S)

    def _write_and_put(
        self, objects: ObjectStore, prepared: common_pb2.Object, plan: ReadPlan, stream_name: str
    ) -> WrittenObject:
        path = self._temporary / f"{prepared.object_id}.parquet"
        try:
            written = write_object(
                path,
                self._batches(plan),
                stream_id=prepared.stream_id,
                stream_name=stream_name,
                range_index=prepared.range_index,
                epoch=prepared.epoch,
                start_offset=prepared.start_offset,
                end_offset=prepared.end_offset,
            )
            try:
                objects.put_if_absent(prepared.key, path)
            except PreconditionFailed:
                _check_same(objects, prepared.key, written)
            if objects.head(prepared.key).size_bytes != written.size_bytes:
                raise Corruption(f"object {prepared.key} has another size in the store than was put")
            return written
        finally:
            path.unlink(missing_ok=True)

    def _batches(self, plan: ReadPlan) -> Iterator[bytes]:
        for start in range(0, len(plan.wanted), READ_BATCHES):
            part = ReadPlan(plan.stream_id, plan.range_index, plan.wanted[start : start + READ_BATCHES])
            yield from read_batches(self._store.wal, part)


def _open_and_probe(url: str) -> ObjectStore:
    objects = open_object_store(url)
    probe(objects)
    return objects


def _check_same(objects: ObjectStore, key: str, written: WrittenObject) -> None:
    """An earlier put whose answer was lost left the same bytes; anything else is somebody else's object."""
    digest = hashlib.sha256(objects.get(key)).hexdigest()
    if f"sha256:{digest}" != written.digest:
        raise PreconditionFailed(f"object {key} exists already, with other bytes")
