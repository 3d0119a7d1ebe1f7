"""The figures that a range server exports, and whether it is ready.

What holds: a scrape reads counters and lengths, and asks the operating system for the room on one disk; it never reads the
replicas one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rangelog_server.inspecting import disk_room
from rangelog_server.ranges.counts import ServingCounts
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import DataPlane
from rangelog_server.wal.log import Wal
from rangelog_server_common.metrics.call_tally import CALL_FIGURES, CallTally
from rangelog_server_common.metrics.figures import Figure, FigureGroup, counter, gauge, histogram
from rangelog_server_common.quotas.figures import QUOTA_FIGURES

if TYPE_CHECKING:
    from rangelog_server.agent.agent import Agent

COMMIT_S_MAX = 5.0
"""A disk on which one commit takes longer does not work."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One look at a range server. `agent`: None where it joins no cluster."""

    store: Store
    plane: DataPlane
    agent: Agent | None
    now_s: float
    disk_free_bytes: int
    disk_total_bytes: int
    capacity_bytes: int

    @property
    def wal(self) -> Wal:
        """The log."""
        return self.store.wal

    @property
    def counts(self) -> ServingCounts:
        """The counters of the data plane."""
        return self.store.counts

    @property
    def log_capacity_bytes(self) -> int:
        """The size at which the log is full."""
        disk = self.wal.used_bytes + self.disk_free_bytes
        return min(self.capacity_bytes, disk) if self.capacity_bytes else disk


def look(store: Store, plane: DataPlane, agent: Agent | None, data_dir: Path, capacity_bytes: int) -> ServerFacts:
    """Return what all figures of one scrape are read from."""
    free_bytes, total_bytes = disk_room(data_dir)
    return ServerFacts(store, plane, agent, plane.loop.time(), free_bytes, total_bytes, capacity_bytes)


_APPENDS: Sequence[Figure[ServerFacts]] = (
    counter("rangelog_server_appends_total", "Append requests that were accepted, repeated ones included.",
            lambda f: f.counts.appends),
    counter("rangelog_server_append_batches_total", "Batches that appends wrote to the log.",
            lambda f: f.counts.append_batches),
    counter("rangelog_server_append_records_total", "Records in these batches.", lambda f: f.counts.append_records),
    counter("rangelog_server_append_bytes_total", "Bytes of these batches.", lambda f: f.counts.append_bytes),
    counter("rangelog_server_append_errors_total", "Append requests that were refused, by error.",
            lambda f: f.counts.append_errors, "code"),
    counter("rangelog_server_fetch_replies_total", "Replies with records, by where these were: memory or disk.",
            lambda f: {"memory": f.counts.fetch_replies_memory, "disk": f.counts.fetch_replies_disk}, "source"),
    counter("rangelog_server_fetch_bytes_total", "Bytes of batches in these replies.",
            lambda f: {"memory": f.counts.fetch_bytes_memory, "disk": f.counts.fetch_bytes_disk}, "source"),
    counter("rangelog_server_fetch_errors_total", "Fetches that ended with an error.",
            lambda f: f.counts.fetch_errors, "code"),
    gauge("rangelog_server_connections", "Connections to the data plane.", lambda f: len(f.plane.connections)),
    gauge("rangelog_server_connections_paused", "Connections that are not read, since too much of them is in flight.",
          lambda f: len(f.plane.paused)),
    counter("rangelog_server_connections_refused_total", "Connections that were refused because of the limit.",
            lambda f: f.counts.refused_connections),
    counter("rangelog_server_slow_readers_total", "Connections that were ended because the client did not read.",
            lambda f: f.counts.slow_readers),
)  # fmt: skip

