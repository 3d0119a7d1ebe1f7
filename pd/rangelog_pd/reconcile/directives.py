"""What one range server is to do, from the state and its own reports. Called at each of its heartbeats, on the leader.

What holds: nothing is told to be dropped unless the state says so, behind a barrier: the range is gone (deleted, trimmed),
its hot copies were given up after objects covered it, or others took this one's place and enough of them are whole and
alive. What this driver never knew of, and what is open, is left alone. Directives are repeated until a report shows them
done, so losing one loses nothing. Objects are removed from the store a grace after the state has lost them, in cluster time.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_pd.placement import Health
from rangelog_pd.reconcile.view import ClusterView, RangeKey, drop_task_id
from rangelog_pd.state.store import State
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
        """Return what is wanted now, most urgent first, bounded."""
        view = self.view.servers.get(server)
        if view is None or view.incarnation != incarnation or not view.complete:
            return []
        wanted = self._for_reports(view.reports, server, incarnation)
        wanted += self._for_missing(view.reports, server, incarnation)
        if self.tier:
            wanted += self._uploads(view.reports, server, incarnation)
            wanted += self._deletions(server)
        told = wanted[:DIRECTIVES_MAX]
        for directive in told:
            if directive.HasField("drop_replica"):  # from here on it may be gone: no other one goes for its sake
                view.dropping[directive.stream_id, directive.range_index] = None
        return told

    def _for_reports(
        self, reports: dict[RangeKey, pd_pb2.ReplicaReport], server: str, incarnation: int
    ) -> list[pd_pb2.Directive]:
        hosted = self.state.hosted.get((server, incarnation), {})
        wanted: list[pd_pb2.Directive] = []
        for key, report in reports.items():
            if key not in hosted:
                if self._superfluous(key):
                    wanted.append(_drop(key, server, "the range lives elsewhere, or not at all"))
                continue
            found = self.state.ranges[key[0]][key[1]]
            if found.state != common_pb2.RANGE_STATE_SEALED:
                continue
            if report.state in (pd_pb2.REPLICA_STATE_OPEN, pd_pb2.REPLICA_STATE_FENCED):
                wanted.append(_seal(found, server))
            elif report.state == pd_pb2.REPLICA_STATE_INCOMPLETE:
                wanted += self._copy(found, server)
            elif report.state == pd_pb2.REPLICA_STATE_QUARANTINED and self._sources(found, server):
                wanted.append(_drop(key, server, "damaged; a fresh copy follows"))
            if len(wanted) >= DIRECTIVES_MAX:
                break
        return wanted

    def _for_missing(
        self, reports: dict[RangeKey, pd_pb2.ReplicaReport], server: str, incarnation: int
    ) -> list[pd_pb2.Directive]:
        """Sealed ranges that this server should hold and has nothing of."""
        wanted: list[pd_pb2.Directive] = []
        for key in self.state.hosted.get((server, incarnation), {}):
            if key in reports:
                continue
            found = self.state.ranges[key[0]][key[1]]
            if found.state == common_pb2.RANGE_STATE_SEALED and found.end_offset > found.start_offset:
                wanted += self._copy(found, server)
            if len(wanted) >= COPIES_MAX:
                break
        return wanted

    def _copy(self, found: common_pb2.Range, server: str) -> list[pd_pb2.Directive]:
        sources = self._sources(found, server)
        if not sources:
            return []
        directive = _directive("copy", found, server)
        directive.copy_replica.CopyFrom(
            pd_pb2.CopyReplica(
                epoch=self.state.streams[found.stream_id].epoch,
                start_offset=found.start_offset,
                end_offset=found.end_offset,
                sources=sources,
            )
        )
        return [directive]

    def _superfluous(self, key: RangeKey) -> bool:
        """Whether a replica that is not (or no longer) its range's may go."""
        stream = self.state.streams.get(key[0])
        if stream is None:
            return key[0] < self.state.next_stream_id  # deleted; else never heard of
        found = self.state.ranges[key[0]].get(key[1])
        if found is None:
            return key[1] < stream.range_count  # trimmed; else never heard of
        if found.state != common_pb2.RANGE_STATE_SEALED:
            return False
        return found.hot_dropped or sum(self.is_whole(found, each) for each in found.replicas) >= found.acks

    def _sources(self, found: common_pb2.Range, server: str) -> list[common_pb2.Replica]:
        """Return who else holds the whole sealed range, be it a member or one that was replaced."""
        others = [
            common_pb2.Replica(server=name, incarnation=view.incarnation)
            for name, view in self.view.servers.items()
            if name != server
        ]
        whole = common_pb2.Range(replicas=[replica for replica in others if self.is_whole(found, replica)])
        return list(self.view.fill_in(self.state, [whole], self.now_ms)[0].replicas)

    def is_whole(self, found: common_pb2.Range, replica: common_pb2.Replica) -> bool:
        """Whether a living server reports that it holds a sealed range up to the end."""
        report = self.view.held(replica.server, replica.incarnation, (found.stream_id, found.index))
        if report is None or report.state != pd_pb2.REPLICA_STATE_SEALED:
            return False
        return self.view.health(self.state, replica.server, replica.incarnation, self.now_ms) is Health.ALIVE

    def _uploads(
        self, reports: dict[RangeKey, pd_pb2.ReplicaReport], server: str, incarnation: int
    ) -> list[pd_pb2.Directive]:
        """Sealed ranges that this server is the one to upload: the first whole replica that is alive."""
        wanted: list[pd_pb2.Directive] = []
        for key, report in reports.items():
            if report.state != pd_pb2.REPLICA_STATE_SEALED or len(wanted) >= UPLOADS_MAX:
                continue
            found = self.state.ranges.get(key[0], {}).get(key[1])
            if found is None or key not in self.state.hosted.get((server, incarnation), {}):
                continue
            stream = self.state.streams[found.stream_id]
            if not stream.config.tiered or found.tiered_end_offset >= found.end_offset:
                continue
            if self._uploader(found) != server:
                continue
            directive = _directive("upload", found, server)
            directive.upload_range.CopyFrom(
                pd_pb2.UploadRange(
                    epoch=found.epoch,
                    start_offset=found.tiered_end_offset,
                    end_offset=found.end_offset,
                    stream_name=stream.name,
                )
            )
            wanted.append(directive)
        return wanted

    def _uploader(self, found: common_pb2.Range) -> str | None:
        """Who is at it already, unless it is dead; else the replicas take turns by range, so that the work is spread."""
        for each in self.state.objects_of(found.stream_id, found.index):
            if each.state == common_pb2.OBJECT_STATE_PREPARED:
                health = self.view.health(self.state, each.server, each.incarnation, self.now_ms)
                if health is not Health.DEAD:
                    return each.server
        count = len(found.replicas)
        for step in range(count):
            replica = found.replicas[(found.index + step) % count]
            if self.is_whole(found, replica):
                return replica.server
        return None

    def _deletions(self, server: str) -> list[pd_pb2.Directive]:
        """Tombstones to be removed from the store, by the first server that is alive."""
        alive = [
            name
            for name, registered in self.state.servers.items()
            if self.view.health(self.state, name, registered.server.incarnation, self.now_ms) is Health.ALIVE
        ]
        if not alive or min(alive) != server:
            return []
        gone = [each for each in self.state.objects.values() if self._may_be_deleted(each)]
        if not gone:
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
