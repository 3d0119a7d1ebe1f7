"""The leader's view of the range servers: heartbeats, reports of replicas, results of tasks. In memory only.

What holds: health follows the leader's own monotonic clock, never a server's; for a new leader servers are alive until their
lease expires; reports count only for the registered incarnation. A replica is `held` only while its report cannot be
outdated, and while no directive to drop it can still be carried out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rangelog_core.errors import Overloaded
from rangelog_core.repack_choice import RepackRules
from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.attention import Attention
from rangelog_pd.reconcile.complaints import Complaints
from rangelog_pd.reconcile.fleet import Fleet
from rangelog_pd.reconcile.orphans import QUIET_MS_DEFAULT
from rangelog_pd.reconcile.repack_queue import CONCURRENCY_DEFAULT, OFF
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS, Upkeep
from rangelog_pd.reconcile.write_rate import WriteRate
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_pb2

SEQUENCES_PER_BOOT = 1 << 32
"""A server numbers its heartbeats from its count of starts times this: a later process's are always higher."""
TIER_ERROR_LENGTH_MAX = 500
PUT_OFF_MAX = 10_000
_WITH_COPY = (pd_pb2.REPLICA_STATE_SEALED, pd_pb2.REPLICA_STATE_QUARANTINED)
_DROP_TASK = re.compile(r"drop-(\d{1,20})/(\d{1,20})@", re.ASCII)
HEALTH = {
    ServerHealth.ALIVE: common_pb2.SERVER_HEALTH_ALIVE,
    ServerHealth.SUSPECT: common_pb2.SERVER_HEALTH_SUSPECT,
    ServerHealth.DEAD: common_pb2.SERVER_HEALTH_DEAD,
}


def drop_task_id(key: RangeKey, server: str) -> str:
    """Return the name of the directive to drop a replica."""
    return f"drop-{key[0]}/{key[1]}@{server}"


def drop_task_key(task_id: str) -> RangeKey | None:
    """Return the replica that the directive of this name drops, or None."""
    match = _DROP_TASK.match(task_id)
    return (int(match[1]), int(match[2])) if match else None


def put_off_name(kind: str, stream_id: int, range_index: int, server: str) -> str:
    """Return the name under which a cancelled upload of a range, or a copy of it to a server, is put off."""
    return f"{kind} {stream_id}/{range_index}" + (f" {server}" if kind == "copy-replica" else "")


@dataclass(slots=True)
class ServerView:
    """One range server in one incarnation."""

    incarnation: int
    heard_ms: float
    heard_wall_ms: int = 0
    complete: bool = False  # the complete report was received, and every change since
    sequence: int = 0  # of its last heartbeat
    reports: dict[RangeKey, pd_pb2.ReplicaReport] = field(default_factory=dict)
    dropping: dict[RangeKey, None] = field(default_factory=dict)  # replicas with a directive to drop them, done or not
    attention: Attention = field(default_factory=Attention)
    reported: list[RangeKey] = field(
        default_factory=list
    )  # changed by the last heartbeats, not passed on to others yet
    unsifted: bool = False  # a complete report was received: missing replicas must be found
    used_bytes: int = 0
    capacity_bytes: int = 0
    log_end: int = 0
    tier_error: str = ""  # what its last check of the tier came to
    log_error: str = ""  # why its log cannot grow
    feature_level: int = 0  # of its program; 0: not heard yet, or a program that does not tell
    writes: WriteRate = field(default_factory=WriteRate)
    held_bytes: int = 0  # of all replicas that it reported


