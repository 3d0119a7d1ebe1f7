"""Counters of the corner cases that the runs must reach: each looks on while production code does what it does."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import rangelog._client
import rangelog._read.reader
import rangelog.protocol.recovery
import rangelog.spark.following
import rangelog.spark.planning
import rangelog_server.agent.directives.runner
import rangelog_server.serving.connection
import rangelog_server_common.grpc_server
from rangelog._append.failover_seal import FailoverSeal
from rangelog._append.runner import AppenderRunner
from rangelog._read.cold import ColdReader
from rangelog._read.stream_view import StreamView
from rangelog.protocol.appender import Appender, AppenderPhase
from rangelog.protocol.recovery import Answer, Recovery
from rangelog_core.errors import AppendConflict, PreconditionFailed, RangelogError, StorageFull, WriterFenced
from rangelog_core.net.data_connection import DataConnection
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.store import State
from rangelog_proto.v1 import pd_state_pb2
from rangelog_server.ranges.replica import DiskTrust, Replica
from rangelog_server.ranges.store import Store
from rangelog_server.tier.upload import Uploader
from rangelog_server.wal.log import Wal
from tests.simulation import (
    probes_of_repairs,
    probes_of_topics,
    virtual_audit,
    virtual_cursors,
    virtual_disaster,
    virtual_following,
    virtual_leader_deaths,
    virtual_packing,
    virtual_quotas,
    virtual_repacking,
    virtual_scrubbing,
    virtual_sink,
    virtual_tier,
)
from tests.simulation.probes_of_answers import watch_answers
from tests.simulation.probes_of_directives import watch_directives
from tests.simulation.probes_of_moves import watch_moves
from tests.simulation.probes_of_topics import watch_topics
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_passes import TOLD
from tests.simulation.virtual_time import here

CORNER_CASES = (
    "answers differ: copied before the commit",
    "unacked tail kept",
    "unacked tail cut",
    "the longer answer's owner was lost before its copy",
    "a replica came back longer than the end",
    "a replica came back shorter than the end",
    "disk lost",
    "disk rolled back",
    "rolled back directory found out",
    "a deposed writer's append was refused",
    "duplicate append answered without writing",
    "an active seal raced a failover",
    "an old epoch's seal was refused",
    "a recoverer was fenced by a later one",
    "a request was repeated and got its first answer",
    "the placement driver's leader changed",
    "a seal reached a server that never knew the range",
    "a seal was answered in doubt",
    "a seal was blocked for want of answers",
    "a seal ended at the longest of all answers, doubt included",
    "active seal",
    "failover seal",
    "flush failed: the process ended",
    "disk full: an append was refused",
    "damage quarantined a replica",
    "a sealed replica was copied from a peer",
    "range uploaded",
    "object key taken",
    "object stored wrong",
    "object stored, answer lost",
    "an upload was abandoned",
    "hot replicas dropped",
    "stream trimmed",
    "a cold read",
    "crash",
    "power cut",
    "pause",
    "partition",
    "one-way partition",
    "client killed",
    "client paused",
    "writer fenced",
    "call lost",
    "answer lost",
    "an end was told",
    "a bounded read ended",
    "a start at latest",
    "a start by time",
    "a Spark plan read twice",
    "a Spark plan left out what a filter does not want",
    "an end proved by the placement driver",
    "a seal refused below the floor",
    "a replica asked the writer for its confirm",
    "a stream deleted under its readers",
    "the cluster version rose under load",
    "a deleted stream was not found",
    "a namesake created",
    "hundreds of followers on one connection",
    "a clock jumped under retention",
    "an append failed for certain",
    "writer told outcome unknown",
    "a rolled-back directory of an earlier run found out",
    "a batch was moved on",
    "a moved batch was read",
    "a moved batch was recovered",
    "a moved batch was cut",
    "an empty range gave way to the next one",
    "disk rolled back within one run",
    "many ranges sealed in one call",
    "many ranges sealed one by one, as one placement driver does not know the call",
    "a command in doubt got its result",
    "a journal was trimmed behind a snapshot",
    "a standby took a journal over",
    "a linearizable read of a journal",
    "a broker was killed",
    "a deposed broker that does not know it was asked",
    *probes_of_topics.CORNER_CASES,
    *virtual_sink.CORNER_CASES,
    *virtual_following.CORNER_CASES,
    *virtual_following.RARE,
    *virtual_repacking.CORNER_CASES,
    *virtual_packing.CORNER_CASES,
    *probes_of_repairs.CORNER_CASES,
    *virtual_cursors.CORNER_CASES,
    *virtual_audit.CORNER_CASES,
    *virtual_tier.CORNER_CASES,
    *virtual_scrubbing.CORNER_CASES,
    *virtual_disaster.CORNER_CASES,
    *virtual_disaster.RARE,
    *virtual_leader_deaths.CORNER_CASES,
    *virtual_leader_deaths.RARE_CASES,
    *virtual_quotas.RARE,
    "a conditional change conflicted",
    "a change of a row has an unknown outcome",
    "a watch of a table was followed",
)


@contextlib.contextmanager
def probes(cluster: VirtualCluster) -> Iterator[None]:
    """Watch this run."""
    with contextlib.ExitStack() as stack:

        def watch(owner: Any, name: str, around: Callable[..., Any]) -> None:
            inner = getattr(owner, name)
            stack.enter_context(mock.patch.object(owner, name, functools.partialmethod(around, inner)))

        note = cluster.note
        for owner in (
            rangelog_server_common.grpc_server,
            rangelog_server.serving.connection,
            rangelog_server.agent.directives.runner,
        ):
            stack.enter_context(mock.patch.object(owner, "_log", _Listener(cluster)))
        _watch_recovery(watch, note, lambda moment, host: cluster.ambush(moment, host))
        _watch_replica(watch, note)
        _watch_writers(watch, cluster)
        _watch_servers(watch, cluster)
        watch_moves(watch, stack, cluster)
        virtual_quotas.watch(watch, cluster)
        watch_directives(watch, cluster)
        probes_of_repairs.watch_repairs(watch, cluster)
        virtual_packing.watch_packing(watch, cluster)
        virtual_audit.watch_audit(watch, cluster)
        watch_answers(watch, stack, cluster)
        watch_topics(watch, stack, cluster, _Listener(cluster))
        _watch_readers(watch, stack, cluster)
        _watch_others(watch, cluster)
        yield


class _Listener:
    """What production code logs with a stack trace is a defect."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster

    def exception(self, message: str, *args: Any, **more: Any) -> None:
        self._cluster.loop.problems.append(f"{here()}: {message} {args} {more}\n{traceback.format_exc()}")

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: None


