"""The leader's work queues, updated by the state's changes: queues in memory, never a loop over all rows on a timer.

What holds: `follow` applies every change of the state since the last call, and starts over where changes were missed or the
state was replaced; after it, each range or stream that may need work is in a queue here or in the attention of its servers.
A queue may hold entries without work; the code that takes an entry checks the rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.cursor_expiries import CursorExpiries
from rangelog_pd.reconcile.due_queue import DueQueue
from rangelog_pd.reconcile.growth import Growth
from rangelog_pd.reconcile.held import HeldStreams
from rangelog_pd.reconcile.manifest_queue import ManifestQueue
from rangelog_pd.reconcile.moves import Moves
from rangelog_pd.reconcile.orphans import Orphans
from rangelog_pd.reconcile.repack_queue import RepackQueue
from rangelog_pd.reconcile.repair_progress import RepairProgress
from rangelog_pd.reconcile.sizes import StreamSizes
from rangelog_pd.state.indexes import Hosted, Hosting
from rangelog_pd.state.losses import has_no_end, is_gone
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

if TYPE_CHECKING:
    from rangelog_pd.reconcile.view import ClusterView

REPLACE_AFTER_MS = 60_000
"""The absence after which a server's replicas are copied, unless the settings say otherwise."""


class Upkeep:
    """The work queues of one leader, for one view of the cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._state: State | None = None
        self._seen = 0
        self._lost: dict[Hosting, None] = {}
        self._usable: tuple[str, ...] = ()
        self._time_ms = 0  # cluster time, as of the last look at open ranges
        self.drops: DueQueue[RangeKey] = DueQueue({})
        self.trims: DueQueue[int] = DueQueue({})
        self.repairs = RepairProgress()
        self.orphans = Orphans(view.orphan_quiet_ms)
        self.growth = Growth()
        """Open ranges that lack members, of which there are more now."""
        self.moves = Moves(view)
        """Sealed ranges that leave a server."""
        self.sizes = StreamSizes()
        self.expiries = CursorExpiries()
        self.passed: dict[int, None] = {}
        """Streams of which live cursors may have passed a whole range, to be trimmed for that."""
        self.held = HeldStreams()
        self.manifests = ManifestQueue()
        self.repacks = RepackQueue(view.repack_rules, view.repack_concurrency)

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
        usable = self._judge_servers(state, now_ms)
        if usable != self._usable:
            self._usable = usable
            self.repairs.wake_all()
            self.moves.retry()
        if self.growth.servers_are(state, usable, lambda: self._view.fleet.candidates(state, now_ms)):
            for key in state.open_short:
                self._attend_members(state, key)
        lost = {each: None for each in state.hosted.hostings() if self.is_lost(state, *each, now_ms)}
        for hosting in lost:
            if hosting not in self._lost:
                self._lacks_a_member(state.hosted.of(*hosting))
        self._lost = lost

    def _judge_servers(self, state: State, now_ms: float) -> tuple[str, ...]:
        """Decide which servers are avoided or left; return those that may take replicas."""
        complaints = self._view.complaints
        usable = []
        for name, known in state.servers.items():
            health = self._view.health(state, name, known.server.incarnation, now_ms)
            complaints.seen(name, now_ms, is_dead=health is ServerHealth.DEAD)
            if health is ServerHealth.ALIVE and not state.modes.bars(name):
                usable.append(name)
        before = complaints.left
        complaints.judge(usable, now_ms)
        for name in complaints.left:
            if name not in before:
                self._leave(state, name)
        return tuple(name for name in usable if name not in complaints.avoided)

    def is_lost(self, state: State, server: str, incarnation: int, now_ms: float) -> bool:
        """Whether a member is lost for good, or for so long that another server replaces it: below that, waiting costs less."""
        registered = state.servers.find(server)
        if registered is None or registered.server.incarnation != incarnation:
            return True
        silent_ms = self._view.silent_ms(server, now_ms)
        return silent_ms >= max(self._view.repair_after_ms, self._view.dead_ms)

    def watch_open_ranges(self, state: State, now_ms: float, time_ms: int) -> None:
        """Find open ranges whose writer is gone; their members get directives about them."""
        self._time_ms = time_ms
        self.orphans.take_old(time_ms, state.due.open_ages)
        changed = self.orphans.look(
            state,
            now_ms,
            lambda of, is_empty: self._why_left(state, of, time_ms, is_empty=is_empty),
            lambda of: self._end_of(state, of),
            lambda of: has_no_end(state, of, self._view.quarantined(of)),
        )
        for key in changed:
            self._attend_members(state, key)

    def _attend_members(self, state: State, key: RangeKey) -> None:
        """The members of an open range may need a directive about it."""
        found = state.ranges.find(key)
        for member in found.replicas if found is not None else ():
            view = self._view.servers.get(member.server)
            if view is not None:
                view.attention.attend(key)

    def _lacks_a_member(self, hosted: Hosted) -> None:
        """A server of these ranges is lost."""
        self.repairs.update(hosted.sealed)
        for key in hosted.open:
            self.orphans.suspect(key)

    def _why_left(self, state: State, of: common_pb2.Range, time_ms: int, *, is_empty: bool) -> str:
        """Return why a living writer would have left an open range; empty: it would not, or there is nothing to care for."""
        quarantined = self._view.quarantined(of)
        if has_no_end(state, of, quarantined):
            gone = [each.server for each in of.replicas if is_gone(state, each) or each.server in quarantined]
            return f"too few members are left to say where it ends: {', '.join(gone)} lost their copies"
        if self.growth.has_room(state, of):
            return f"it has {len(of.replicas)} members, and there are servers for more"
        if is_empty:
            leaving = [each.server for each in of.replicas if self.is_left(state, each.server)]
            return f"it is empty, and its place on {leaving[0]} is to go" if leaving else ""
        for member in of.replicas:
            if (member.server, member.incarnation) in self._lost or is_gone(state, member):
                return f"its replica on {member.server} is lost"
            if self.is_left(state, member.server):
                return f"its replica on {member.server} is to go"
            report = self._view.report(member.server, member.incarnation, (of.stream_id, of.index))
            if report is not None and _is_damaged(report):
                return f"its replica on {member.server} is damaged: {report.problem}"
        if state.due.open_ages.get((of.stream_id, of.index), math.inf) <= time_ms:
            return "it is older than its age limit"
        return ""

    def _end_of(self, state: State, of: common_pb2.Range) -> int | None:
        """Return the highest end of an open range that members report: its start, where none that is heard has it."""
        key = (of.stream_id, of.index)
        ends = []
        for each in of.replicas:
            view = self._view.of(each.server, each.incarnation)
            if view is not None and view.complete:
                report = view.reports.get(key)
                ends.append(report.durable_offset if report is not None else of.start_offset)
        return max(ends, default=None)

    # ---- changes

    def _begin(self, state: State) -> None:
        self._state = state
        self._lost = {}
        self.drops = DueQueue(state.due.hot_drops)
        self.trims = DueQueue(state.due.trims)
        self.repairs.begin(state.short)
        self.orphans.begin(state.due.open_ages)
        self.moves.begin(state)
        self.growth.begin()
        self.sizes = StreamSizes()
        self.expiries = CursorExpiries()
        self.passed = dict(state.retained)
        self.held = HeldStreams()
        self.manifests.clear()
        self.repacks.begin(state)
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
        elif isinstance(before, pd_state_pb2.RegisteredServer):
            self._note_server(state, before)
            if _is_elsewhere(before, state.servers.find(before.server.name)):
                self.repairs.wake_all()
                self.moves.retry()

    def _note_server(self, state: State, before: pd_state_pb2.RegisteredServer) -> None:
        """Queue the ranges of an incarnation that was replaced or removed, and those of a server that is drained now."""
        name, incarnation = before.server.name, before.server.incarnation
        now = state.servers.find(name)
        if now is None:
            self._view.removed(name)
        if now is None or now.server.incarnation != incarnation:
            self._lacks_a_member(state.hosted.of(name, incarnation))
        if name in state.modes.draining and before.mode != common_pb2.SERVER_MODE_DRAINING:
            self._leave(state, name)

    def _leave(self, state: State, name: str) -> None:
        """A server is to be left: its sealed ranges move, and the writers of its open ones are asked to go on elsewhere."""
        self.moves.leave(state, name)
        self._leave_open(state, name)

    def _leave_open(self, state: State, name: str) -> None:
        """Look at the open ranges of a server that is to be left, also at those of which it has nothing."""
        known = state.servers.find(name)
        if known is None:
            return
        view = self._view.servers.get(name)
        for key in state.hosted.of(name, known.server.incarnation).open:
            self.orphans.suspect(key)
            if view is not None:
                view.attention.attend(key)

    def is_left(self, state: State, server: str) -> bool:
        """Whether a server is to be left, by an operator's will or because it does not do its work."""
        return server in state.modes.draining or server in self._view.complaints.left

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
            self.repairs.members_are(key, ())
            return
        if after.state != common_pb2.RANGE_STATE_SEALED:
            self._note_open_range(state, after)
            return
        self.repairs.members_are(key, [replica.server for replica in after.replicas])
        if isinstance(before, common_pb2.Range) and before.state == after.state:
            self._note_new_members(before, after)
        self.drops.put(key, state.due.hot_drops)
        self.trims.put(after.stream_id, state.due.trims)
        if key in state.short or any((each.server, each.incarnation) in self._lost for each in after.replicas):
            self.repairs.put(key)
        self.moves.note_sealed(state, after)
        if after.tiered_end_offset == after.end_offset and _has_another_object(before, after):
            self.repacks.note((after.stream_id, after.packed_in if after.HasField("packed_in") else after.index))
        if after.stream_id in state.retained:
            self.passed[after.stream_id] = None
        if after.stream_id in state.bounded:
            self._measure(state, after)

    def _note_new_members(self, before: common_pb2.Range, after: common_pb2.Range) -> None:
        """Those that took the places of others in a sealed range do not have it yet."""
        known = {(each.server, each.incarnation) for each in before.replicas}
        for each in after.replicas:
            if (each.server, each.incarnation) not in known and after.start_offset < after.end_offset:
                self.repairs.lacks((after.stream_id, after.index), each.server)

    def _note_open_range(self, state: State, after: common_pb2.Range) -> None:
        key = (after.stream_id, after.index)
        due_ms = state.due.open_ages.get(key)
        if due_ms is not None:
            self.orphans.will_be_old(key, due_ms)
        if self._is_suspect(state, after):
            self.orphans.suspect(key)

    def _is_suspect(self, state: State, of: common_pb2.Range) -> bool:
        """Whether an open range is to be looked at, now that something of it has changed."""
        if state.due.open_ages.get((of.stream_id, of.index), math.inf) <= self._time_ms:
            return True
        return any(
            (each.server, each.incarnation) in self._lost or self.is_left(state, each.server) for each in of.replicas
        )

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
            self.repacks.note_start(state, after.stream_id)
        self.trims.put(after.stream_id, state.due.trims)
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
            if found is None:
                continue
            if found.state != common_pb2.RANGE_STATE_SEALED:
                if self._is_suspect(state, found) or _is_damaged(view.reports.get(key)):
                    self.orphans.suspect(key)
                continue
            self.repairs.wake(key)
            self.moves.wake(key)
            for other in dict.fromkeys((*(each.server for each in found.replicas), *self._view.strays.get(key, ()))):
                if other != name and other in self._view.servers:
                    self._view.servers[other].attention.wake(key)
            if key[0] in state.bounded:
                self._measure(state, found)
        view.reported.clear()
        if view.unsifted:
            view.unsifted = False
            for key in state.hosted.of(name, view.incarnation).sealed.keys() - view.reports.keys():
                view.attention.attend(key)
            for key in state.hosted.of(name, view.incarnation).open.keys() & state.open_short.keys():
                view.attention.attend(key)
            for key in state.hosted.of(name, view.incarnation).open:
                if _is_damaged(view.reports.get(key)):
                    self.orphans.suspect(key)
            if self.is_left(state, name):
                self._leave_open(state, name)

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


def _is_damaged(report: pd_pb2.ReplicaReport | None) -> bool:
    """Whether a replica of an open range lacks what it had: its writer, if there is one, leaves it."""
    return report is not None and bool(report.problem)


def _objects_went(before: common_pb2.Stream, after: common_pb2.Stream) -> bool:
    """Whether objects may have ceased to count by a trim or a repack: no server knows of that by itself."""
    return (after.trim_offset, after.repack_count) != (before.trim_offset, before.repack_count)


def _has_another_object(before: Message | None, after: common_pb2.Range) -> bool:
    """Whether a commit or a repack has changed where the records of a range are in the tier."""
    if not isinstance(before, common_pb2.Range):
        return True
    return (before.tiered_end_offset, before.packed_in) != (after.tiered_end_offset, after.packed_in)


def _is_elsewhere(before: pd_state_pb2.RegisteredServer, now: pd_state_pb2.RegisteredServer | None) -> bool:
    """Whether a server is in another zone, rack or host now, or has other labels: it may be a candidate where it was none."""
    if now is None:
        return False
    was, is_now = before.server, now.server
    return any(getattr(was, name) != getattr(is_now, name) for name in ("zone", "rack", "host", "labels"))
