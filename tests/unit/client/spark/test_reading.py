"""The batches that a task hands to Spark: neither many small ones nor one of a whole row group."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rangelog.spark import reading
from rangelog_core.limits import MIB


def rows(first: int, count: int, size: int) -> pa.RecordBatch:
    """Some rows with values of a size."""
    return pa.record_batch(
        {
            "offset": pa.array(range(first, first + count), pa.int64()),
            "value": pa.array([b"x" * size] * count, pa.binary()),
        }
    )


@pytest.mark.parametrize(
    ("counts", "size", "batches"),
    [
        ([], 100, 0),
        ([10], 0, 1),
        ([5, 5, 5], 100, 1),
        ([900, 900], 1_024, 1),  # two batches of a range server
        ([30_000], 1_024, 30),  # a row group
        ([2, 2], 3 * MIB, 4),  # no batch is empty
    ],
)
def test_rows_come_in_batches_of_about_a_size(counts: list[int], size: int, batches: int) -> None:
    """All rows come once and in order."""
    firsts = [sum(counts[:at]) for at in range(len(counts))]
    found = list(reading._emit([rows(first, count, size) for first, count in zip(firsts, counts, strict=True)]))
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(sum(counts)))
    assert abs(len(found) - batches) <= (batches > 10)
    assert all(batch.num_rows for batch in found)
