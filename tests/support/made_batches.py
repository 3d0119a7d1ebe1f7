"""Encoded batches of every kind of record, beside the records that they hold."""

from __future__ import annotations

from rangelog_core.batch import encode_batch, encode_headers
from rangelog_core.record import Record


def make_batches(count: int, per_batch: int, start: int = 100) -> tuple[list[bytes], list[Record]]:
    """Batches with keys, missing keys, headers, empty values; and the records they hold."""
    batches, records = [], []
    for base in range(start, start + count, per_batch):
        size = min(per_batch, start + count - base)
        keys = [None if n % 3 == 0 else b"" if n % 3 == 1 else b"key-%d" % n for n in range(base, base + size)]
        values = [b"v" * (n % 50) for n in range(base, base + size)]
        headers = [{"h": b"%d" % n} if n % 4 == 0 else {} for n in range(base, base + size)]
        stamps = [1_000_000 + n * 7 % 1000 for n in range(base, base + size)]
        batches.append(
            encode_batch(
                stream_id=1,
                range_index=0,
                epoch=2,
                base_offset=base,
                timestamps_ms=stamps,
                values=values,
                keys=keys,
                headers=[encode_headers(each) for each in headers],
                codec=base // per_batch % 2,
            )
        )
        records += [Record(base + n, stamps[n], keys[n], values[n], headers[n]) for n in range(size)]
    return batches, records
