"""Repacking: the objects of neighbouring ranges are read, written as one, and replaced by it.

What holds: the rows are those of the replaced objects, in order of offset, with the headers of their batches, from the start
of the new object on: where a repack drops trimmed rows, that is where the stream was trimmed to. The new object is read back
before it is committed; and the commit is carried out only if every replaced object still counts. A repack that ends in the
middle changes nothing: its object becomes a tombstone once its deadline has passed, and is removed from the store.
"""

from __future__ import annotations

import asyncio
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rangelog_core.batch import peek_header
from rangelog_core.errors import PreconditionFailed, Unavailable
from rangelog_core.net.pd_client import PdClient
from rangelog_core.repack_choice import RepackUnit, joinable
from rangelog_core.tier_stores import check_has_store
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_tier.encryption_gate import check_cluster_encrypts
from rangelog_tier.object_cipher import cipher_of
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.object_store import ObjectStore
from rangelog_tier.parquet import BATCH_HEADER, ROW_GROUP_BYTES_MAX, ROW_GROUP_ROWS_MAX, ObjectWriter, WrittenObject
from rangelog_tier.storing import not_stored, store_object

PARTS = "rangelog.parts"
"""Metadata of an object with the records of several ranges: index/epoch/start of each, to rebuild streams from the store."""
PD_TIMEOUT_S = 30.0
EXTEND_S = 20.0
"""The placement driver gives a packer two minutes at a time, unless it is set otherwise."""
CLUSTER_VERSION_MIN = 5
"""Before, some of the placement drivers do not know of repacks."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Repack:
    """Committed objects that are to become one: all those of some neighbouring ranges, in order of offset."""

    stream_id: int
    stream_name: str
    objects: Sequence[common_pb2.Object]
    parts: str = ""
    """The value of PARTS."""

    @property
    def size_bytes(self) -> int:
        """The bytes that are read."""
        return sum(each.size_bytes for each in self.objects)


async def check_cluster(pd: PdClient) -> None:
    """Raise Unavailable unless all placement drivers know of repacks."""
    version = (
        await pd.call(pb.DescribeClusterRequest(), pb.DescribeClusterResponse, timeout_s=PD_TIMEOUT_S)
    ).cluster_version
    if version < CLUSTER_VERSION_MIN:
        raise Unavailable(
            f"objects are repacked from cluster version {CLUSTER_VERSION_MIN} on, and this cluster is at {version}: upgrade "
            "all placement drivers (`pdctl cluster status` shows their levels)"
        )


class Repacker:
    """Carries out repacks, one after the other.

    Example:
        ```python
        packer = Repacker(pd, store, directory, tier_url="s3://bucket")
        for work in plan_repacks(stream, ranges, objects, target_bytes=256 * MIB):
            made = await packer.repack(work)
        ```
    """

    def __init__(
        self,
        pd: PdClient,
        store: ObjectStore,
        directory: Path,
        *,
        tier_url: str,
        name: str = "",
        incarnation: int = 0,
        spoiled_object_id: int = 0,
    ) -> None:
        """Prepare to repack.

        Args:
            pd: The placement drivers.
            store: The tier.
            tier_url: The URL by which it was opened, of all its stores.
            directory: For the object while it is written; it has room for the target size.
            name: Of the packer; by default one that no other has.
            incarnation: Of the range server of this name; then trimmed rows are dropped, which needs cluster version 7.
            spoiled_object_id: The object of an earlier try, under whose key other bytes are stored.
        """
        self._pd = pd
        self._store = store
        self._tier_url = tier_url
        self._cipher = cipher_of(store)
        self._directory = directory
        self._name = name or f"repack-{uuid.uuid4().hex}"
        self._incarnation = incarnation
        self.spoiled_object_id = spoiled_object_id
        """After a repack that failed because its key holds other bytes: that of the next try."""

    async def repack(self, work: Repack) -> common_pb2.Object:
        """Replace the objects by one, and return it.

        Raises PreconditionFailed: one of them is not live any more, or another one is repacking them; then nothing has changed.
        Raises Corruption, ObjectNotFound: one of them is damaged or missing. Raises StreamNotFound, Unavailable (the tier was
        changed since it was opened, for one), and EncryptionKeyMissing: a key to read or to write with is not here, or the
        cluster encrypts and the store has no keys.
        """
        if self._cipher is not None:
            await asyncio.to_thread(self._cipher.check_key)
            await check_cluster_encrypts(self._pd, timeout_s=PD_TIMEOUT_S)
        prepared = await self._prepare(work)
        path = self._directory / f"{prepared.object_id}.parquet"
        try:
            written = await self._run(work, prepared, lambda: write_repacked(path, self._store, work, prepared))
            await self._extend(work, prepared)
            problem = await self._run(work, prepared, lambda: store_object(self._store, prepared.key, path, written))
        finally:
            path.unlink(missing_ok=True)
        if problem:
            self.spoiled_object_id = prepared.object_id
            raise not_stored(prepared.key, problem)
        request = pb.CommitRepackRequest(
            request_id=uuid.uuid4().hex,
            object_id=prepared.object_id,
            packer=self._name,
            size_bytes=written.size_bytes,
            digest=written.digest,
            row_groups=written.row_groups,
            footer_size_bytes=written.footer_size_bytes,
            footer_crc=written.footer_crc,
            encryption_key_id=written.encryption_key_id,
        )
        with self._committing(work.stream_id):
            return (await self._pd.call(request, pb.CommitRepackResponse, timeout_s=PD_TIMEOUT_S)).object

    def _committing(self, stream_id: int) -> AbstractContextManager[None]:
        """Return what is entered around a commit."""
        return nullcontext()

    async def _prepare(self, work: Repack) -> common_pb2.Object:
        request = pb.PrepareRepackRequest(
            request_id=uuid.uuid4().hex,
            stream_id=work.stream_id,
            object_ids=[each.object_id for each in work.objects],
            packer=self._name,
            incarnation=self._incarnation,
            spoiled_object_id=self.spoiled_object_id,
            drops_trimmed=bool(self._incarnation),
            encrypted=self._cipher is not None,
        )
        prepared = (await self._pd.call(request, pb.PrepareRepackResponse, timeout_s=PD_TIMEOUT_S)).object
        check_has_store(self._tier_url, prepared.tier_id)
        return prepared

    async def _extend(self, work: Repack, prepared: common_pb2.Object) -> None:
        """Ask for a later deadline. Raises PreconditionFailed: the object was given up meanwhile."""
        if (await self._prepare(work)).object_id != prepared.object_id:
            raise PreconditionFailed(
                "the repack took longer than its deadline, and was given up: it may be tried again"
            )

    async def _run(self, work: Repack, prepared: common_pb2.Object, step: Callable[[], _Result]) -> _Result:
        """Run a step in a thread, and ask for a later deadline as long as the step lasts."""
        running = asyncio.ensure_future(asyncio.to_thread(step))
        try:
            while not (await asyncio.wait({running}, timeout=EXTEND_S))[0]:
                await self._extend(work, prepared)
        except BaseException:
            await asyncio.wait({running})  # a thread cannot be stopped: the file stays until the thread has ended
            running.cancelled() or running.exception()
            raise
        return running.result()


def write_repacked(path: Path, store: ObjectStore, work: Repack, prepared: common_pb2.Object) -> WrittenObject:
    """Write the rows of all objects from the new one's start on to one file; memory is bounded by two row groups.

    With the keys of the store the file is encrypted, by the key that is the current one now, whatever the read objects are.
    Raises Corruption, ObjectNotFound, UnsupportedVersion, Unavailable: an object cannot be read.
    """
    with ObjectWriter(
        path,
        stream_id=work.stream_id,
        stream_name=work.stream_name,
        range_index=prepared.range_index,
        epoch=prepared.epoch,
        start_offset=prepared.start_offset,
        end_offset=prepared.end_offset,
        object_id=prepared.object_id,
        metadata={PARTS: work.parts},
        cipher=cipher_of(store),
    ) as written:
        for table in _joined(_row_groups(store, work.objects, prepared.start_offset)):
            written.add(table)
        return written.finish()


def _row_groups(store: ObjectStore, objects: Sequence[common_pb2.Object], start: int) -> Iterator[pa.Table]:
    for described in objects:
        if described.end_offset <= start:
            continue
        reader = ObjectReader(store, described)
        for group in reader.row_groups(start, described.end_offset):
            table = reader.rows(group)
            yield _from_row(table, start - group.first) if group.first < start else table


def _from_row(table: pa.Table, row: int) -> pa.Table:
    """Return the rows of a row group from one on. Where it is within a batch with a header, it gets that header."""
    headers = table.column(BATCH_HEADER)
    rest = table.slice(row)
    before = pc.indices_nonzero(headers.slice(0, row).is_valid())
    if headers[row].is_valid or not len(before):
        return rest
    header = headers[before[-1].as_py()].as_py()
    if peek_header(header).end_offset <= rest.column("offset")[0].as_py():
        return rest
    first = pa.array([header], type=headers.type)
    column = pa.chunked_array([first, *rest.column(BATCH_HEADER).slice(1).chunks])
    return rest.set_column(table.schema.get_field_index(BATCH_HEADER), table.schema.field(BATCH_HEADER), column)


def _joined(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join row groups as long as they fit into one.

    None is divided, and one that begins within a batch is not joined to the one before it: a reader finds the header of a batch
    with the batch's first row, or with that of the row group.
    """
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        full = rows + table.num_rows > ROW_GROUP_ROWS_MAX or size + table.nbytes > ROW_GROUP_BYTES_MAX
        if waiting and (full or _begins_within_a_batch(table)):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(table)
        rows += table.num_rows
        size += table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _begins_within_a_batch(table: pa.Table) -> bool:
    header = table.column(BATCH_HEADER)[0].as_py()
    return header is not None and peek_header(header).base_offset != table.column("offset")[0].as_py()


