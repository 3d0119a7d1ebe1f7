"""The leader's work queues, updated by the state's changes: queues in memory, never a loop over all rows on a timer.

What holds: `follow` applies every change of the state since the last call, and starts over where changes were missed or the
state was replaced; after it, each range or stream that may need work is in a queue here or in the attention of its servers.
A queue may hold entries without work; the code that takes an entry checks the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import Message

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.cursor_expiries import CursorExpiries
from rangelog_pd.reconcile.due_queue import DueQueue
from rangelog_pd.reconcile.held import HeldStreams
from rangelog_pd.reconcile.manifest_queue import ManifestQueue
from rangelog_pd.reconcile.sizes import StreamSizes
from rangelog_pd.state.indexes import Hosting
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_state_pb2

if TYPE_CHECKING:
    from rangelog_pd.reconcile.view import ClusterView

REPLACE_AFTER_MS = 60_000.0
"""The absence after which a server's replicas are copied: below it, waiting costs less than copying."""


class Upkeep:
    """The work queues of one leader, for one view of the cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._state: State | None = None
        self._seen = 0
        self._lost: dict[Hosting, None] = {}
        self._alive: tuple[str, ...] = ()
        self.drops: DueQueue[RangeKey] = DueQueue({})
        self.trims: DueQueue[int] = DueQueue({})
        self.repairs: dict[RangeKey, None] = {}
        """Sealed ranges that may lack a member."""
        self.blocked: dict[RangeKey, None] = {}
        """Sealed ranges for which there is no candidate at the moment."""
        self.sizes = StreamSizes()
        self.expiries = CursorExpiries()
        self.passed: dict[int, None] = {}
        """Streams of which live cursors may have passed a whole range, to be trimmed for that."""
        self.held = HeldStreams()
        self.manifests = ManifestQueue()

    def forget(self) -> None:
        """Start over in another term of leadership."""
        self._state = None

    def follow(self, state: State) -> None:
        """Apply the changes since the last call."""
        changes = state.changes.since(self._seen) if self._state is state else None
        if changes is None:
            self._begin(state)
        else:
            for before, after in changes:
                self._note(state, before, after)
        self._seen = state.changes.last
        for name in list(self._view.heard):
            del self._view.heard[name]
            self._pass_on_reports(state, name)

    def watch_servers(self, state: State, now_ms: float) -> None:
        """Find servers that are lost for good, or for long, and servers that returned; queue their ranges."""
        alive = []
        for name, registered in state.servers.items():
            if self._view.health(state, name, registered.server.incarnation, now_ms) is ServerHealth.ALIVE:
                alive.append(name)
        if tuple(alive) != self._alive:
            self._alive = tuple(alive)
            self.repairs.update(self.blocked)
            self.blocked.clear()
        lost = {each: None for each in state.hosted.hostings() if self.is_lost(state, *each, now_ms)}
        for hosting in lost:
            if hosting not in self._lost:
                self.repairs.update(state.hosted.of(*hosting).sealed)
        self._lost = lost

    def is_lost(self, state: State, server: str, incarnation: int, now_ms: float) -> bool:
        """Whether a member is lost for good, or for so long that another server replaces it."""
        registered = state.servers.find(server)
        if registered is None or registered.server.incarnation != incarnation:
            return True
        silent_ms = self._view.silent_ms(server, now_ms)
        return silent_ms >= max(REPLACE_AFTER_MS, self._view.dead_ms)

    # ---- changes

    def _begin(self, state: State) -> None:
        self._state = state
        self._lost = {}
        self.drops = DueQueue(state.due.hot_drops)
        self.trims = DueQueue(state.due.trims)
        self.repairs = dict(state.short)
        self.blocked = {}
        self.sizes = StreamSizes()
        self.expiries = CursorExpiries()
        self.passed = dict(state.retained)
        self.held = HeldStreams()
        self.manifests.clear()
        for name, view in self._view.servers.items():
            view.attention.clear()
            view.reported.clear()
            view.unsifted = True
            self._view.heard[name] = None
            for key in view.reports:
                view.attention.attend(key)
        for stream_id in state.bounded:
            self._measure_stream(state, stream_id)
        for stream_id in state.retained:
            self.expiries.look(state, stream_id)

    def _note(self, state: State, before: Message | None, after: Message | None) -> None:
        row = after if after is not None else before
        if isinstance(row, common_pb2.Range):
            self._note_range(state, before, after)
        elif isinstance(row, common_pb2.Stream):
            self._note_stream(state, before, after)
        elif isinstance(before, pd_state_pb2.RegisteredServer) and after is not None:
            self.repairs.update(self._left_behind(state, before.server))

    @staticmethod
    def _left_behind(state: State, earlier: common_pb2.Server) -> dict[RangeKey, None]:
        """Queue the sealed ranges of an incarnation that another one replaced."""
        now = state.servers[earlier.name].server
        if now.incarnation == earlier.incarnation:
            return {}
        return state.hosted.of(earlier.name, earlier.incarnation).sealed

    def _note_range(self, state: State, before: Message | None, after: Message | None) -> None:
        concerned: dict[str, None] = {}
        for row in (before, after):
            if isinstance(row, common_pb2.Range):
                key = (row.stream_id, row.index)
                concerned.update({replica.server: None for replica in row.replicas})
        concerned.update(self._view.strays.get(key, {}))
        for name in concerned:
            view = self._view.servers.get(name)
            if view is not None:
                view.attention.attend(key)
        if not isinstance(after, common_pb2.Range):
            self.sizes.forget(*key)
            return
        if after.state != common_pb2.RANGE_STATE_SEALED:
            return
        due_ms = state.due.hot_drops.get(key)
        if due_ms is not None:
            self.drops.put(key, due_ms)
        trim_ms = state.due.trims.get(after.stream_id)
        if trim_ms is not None:
            self.trims.put(after.stream_id, trim_ms)
        if key in state.short or any((each.server, each.incarnation) in self._lost for each in after.replicas):
            self.repairs[key] = None
        if after.stream_id in state.retained:
            self.passed[after.stream_id] = None
        if after.stream_id in state.bounded:
            self._measure(state, after)

    def _note_stream(self, state: State, before: Message | None, after: Message | None) -> None:
        if not isinstance(after, common_pb2.Stream):
            if isinstance(before, common_pb2.Stream):
                self.sizes.forget_stream(before.stream_id)
                self.held.forget(before.stream_id)
                if before.config.tiered:
                    self.manifests.put(before.stream_id)
            return
        if isinstance(before, common_pb2.Stream) and after.config.tiered and _objects_went(before, after):
            self.manifests.put(after.stream_id)
        trim_ms = state.due.trims.get(after.stream_id)
        if trim_ms is not None:
            self.trims.put(after.stream_id, trim_ms)
        self.sizes.look_again(after.stream_id)
        if after.stream_id in state.retained:
            self.passed[after.stream_id] = None
            self.expiries.look(state, after.stream_id)
        if not isinstance(before, common_pb2.Stream) or before.config == after.config:
            return
        for each in state.ranges.of(
            after.stream_id
        ).values():  # its cost is that of the change, which concerns all of them
            self._note_range(state, each, each)
        if after.config.retention_bytes:
            self._measure_stream(state, after.stream_id)
        else:
            self.sizes.forget_stream(after.stream_id)

    # ---- reports

    def _pass_on_reports(self, state: State, name: str) -> None:
        """Wake servers that may wait for a report of another one; after a complete report, find the missing replicas."""
        view = self._view.servers[name]
        for key in view.reported:
            found = state.ranges.find(key)
            if found is None or found.state != common_pb2.RANGE_STATE_SEALED:
                continue
            for other in {*(replica.server for replica in found.replicas), *self._view.strays.get(key, ())}:
                if other != name and other in self._view.servers:
                    self._view.servers[other].attention.wake(key)
            if key[0] in state.bounded:
                self._measure(state, found)
        view.reported.clear()
        if view.unsifted:
            view.unsifted = False
            for key in state.hosted.of(name, view.incarnation).sealed.keys() - view.reports.keys():
                view.attention.attend(key)

    # ---- sizes

    def _measure_stream(self, state: State, stream_id: int) -> None:
        for each in state.ranges.of(stream_id).values():
            self._measure(state, each)

    def _measure(self, state: State, of: common_pb2.Range) -> None:
        if of.state == common_pb2.RANGE_STATE_SEALED:
            self.sizes.set(of.stream_id, of.index, self._size_bytes(state, of))

    def _size_bytes(self, state: State, of: common_pb2.Range) -> int:
        """Return the size that the replicas report; for a range in the tier only, the size of its part of objects."""
        reports = [self._view.report(each.server, each.incarnation, (of.stream_id, of.index)) for each in of.replicas]
        hot = max((each.size_bytes for each in reports if each is not None), default=0)
        return hot or state.tiered_bytes(of)


def _objects_went(before: common_pb2.Stream, after: common_pb2.Stream) -> bool:
    """Whether objects may have ceased to count by a trim or a repack: no server knows of that by itself."""
    return (after.trim_offset, after.repack_count) != (before.trim_offset, before.repack_count)
