"""The contents of an object in the store: its row groups by checksum, its rows beside those of a copy. Blocking; for a thread.

What holds: a missing object is missing, a store that fails is unreachable, never the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdctl.inspection.compare_sums import DIFFERS, MISSING, UNREACHABLE, Verdict
from rangelog_core.errors import Corruption, InvalidArgument, ObjectNotFound, RangelogError
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    from rangelog_tier import ObjectStore
    from rangelog_tier.object_reader import ObjectReader, RowGroup


def failed(error: RangelogError, offset: int) -> Verdict:
    """Return the verdict for an error of the store or of an object."""
    if isinstance(error, ObjectNotFound):
        return Verdict(MISSING, offset, error.message)
    if isinstance(error, Corruption | InvalidArgument):
        return Verdict(DIFFERS, offset, error.message)
    return Verdict(UNREACHABLE, None, error.message)


def open_reader(store: ObjectStore, described: common_pb2.Object) -> ObjectReader:
    """Open an object and check its footer. Raises Corruption, ObjectNotFound, Unavailable."""
    from rangelog_tier.object_reader import ObjectReader

    return ObjectReader(store, described)


def damaged_row_group(reader: ObjectReader, described: common_pb2.Object) -> int | None:
    """Return the first offset of the first row group whose bytes do not fit; None: all do, so the damage is elsewhere."""
    for group in reader.row_groups(described.start_offset, described.end_offset):
        try:
            reader.decode(group, group.first, group.first + group.rows)
        except Corruption:
            return group.first
    return None


def first_damage(store: ObjectStore, described: common_pb2.Object) -> int:
    """Return the first offset that damage makes unreadable; the object's first where that is not known."""
    try:
        found = damaged_row_group(open_reader(store, described), described)
    except RangelogError:
        return described.start_offset
    return described.start_offset if found is None else found


def rows_of(reader: ObjectReader, group: RowGroup, start: int, end: int) -> Any:
    """Return the rows of a row group in [start, end) as an Arrow table. Raises Corruption, ObjectNotFound, Unavailable."""
    import pyarrow as pa

    from rangelog_tier.arrow import SCHEMA

    return pa.Table.from_batches(reader.decode(group, start, end), schema=SCHEMA)


def batches_as_rows(batches: list[bytes], start: int, end: int) -> Any:
    """Return the records of batches in [start, end) as an Arrow table. Raises Corruption, ProtocolViolation."""
    import pyarrow as pa

    from rangelog_tier.arrow import SCHEMA, batch_to_arrow

    return pa.Table.from_batches([batch_to_arrow(data, start, end) for data in batches], schema=SCHEMA)


def first_difference(rows: Any, others: Any) -> int | None:
    """Return the number of the first row that differs, or None."""
    if rows.num_rows == others.num_rows and rows.equals(others):
        return None
    for number, (one, other) in enumerate(zip(rows.to_pylist(), others.to_pylist(), strict=False)):
        if one != other:
            return number
    return None if rows.num_rows == others.num_rows else int(min(rows.num_rows, others.num_rows))
