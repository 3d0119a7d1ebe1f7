"""What the leader proposes by itself: hot copies to give up, replicas to replace, retention, uploads that ran out of time.

Pure: from state, view and time to commands. Each command is checked again where it is applied.
"""

from __future__ import annotations

from collections.abc import Iterator

from rangelog.errors import NoPlacement
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

from rangelog_pd.placement import Health, place
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State

PROPOSALS_MAX = 50
"""A round: the log is shared with writers."""

REPLACE_AFTER_MS = 60_000.0
"""A server that is away for less is waited for: copying its replicas would cost more."""

MARK_LOG_END_BYTES = 16 * 1024 * 1024


def proposals(state: State, view: ClusterView, now_ms: float, wall_ms: int) -> list[pd_state_pb2.Command]:
    """Return the commands of this round, bounded."""
    found: list[pd_state_pb2.Command] = []
    for source in (
        _hot_drops(state, wall_ms),
        _expired_uploads(state, wall_ms),
        _retention(state, wall_ms),
        _replacements(state, view, now_ms),
        _log_ends(state, view),
    ):
        for command in source:
            found.append(command)
            if len(found) >= PROPOSALS_MAX:
                return found
    return found


def _hot_drops(state: State, wall_ms: int) -> Iterator[pd_state_pb2.Command]:
    for stream_id, ranges in state.ranges.items():
        hot_retention_ms = state.streams[stream_id].config.hot_retention_ms
        if hot_retention_ms < 0:
            continue
        for each in ranges.values():
            if each.state != common_pb2.RANGE_STATE_SEALED or each.hot_dropped:
                continue
            whole = each.tiered_end_offset == each.end_offset > each.start_offset
            if whole and wall_ms - each.tiered_ms >= hot_retention_ms:
                yield pd_state_pb2.Command(drop_hot=pd_state_pb2.DropHot(stream_id=stream_id, range_index=each.index))


def _expired_uploads(state: State, wall_ms: int) -> Iterator[pd_state_pb2.Command]:
    for each in state.objects.values():
        if each.state == common_pb2.OBJECT_STATE_PREPARED and each.prepare_deadline_ms < wall_ms:
            yield pd_state_pb2.Command(abandon_object=pd_state_pb2.AbandonObject(object_id=each.object_id))


def _retention(state: State, wall_ms: int) -> Iterator[pd_state_pb2.Command]:
    for stream_id, stream in state.streams.items():
        end = _retained_from(state, stream, list(state.ranges[stream_id].values()), wall_ms)
        if end > stream.trim_offset:
            yield pd_state_pb2.Command(trim_stream=pd_pb2.TrimStreamRequest(name=stream.name, trim_offset=end))


def _retained_from(state: State, stream: common_pb2.Stream, ranges: list[common_pb2.Range], wall_ms: int) -> int:
    """Return the end of the last range that is over its time, or no longer fits."""
    end = stream.trim_offset
    sealed = [each for each in ranges if each.state == common_pb2.RANGE_STATE_SEALED]
    if stream.config.retention_ms:
        for each in sealed:
            if wall_ms - each.sealed_ms > stream.config.retention_ms:
                end = max(end, each.end_offset)
    if stream.config.retention_bytes:
        kept = 0
        for each in reversed(sealed):
            kept += sum(found.size_bytes for found in state.objects_of(each.stream_id, each.index))
            if kept > stream.config.retention_bytes:
                return max(end, each.end_offset)
    return end


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
            holding = [replica.server for replica in found.replicas if replica.incarnation != incarnation]
            usable = [each for each in candidates if each.health is Health.ALIVE and each.server not in holding]
            try:
                target = place(usable, replicas=1, acks=1)[0]
            except NoPlacement:
                continue
            yield pd_state_pb2.Command(
                replace_replica=pd_state_pb2.ReplaceReplica(
                    stream_id=stream_id,
                    range_index=index,
                    lost=common_pb2.Replica(server=server, incarnation=incarnation),
                    replacement=common_pb2.Replica(server=target.server, incarnation=target.incarnation),
                )
            )


def _log_ends(state: State, view: ClusterView) -> Iterator[pd_state_pb2.Command]:
    for name, registered in state.servers.items():
        heard = view.servers.get(name)
        if heard is None or heard.incarnation != registered.server.incarnation:
            continue
        if heard.log_end >= registered.log_end + MARK_LOG_END_BYTES:
            yield pd_state_pb2.Command(
                mark_log_end=pd_state_pb2.MarkLogEnd(server=name, incarnation=heard.incarnation, log_end=heard.log_end)
            )