def _watch_recovery(watch: Any, note: Any, ambush: Any) -> None:
    def plan_copies(self: Recovery, inner: Any, answers: dict[Any, int], end: int) -> None:
        doubtful = any(self._members[each].answer is Answer.DOUBTFUL for each in answers)
        if doubtful and len(answers) == len(self.replicas):
            note("a seal ended at the longest of all answers, doubt included")
        inner(self, answers, end)
        if self.phase is rangelog.protocol.recovery.RecoveryPhase.COPYING:
            note("answers differ: copied before the commit")
            ambush("copy", self._copies[0].source.server)
            ambush("copying", here().name)

    def lost(self: Recovery, inner: Any, now_ms: float, replica: Any, why: str, **more: Any) -> None:
        if self.phase is rangelog.protocol.recovery.RecoveryPhase.COPYING and any(
            c.source == replica for c in self._copies
        ):
            note("the longer answer's owner was lost before its copy")
        inner(self, now_ms, replica, why, **more)

    def commit(self: Recovery, inner: Any) -> None:
        inner(self)
        ambush("decided", here().name)

    def blocked(self: Recovery, inner: Any) -> str:
        note("a seal was blocked for want of answers")
        return str(inner(self))

    def committed(self: Recovery, inner: Any, end_offset: int) -> None:
        note("failover seal")
        inner(self, end_offset)

    def answered(
        self: Recovery, inner: Any, now_ms: float, replica: Any, answer: Any, durable: int, *more: Any
    ) -> None:
        if answer is Answer.DOUBTFUL:
            note("a seal was answered in doubt")
        inner(self, now_ms, replica, answer, durable, *more)

    for name, around in (("_plan_copies", plan_copies), ("lost", lost), ("_commit", commit), ("blocked_because", blocked),
                         ("committed", committed), ("answered", answered)):  # fmt: skip
        watch(Recovery, name, around)


