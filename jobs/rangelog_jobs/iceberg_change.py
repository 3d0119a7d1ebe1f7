"""One change of a table: which objects to add and to remove, which rows to hide, and the one snapshot that does it.

Rows below the trim offset in an object that has later ones are hidden by an Iceberg file of deleted positions; the object
itself is neither copied nor changed. Each partly trimmed object has one such file; a later trim replaces it.

What holds: a snapshot is committed only on top of the one that the change was made from; pyiceberg's own retries, which would
add the same files again on top of another snapshot, are off. So of two runs at once one fails with a conflict and looks again,
and a run that is killed leaves the table as it was, or with the whole change.

This module uses some private parts of pyiceberg, whose public interface writes no deleted positions: the extra `iceberg`
therefore names a range of versions.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from rangelog_core.errors import Corruption, PreconditionFailed
from rangelog_core.limits import KIB, MIB
from rangelog_core.versions import OBJECT_VERSIONS, unsupported
from rangelog_jobs.iceberg_partitions import TIME_COLUMN, day_of, partition_of, spec_ids
from rangelog_jobs.iceberg_sources import LiveObject, TableSource
from rangelog_jobs.iceberg_table import (
    PATH_ID,
    POSITION_ID,
    TRIM_FILE,
    TableState,
    field_ids,
    missing_columns,
)
from rangelog_tier.object_cipher import is_encrypted
from rangelog_tier.parquet import FORMAT_VERSION

_FOOTERS_AT_ONCE = 16
_POSITIONS_AT_ONCE = 1 << 20
_MERGED_BYTES = MIB // 2
"""About 2,500 objects: in larger ones a reader would pass over many days to find one."""
_MERGED_COUNT = 100
_TAIL_BYTES = 64 * KIB
_AUDIT = "see what `rangelog-spark audit` says of the stream"
_POSITION = struct.Struct("<q")
_POSITIONS_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


@dataclass(slots=True)
class TierChange:
    """The objects that a table lacks, those it has too much, and those of which more rows are to be hidden.

    `trims_gone`: the entries of files of deleted positions that no longer count.
    """

    added: list[LiveObject] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)
    trims_added: list[LiveObject] = field(default_factory=list)
    trims_gone: list[ManifestEntry] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.trims_added or self.trims_gone)


def plan_change(state: TableState, live: Iterable[LiveObject]) -> TierChange:
    """Return what makes a table with this state a table of these objects."""
    wanted = {each.url: each for each in live}
    change = TierChange(
        added=[each for url, each in wanted.items() if url not in state.objects],
        removed=[file for url, file in state.objects.items() if url not in wanted],
    )
    hidden = {url: entry.data_file.record_count for url, entry in state.trims.items()}
    change.trims_added = [each for url, each in wanted.items() if each.trimmed_count > hidden.get(url, 0)]
    replaced = {each.url for each in change.trims_added}
    change.trims_gone = [entry for url, entry in state.trims.items() if url not in wanted or url in replaced]
    return change


def commit_change(table: Table, source: TableSource, state: TableState, change: TierChange) -> int:
    """Commit the change as one snapshot on top of the state that it was made from; return the snapshot's id.

    Raises FileNotFoundError (an object is gone meanwhile), Corruption, UnsupportedVersion (an object of a later program), and
    the errors in CONFLICTS: another commit was first, or the outcome is unknown.
    """
    footers = _read_footers(table, change.added)
    properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})  # here, not in the stored table
    transaction = table.transaction()
    if table.name_mapping() is None:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    if absent := missing_columns(table):
        with transaction.update_schema() as update:
            for name, kind in absent:
                update.add_column(name, kind)
    ids = spec_ids(table, transaction, need_second=any(each.day is None for each in footers))
    files = [_data_file(table, source, each, ids[each.day is not None]) for each in footers]
    known = state.objects | {each.file_path: each for each in files}
    trims = [_write_trim(table, each, known[each.url]) for each in change.trims_added]
    producer = _TierSnapshot(_operation(change), transaction, table.io)
    try:
        producer.fill(files, change, state, trims)
        producer.commit()
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException):  # nothing was committed
        for each in trims:
            with suppress(OSError):
                table.io.delete(each.file_path)
        raise
    except CommitStateUnknownException:
        if table.refresh().snapshot_by_id(producer.snapshot_id) is None:
            raise
    return producer.snapshot_id


class _TrimManifestWriter(ManifestWriterV2):
    """Writes the manifest of files of deleted positions."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _TierSnapshot(_OverwriteFiles):
    """One snapshot that adds and removes objects and files of deleted positions."""

    def fill(self, files: Iterable[DataFile], change: TierChange, state: TableState, trims: list[DataFile]) -> None:
        """Take the change; `files`: the objects to add, `trims`: the new files of deleted positions."""
        self._objects = list(files)
        if change.removed:
            self.delete_by_predicate(AlwaysTrue())  # else no manifest of a table without partitions is looked at
            for file in change.removed:
                self.delete_data_file(file)
        gone = {entry.data_file.file_path for entry in change.trims_gone}
        self._trims_gone = change.trims_gone
        self._trims_kept = [each for each in state.trims.values() if each.data_file.file_path not in gone]
        self._trims_added = trims

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Write what is added, drop manifests that name nothing any more, and merge small ones, so that readers open few."""
        current = [
            each
            for each in [*self._object_manifests(), *manifests]
            if each.has_added_files() or each.has_existing_files() or each.added_snapshot_id == self.snapshot_id
        ]
        merger: Any = _ManifestMergeManager(_MERGED_BYTES, _MERGED_COUNT, True, self)
        data = merger.merge_manifests([each for each in current if each.content == ManifestContent.DATA])
        if self._trims_added or self._trims_gone:
            return [*data, *self._trim_manifests()]
        return [*data, *(each for each in current if each.content == ManifestContent.DELETES)]

    def _object_manifests(self) -> list[ManifestFile]:
        """Write the manifests of the objects that are added, one for each partition spec."""
        written = []
        for spec_id in sorted({each.spec_id for each in self._objects}):
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in self._objects:
                    if file.spec_id == spec_id:
                        writer.add(ManifestEntry.from_args(snapshot_id=self.snapshot_id, data_file=file))
            written.append(writer.to_manifest_file())
        return written

    def _trim_manifests(self) -> list[ManifestFile]:
        entries = [
            *((ManifestEntryStatus.EXISTING, each) for each in self._trims_kept),
            *((ManifestEntryStatus.DELETED, each) for each in self._trims_gone),
            *((ManifestEntryStatus.ADDED, ManifestEntry.from_args(data_file=each)) for each in self._trims_added),
        ]
        written = []
        for spec_id in sorted({entry.data_file.spec_id for _, entry in entries}):
            with self.new_trim_writer(spec_id) as writer:
                for status, entry in entries:
                    if entry.data_file.spec_id == spec_id:
                        _WRITES[status](writer, entry)
            written.append(writer.to_manifest_file())
        return written

    def new_trim_writer(self, spec_id: int) -> _TrimManifestWriter:
        """Return a writer of a manifest of files of deleted positions."""
        return _TrimManifestWriter(
            self.spec(spec_id), self.schema(), self.new_manifest_output(), self.snapshot_id, self._compression
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Count objects of both partition specs, and files of deleted positions, which pyiceberg's own does not know."""
        metadata = self._transaction.table_metadata
        specs, schema = metadata.specs(), metadata.schema()
        counts = SnapshotSummaryCollector()
        for file in (*self._objects, *self._trims_added):
            counts.add_file(file, schema, specs[file.spec_id])
        for file in (*self._deleted_data_files, *(each.data_file for each in self._trims_gone)):
            counts.remove_file(file, schema, specs[file.spec_id])
        before = metadata.current_snapshot()
        summary = Summary(operation=self._operation, **counts.build(), **snapshot_properties)
        return update_snapshot_summaries(summary, before.summary if before is not None else None)


