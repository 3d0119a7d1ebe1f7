"""Uploading sealed ranges to the object store, and removing objects from it, on a thread of its own.

What holds: a span is prepared, built from batches that are checked one by one, stored under a key of its own, read back and
compared, and only then committed. Each step can be repeated; replicas stay until the placement driver has them dropped.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import structlog

from rangelog_core.errors import Corruption, InternalError, PreconditionFailed, RangelogError, StorageFull, Unavailable
from rangelog_core.limits import MIB
from rangelog_core.net.pd_client import PdClient
from rangelog_core.tier_stores import check_has_store, was_changed
from rangelog_core.tracing import traced
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.read_faults import ReadFault
from rangelog_server.ranges.reading import is_current, make_plan, read_batches
from rangelog_server.ranges.store import Store
from rangelog_server.tier.manifests import ManifestUpkeep
from rangelog_server.wal.log import Wal
from rangelog_server_common.single_thread import SingleThread
from rangelog_server_common.tier_watch import TierWatch, WatchTask

if TYPE_CHECKING:
    from rangelog_tier import ObjectStore
    from rangelog_tier.encryption_keys import KeyProvider
    from rangelog_tier.parquet import WrittenObject

SPAN_BYTES_MAX = 256 * MIB
"""Bytes of batches in one object: bounds the memory and the size of an upload."""
READ_BYTES = 4 * MIB
PD_TIMEOUT_S = 10.0

_log = structlog.get_logger("tier")


_Result = TypeVar("_Result")


class Uploader:
    """The uploads and deletions of one range server. For the event loop; the work itself runs on a thread."""

    def __init__(
        self,
        pd: PdClient,
        identity: DirectoryIdentity,
        store: Store,
        temporary: Path,
        url: str,
        manifests: Path | None = None,
        keys: KeyProvider | None = None,
    ) -> None:
        """`keys`: with which objects are encrypted; None: as `open_object_store`."""
        self._pd = pd
        self._identity = identity
        self._store = store
        self._temporary = temporary
        self._url = url
        self._keys = keys
        self._cluster_encrypts = False
        self._fixed_url = url
        self._advertised_url: str | None = None
        self._objects: ObjectStore | None = None
        self._warming: asyncio.Future[None] | None = None
        self._spoiled: dict[tuple[int, int], int] = {}  # range → the object whose key holds a conflicting object
        self._worker = SingleThread("tier")
        self._checker = SingleThread("tier check")  # of its own: an upload may take long
        self.watch = TierWatch(self._check_tier)
        self._watching = WatchTask(self.watch)
        self._manifests = ManifestUpkeep(pd, self._object_store, manifests) if manifests is not None else None

    def learned_url(self, url: str) -> None:
        """Use the placement driver's URL of the tier. The setting stands for it as long as it was never changed."""
        if url == self._advertised_url:
            return
        self._advertised_url = url
        if self._fixed_url and url and was_changed(url):
            _log.warning("the tier was changed: this server's own tier_url does not count any more")
        elif self._fixed_url:
            url = self._fixed_url
        if url != self._url:
            self._url, self._objects = url, None
        if self._url:
            self._watching.start()
            self._warming = asyncio.ensure_future(self._worker.run(_warm_up))
            if self._manifests is not None:
                self._manifests.start()

    async def close(self) -> None:
        """Stop; a job on a thread ends by itself."""
        if self._manifests is not None:
            await self._manifests.close()
        await self._watching.close()
        self._checker.close()
        self._worker.close()
        if self._warming is not None:
            self._warming.cancel()

    # ---- directives

    async def upload_range(self, directive: pb.Directive) -> None:
        """Upload [start, end) of a sealed range in bounded spans. Raises the error of a step; a retry is safe."""
        action = directive.upload_range
        hosted = self._store.find(directive.stream_id, directive.range_index)
        if not hosted.core.complete or hosted.core.sealed_end_offset != action.end_offset:
            raise PreconditionFailed(f"range {hosted} is not whole here")
        with self.rechecked_if_it_fails():
            encrypted = await self._encrypts(await self._object_store())  # before a key is asked for
            position = action.start_offset
            while position < action.end_offset:
                position = await self._upload_span(hosted, action, position, encrypted=encrypted)

    async def delete_objects(self, directive: pb.Directive) -> None:
        """Delete objects that the state no longer holds, after the manifests that may name them. Raises Unavailable."""
        with self.rechecked_if_it_fails():
            objects = await self._object_store()
            if self._manifests is not None:
                await self._manifests.write_before_deletion(directive.delete_objects.keys)
            for key in directive.delete_objects.keys:
                await self._run(functools.partial(objects.delete, key))

    async def write_manifests(self, directive: pb.Directive) -> None:
        """Write the manifests of streams that were trimmed or deleted; from here on it is this server's task."""
        if self._manifests is not None:
            for stream_id in directive.write_manifests.stream_ids:
                self._manifests.noted(stream_id)

    # ---- for repacks

    async def store_now(self) -> tuple[ObjectStore, str]:
        """Return the tier, and its URL. Raises Unavailable: the cluster has no tier, or it cannot be opened."""
        return await self._object_store(), self._url

    def committing(self, stream_id: int) -> AbstractContextManager[None]:
        """Return what is entered around a commit, so that the stream's manifest is written after it."""
        return self._manifests.committing(stream_id) if self._manifests is not None else nullcontext()

    # ---- inside

    async def _check_tier(self) -> None:
        """Open the tier again, with the credentials of now, and probe it. Raises what is wrong with it."""
        url = self._url
        objects = await self._checker.run(functools.partial(_open, url, self._keys))
        if url == self._url:
            self._objects = objects

    @contextmanager
    def rechecked_if_it_fails(self) -> Iterator[None]:
        """Check the tier after an error."""
        try:
            yield
        except RangelogError:
            self.watch.recheck()
            raise

    @traced("rangelog.tier.upload", server=lambda uploads: uploads._identity.name)
    async def _upload_span(
        self, hosted: HostedReplica, action: pb.UploadRange, start_offset: int, *, encrypted: bool
    ) -> int:
        end_offset = span_end(hosted, start_offset)
        prepare = pb.PrepareObjectRequest(
            request_id=uuid.uuid4().hex,
            stream_id=hosted.core.stream_id,
            range_index=hosted.core.range_index,
            start_offset=start_offset,
            end_offset=end_offset,
            server=self._identity.name,
            incarnation=self._identity.incarnation,
            spoiled_object_id=self._spoiled.pop(hosted.key, 0),
            encrypted=encrypted,
        )
        prepared = (await self._pd.call(prepare, pb.PrepareObjectResponse, timeout_s=PD_TIMEOUT_S)).object
        check_has_store(self._url, prepared.tier_id)
        objects = await self._object_store()
        path = self._temporary / f"{prepared.object_id}.parquet"
        try:
            written = await self._built(hosted, path, prepared, action, objects)
            problem = await self._run(functools.partial(_store, objects, prepared.key, path, written))
        finally:
            path.unlink(missing_ok=True)
        if problem:
            self._spoiled[hosted.key] = prepared.object_id  # a key is never written twice: the next try gets another
            from rangelog_tier.storing import not_stored

            raise not_stored(prepared.key, problem)
        with self.committing(prepared.stream_id):
            await self._commit(prepared, written, action.epoch)
        counts = self._store.counts
        counts.uploaded_objects += 1
        counts.uploaded_bytes += written.size_bytes
        _log.info("uploaded", range=str(hosted), key=prepared.key, size_bytes=written.size_bytes)
        return end_offset

    async def _encrypts(self, objects: ObjectStore) -> bool:
        """Whether objects are encrypted. Raises EncryptionKeyMissing, AccessDenied, Unavailable: they would have to be."""
        from rangelog_tier.encryption_gate import check_cluster_encrypts
        from rangelog_tier.object_cipher import cipher_of

        cipher = cipher_of(objects)
        if cipher is None:
            return False
        await self._run(cipher.check_key)
        if not self._cluster_encrypts:
            await check_cluster_encrypts(self._pd, timeout_s=PD_TIMEOUT_S)
            self._cluster_encrypts = True
        return True

    async def _built(
        self,
        hosted: HostedReplica,
        path: Path,
        prepared: common_pb2.Object,
        action: pb.UploadRange,
        objects: ObjectStore,
    ) -> WrittenObject:
        try:
            return await self._run(functools.partial(_build, self._store.wal, hosted, path, prepared, action, objects))
        except (Corruption, ReadFault) as error:
            self._store.read_failed(hosted, error, asyncio.get_running_loop().time())
            raise

    async def _commit(self, prepared: common_pb2.Object, written: WrittenObject, epoch: int) -> None:
        request = pb.CommitObjectRequest(
            request_id=uuid.uuid4().hex,
            object_id=prepared.object_id,
            server=self._identity.name,
            incarnation=self._identity.incarnation,
            size_bytes=written.size_bytes,
            digest=written.digest,
            row_groups=written.row_groups,
            epoch=epoch,
            footer_size_bytes=written.footer_size_bytes,
            footer_crc=written.footer_crc,
            encryption_key_id=written.encryption_key_id,
        )
        await self._pd.call(request, pb.CommitObjectResponse, timeout_s=PD_TIMEOUT_S)

    async def _object_store(self) -> ObjectStore:
        while self._objects is None:
            url = self._url
            if not url:
                raise Unavailable("no tier is configured: give the placement drivers a tier_url")
            objects = await self._run(functools.partial(_open, url, self._keys))
            if url == self._url:  # else the tier was changed meanwhile
                self._objects = objects
        return self._objects

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        with errors_of_building():
            return await self._worker.run(work)


