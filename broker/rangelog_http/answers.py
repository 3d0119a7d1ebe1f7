"""The status of each error of records, in HTTP's terms: the house's table, and where this door is more precise.

What holds: an error after which the record may be in the log is a 504, whatever its class; only a defect is a 500.
"""

from __future__ import annotations

from rangelog.errors import (
    ClientClosed,
    OffsetOutOfRange,
    Overloaded,
    RangelogError,
    RecordTooLarge,
    RoleForbids,
    WriterClosed,
)
from rangelog_server_common import http_answers

RETRY_AFTER_S = 1
"""Of a 429 or 503."""

_STATUSES: tuple[tuple[type[RangelogError], int], ...] = (
    (RecordTooLarge, 413),
    (OffsetOutOfRange, 416),
    (Overloaded, 429),
    (RoleForbids, 403),
    (WriterClosed, 503),
    (ClientClosed, 503),
)


def status_of(error: RangelogError) -> int:
    """Return the status of an error.

    >>> status_of(Overloaded("busy")), status_of(WriterClosed("ended", outcome_unknown=True))
    (429, 504)
    """
    if error.outcome_unknown:
        return 504
    own = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
    return http_answers.status_of(error) if own is None else own