_WRITES = {
    ManifestEntryStatus.EXISTING: _TrimManifestWriter.existing,
    ManifestEntryStatus.DELETED: _TrimManifestWriter.delete,
    ManifestEntryStatus.ADDED: _TrimManifestWriter.add,
}


def _operation(change: TierChange) -> Operation:
    if not change.added:
        return Operation.DELETE
    return Operation.OVERWRITE if change.removed or change.trims_added or change.trims_gone else Operation.APPEND


@dataclass(frozen=True, slots=True)
class _ObjectFooter:
    """The contents of an object's footer. `lowest`, `highest`: of the columns that have bounds; `day`: see `day_of`."""

    live: LiveObject
    split_offsets: list[int]
    lowest: dict[str, bytes]
    highest: dict[str, bytes]
    day: int | None


def _read_footers(table: Table, objects: list[LiveObject]) -> list[_ObjectFooter]:
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return list(pool.map(lambda each: _read_footer(table.io, each), objects))


def _read_footer(io: FileIO, live: LiveObject) -> _ObjectFooter:
    """Read the footer of an object. Raises FileNotFoundError, Corruption, UnsupportedVersion."""
    data, size_bytes = _read_tail(io, live.url)
    if is_encrypted(data):
        raise PreconditionFailed(
            f"object {live.url} is encrypted, and readers of an Iceberg table are given no keys: export its rows "
            "(docs/reading-the-tier.md)"
        )
    try:
        footer = pq.read_metadata(pa.BufferReader(data))
        version = int((footer.metadata or {}).get(FORMAT_VERSION.encode(), b"0"))
        lowest, highest = _bounds(footer)
        starts = [_start_of(footer.row_group(each)) for each in range(footer.num_row_groups)]
    except (ValueError, LookupError, OSError) as error:  # of the parser: everything is read
        raise Corruption(f"the footer of object {live.url} is damaged: {_AUDIT}") from error
    if version > OBJECT_VERSIONS.highest:
        raise unsupported(f"object {live.url}", version, OBJECT_VERSIONS, "this program")
    count = live.end_offset - live.start_offset
    if (footer.num_rows, size_bytes) != (count, live.size_bytes) or version < OBJECT_VERSIONS.lowest:
        found, wanted = f"{footer.num_rows} rows in {size_bytes} bytes", f"{count} in {live.size_bytes}"
        raise Corruption(f"object {live.url} is not the one that was committed: {found}, not {wanted}: {_AUDIT}")
    times = [_POSITION.unpack(each[TIME_COLUMN])[0] if TIME_COLUMN in each else None for each in (lowest, highest)]
    return _ObjectFooter(live, starts, lowest, highest, day_of(*times))


