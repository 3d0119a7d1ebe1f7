"""The directives for one range server, from the state and the server's reports. Called at each heartbeat, on the leader.

What holds: a replica is dropped only if the state requires it, behind a barrier: the range was deleted or trimmed, its hot
replicas were given up after objects covered it, or others replaced this one and enough of them are whole and alive (all of
them, where this one's server is drained or left). Unknown and open replicas are left alone. Directives are repeated until a
report shows them done, so a lost one does no harm. Objects are removed from the store a delete grace after the state has lost
them, in cluster time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.growth import FORMAT as LEAVE_WANTED
from rangelog_pd.reconcile.task_board import task_id_of
from rangelog_pd.reconcile.view import ClusterView, ServerView, drop_task_id
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey, discard
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, pd_pb2

_MOVED = common_pb2.REPLICA_REASON_REBALANCED
"""Nothing was lost where a replica is moved, so its source stays until it is whole: there are never fewer copies."""

DIRECTIVES_MAX = 64
"""Directives in one reply; the next heartbeat's has the rest."""

UPLOADS_MAX = 8
"""Uploads that one server has at a time. It does one after the other; a failing one must not delay the rest."""

UPLOAD_GRACE_MS = 60_000
"""The time after the deadline of an abandoned upload: its server may have been slow, not dead."""

DELETE_GRACE_MS_DEFAULT = 600_000
"""The time between the loss of an object in the state and in the store. After a wrong trim or deletion the objects can be
saved in this time: they describe themselves."""

COPIES_MAX = 4
REPACKS_MAX = 4
"""A server has one; more are those that it is still reporting."""
DELETE_OBJECTS_MAX = 100
TOMBSTONES_MAX = 4 * DELETE_OBJECTS_MAX
"""The oldest tombstones that are examined; those of abandoned uploads may have to stay longer than later ones."""

_BOUNDS = {
    "seal_replica": DIRECTIVES_MAX,
    "drop_replica": DIRECTIVES_MAX,
    "copy_replica": COPIES_MAX,
    "upload_range": UPLOADS_MAX,
    "write_manifests": 1,
    "repack_objects": REPACKS_MAX,
    "recover_range": COPIES_MAX,
    "leave_range": DIRECTIVES_MAX,
    "delete_objects": 1,
}
"""The bound of each kind, most urgent first. Directives above the bound wait."""


def is_dropped_once_replaced(state: State, key: RangeKey) -> bool:
    """Whether copies on servers that are no members of a range are dropped, at the latest once all its members are whole.

    Others stay for good: of what is unknown, open or lost, and what may be all that is left from before a restore.
    """
    if state.is_from_before_restore(key):
        return False  # it may be all that is left of what was not in the tier
    stream = state.streams.find(key[0])
    if stream is None:
        first, beyond = state.lost_streams
        return key[0] < state.next_stream_id and not first <= key[0] < beyond  # deleted; otherwise unknown
    found = state.ranges.find(key)
    if found is None:
        return key[1] < stream.range_count  # trimmed; otherwise unknown
    return found.state == common_pb2.RANGE_STATE_SEALED and (found.hot_dropped or not found.lost)