def _watch_replica(watch: Any, note: Any) -> None:
    def commit_end(self: Replica, inner: Any, end_offset: int, *, epoch: int | None = None) -> bool:
        taken, confirmed = self.end_offset, self.confirm_offset
        news = bool(inner(self, end_offset, epoch=epoch))
        if news and taken > end_offset:
            note("a replica came back longer than the end" if epoch is None else "unacked tail cut")
        if news and taken < end_offset:
            note("a replica came back shorter than the end")
        if news and end_offset > confirmed and taken == end_offset:
            note("unacked tail kept")
        return news

    def append(self: Replica, inner: Any, *args: Any, **more: Any) -> Any:
        try:
            fresh = inner(self, *args, **more)
        except WriterFenced:
            note("a deposed writer's append was refused")
            raise
        except AppendConflict:
            note("append conflict")
            raise
        except PreconditionFailed:
            note("append to a sealed replica")
            raise
        if not fresh:
            note("duplicate append answered without writing")
        return fresh

    def quarantine(self: Replica, inner: Any, problem: str) -> None:
        if self.trust is not DiskTrust.QUARANTINED:
            note("damage quarantined a replica")
        inner(self, problem)

    for name, around in (("commit_end", commit_end), ("append", append), ("quarantine", quarantine)):
        watch(Replica, name, around)


def _watch_writers(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note

    def fenced(self: Appender, inner: Any, error: WriterFenced) -> None:
        if self.phase is AppenderPhase.SEALING:
            note("an active seal raced a failover")
        inner(self, error)

    def sealed(self: Appender, inner: Any, *args: Any) -> None:
        note("active seal")
        inner(self, *args)

    def probed(self: Appender, inner: Any, now_ms: float, *, possible: bool) -> None:
        inner(self, now_ms, possible=possible)
        if self.phase is AppenderPhase.SEALING:
            cluster.ambush("frozen", here().name)

    def ended(self: FailoverSeal, inner: Any, task: Any) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RangelogError):
            cluster.loop.problems.append(f"a failover seal failed: {error!r}")
        if isinstance(error, WriterFenced):
            note("a recoverer was fenced by a later one")
        inner(self, task)

    def confirm_wanted(self: AppenderRunner, inner: Any, *args: Any) -> None:
        note("a replica asked the writer for its confirm")
        inner(self, *args)

    watch(AppenderRunner, "confirm_wanted", confirm_wanted)
    watch(Appender, "fenced", fenced)
    watch(Appender, "sealed", sealed)
    watch(Appender, "probed", probed)
    watch(FailoverSeal, "_ended", ended)