_LOG: Sequence[Figure[ServerFacts]] = (
    histogram("rangelog_server_log_write_duration_seconds",
              "Time until an entry of the log is durable: at most this, by the first entry of its group.",
              lambda f: f.wal.write_durations),
    histogram("rangelog_server_log_commit_duration_seconds", "Duration of a group commit: write and flush.",
              lambda f: f.wal.commit_durations),
    counter("rangelog_server_log_flushes_total", "Flushes of the log.", lambda f: f.wal.flush_count),
    counter("rangelog_server_log_bytes_total", "Bytes of entries submitted to the log: batches, copies and metadata.",
            lambda f: f.wal.appended_bytes),
    gauge("rangelog_server_log_pending_bytes", "Bytes of entries that are not durable yet.",
          lambda f: f.wal.pending_bytes),
    gauge("rangelog_server_log_used_bytes", "Disk space of the log.", lambda f: f.wal.used_bytes),
    gauge("rangelog_server_log_capacity_bytes", "Size at which the log is full, by the setting and the disk.",
          lambda f: f.log_capacity_bytes),
    gauge("rangelog_server_log_full", "Whether the log cannot grow, so that appends are refused: 1 or 0.",
          lambda f: bool(f.wal.problem)),
    gauge("rangelog_server_disk_free_bytes", "Free space on the data directory's disk.", lambda f: f.disk_free_bytes),
    gauge("rangelog_server_disk_size_bytes", "Size of the data directory's disk.", lambda f: f.disk_total_bytes),
    gauge("rangelog_server_replicas", "Replicas on this server.", lambda f: len(f.store.replicas)),
    gauge("rangelog_server_live_bytes", "Bytes of batches in the log that replicas still have.",
          lambda f: f.store.space.usage.batch_bytes),
    counter("rangelog_server_quarantines_total", "Replicas that were set aside as damaged.",
            lambda f: f.counts.quarantines),
    counter("rangelog_server_scrubbed_bytes_total", "Bytes that were read again and checked.",
            lambda f: f.counts.scrubbed_bytes),
    counter("rangelog_server_copied_bytes_total", "Bytes of batches copied from peers.",
            lambda f: f.counts.copied_bytes),
)  # fmt: skip

_CLUSTER: Sequence[Figure[ServerFacts]] = (
    gauge("rangelog_server_registered", "Whether this server is registered with a placement driver: 1 or 0.",
          lambda f: f.agent.registered if f.agent else None),
    counter("rangelog_server_heartbeats_total", "Heartbeats sent.", lambda f: f.counts.heartbeats),
    counter("rangelog_server_heartbeat_failures_total", "Heartbeats that were refused or had no answer.",
            lambda f: f.counts.heartbeat_failures),
    gauge("rangelog_server_heartbeat_silence_seconds", "Time since the last answer to a heartbeat.",
          lambda f: f.now_s - f.agent.answered_s if f.agent and f.agent.answered_s is not None else None),
    counter("rangelog_server_directives_total", "Attempts at directives of the placement driver, by result.",
            lambda f: {(action, code): count for action, codes in f.counts.directives.items()
                       for code, count in codes.items()}, "action", "code"),
    counter("rangelog_server_uploaded_objects_total", "Objects uploaded to the tier.",
            lambda f: f.counts.uploaded_objects),
    counter("rangelog_server_uploaded_bytes_total", "Bytes of these objects.", lambda f: f.counts.uploaded_bytes),
    gauge("rangelog_server_tier_failing", "Whether this server's last check of the tier failed: 1 or 0.",
          lambda f: bool(f.agent.tier_error) if f.agent else None),
)  # fmt: skip

FIGURES: Sequence[Figure[ServerFacts]] = (*_APPENDS, *_LOG, *_CLUSTER)


class Watched:
    """The sources of one range server's endpoint. `agent` is set once it exists."""

    def __init__(self, store: Store, plane: DataPlane, calls: CallTally, data_dir: Path, capacity_bytes: int) -> None:
        """`calls`: those of the control plane. `capacity_bytes`: the setting, 0 for the disk's."""
        self.agent: Agent | None = None
        self.serving = False
        self._store = store
        self._plane = plane
        self._calls = calls
        self._data_dir = data_dir
        self._capacity_bytes = capacity_bytes

    def parts(self) -> list[FigureGroup[Any]]:
        """Return all that a range server exports."""
        return [
            FigureGroup(
                lambda: look(self._store, self._plane, self.agent, self._data_dir, self._capacity_bytes),
                FIGURES,
            ),
            FigureGroup(lambda: self._calls, CALL_FIGURES),
            FigureGroup(lambda: self._plane.quotas, QUOTA_FIGURES),
        ]

    def problems(self) -> list[str]:
        """Return why the server is not ready; nothing: it serves, and its log takes appends.

        A server that is registered stays ready without a placement driver, since it serves without one.
        """
        found = []
        wal = self._store.wal
        if self.agent is not None and not self.agent.registered:
            found.append("not registered yet: no placement driver has answered")
        elif not self.serving:
            found.append("not serving yet")
        if wal.problem:
            found.append(f"the log cannot grow: {wal.problem}")
        if wal.committing_s > COMMIT_S_MAX:
            found.append(f"the disk does not finish a write: {wal.committing_s:.0f} s so far")
        return found