@dataclass(slots=True)
class Planner:
    """Makes directives for the server that reports; notes the drops in the view."""

    state: State
    view: ClusterView
    tier: bool
    now_ms: float
    time_ms: int
    delete_grace_ms: int = DELETE_GRACE_MS_DEFAULT
    _usable_count: int | None = None  # servers that may take replicas, once it is known

    def directives(self, server: str, incarnation: int) -> list[pd_pb2.Directive]:
        """Return the current directives, most urgent first, bounded. Examines only ranges that may need one (attention.py)."""
        self.view.upkeep.follow(self.state)
        view = self.view.of(server, incarnation)
        if view is None or not view.complete:
            return []
        wanted: dict[str, list[pd_pb2.Directive]] = {kind: [] for kind in _BOUNDS}
        for key in view.attention.take():
            directive, done = self._look_at(key, view, server)
            if directive is not None and self.view.is_put_off(directive, server, self.now_ms):
                directive = None
            kind = directive.WhichOneof("action") if directive is not None else None
            issued = False
            if directive is not None and kind is not None and len(wanted[kind]) < _BOUNDS[kind]:
                wanted[kind].append(directive)
                issued = True
            view.attention.settle(key, issued=issued, done=done)
        if self.tier:
            wanted["write_manifests"] += self._manifests(server)
            wanted["delete_objects"] += self._deletions(server)
            wanted["repack_objects"] += self._repacks(server, incarnation)[:REPACKS_MAX]
        directives = [directive for kind in _BOUNDS for directive in wanted[kind]][:DIRECTIVES_MAX]
        for directive in directives:
            if directive.HasField("drop_replica"):  # from here on it counts as dropped: no other replica may rely on it
                view.dropping[directive.stream_id, directive.range_index] = None
        return directives

    def _look_at(self, key: RangeKey, view: ServerView, server: str) -> tuple[pd_pb2.Directive | None, bool]:
        """Return the directive for one range, and whether none will be needed until the range changes."""
        report = view.reports.get(key)
        if key not in self.state.hosted.of(server, view.incarnation):
            return self._look_at_stray(key, report, server)
        discard(self.view.strays, key, server)
        found = self.state.ranges[key]
        if found.state != common_pb2.RANGE_STATE_SEALED:
            return self._look_at_open(found, server)
        if report is None and found.end_offset == found.start_offset:
            return None, True
        if report is None or report.state in (
            pd_pb2.REPLICA_STATE_INCOMPLETE, pd_pb2.REPLICA_STATE_QUARANTINED,
        ):  # fmt: skip
            self.view.upkeep.repairs.lacks(key, server)
        if report is None or report.state == pd_pb2.REPLICA_STATE_INCOMPLETE:
            return self._copy(found, server), False
        if report.state in (pd_pb2.REPLICA_STATE_OPEN, pd_pb2.REPLICA_STATE_FENCED):
            return _seal(found, server), False
        if report.state == pd_pb2.REPLICA_STATE_QUARANTINED:
            has_source = bool(self._sources(found, server))
            return (_drop(key, server, "damaged; a fresh copy follows") if has_source else None), False
        self.view.upkeep.repairs.has(key, server, report.size_bytes)
        return self._look_at_whole(found, server)

    def _look_at_open(self, found: common_pb2.Range, server: str) -> tuple[pd_pb2.Directive | None, bool]:
        """Return the directive for an open range: its writer is to leave it, or a server seals it if the writer is gone."""
        key = (found.stream_id, found.index)
        orphan = self.view.upkeep.orphans.found.get(key)
        leaves = self.view.upkeep.is_left(self.state, server)
        grows = orphan is None and not leaves and self.view.upkeep.growth.has_room(self.state, found)
        if self.state.cluster_version < LEVEL_OPERATIONS or not (orphan is not None or leaves or grows):
            return None, not (orphan is not None or leaves or grows)
        if grows:
            self.view.upkeep.orphans.suspect(key)
            return (_grow(found, server) if self._asker(found) == server else None), False
        if orphan is None:
            return (_leave(found, server) if self._has_places(found) else None), False
        if self._recoverer(found) != server:
            return None, False
        stream = self.state.streams[found.stream_id]
        directive = _directive("recover", found, server)
        directive.recover_range.CopyFrom(
            pd_pb2.RecoverRange(stream_name=stream.name, epoch=orphan.epoch, reason=orphan.reason)
        )
        return directive, False

    def _has_places(self, found: common_pb2.Range) -> bool:
        """Whether the writer of an open range finds as many servers elsewhere as the range has."""
        if self._usable_count is None:
            candidates = self.view.fleet.candidates(self.state, self.now_ms)
            usable = [each for each in candidates if not (each.barred or each.avoided)]
            self._usable_count = sum(each.health is ServerHealth.ALIVE for each in usable)
        return self._usable_count >= len(found.replicas)

    def _asker(self, found: common_pb2.Range) -> str | None:
        """Return the first living member of an open range, by name, that knows how to ask its writer to leave it."""
        for name, incarnation in sorted((each.server, each.incarnation) for each in found.replicas):
            registered, view = self.state.servers.find(name), self.view.servers.get(name)
            if registered is None or view is None or not view.complete:
                continue
            if self.view.health(self.state, name, incarnation, self.now_ms) is not ServerHealth.ALIVE:
                continue
            if any(each.format == LEAVE_WANTED for each in registered.server.formats):
                return name
        return None

    def _recoverer(self, found: common_pb2.Range) -> str | None:
        """Return the living member of an open range that seals it: the one that holds the most of it, by name."""
        key = (found.stream_id, found.index)
        able = []
        for replica in found.replicas:
            view = self.view.servers.get(replica.server)
            health = self.view.health(self.state, replica.server, replica.incarnation, self.now_ms)
            if health is ServerHealth.ALIVE and view is not None and view.complete:
                report = view.reports.get(key)
                able.append((-report.durable_offset if report is not None else -found.start_offset, replica.server))
        return min(able)[1] if able else None

    def _look_at_stray(
        self, key: RangeKey, report: pd_pb2.ReplicaReport | None, server: str
    ) -> tuple[pd_pb2.Directive | None, bool]:
        """Return the directive for a replica that is not, or no longer, a member of its range."""
        if report is None:
            discard(self.view.strays, key, server)
            return None, True
        self.view.strays.setdefault(key, {})[server] = None
        if self._superfluous(key, server):
            return _drop(key, server, "the range lives elsewhere, or not at all"), False
        return None, False

    def _look_at_whole(self, found: common_pb2.Range, server: str) -> tuple[pd_pb2.Directive | None, bool]:
        """Return the directive for a whole replica of a sealed range: one of its servers may have to upload it."""
        stream = self.state.streams[found.stream_id]
        if not self.tier or not stream.config.tiered or found.tiered_end_offset >= found.end_offset:
            return None, True
        if self._uploader(found) != server:
            return None, False
        directive = _directive("upload", found, server)
        directive.upload_range.CopyFrom(
            pd_pb2.UploadRange(
                epoch=found.epoch,
                start_offset=found.tiered_end_offset,
                end_offset=found.end_offset,
                stream_name=stream.name,
            )
        )
        return directive, False

    def _copy(self, found: common_pb2.Range, server: str) -> pd_pb2.Directive | None:
        sources = self._sources(found, server)
        if not sources:
            return None
        directive = _directive("copy", found, server)
        directive.copy_replica.CopyFrom(
            pd_pb2.CopyReplica(
                epoch=self.state.streams[found.stream_id].epoch,
                start_offset=found.start_offset,
                end_offset=found.end_offset,
                sources=sources,
            )
        )
        return directive

    def _superfluous(self, key: RangeKey, server: str) -> bool:
        """Whether a replica that is not (or no longer) a member of its range may be dropped.

        One that a drain has moved waits until all members are whole: nothing is broken, so no copy is given up early.
        """
        if not is_dropped_once_replaced(self.state, key):
            return False
        found = self.state.ranges.find(key)
        if found is None or found.hot_dropped:
            return True
        moves = self.view.upkeep.is_left(self.state, server) or key in self.view.upkeep.moves.under_way
        needed = len(found.replicas) if moves else found.acks
        enough = sum(self.is_whole(found, each) for each in found.replicas) >= needed
        return enough and all(self.is_whole(found, each) for each in found.replicas if each.reason == _MOVED)

    def _sources(self, found: common_pb2.Range, server: str) -> list[common_pb2.Replica]:
        """Return the other servers that hold the whole sealed range, as members or as replaced ones."""
        holders = {replica.server: replica.incarnation for replica in found.replicas}
        for name in self.view.strays.get((found.stream_id, found.index), ()):
            view = self.view.servers.get(name)
            if view is not None:
                holders[name] = view.incarnation
        others = [
            common_pb2.Replica(server=name, incarnation=incarnation)
            for name, incarnation in holders.items()
            if name != server
        ]
        whole = common_pb2.Range(replicas=[replica for replica in others if self.is_whole(found, replica)])
        return list(self.view.fill_in(self.state, [whole], self.now_ms)[0].replicas)

    def is_whole(self, found: common_pb2.Range, replica: common_pb2.Replica) -> bool:
        """Whether a living server reports that it holds a sealed range up to the end; of an empty one there is nothing."""
        if self.view.health(self.state, replica.server, replica.incarnation, self.now_ms) is not ServerHealth.ALIVE:
            return False
        is_empty = found.end_offset == found.start_offset
        return is_empty or self.view.holds(replica.server, replica.incarnation, (found.stream_id, found.index))

    def _uploader(self, found: common_pb2.Range) -> str | None:
        """Return the server that uploads the range already, unless it is dead; otherwise a replica, chosen by range index."""
        for each in self.state.objects_of(found.stream_id, found.index):
            if each.state == common_pb2.OBJECT_STATE_PREPARED:
                health = self.view.health(self.state, each.server, each.incarnation, self.now_ms)
                if health is not ServerHealth.DEAD:
                    return each.server
        count = len(found.replicas)
        for step in range(count):
            replica = found.replicas[(found.index + step) % count]
            if self.is_whole(found, replica):
                return replica.server
        return None

    def _deletions(self, server: str) -> list[pd_pb2.Directive]:
        """Return the deletions of objects from the store, which the first living server carries out."""
        oldest = islice(self.state.range_objects.tombstones, TOMBSTONES_MAX)
        gone = [each for object_id in oldest if self._may_be_deleted(each := self.state.objects[object_id])]
        if not gone:
            return []
        if self._first_alive("") != server:
            return []
        chosen = gone[:DELETE_OBJECTS_MAX]
        ids = [each.object_id for each in chosen]
        directive = pd_pb2.Directive(task_id=f"delete-{ids[0]}-{ids[-1]}-{len(ids)}@{server}")
        directive.delete_objects.CopyFrom(pd_pb2.DeleteObjects(keys=[each.key for each in chosen], object_ids=ids))
        return [directive]

    def _manifests(self, server: str) -> list[pd_pb2.Directive]:
        """Return the directive to write manifests, which the first living server that knows them carries out."""
        name, stream_ids = self.view.upkeep.manifests.batch(self.time_ms)
        if not stream_ids or self._first_alive("manifest") != server:
            return []
        directive = pd_pb2.Directive(task_id=f"{name}@{server}")
        directive.write_manifests.CopyFrom(pd_pb2.WriteManifests(stream_ids=stream_ids))
        return [directive]

    def _repacks(self, server: str, incarnation: int) -> list[pd_pb2.Directive]:
        found = []
        for each in self.view.upkeep.repacks.wanted(server, incarnation):
            stream = self.state.streams.find(each.stream_id)
            if stream is not None:
                directive = pd_pb2.Directive(
                    task_id=each.task_id, stream_id=each.stream_id, range_index=each.range_index
                )
                directive.repack_objects.CopyFrom(
                    pd_pb2.RepackObjects(stream_name=stream.name, object_ids=each.object_ids)
                )
                found.append(directive)
        return found

    def _first_alive(self, knows: str) -> str | None:
        """Return the first living server by name, of those that have reported a format, unless that is empty."""
        alive = [
            name
            for name, registered in self.state.servers.items()
            if self.view.health(self.state, name, registered.server.incarnation, self.now_ms) is ServerHealth.ALIVE
            and (not knows or any(each.format == knows for each in registered.server.formats))
        ]
        return min(alive, default=None)

    def _may_be_deleted(self, found: common_pb2.Object) -> bool:
        """Whether a tombstone is old enough, and, for an abandoned upload, no server can still be uploading it."""
        if found.state != common_pb2.OBJECT_STATE_DELETED or not found.deleted_ms:
            return False
        if self.time_ms < found.deleted_ms + self.delete_grace_ms:
            return False
        return bool(found.committed_ms) or self.time_ms > found.prepare_deadline_ms + UPLOAD_GRACE_MS


