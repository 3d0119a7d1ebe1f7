"""Which replicas a heartbeat reports: those that changed since the last one that was answered, or all where a leader asks.

What holds: a change of state (sealed, fenced, whole, damaged, gone, new) is in the next heartbeat. Open replicas that only grew
take turns, `GROWN_MAX` in one heartbeat: their offsets decide nothing at the placement driver. What was in a heartbeat
that failed is reported again. Reports are made a slice at a time, so the event loop has its turns; what changes meanwhile is
in the next heartbeat.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.ranges.report import report_gone, report_of
from rangelog_server.ranges.store import Store

GROWN_MAX = 2_000
"""Some 7 ms each half second, however many streams are written to."""
SLICE = 1_000

Key = tuple[int, int]


class Reporting:
    """See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._complete_wanted = True
        self._unanswered: tuple[bool, dict[Key, None], dict[Key, None]] = (False, {}, {})

    def want_complete(self) -> None:
        """The next heartbeat reports all."""
        self._complete_wanted = True

    async def fill(self, request: pb.HeartbeatRequest) -> None:
        """Put the reports into a heartbeat. Its outcome is told by `answered` or `failed`."""
        store = self._store
        complete, self._complete_wanted = self._complete_wanted, False
        changed, store.changed = store.changed, {}
        grown: dict[Key, None] = {}
        if complete:
            grown, store.grown = store.grown, {}
        else:
            for key in list(islice(store.grown, GROWN_MAX)):
                grown[key] = store.grown.pop(key)
        self._unanswered = complete, changed, grown
        request.complete = complete
        keys = list(store.replicas) if complete else [*changed, *(key for key in grown if key not in changed)]
        for start in range(0, len(keys), SLICE):
            if start:
                await asyncio.sleep(0)
            request.replicas.extend(self._report(key) for key in keys[start : start + SLICE])

    def answered(self) -> None:
        """The heartbeat was answered."""
        self._unanswered = (False, {}, {})

    def failed(self) -> None:
        """It was not, or was refused: report the same again, and what came meanwhile."""
        complete, changed, grown = self._unanswered
        self._unanswered = (False, {}, {})
        self._complete_wanted = self._complete_wanted or complete
        self._store.changed = changed | self._store.changed
        self._store.grown = grown | self._store.grown

    def _report(self, key: Key) -> pb.ReplicaReport:
        hosted = self._store.replicas.get(key)
        return report_of(hosted) if hosted is not None else report_gone(key)