@dataclass(slots=True)
class ClusterView:
    """The view of all range servers. Times on the leader's monotonic clock, in ms."""

    suspect_ms: float
    dead_ms: float
    repair_after_ms: float = REPLACE_AFTER_MS
    orphan_quiet_ms: float = QUIET_MS_DEFAULT
    repack_rules: RepackRules = OFF
    repack_concurrency: int = CONCURRENCY_DEFAULT
    leader_since_ms: float = 0.0
    servers: dict[str, ServerView] = field(default_factory=dict)
    strays: dict[RangeKey, dict[str, None]] = field(default_factory=dict)  # servers that report a range of others
    put_off: dict[str, float] = field(default_factory=dict)  # cancelled tasks, by `put_off_name`, until when
    heard: dict[str, None] = field(default_factory=dict)  # servers whose reports upkeep has not seen yet
    log_ends_marked_ms: float = -math.inf
    complaints: Complaints = field(default_factory=Complaints)
    upkeep: Upkeep = field(init=False)
    fleet: Fleet = field(init=False)

    def __post_init__(self) -> None:
        self.upkeep = Upkeep(self)
        self.fleet = Fleet(self)

    def start_leading(self, now_ms: float) -> None:
        """Clear the view; leases start now."""
        self.leader_since_ms = now_ms
        self.log_ends_marked_ms = -math.inf
        self.servers.clear()
        self.strays.clear()
        self.put_off.clear()
        self.heard.clear()
        self.complaints.clear()
        self.upkeep.forget()
        self.fleet.forget()

    def registered(self, server: str, incarnation: int, now_ms: float, *, boot: int = 0) -> None:
        """Note a registration, by the `boot`-th process of the incarnation: earlier reports are void."""
        self.complaints.started(server, now_ms)
        known = self.of(server, incarnation)
        heard = known.sequence if known is not None else 0
        self.servers[server] = ServerView(incarnation, now_ms, sequence=max(heard, boot * SEQUENCES_PER_BOOT))
        self.fleet.note(server)

    def complain(self, state: State, servers: Iterable[str], reporter: str, now_ms: float) -> None:
        """Note that a writer or a peer has trouble with servers. Of a draining one, which sends writers away, it means nothing;
        names that are not registered are ignored."""
        for name in servers:
            if name in state.servers and name not in state.modes.draining:
                self.complaints.complain(name, reporter, now_ms)

    def removed(self, server: str) -> None:
        """Forget a server that was removed."""
        self.servers.pop(server, None)
        self.heard.pop(server, None)
        self.complaints.forget(server)

    def heartbeat(self, request: pd_pb2.HeartbeatRequest, now_ms: float, wall_ms: int) -> bool:
        """Apply a heartbeat; return whether the server must send a complete report."""
        view = self.of(request.server, request.incarnation)
        first = view is None
        if view is None:
            view = self.servers[request.server] = ServerView(request.incarnation, now_ms)
        elif request.sequence <= view.sequence:
            return not view.complete  # late: a newer one was received before
        view.heard_ms, view.heard_wall_ms = now_ms, wall_ms
        view.used_bytes, view.capacity_bytes = request.used_bytes, request.capacity_bytes
        view.log_end = max(view.log_end, request.log_end)
        view.tier_error = request.tier_error[:TIER_ERROR_LENGTH_MAX]
        view.log_error = request.log_error[:TIER_ERROR_LENGTH_MAX]
        view.feature_level = request.feature_level
        view.writes.note(view.log_end, now_ms)
        self.fleet.note(request.server)
        if request.sequence != view.sequence + 1:
            view.complete = False  # changes in between were reported to another leader, or to none
        view.sequence = request.sequence
        if first:
            return True  # it may be outdated: the next report has the current state
        if request.complete:
            view.reported += view.reports
            view.reports.clear()
            view.held_bytes = 0
            view.complete = view.unsifted = True
        self.heard[request.server] = None
        attend = view.attention.attend
        for report in request.replicas:
            key = (report.stream_id, report.range_index)
            before = view.reports.pop(key, None)
            if before is not None:
                view.held_bytes -= before.size_bytes
            if report.state != pd_pb2.REPLICA_STATE_UNSPECIFIED:  # otherwise the replica is dropped
                view.reports[key] = report
                view.held_bytes += report.size_bytes
            view.reported.append(key)
            attend(key)
        at_hand = [drop_task_key(task.task_id) for task in request.tasks if not task.done]
        view.dropping = {key: None for key in at_hand if key is not None}
        return not view.complete

    def of(self, server: str, incarnation: int) -> ServerView | None:
        """Return what is known of a server in one incarnation, or None."""
        view = self.servers.get(server)
        return view if view is not None and view.incarnation == incarnation else None

    def health(self, state: State, server: str, incarnation: int, now_ms: float) -> ServerHealth:
        """Return the health of a member of a replica set; one of an earlier incarnation is dead for good."""
        registered = state.servers.find(server)
        if registered is None or registered.server.incarnation != incarnation:
            return ServerHealth.DEAD
        view = self.of(server, incarnation)
        silent = now_ms - (view.heard_ms if view is not None else self.leader_since_ms)
        if silent < self.suspect_ms:
            return ServerHealth.ALIVE
        return ServerHealth.SUSPECT if silent < self.dead_ms else ServerHealth.DEAD

    def shown_health(self, state: State, server: str, incarnation: int, now_ms: float) -> common_pb2.ServerHealth:
        """Return the health that readers, writers and people see: an avoided server is suspect though it is heard of."""
        found = self.health(state, server, incarnation, now_ms)
        if found is ServerHealth.ALIVE and server in self.complaints.avoided:
            found = ServerHealth.SUSPECT
        return HEALTH[found]

    def silent_ms(self, server: str, now_ms: float) -> float:
        """Return the time since a server's last heartbeat, in ms."""
        view = self.servers.get(server)
        return now_ms - (view.heard_ms if view is not None else self.leader_since_ms)

    def report(self, server: str, incarnation: int, key: RangeKey) -> pd_pb2.ReplicaReport | None:
        """Return a server's report of one replica."""
        view = self.of(server, incarnation)
        return view.reports.get(key) if view is not None else None

    def quarantined(self, of: common_pb2.Range) -> list[str]:
        """Return the servers of the members of a range whose copy is damaged, so that no record of it is trusted."""
        key = (of.stream_id, of.index)
        reports = ((each.server, self.report(each.server, each.incarnation, key)) for each in of.replicas)
        return [
            server
            for server, report in reports
            if report is not None and report.state == pd_pb2.REPLICA_STATE_QUARANTINED
        ]

    def held(self, server: str, incarnation: int, key: RangeKey) -> pd_pb2.ReplicaReport | None:
        """Return a server's report of a replica that it certainly has, without a directive to drop it."""
        view = self.servers.get(server)
        if view is None or not view.complete or key in view.dropping:
            return None
        return self.report(server, incarnation, key)

    def holds(self, server: str, incarnation: int, key: RangeKey) -> bool:
        """Whether a server certainly has all of a sealed range, without a directive to drop it."""
        report = self.held(server, incarnation, key)
        return report is not None and report.state == pd_pb2.REPLICA_STATE_SEALED

    def holders(self, state: State, of: common_pb2.Range, now_ms: float) -> list[common_pb2.Replica]:
        """Return the servers that report the whole of a sealed range, and may still answer: members and replaced ones."""
        key = (of.stream_id, of.index)
        holders = {replica.server: replica.incarnation for replica in of.replicas}
        for name in self.strays.get(key, ()):
            if name in self.servers:
                holders[name] = self.servers[name].incarnation
        return [
            common_pb2.Replica(server=name, incarnation=incarnation)
            for name, incarnation in holders.items()
            if self.holds(name, incarnation, key)
            and self.health(state, name, incarnation, now_ms) is not ServerHealth.DEAD
        ]

    def lacking(self, of: common_pb2.Range, now_ms: float, time_ms: int) -> list[str]:
        """Return the servers of members that answer, and report no whole copy of a sealed range nor a damaged one.

        `time_ms`: cluster time. A report from before the server can have known of the seal says nothing of its copy: it counts
        what was received as late after the seal as it takes to call a server dead, far longer than a heartbeat is under way.
        """
        key = (of.stream_id, of.index)
        sealed_for_ms = time_ms - of.sealed_ms if of.sealed_ms else 0
        found = []
        for member in of.replicas:
            view = self.servers.get(member.server)
            answers = view is not None and view.complete and view.incarnation == member.incarnation
            silent_ms = self.silent_ms(member.server, now_ms)
            if not answers or silent_ms > self.dead_ms or sealed_for_ms - silent_ms < self.dead_ms:
                continue
            report = self.report(member.server, member.incarnation, key)
            has_it = report is not None and (report.state in _WITH_COPY or report.durable_offset >= of.end_offset)
            if not has_it:
                found.append(member.server)
        return found

    def put_off_until(self, name: str, until_ms: float, now_ms: float) -> None:
        """Send no directive for a task until then. Raises Overloaded when too many are put off."""
        self.put_off = {each: end_ms for each, end_ms in self.put_off.items() if end_ms > now_ms}
        if len(self.put_off) >= PUT_OFF_MAX:
            raise Overloaded(f"{PUT_OFF_MAX} cancelled tasks are put off already, which is the limit")
        self.put_off[name] = until_ms

    def is_put_off(self, directive: pd_pb2.Directive, server: str, now_ms: float) -> bool:
        """Whether somebody cancelled this task a while ago."""
        if not self.put_off:
            return False
        kind = (directive.WhichOneof("action") or "").replace("_", "-")
        name = put_off_name(kind, directive.stream_id, directive.range_index, server)
        return self.put_off.get(name, 0.0) > now_ms

    def fill_in(self, state: State, ranges: Iterable[common_pb2.Range], now_ms: float) -> list[common_pb2.Range]:
        """Return copies of ranges with each replica's address and health."""
        filled: list[common_pb2.Range] = []
        for each in ranges:
            copy = common_pb2.Range()
            copy.CopyFrom(each)
            for replica in copy.replicas:
                registered = state.servers.find(replica.server)
                if registered is not None and registered.server.incarnation == replica.incarnation:
                    replica.data_address = registered.server.data_address
                replica.health = self.shown_health(state, replica.server, replica.incarnation, now_ms)
            filled.append(copy)
        return filled