def plan_repacks(
    stream: common_pb2.Stream,
    ranges: Sequence[common_pb2.Range],
    objects: Sequence[common_pb2.Object],
    target_bytes: int,
) -> list[Repack]:
    """Return the repacks that join small objects of whole ranges into objects of up to `target_bytes`.

    What holds: no object is in two repacks; ranges that are open or not yet wholly in the tier, and objects of more than half
    of the target, are left alone. At least half of a repack's bytes come from others than its largest range, so each repack of
    a record doubles its object: that is done log2(target / first size) times at most, however often repacks are planned.

    Args:
        stream: The stream.
        ranges: All its ranges, in order.
        objects: All its committed objects, in order.
        target_bytes: The largest size of an object to make, by the sizes of those that it replaces.

    Example:
        ```python
        stream, ranges = await metadata.ranges("flights", 0)
        objects = await metadata.all_objects(stream.stream_id, 0)
        print(len(plan_repacks(stream, ranges, objects, target_bytes=256 * MIB)))
        ```
    """
    return [_repack(stream, ranges, some) for some in joinable(_units(ranges, objects), target_bytes)]


def plan_new_keys(
    stream: common_pb2.Stream,
    ranges: Sequence[common_pb2.Range],
    objects: Sequence[common_pb2.Object],
    key_id: str,
    others: Sequence[Repack],
) -> list[Repack]:
    """Return the repacks, one for each range or run of ranges, of what is in clear or encrypted by another key than `key_id`.

    Objects that `others` repack are left out: they get the current key by that. Arguments else as in `plan_repacks`.
    """
    taken = {each.object_id for work in others for each in work.objects}
    return [
        _repack(stream, ranges, [unit])
        for unit in _units(ranges, objects)
        if any(each.encryption_key_id != key_id for each in unit.objects)
        and not any(each.object_id in taken for each in unit.objects)
    ]