def _directive(kind: str, found: common_pb2.Range, server: str) -> pd_pb2.Directive:
    return pd_pb2.Directive(task_id=task_id_of(kind, found, server), stream_id=found.stream_id, range_index=found.index)


def _leave(found: common_pb2.Range, server: str) -> pd_pb2.Directive:
    directive = _directive("leave", found, server)
    directive.leave_range.CopyFrom(pd_pb2.LeaveRange(reason=f"{server} is to be left"))
    return directive


def _grow(found: common_pb2.Range, server: str) -> pd_pb2.Directive:
    directive = _directive("leave", found, server)
    directive.leave_range.reason = f"it has {len(found.replicas)} members, and there are servers for more"
    directive.leave_range.only_asks = True
    return directive


def _drop(key: RangeKey, server: str, reason: str) -> pd_pb2.Directive:
    directive = pd_pb2.Directive(task_id=drop_task_id(key, server), stream_id=key[0], range_index=key[1])
    directive.drop_replica.CopyFrom(pd_pb2.DropReplica(reason=reason))
    return directive


def _seal(found: common_pb2.Range, server: str) -> pd_pb2.Directive:
    directive = _directive("seal", found, server)
    directive.seal_replica.CopyFrom(
        pd_pb2.SealReplica(epoch=found.epoch, start_offset=found.start_offset, end_offset=found.end_offset)
    )
    return directive