def _watch_servers(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note
    fences: dict[tuple[int, int, int], int] = {}  # of one incarnation, one range: the highest fence it told anybody of

    def key_of(stream_id: int, range_index: int) -> tuple[int, int, int]:
        identity = cluster.servers[here().name].disk.identity
        return identity.incarnation if identity is not None else 0, stream_id, range_index

    def seal(
        self: Store, inner: Any, stream_id: int, index: int, epoch: int, start: int, done: Any, **more: Any
    ) -> None:
        if (stream_id, index) not in self.replicas:
            note("a seal reached a server that never knew the range")
        key = key_of(stream_id, index)

        def answered(hosted: Any) -> None:
            fences[key] = max(fences.get(key, 0), epoch)
            done(hosted)

        inner(self, stream_id, index, epoch, start, answered, **more)
        if epoch < fences.get(key, 0):
            cluster.fail(f"{here()} took a seal of epoch {epoch} after it had told of a fence at {fences[key]}")

    def append(self: Store, inner: Any, appender: Any, request_id: int, message: Any, *more: Any) -> Any:
        hosted = inner(self, appender, request_id, message, *more)
        self.find(message.stream_id, message.range_index).core.validate()
        fence = fences.get(key_of(message.stream_id, message.range_index), 0)
        if message.epoch < fence or (message.epoch == fence and not message.recovery):
            cluster.fail(f"{here()} took an append of epoch {message.epoch} after it had told of a fence at {fence}")
        return hosted

    def repair(self: Store, inner: Any, hosted: Any, batches: Any, done: Any) -> None:
        note("a sealed replica was copied from a peer")
        inner(self, hosted, batches, done)

    def check_room(self: Wal, inner: Any, size: int) -> None:
        try:
            inner(self, size)
        except StorageFull:
            note("disk full: an append was refused")
            raise

    watch(Store, "seal", seal)
    watch(Store, "append", append)
    watch(Store, "repair", repair)
    watch(Wal, "check_room", check_room)


def _watch_readers(watch: Any, stack: contextlib.ExitStack, cluster: VirtualCluster) -> None:
    async def ask(self: StreamView, inner: Any, *args: Any) -> Any:
        before = self.stream.stream_id
        answer = await inner(self, *args)
        if before not in (0, self.stream.stream_id):
            cluster.fail(f"{here()} read stream {before} and goes on in its namesake {self.stream.stream_id}")
        return answer

    def close(self: DataConnection, inner: Any, error: RangelogError) -> None:
        if self.closed is None and isinstance(error, WriterFenced):
            cluster.fail(f"{here()} closed a connection that all its streams share: {error!r}")
        inner(self, error)

    told = rangelog._read.reader.confirmed_end

    async def confirmed_end(view: StreamView, *args: Any) -> Any:
        invoked_s = cluster.loop.now
        end = await told(view, *args)
        cluster.note("an end was told")
        life = cluster.life_of(view.name, view.stream.stream_id)
        life.told_end(here().name, end.offset, invoked_s, cluster.loop.now, exact=end.exact)
        if (ends := TOLD.get()) is not None:
            ends.append(end.offset)
        return end

    watch(StreamView, "refresh", ask)
    watch(StreamView, "last_range", ask)
    watch(DataConnection, "_close", close)
    for module in (rangelog._read.reader, rangelog._client, rangelog.spark.planning, rangelog.spark.following):
        stack.enter_context(mock.patch.object(module, "confirmed_end", confirmed_end))


def _watch_others(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note

    def run(self: Machine, inner: Any, action: str, operand: Any) -> Any:
        if action == "drop_hot":
            note("hot replicas dropped")
        elif action == "abandon_object":
            note("an upload was abandoned")
        answer = inner(self, action, operand)
        if action == "prove_end":
            note("an end proved by the placement driver")
        elif action == "set_cluster_version":
            note("the cluster version rose under load")
        return answer

    def apply(self: Machine, inner: Any, index: int, command: bytes) -> Any:
        parsed = pd_state_pb2.Command.FromString(command)
        if parsed.request_id and f"{parsed.WhichOneof('action')} {parsed.request_id}" in self._results:
            note("a request was repeated and got its first answer")
        return inner(self, index, command)

    async def read_cold(self: ColdReader, inner: Any, *args: Any) -> Any:
        found = await inner(self, *args)
        note("a cold read")
        return found

    async def commit(self: Uploader, inner: Any, *args: Any) -> None:
        cluster.ambush("stored", here().name)
        await inner(self, *args)
        note("range uploaded")

    def forget_empty(self: State, inner: Any, stream_id: int) -> None:
        before = len(self.ranges.of(stream_id))
        inner(self, stream_id)
        if len(self.ranges.of(stream_id)) < before:
            note("an empty range gave way to the next one")

    watch(State, "forget_empty", forget_empty)
    watch(Machine, "_run", run)
    watch(Machine, "apply", apply)
    watch(ColdReader, "read", read_cold)
    watch(Uploader, "_commit", commit)
