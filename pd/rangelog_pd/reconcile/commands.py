"""What the leader proposes by itself: hot copies to give up, replicas to replace, retention, uploads that ran out of time.

Pure: from state, view and time to commands. Each command is checked again where it is applied. `now_ms` is the leader's
monotonic clock, for leases; `time_ms` is cluster time, for what the state dates. What is not dated yet has no age.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, ServerHealth, place
from rangelog_pd.reconcile.upkeep import Upkeep
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

COMMANDS_MAX = 50
"""A round: the log is shared with writers."""

REPAIRS_LOOKED_AT_MAX = 200
"""A round; the rest has its turn in the next."""

MARK_LOG_ENDS_MS = 1_000.0
MARKS_MAX = 200
"""In one command, which must stay below the size of a Raft command also where all names are long."""


def commands(state: State, view: ClusterView, now_ms: float, time_ms: int) -> list[pd_state_pb2.Command]:
    """Return the commands of this round, bounded."""
    upkeep = view.upkeep
    upkeep.follow(state)
    upkeep.watch_servers(state, now_ms)
    found: list[pd_state_pb2.Command] = []
    for source in (
        _log_ends(state, view, now_ms),
        _hot_drops(state, upkeep, time_ms),
        _dead_uploads(state, view, now_ms, time_ms),
        _retention(state, upkeep, time_ms),
        _repairs(state, view, now_ms),
    ):
        for command in source:
            found.append(command)
            if len(found) >= COMMANDS_MAX:
                return found
    return found


def _hot_drops(state: State, upkeep: Upkeep, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    for stream_id, index in upkeep.drops.take(time_ms, state.due.hot_drops):
        yield pd_state_pb2.Command(drop_hot=pd_state_pb2.DropHot(stream_id=stream_id, range_index=index))


def _dead_uploads(state: State, view: ClusterView, now_ms: float, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    """Uploads out of time, and those of servers that are dead: another server can begin. Walks the uploads under way."""
    for object_id in state.range_objects.prepared:
        each = state.objects[object_id]
        dead = view.health(state, each.server, each.incarnation, now_ms) is ServerHealth.DEAD
        if dead or each.prepare_deadline_ms < time_ms:
            yield pd_state_pb2.Command(abandon_object=pd_state_pb2.AbandonObject(object_id=each.object_id))


def _retention(state: State, upkeep: Upkeep, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    """Ranges that are over the age of their stream, and those that no longer fit."""
    for stream_id in upkeep.trims.take(time_ms, state.due.trims):
        yield _trim(stream_id, _end_of_old(state, stream_id, time_ms))
    for stream_id, end in upkeep.sizes.streams_over(state):
        upkeep.sizes.look_again(stream_id)
        yield _trim(stream_id, end)


def _trim(stream_id: int, end: int) -> pd_state_pb2.Command:
    return pd_state_pb2.Command(trim_stream=pd_pb2.TrimStreamRequest(stream_id=stream_id, trim_offset=end))


def _end_of_old(state: State, stream_id: int, time_ms: int) -> int:
    """The end of the last of the oldest ranges that is over the stream's age."""
    stream = state.streams[stream_id]
    ranges = state.ranges.of(stream_id)
    end = stream.trim_offset
    for index in ranges.indexes_from(ranges.index_beyond(stream.trim_offset)):
        each = ranges[index]
        if each.state != common_pb2.RANGE_STATE_SEALED or not each.sealed_ms:
            break
        if time_ms - each.sealed_ms <= stream.config.retention_ms:
            break
        end = each.end_offset
    return end


def _repairs(state: State, view: ClusterView, now_ms: float) -> Iterator[pd_state_pb2.Command]:
    """Sealed ranges with a member that is gone for good, or for long: another server takes its place. And those that were made
    while servers were few: one more joins at a time."""
    upkeep = view.upkeep
    if not upkeep.repairs:
        return
    candidates = view.candidates(state, now_ms)
    for key in list(islice(upkeep.repairs, REPAIRS_LOOKED_AT_MAX)):
        del upkeep.repairs[key]
        found = state.ranges.find(key)
        if found is None or found.state != common_pb2.RANGE_STATE_SEALED or found.hot_dropped:
            continue
        lost = [each for each in found.replicas if upkeep.is_lost(state, each.server, each.incarnation, now_ms)]
        if not lost and key not in state.short:
            continue
        places: list[common_pb2.Replica | None] = [*lost] if lost else [None]
        made = [
            _with_another(state, candidates, found, [each for each in found.replicas if each != gone], gone)
            for gone in places  # each by itself: one that nobody can take does not keep another from being taken
        ]
        wanted = [each for each in made if each is not None]
        if not wanted:
            upkeep.blocked[key] = None
        else:
            upkeep.repairs[key] = None  # until it is seen to be done
            yield from wanted


def _with_another(
    state: State,
    candidates: Sequence[Candidate],
    of: common_pb2.Range,
    others: Sequence[common_pb2.Replica],
    lost: common_pb2.Replica | None,
) -> pd_state_pb2.Command | None:
    """Give a range one more member, on a living server and in a zone of its own where there is one."""
    holding = [each.server for each in others]
    usable = [each for each in candidates if each.health is ServerHealth.ALIVE and each.server not in holding]
    zones = [state.servers[name].server.zone for name in holding if name in state.servers]
    try:
        target = place(usable, replicas=1, acks=1, zones_taken=zones)[0]
    except NoPlacement:
        return None
    replacement = common_pb2.Replica(server=target.server, incarnation=target.incarnation)
    return pd_state_pb2.Command(
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
        if (known := state.servers.find(name)) is not None
        and known.server.incarnation == heard.incarnation
        and known.log_end < heard.log_end
    ]
    if marks:
        view.log_ends_marked_ms = now_ms
    for first in range(0, len(marks), MARKS_MAX):
        yield pd_state_pb2.Command(mark_log_ends=pd_state_pb2.MarkLogEnds(marks=marks[first : first + MARKS_MAX]))
