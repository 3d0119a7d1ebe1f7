"""How the objects of a table are divided: by stream, or topic and shard, which no file names, and by the day of the records.

What holds: an object whose records are all of one day (UTC, by their timestamps) is in that day's partition. One that spans
midnight is in the same table under a second partition spec, which has all but the day, since under the day of its first record
a scan of the next day would leave it out. The second spec is made when the first such object comes. New files of others would
be under the first one, which stays the table's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, LongType, StringType

if TYPE_CHECKING:
    from rangelog_jobs.iceberg_sources import LiveObject, TableSource

DAY_FIELD = "timestamp_day"
TIME_COLUMN = "timestamp"
_US_PER_DAY = 86_400_000_000
_FIRST_FIELD_ID = 1000
_SOURCE_COLUMNS: dict[str, tuple[tuple[str, IcebergType], ...]] = {
    "stream": (("stream", StringType()),),
    "topic": (("topic", StringType()), ("shard", LongType())),
}


def source_columns(source: TableSource) -> tuple[tuple[str, IcebergType], ...]:
    """Return the columns that come before those of an object, and whose values only the table has."""
    return _SOURCE_COLUMNS[source.kind]


def partition_spec(source: TableSource, column_ids: dict[str, int]) -> PartitionSpec:
    """Return how a new table is partitioned; `column_ids`: its field ids by name."""
    names = [name for name, _ in source_columns(source)]
    fields = [
        PartitionField(column_ids[name], _FIRST_FIELD_ID + number, IdentityTransform(), name)
        for number, name in enumerate(names)
    ]
    day = PartitionField(column_ids[TIME_COLUMN], _FIRST_FIELD_ID + len(names), DayTransform(), DAY_FIELD)
    return PartitionSpec(*fields, day)


def is_ours(spec: PartitionSpec, source: TableSource, column_ids: dict[str, int]) -> bool:
    """Whether this is how a table of the source is partitioned, or the second spec."""
    fields = [(each.source_id, str(each.transform)) for each in spec.fields]
    wanted = [(each.source_id, str(each.transform)) for each in partition_spec(source, column_ids).fields]
    return fields in (wanted, wanted[:-1])


def has_day(spec: PartitionSpec) -> bool:
    """Whether a spec, one of ours, divides by day."""
    return isinstance(spec.fields[-1].transform, DayTransform)


def day_of(first_us: int | None, last_us: int | None) -> int | None:
    """Return the day of an object by its earliest and latest timestamp, in days since 1970; None: of several days, or unknown.

    >>> day_of(0, 86_399_999_999), day_of(86_399_999_999, 86_400_000_000), day_of(None, None)
    (0, None, None)
    """
    if first_us is None or last_us is None or first_us // _US_PER_DAY != last_us // _US_PER_DAY:
        return None
    return first_us // _US_PER_DAY


def partition_of(source: TableSource, live: LiveObject, day: int | None) -> Record:
    """Return the values of an object's partition, under the second spec if it has no day."""
    shard = () if live.shard_id is None else (live.shard_id,)
    return Record(source.name, *shard, *(() if day is None else (day,)))


def spec_ids(table: Table, transaction: Transaction, *, need_second: bool) -> dict[bool, int]:
    """Return the ids of the specs, by whether they divide by day; the second one is made if it is needed and not there."""
    found = _spec_ids(transaction)
    if need_second and False not in found:
        column = table.schema().find_column_name(table.spec().fields[-1].source_id)
        assert column is not None
        name = table.spec().fields[-1].name
        with transaction.update_spec() as update:
            update.remove_field(name)
        with transaction.update_spec() as update:  # the same again: the table's own is the one with the day
            update.add_field(column, DayTransform(), name)
        found = _spec_ids(transaction)
    return found


def _spec_ids(transaction: Transaction) -> dict[bool, int]:
    metadata = transaction.table_metadata
    own = metadata.spec()
    wanted = [(each.source_id, str(each.transform)) for each in own.fields[:-1]]
    return {
        has_day(spec): spec_id
        for spec_id, spec in metadata.specs().items()
        if spec_id == own.spec_id or [(each.source_id, str(each.transform)) for each in spec.fields] == wanted
    }
