"""LeaveRange: refuse further appends to an open range, and say so to its writer, which then goes on on other servers.

What holds: what the replica has stays, and copies of a recoverer are taken as before. The refusal ends a while after the
placement driver has last asked for it: a server that is not to be left any more takes appends again. With `only_asks` nothing
is refused: the writer hears that another range can have more replicas, each time that the placement driver says so.
"""

from __future__ import annotations

import asyncio

from rangelog_core.errors import Unavailable
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives.runner import DONE_AGAIN_AFTER_S
from rangelog_server.ranges.hosted_replica import HostedReplica, RangeKey
from rangelog_server.ranges.store import Store

LEAVING_S = 3 * DONE_AGAIN_AFTER_S
"""The directive is carried out again sooner, as long as it is wanted."""


class Leaver:
    """Leaves open ranges. Bound to one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[tuple[int, int], asyncio.TimerHandle] = {}

    async def leave_range(self, directive: pb.Directive) -> None:
        """Leave the range. Where the server has no replica of it, only its writer gets the request, if it is connected."""
        key = (directive.stream_id, directive.range_index)
        if directive.leave_range.only_asks:
            self._ask(key)
            return
        reason = directive.leave_range.reason or "this server is to be left"
        hosted = self._store.replicas.get(key)
        if hosted is None:
            idle = self._store.idle.of(key)
            connected = idle.connected() if idle is not None else None
            if connected is not None:
                connected.refuse(key, Unavailable(reason))
            return
        hosted.leaving = reason
        before = self._ends.pop(key, None)
        if before is not None:
            before.cancel()
        self._ends[key] = asyncio.get_running_loop().call_later(LEAVING_S, self._go_on, hosted)
        writing = hosted.writing()
        if writing is not None:
            writing.refuse(key, Unavailable(reason))

    def _ask(self, key: RangeKey) -> None:
        hosted = self._store.replicas.get(key)
        if hosted is not None:
            writing = hosted.writing()
            if writing is not None:
                writing.ask_to_leave(key, hosted.core.epoch, hosted.core.durable_offset)
            return
        idle = self._store.idle.of(key)
        connected = idle.connected() if idle is not None else None
        if idle is not None and connected is not None:
            connected.ask_to_leave(key, idle.epoch, idle.start_offset)

    def close(self) -> None:
        """Cancel all timers."""
        for each in self._ends.values():
            each.cancel()
        self._ends.clear()

    def _go_on(self, hosted: HostedReplica) -> None:
        self._ends.pop(hosted.key, None)
        hosted.leaving = ""
