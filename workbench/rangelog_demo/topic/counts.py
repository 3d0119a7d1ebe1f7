"""Counts per carrier that are right however often a record is delivered. Pure: rows and records in, changed rows out.

What holds: there is one row per carrier and shard, with a count of flights and a position: all records of the carrier in the
shard below the position are counted, and none at or above it. Count and position change together, so a record that is
delivered again lies below the position and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rangelog_core.errors import Corruption


class CountRow(NamedTuple):
    """The row of a carrier in a shard; `version` is the table's, 0 for a row that is not there yet."""

    flights: int = 0
    position: int = 0
    version: int = 0


NO_ROW = CountRow()


def counted(rows: Mapping[bytes, CountRow], first_offset: int, carriers: Sequence[bytes]) -> dict[bytes, CountRow]:
    """Count consecutive records of one shard, given by carrier; return the rows that change."""
    changed: dict[bytes, CountRow] = {}
    for offset, carrier in enumerate(carriers, first_offset):
        row = changed.get(carrier) or rows.get(carrier, NO_ROW)
        if offset >= row.position:
            changed[carrier] = CountRow(row.flights + 1, offset + 1, row.version)
    return changed


def encode_row(row: CountRow) -> bytes:
    """The value of a row in the table."""
    return json.dumps({"count": row.flights, "position": row.position}).encode()


def decode_row(value: bytes, version: int) -> CountRow:
    """A row of the table. Raises Corruption for another value than `encode_row` makes."""
    try:
        fields = json.loads(value)
        return CountRow(int(fields["count"]), int(fields["position"]), version)
    except (ValueError, KeyError, TypeError):
        raise Corruption(f"{value!r} is not a row of counts") from None
