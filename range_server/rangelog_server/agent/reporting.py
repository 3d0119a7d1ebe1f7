"""Which replicas a heartbeat reports: those that changed since the last one with a reply, or all if the leader requests them.

What holds: a change of state (sealed, fenced, whole, damaged, dropped, new) is in the next heartbeat. Open replicas that only
grew take turns, `GROWN_MAX` in one heartbeat, since the placement driver decides nothing by their offsets. The reports of a
failed heartbeat are sent again. Reports are made in slices, so that the event loop does its other work in between; a change
meanwhile is in the next heartbeat.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.ranges.report import report_gone, report_of
from rangelog_server.ranges.store import Store

GROWN_MAX = 2_000
"""About 7 ms per half second, however many streams have writers."""
SLICE = 1_000

Key = tuple[int, int]


class Reporting:
    """The selection of reports for heartbeats."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._complete_wanted = True
        self._unanswered: tuple[bool, dict[Key, None], dict[Key, None]] = (False, {}, {})

    def want_complete(self) -> None:
        """Report all replicas in the next heartbeat."""
        self._complete_wanted = True

    async def fill(self, request: pb.HeartbeatRequest) -> None:
        """Put the reports into a heartbeat. The caller then calls `answered` or `failed`."""
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
        """Note that the heartbeat got its reply."""
        self._unanswered = (False, {}, {})

    def failed(self) -> None:
        """Note that the heartbeat failed: its reports are sent again, with those of later changes."""
        complete, changed, grown = self._unanswered
        self._unanswered = (False, {}, {})
        self._complete_wanted = self._complete_wanted or complete
        self._store.changed = changed | self._store.changed
        self._store.grown = grown | self._store.grown

    def _report(self, key: Key) -> pb.ReplicaReport:
        hosted = self._store.replicas.get(key)
        return report_of(hosted) if hosted is not None else report_gone(key)
