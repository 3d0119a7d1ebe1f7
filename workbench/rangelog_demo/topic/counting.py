"""The job of the second scene: counts per carrier in a table, exactly once, over deliveries that are at least once.

There are no transactions yet. So each row holds a count and the position up to which it counts (`counts`), and is
written on condition that it still has the version that was read. The rows of a shard are one family, so those that one delivery
changes are changed together. A member that was taken for dead and goes on cannot spoil a row: its versions are old, and
after a second look its records lie below the positions.

The seam: a transactional job (consume, transform, produce) replaces `ConditionalCounting` and the automatic commits of its
group member; the positions in the rows go then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rangelog_core.errors import PreconditionFailed, RangelogError, RequestTimeout
from rangelog_demo.topic.counts import CountRow, counted, decode_row, encode_row

if TYPE_CHECKING:
    from rangelog import Table

_TIMEOUT_S = 60.0
_PAUSE_S = 0.02


class Counting(Protocol):
    """The work of a group member on the records of one delivery."""

    async def count(self, shard_id: int, first_offset: int, carriers: Sequence[bytes]) -> None:
        """Count consecutive records of a shard; they are counted durably when the call returns."""


class ConditionalCounting:
    """See the module. One per member; the rows that it has written are remembered."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: dict[int, dict[bytes, CountRow]] = {}

    async def count(self, shard_id: int, first_offset: int, carriers: Sequence[bytes]) -> None:
        """Count consecutive records of a shard. Raises RequestTimeout, and what the table raises and is not retriable."""
        from rangelog import TablePut

        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                rows = await self._known(shard_id)
                changed = counted(rows, first_offset, carriers)
                if changed:
                    writes = [
                        TablePut(carrier, encode_row(row), row.version or None, if_absent=not row.version)
                        for carrier, row in changed.items()
                    ]
                    version = await self._table.update(writes, family=family_of(shard_id))
                    rows.update((carrier, row._replace(version=version)) for carrier, row in changed.items())
                return
            except RangelogError as error:
                self._rows.pop(shard_id, None)  # whether or not it was written: the next look decides
                if not (isinstance(error, PreconditionFailed) or error.retriable or error.outcome_unknown):
                    raise
                if time.monotonic() > deadline:
                    raise RequestTimeout(f"shard {shard_id} is not counted within {_TIMEOUT_S:g} s: {error}") from error
            await asyncio.sleep(_PAUSE_S)

    async def _known(self, shard_id: int) -> dict[bytes, CountRow]:
        rows = self._rows.get(shard_id)
        if rows is None:
            found = self._table.scan(family=family_of(shard_id))
            rows = self._rows[shard_id] = {row.key: decode_row(row.value, row.version) async for row in found}
        return rows


async def read_counts(table: Table) -> Mapping[str, int]:
    """Carrier → count, over all shards."""
    counts: dict[str, int] = {}
    async for row in table.scan_all():
        carrier = row.key.decode()
        counts[carrier] = counts.get(carrier, 0) + decode_row(row.value, row.version).flights
    return counts


def family_of(shard_id: int) -> bytes:
    """The family of a shard's rows."""
    return b"shard-%d" % shard_id