def _read_tail(io: FileIO, url: str) -> tuple[bytes, int]:
    """Return the end of a file, with the whole footer, and the file's size."""
    with io.new_input(url).open() as stream:
        stream.seek(0, os.SEEK_END)
        size_bytes = stream.tell()
        length = min(size_bytes, _TAIL_BYTES)
        while True:
            stream.seek(size_bytes - length)
            data = stream.read(length)
            needed = int.from_bytes(data[-8:-4], "little") + 8
            if needed <= length or length == size_bytes:
                return data, size_bytes
            length = min(size_bytes, needed)


def _data_file(table: Table, source: TableSource, footer: _ObjectFooter, spec_id: int) -> DataFile:
    """Return the entry of an object."""
    columns = field_ids(table)
    live = footer.live
    count = live.end_offset - live.start_offset
    required = [columns[each] for each in ("offset", "timestamp", "value")]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=live.url,
        file_format=FileFormat.PARQUET,
        partition=partition_of(source, live, footer.day),
        record_count=count,
        file_size_in_bytes=live.size_bytes,
        value_counts=dict.fromkeys([*required, columns["key"]], count),
        null_value_counts=dict.fromkeys(required, 0),
        lower_bounds={columns[name]: bound for name, bound in footer.lowest.items()},
        upper_bounds={columns[name]: bound for name, bound in footer.highest.items()},
        split_offsets=footer.split_offsets,
    )
    file.spec_id = spec_id
    return file


def _bounds(footer: Any) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the bounds of offset and timestamp, as Iceberg writes them: 8 bytes each."""
    places = {footer.schema.column(each).path: each for each in range(footer.num_columns)}
    lowest, highest = {}, {}
    for name in ("offset", TIME_COLUMN):
        groups = [footer.row_group(each).column(places[name]).statistics for each in range(footer.num_row_groups)]
        if all(each is not None and each.has_min_max for each in groups):
            lowest[name] = _POSITION.pack(min(each.min_raw for each in groups))
            highest[name] = _POSITION.pack(max(each.max_raw for each in groups))
    return lowest, highest


def _start_of(group: Any) -> int:
    """Return where a row group starts in the file: with the first page of its first column."""
    first = group.column(0)
    return int(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)


def _write_trim(table: Table, live: LiveObject, of: DataFile) -> DataFile:
    """Write the file that hides the trimmed rows of an object: the first ones, since rows are in order of offsets.

    It is in the partition of `of`, the object's entry, as Iceberg asks.
    """
    count = live.trimmed_count
    path = table.location_provider().new_data_location(f"{TRIM_FILE}{uuid.uuid4().hex}.parquet")
    with (
        table.io.new_output(path).create() as target,
        pq.ParquetWriter(target, _POSITIONS_SCHEMA, compression="zstd", use_dictionary=["file_path"]) as writer,
    ):
        for start in range(0, count, _POSITIONS_AT_ONCE):
            positions = pa.array(range(start, min(start + _POSITIONS_AT_ONCE, count)), pa.int64())
            paths = pa.repeat(pa.scalar(live.url), len(positions))
            writer.write_table(pa.table([paths, positions], schema=_POSITIONS_SCHEMA))
    bounds = live.url.encode()
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=count,
        file_size_in_bytes=len(table.io.new_input(path)),
        value_counts=dict.fromkeys((PATH_ID, POSITION_ID), count),
        null_value_counts=dict.fromkeys((PATH_ID, POSITION_ID), 0),
        lower_bounds={PATH_ID: bounds, POSITION_ID: _POSITION.pack(0)},
        upper_bounds={PATH_ID: bounds, POSITION_ID: _POSITION.pack(count - 1)},
    )
    file.spec_id = of.spec_id
    return file
