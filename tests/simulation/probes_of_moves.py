"""Probes of compaction: batches that are moved on, and what happens to them then."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import rangelog_server.serving.handlers.fetch
from rangelog_server.ranges.space import LogSpace
from rangelog_server.ranges.store import Store
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_time import here


def watch_moves(watch: Any, stack: contextlib.ExitStack, cluster: VirtualCluster) -> None:
    """Count what matters, and check the counters of every store whenever no copy is on its way."""
    _watch_copies(watch, cluster)
    _watch_moved(watch, stack, cluster)


def _moved_places(cluster: VirtualCluster) -> dict[int, None]:
    return cluster.servers[here().name].disk.moved


def _watch_copies(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note

    def move(self: LogSpace, inner: Any, *args: Any) -> bool:
        submitted = bool(inner(self, *args))
        if submitted:
            cluster.ambush("moving", here().name)
        return submitted

    def settled(self: LogSpace, inner: Any, hosted: Any, plan: Any, copies: Any) -> None:
        inner(self, hosted, plan, copies)
        wanted = dict.fromkeys(copies)
        taken = [place for place in hosted.places if place in wanted] if not hosted.dropped else []
        if taken:
            note("a batch was moved on")
            _moved_places(cluster).update(dict.fromkeys(taken))
        if len(taken) < len(plan.wanted):
            note("a batch was cut or dropped while it was moved")
        if not self._moving:
            self.validate()

    watch(LogSpace, "move", move)
    watch(LogSpace, "_moved", settled)


def _watch_moved(watch: Any, stack: contextlib.ExitStack, cluster: VirtualCluster) -> None:
    note = cluster.note

    def cut(self: LogSpace, inner: Any, hosted: Any) -> None:
        before = list(hosted.places)
        inner(self, hosted)
        if any(place in _moved_places(cluster) for place in before[len(hosted.places) :]):
            note("a moved batch was cut")

    def opened(self: Store, inner: Any, **more: Any) -> Any:
        replayed = inner(self, **more)
        if any(place in _moved_places(cluster) for hosted in self.replicas.values() for place in hosted.places):
            note("a moved batch was recovered")
        return replayed

    def failed(self: Store, inner: Any, *args: Any) -> bool:
        moved = bool(inner(self, *args))
        if moved:
            note("a batch was moved while it was read")
        return moved

    def read_batches(wal: Any, plan: Any, **more: Any) -> Any:
        found = read(wal, plan, **more)
        if any(one.place in _moved_places(cluster) for one in plan.wanted):
            note("a moved batch was read")
        return found

    read = rangelog_server.serving.handlers.fetch.read_batches
    watch(LogSpace, "cut", cut)
    watch(Store, "open", opened)
    watch(Store, "read_failed", failed)
    stack.enter_context(mock.patch.object(rangelog_server.serving.handlers.fetch, "read_batches", read_batches))