@contextmanager
def errors_of_building() -> Iterator[None]:
    """Turn errors of the disk into StorageFull and Unavailable."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull("no room to build an object in the data directory") from error
        raise Unavailable(f"an object could not be built: {error.strerror or error}") from error


def span_end(hosted: HostedReplica, start_offset: int) -> int:
    """Return where the next object ends: at a batch border, at most SPAN_BYTES_MAX of batches on. Raises InternalError."""
    core = hosted.core
    first = core.batch_number(start_offset)
    if first < 0:
        raise InternalError(f"range {hosted} holds no record at {start_offset}")
    size, number = 0, first
    while number < core.batch_count and (number == first or size + hosted.lengths[number] <= SPAN_BYTES_MAX):
        size += hosted.lengths[number]
        number += 1
    return core.batch_span(number - 1)[1]


def _warm_up() -> None:
    """Import the slow libraries before they are needed."""
    try:
        import rangelog_tier.parquet  # noqa: F401
    except ImportError as error:
        _log.error("the extra 'tier' is not installed: nothing can be uploaded", problem=str(error))


def _open(url: str, keys: KeyProvider | None) -> ObjectStore:
    from rangelog_tier.object_cipher import cipher_of
    from rangelog_tier.object_store import probe
    from rangelog_tier.opening import open_object_store

    objects = open_object_store(url, create=True, keys=keys)
    probe(objects)
    if (cipher := cipher_of(objects)) is not None:
        cipher.check_key()
    return objects


def _batches(wal: Wal, hosted: HostedReplica, start_offset: int, end_offset: int) -> Iterator[bytes]:
    """Yield a sealed replica's batches, checked. Only the places in its index change, so any thread may read them."""
    position = start_offset
    while position < end_offset:
        first, last = hosted.plan(position, end_offset, READ_BYTES)
        if first == last:
            raise InternalError(f"range {hosted} holds no record at {position}")
        yield from _read(wal, hosted, first, last)
        position = hosted.core.batch_span(last - 1)[1]


def _read(wal: Wal, hosted: HostedReplica, first: int, last: int) -> list[bytes]:
    """Read batches; again if they are moved during the read. Raises the errors of read_batches."""
    while True:
        plan = make_plan(hosted, first, last)
        try:
            return read_batches(wal, plan)
        except RangelogError:
            if hosted.dropped or is_current(hosted, plan):
                raise


def _build(
    wal: Wal,
    hosted: HostedReplica,
    path: Path,
    prepared: common_pb2.Object,
    action: pb.UploadRange,
    objects: ObjectStore,
) -> WrittenObject:
    from rangelog_tier.object_cipher import cipher_of
    from rangelog_tier.parquet import write_object

    return write_object(
        path,
        _batches(wal, hosted, prepared.start_offset, prepared.end_offset),
        stream_id=prepared.stream_id,
        stream_name=action.stream_name,
        range_index=prepared.range_index,
        epoch=action.epoch,
        start_offset=prepared.start_offset,
        end_offset=prepared.end_offset,
        object_id=prepared.object_id,
        cipher=cipher_of(objects),
    )


def _store(objects: ObjectStore, key: str, path: Path, written: WrittenObject) -> str:
    from rangelog_tier.storing import store_object

    return store_object(objects, key, path, written)
