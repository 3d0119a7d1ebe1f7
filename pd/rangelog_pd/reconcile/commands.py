"""The commands that the leader proposes by itself: hot replicas to drop, replicas to replace, retention, expired uploads.

Pure: from state, view and time to commands. Each command is checked again when it is applied. `now_ms` is the leader's
monotonic clock, for leases; `time_ms` is cluster time, for the dates of the state. A row without a date has no age.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, ServerHealth, place
from rangelog_pd.reconcile.retention import retention
from rangelog_pd.reconcile.upkeep import Upkeep
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_state_pb2

COMMANDS_MAX = 50
"""Commands of one round: writers use the same log."""

REPAIRS_LOOKED_AT_MAX = 200
"""Repairs that one round examines; the next round continues."""

MARK_LOG_ENDS_MS = 1_000.0
MARKS_MAX = 200
"""Servers in one command, which must stay below the size of a Raft command even if all names are long."""


def commands(
    state: State, view: ClusterView, now_ms: float, time_ms: int, *, has_tier: bool = False
) -> list[pd_state_pb2.Command]:
    """Return the commands of this round, bounded. `has_tier`: whether the cluster has an object store."""
    upkeep = view.upkeep
    upkeep.follow(state)
    upkeep.watch_servers(state, now_ms)
    found: list[pd_state_pb2.Command] = []
    for source in (
        _log_ends(state, view, now_ms),
        _hot_drops(state, upkeep, time_ms),
        _dead_uploads(state, view, now_ms, time_ms),
        retention(state, upkeep, time_ms, has_tier=has_tier),
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
    """Yield expired uploads and those of dead servers, so that another server can start. Examines the uploads in progress."""
    for object_id in state.range_objects.prepared:
        each = state.objects[object_id]
        by_server = not each.replaces  # a packer is no server: it has until its deadline
        dead = by_server and view.health(state, each.server, each.incarnation, now_ms) is ServerHealth.DEAD
        if dead or each.prepare_deadline_ms < time_ms:
            yield pd_state_pb2.Command(abandon_object=pd_state_pb2.AbandonObject(object_id=each.object_id))


def _repairs(state: State, view: ClusterView, now_ms: float) -> Iterator[pd_state_pb2.Command]:
    """Yield replacements for members of sealed ranges that are lost for good, or for long, and further members, one at a time,
    for ranges that were created while servers were few."""
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
            for gone in places  # each by itself: one without a candidate does not prevent another from being replaced
        ]
        wanted = [each for each in made if each is not None]
        if not wanted:
            upkeep.blocked[key] = None
        else:
            upkeep.repairs[key] = None  # until the state shows it done
            yield from wanted


def _with_another(
    state: State,
    candidates: Sequence[Candidate],
    of: common_pb2.Range,
    others: Sequence[common_pb2.Replica],
    lost: common_pb2.Replica | None,
) -> pd_state_pb2.Command | None:
    """Return the command for one more member of a range, on a living server and in a zone of its own if possible."""
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
    """Yield the ends of logs that grew: they are in the state within a second, so that the next leader knows them."""
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
