"""What one range server is to do, from the state and its own reports. Called at each of its heartbeats, on the leader.

What holds: nothing is told to be dropped unless the state says so, behind a barrier: the range is gone (deleted, trimmed),
its hot copies were given up after objects covered it, or others took this one's place and enough of them are whole and
alive. What this driver never knew of, and what is open, is left alone. Directives are repeated until a report shows them
done, so losing one loses nothing. Objects are removed from the store a grace after the state has lost them, in cluster time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.view import ClusterView, ServerView, drop_task_id
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_pb2

DIRECTIVES_MAX = 64
"""In one answer; the rest follows with the next heartbeat."""

UPLOADS_MAX = 8
"""Asked of a server at a time. It does one after the other; one that keeps failing must not hold up the rest."""

UPLOAD_GRACE_MS = 60_000
"""After its deadline, for an upload that was given up: its server may have been slow, not dead."""

DELETE_GRACE_MS_DEFAULT = 600_000
"""Between the loss of an object in the state and its loss in the store. A trim or a deletion that should not have been can
be noticed, and the objects be saved: they describe themselves."""

COPIES_MAX = 4
DELETE_OBJECTS_MAX = 100
TOMBSTONES_MAX = 4 * DELETE_OBJECTS_MAX
"""The oldest that are looked at; those of uploads that were given up may have to stay longer than later ones."""

_BOUNDS = {
    "seal_replica": DIRECTIVES_MAX,
    "drop_replica": DIRECTIVES_MAX,
    "copy_replica": COPIES_MAX,
    "upload_range": UPLOADS_MAX,
    "delete_objects": 1,
}
"""By kind, most urgent first. What is over its bound waits for its turn."""


@dataclass(slots=True)
class Planner:
    """Makes directives for the server that reports; notes in the view what it is told to drop."""

    state: State
    view: ClusterView
    tier: bool
    now_ms: float
    time_ms: int
    delete_grace_ms: int = DELETE_GRACE_MS_DEFAULT

    def directives(self, server: str, incarnation: int) -> list[pd_pb2.Directive]:
        """Return what is wanted now, most urgent first, bounded. Looks only at what may be wanted (attention.py)."""
        self.view.upkeep.follow(self.state)
        view = self.view.servers.get(server)
        if view is None or view.incarnation != incarnation or not view.complete:
            return []
        wanted: dict[str, list[pd_pb2.Directive]] = {kind: [] for kind in _BOUNDS}
        for key in view.attention.take():
            directive, done = self._look_at(key, view, server)
            kind = directive.WhichOneof("action") if directive is not None else None
            told = False
            if directive is not None and kind is not None and len(wanted[kind]) < _BOUNDS[kind]:
                wanted[kind].append(directive)
                told = True
            view.attention.settle(key, told=told, done=done)
        if self.tier:
            wanted["delete_objects"] += self._deletions(server)
        directives = [directive for kind in _BOUNDS for directive in wanted[kind]][:DIRECTIVES_MAX]
        for directive in directives:
            if directive.HasField("drop_replica"):  # from here on it may be gone: no other one goes for its sake
                view.dropping[directive.stream_id, directive.range_index] = None
        return directives

    def _look_at(self, key: RangeKey, view: ServerView, server: str) -> tuple[pd_pb2.Directive | None, bool]:
        """Return what is wanted of a server for one range now, and whether nothing will be until something changes."""
        report = view.reports.get(key)
        if key not in self.state.hosted.of(server, view.incarnation):
            return self._look_at_stray(key, report, server)
        self._no_stray(key, server)
        found = self.state.ranges[key]
        if found.state != common_pb2.RANGE_STATE_SEALED:
            return None, True
        if report is None or report.state == pd_pb2.REPLICA_STATE_INCOMPLETE:
            is_empty = report is None and found.end_offset == found.start_offset
            return (None, True) if is_empty else (self._copy(found, server), False)
        if report.state in (pd_pb2.REPLICA_STATE_OPEN, pd_pb2.REPLICA_STATE_FENCED):
            return _seal(found, server), False
        if report.state == pd_pb2.REPLICA_STATE_QUARANTINED:
            has_source = bool(self._sources(found, server))
            return (_drop(key, server, "damaged; a fresh copy follows") if has_source else None), False
        return self._look_at_whole(found, server)

    def _look_at_stray(
        self, key: RangeKey, report: pd_pb2.ReplicaReport | None, server: str
    ) -> tuple[pd_pb2.Directive | None, bool]:
        """A replica that is not, or no longer, its range's."""
        if report is None:
            self._no_stray(key, server)
            return None, True
        self.view.strays.setdefault(key, {})[server] = None
        if self._superfluous(key):
            return _drop(key, server, "the range lives elsewhere, or not at all"), False
        return None, False

    def _no_stray(self, key: RangeKey, server: str) -> None:
        strays = self.view.strays.get(key)
        if strays is not None:
            strays.pop(server, None)
            if not strays:
                del self.view.strays[key]

    def _look_at_whole(self, found: common_pb2.Range, server: str) -> tuple[pd_pb2.Directive | None, bool]:
        """A whole replica of a sealed range: it may have to be uploaded, by one of those that have it."""
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

    def _superfluous(self, key: RangeKey) -> bool:
        """Whether a replica that is not (or no longer) its range's may go."""
        stream = self.state.streams.find(key[0])
        if stream is None:
            return key[0] < self.state.next_stream_id  # deleted; else never heard of
        found = self.state.ranges.find(key)
        if found is None:
            return key[1] < stream.range_count  # trimmed; else never heard of
        if found.state != common_pb2.RANGE_STATE_SEALED:
            return False
        return found.hot_dropped or sum(self.is_whole(found, each) for each in found.replicas) >= found.acks

    def _sources(self, found: common_pb2.Range, server: str) -> list[common_pb2.Replica]:
        """Return who else holds the whole sealed range, be it a member or one that was replaced."""
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
        """Whether a living server reports that it holds a sealed range up to the end."""
        report = self.view.held(replica.server, replica.incarnation, (found.stream_id, found.index))
        if report is None or report.state != pd_pb2.REPLICA_STATE_SEALED:
            return False
        return self.view.health(self.state, replica.server, replica.incarnation, self.now_ms) is ServerHealth.ALIVE

    def _uploader(self, found: common_pb2.Range) -> str | None:
        """Who is at it already, unless it is dead; else the replicas take turns by range, so that the work is spread."""
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
        """Tombstones to be removed from the store, by the first server that is alive."""
        oldest = islice(self.state.range_objects.tombstones, TOMBSTONES_MAX)
        gone = [each for object_id in oldest if self._may_be_deleted(each := self.state.objects[object_id])]
        if not gone:
            return []
        alive = [
            name
            for name, registered in self.state.servers.items()
            if self.view.health(self.state, name, registered.server.incarnation, self.now_ms) is ServerHealth.ALIVE
        ]
        if not alive or min(alive) != server:
            return []
        chosen = gone[:DELETE_OBJECTS_MAX]
        ids = [each.object_id for each in chosen]
        directive = pd_pb2.Directive(task_id=f"delete-{ids[0]}-{ids[-1]}-{len(ids)}@{server}")
        directive.delete_objects.CopyFrom(pd_pb2.DeleteObjects(keys=[each.key for each in chosen], object_ids=ids))
        return [directive]

    def _may_be_deleted(self, found: common_pb2.Object) -> bool:
        """Whether a tombstone is old enough; of an upload that was given up also: whether nobody can be at it any more."""
        if found.state != common_pb2.OBJECT_STATE_DELETED or not found.deleted_ms:
            return False
        if self.time_ms < found.deleted_ms + self.delete_grace_ms:
            return False
        return bool(found.committed_ms) or self.time_ms > found.prepare_deadline_ms + UPLOAD_GRACE_MS


def _directive(kind: str, found: common_pb2.Range, server: str) -> pd_pb2.Directive:
    task_id = f"{kind}-{found.stream_id}/{found.index}-{found.tiered_end_offset}@{server}"
    return pd_pb2.Directive(task_id=task_id, stream_id=found.stream_id, range_index=found.index)


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
