"""What the leader proposes by itself: hot copies to give up, replicas to replace, retention, uploads that ran out of time.

Pure: from state, view and time to commands. Each command is checked again where it is applied. `now_ms` is the leader's
monotonic clock, for leases; `time_ms` is cluster time, for what the state dates. What is not dated yet has no age.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, Health, place
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

PROPOSALS_MAX = 50
"""A round: the log is shared with writers."""

REPLACE_AFTER_MS = 60_000.0
"""A server that is away for less is waited for: copying its replicas would cost more."""

MARK_LOG_ENDS_MS = 1_000.0
MARKS_MAX = 200
"""In one command, which must stay below the size of a Raft command also where all names are long."""


def proposals(state: State, view: ClusterView, now_ms: float, time_ms: int) -> list[pd_state_pb2.Command]:
    """Return the commands of this round, bounded."""
    found: list[pd_state_pb2.Command] = []
    for source in (
        _log_ends(state, view, now_ms),
        _hot_drops(state, time_ms),
        _dead_uploads(state, view, now_ms, time_ms),
        _retention(state, view, time_ms),
        _replacements(state, view, now_ms),
        _completions(state, view, now_ms),
    ):
        for command in source:
            found.append(command)
            if len(found) >= PROPOSALS_MAX:
                return found
    return found


def _hot_drops(state: State, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    for stream_id, ranges in state.ranges.items():
        hot_retention_ms = state.streams[stream_id].config.hot_retention_ms
        if hot_retention_ms < 0:
            continue
        for each in ranges.values():
            if each.state != common_pb2.RANGE_STATE_SEALED or each.hot_dropped:
                continue
            whole = each.tiered_end_offset == each.end_offset  # so is an empty one
            since_ms = each.tiered_ms if each.tiered_end_offset > each.start_offset else each.sealed_ms
            if whole and since_ms and time_ms - since_ms >= hot_retention_ms:
                yield pd_state_pb2.Command(drop_hot=pd_state_pb2.DropHot(stream_id=stream_id, range_index=each.index))


def _dead_uploads(state: State, view: ClusterView, now_ms: float, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    """Uploads out of time, and those of servers that are dead: another server can begin."""
    for each in state.objects.values():
        if each.state != common_pb2.OBJECT_STATE_PREPARED:
            continue
        dead = view.health(state, each.server, each.incarnation, now_ms) is Health.DEAD
        if dead or each.prepare_deadline_ms < time_ms:
            yield pd_state_pb2.Command(abandon_object=pd_state_pb2.AbandonObject(object_id=each.object_id))


def _retention(state: State, view: ClusterView, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    for stream_id, stream in state.streams.items():
        end = _retained_from(state, view, stream, list(state.ranges[stream_id].values()), time_ms)
        if end > stream.trim_offset:
            yield pd_state_pb2.Command(trim_stream=pd_pb2.TrimStreamRequest(stream_id=stream_id, trim_offset=end))


def _retained_from(
    state: State, view: ClusterView, stream: common_pb2.Stream, ranges: list[common_pb2.Range], time_ms: int
) -> int:
    """Return the end of the last range that is over its time, or no longer fits."""
    end = stream.trim_offset
    sealed = [each for each in ranges if each.state == common_pb2.RANGE_STATE_SEALED]
    if stream.config.retention_ms:
        for each in sealed:
            if each.sealed_ms and time_ms - each.sealed_ms > stream.config.retention_ms:
                end = max(end, each.end_offset)
    if stream.config.retention_bytes:
        kept = 0
        for each in reversed(sealed):
            kept += _size_bytes(state, view, each)
            if kept > stream.config.retention_bytes:
                return max(end, each.end_offset)
    return end


def _size_bytes(state: State, view: ClusterView, of: common_pb2.Range) -> int:
    """As its replicas report it; of a range that is only in the tier, what its objects take there."""
    reports = [view.report(each.server, each.incarnation, (of.stream_id, of.index)) for each in of.replicas]
    hot = max((each.size_bytes for each in reports if each is not None), default=0)
    objects = state.objects_of(of.stream_id, of.index)
    return hot or sum(each.size_bytes for each in objects if each.state == common_pb2.OBJECT_STATE_COMMITTED)


def _replacements(state: State, view: ClusterView, now_ms: float) -> Iterator[pd_state_pb2.Command]:
    """Sealed ranges with a replica on a server that is gone for good, or for long: another server takes its place."""
    candidates = view.candidates(state, now_ms)
    for (server, incarnation), hosted in state.hosted.items():
        if not hosted or view.health(state, server, incarnation, now_ms) is not Health.DEAD:
            continue
        registered = state.servers.get(server)
        same = registered is not None and registered.server.incarnation == incarnation
        if same and view.silent_ms(server, now_ms) < REPLACE_AFTER_MS:
            continue
        for stream_id, index in hosted:
            found = state.ranges[stream_id][index]
            if found.state != common_pb2.RANGE_STATE_SEALED:
                continue
            lost = common_pb2.Replica(server=server, incarnation=incarnation)
            others = [each for each in found.replicas if each.server != server or each.incarnation != incarnation]
            yield from _with_another(state, candidates, found, others, lost)


def _completions(state: State, view: ClusterView, now_ms: float) -> Iterator[pd_state_pb2.Command]:
    """Sealed ranges that were made while servers were few: one more server joins at a time."""
    candidates = view.candidates(state, now_ms)
    for stream_id, ranges in state.ranges.items():
        wanted = state.streams[stream_id].config.replicas
        for each in ranges.values():
            if each.state != common_pb2.RANGE_STATE_SEALED or each.tiered_end_offset == each.end_offset:
                continue
            if 0 < len(each.replicas) < wanted:
                yield from _with_another(state, candidates, each, list(each.replicas), None)


def _with_another(
    state: State,
    candidates: Sequence[Candidate],
    of: common_pb2.Range,
    others: Sequence[common_pb2.Replica],
    lost: common_pb2.Replica | None,
) -> Iterator[pd_state_pb2.Command]:
    """Give a range one more member, on a living server and in a zone of its own where there is one."""
    holding = [each.server for each in others]
    usable = [each for each in candidates if each.health is Health.ALIVE and each.server not in holding]
    zones = [state.servers[name].server.zone for name in holding if name in state.servers]
    try:
        target = place(usable, replicas=1, acks=1, zones_taken=zones)[0]
    except NoPlacement:
        return
    replacement = common_pb2.Replica(server=target.server, incarnation=target.incarnation)
    yield pd_state_pb2.Command(
        replace_replica=pd_state_pb2.ReplaceReplica(
            stream_id=of.stream_id, range_index=of.index, lost=lost, replacement=replacement
        )
    )


def _log_ends(state: State, view: ClusterView, now_ms: float) -> Iterator[pd_state_pb2.Command]:
    """How far the logs reach that grew: in the state within a second, so that the next leader knows it, too."""
    if now_ms < view.log_ends_marked_ms + MARK_LOG_ENDS_MS:
        return
    marks = [
        pd_state_pb2.MarkLogEnd(server=name, incarnation=heard.incarnation, log_end=heard.log_end)
        for name, heard in view.servers.items()
        if (known := state.servers.get(name)) is not None
        and known.server.incarnation == heard.incarnation
        and known.log_end < heard.log_end
    ]
    if marks:
        view.log_ends_marked_ms = now_ms
    for first in range(0, len(marks), MARKS_MAX):
        yield pd_state_pb2.Command(mark_log_ends=pd_state_pb2.MarkLogEnds(marks=marks[first : first + MARKS_MAX]))