def _units(ranges: Sequence[common_pb2.Range], objects: Sequence[common_pb2.Object]) -> Iterator[RepackUnit]:
    """Yield the objects of each range that is wholly in the tier, or of each run of ranges that share one object."""
    ends = {
        each.index: each.end_offset
        for each in ranges
        if each.state == common_pb2.RANGE_STATE_SEALED and each.tiered_end_offset == each.end_offset
    }
    unit: list[common_pb2.Object] = []
    for each in objects:
        if unit and unit[-1].range_index != each.range_index:
            unit = []
        unit.append(each)
        if ends.get(each.range_index) == each.end_offset:
            yield RepackUnit.of(unit, len(_ranges_of(ranges, unit[0].start_offset, unit[-1].end_offset)))
            unit = []


def _ranges_of(ranges: Sequence[common_pb2.Range], start: int, end: int) -> range:
    """Return the places in a list of the ranges that have offsets of [start, end), by bisection."""
    first = bisect_right(ranges, start, key=_start_of)
    return range(max(0, first - 1), bisect_left(ranges, end, key=_start_of))


def _start_of(of: common_pb2.Range) -> int:
    return of.start_offset


def _repack(stream: common_pb2.Stream, ranges: Sequence[common_pb2.Range], units: Sequence[RepackUnit]) -> Repack:
    objects = [each for unit in units for each in unit.objects]
    places = _ranges_of(ranges, objects[0].start_offset, objects[-1].end_offset)
    parts = [each for each in map(ranges.__getitem__, places) if each.end_offset > each.start_offset]
    told = ",".join(f"{each.index}/{each.epoch}/{each.start_offset}" for each in parts)
    return Repack(stream.stream_id, stream.name, objects, told)
