"""The commands that the leader proposes by itself: hot replicas to drop, replicas to replace, retention, expired uploads.

Pure: from state, view and time to commands. Each command is checked again when it is applied. `now_ms` is the leader's
monotonic clock, for leases; `time_ms` is cluster time, for the dates of the state. A row without a date has no age.
"""

from __future__ import annotations

from collections.abc import Iterator

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import ANY, Placer, ServerHealth, policy_of
from rangelog_pd.reconcile.copy_target import choose_copy
from rangelog_pd.reconcile.repack_servers import order_repacks
from rangelog_pd.reconcile.retention import retention
from rangelog_pd.reconcile.upkeep import Upkeep
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.losses import left_of, may_be_lost
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_pd.state.versions import LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, pd_state_pb2

COMMANDS_MAX = 50
"""Commands of one round: writers use the same log."""

REPAIRS_LOOKED_AT_MAX = 200
REPAIRS_RANKED_MAX = 1_000
"""Repairs that one round examines, most urgent first, and those that it ranks; the next round continues."""

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
    upkeep.watch_open_ranges(state, now_ms, time_ms)
    if has_tier and state.cluster_version >= LEVEL_PACKING:
        order_repacks(state, view, now_ms, time_ms)
    found: list[pd_state_pb2.Command] = []
    for source in (
        _log_ends(state, view, now_ms),
        _hot_drops(state, upkeep, time_ms),
        _dead_uploads(state, view, now_ms, time_ms),
        retention(state, upkeep, time_ms, has_tier=has_tier),
        _repairs(state, view, now_ms, time_ms),
        upkeep.moves.commands(state, now_ms),
    ):
        for command in source:
            found.append(command)
            if len(found) >= COMMANDS_MAX:
                return found
    return found


def _hot_drops(state: State, upkeep: Upkeep, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    for stream_id, index in upkeep.drops.take(time_ms, state.due.hot_drops):
        yield _drop_hot(stream_id, index)


def _drop_hot(stream_id: int, index: int) -> pd_state_pb2.Command:
    return pd_state_pb2.Command(drop_hot=pd_state_pb2.DropHot(stream_id=stream_id, range_index=index))


def _dead_uploads(state: State, view: ClusterView, now_ms: float, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    """Yield expired uploads and those of dead servers, so that another server can start. Examines the uploads in progress."""
    for object_id in state.range_objects.prepared:
        each = state.objects[object_id]
        by_server = bool(each.incarnation)  # a packer that somebody started is no server: it has until its deadline
        dead = by_server and view.health(state, each.server, each.incarnation, now_ms) is ServerHealth.DEAD
        if dead or each.prepare_deadline_ms < time_ms:
            yield pd_state_pb2.Command(abandon_object=pd_state_pb2.AbandonObject(object_id=each.object_id))


def _repairs(state: State, view: ClusterView, now_ms: float, time_ms: int) -> Iterator[pd_state_pb2.Command]:
    """Yield replacements for members of sealed ranges that are lost for good, or for long, and further members, one at a time,
    for ranges that were created while servers were few. Ranges with few copies come first."""
    repairs = view.upkeep.repairs
    if not repairs.waiting:
        return

    def copies_of(key: RangeKey) -> int:
        found = state.ranges.find(key)
        return len(view.holders(state, found, now_ms)) if found is not None else 0

    repairs.waiting.rank(copies_of, REPAIRS_RANKED_MAX)
    placer = view.fleet.placer_of_copies(state, now_ms)
    for key in repairs.waiting.first(REPAIRS_LOOKED_AT_MAX):
        found = state.ranges.find(key)
        repairs.waiting.discard(key)
        if found is None or found.state != common_pb2.RANGE_STATE_SEALED or found.hot_dropped or found.lost:
            continue
        lacking = view.lacking(found, now_ms, time_ms)
        wanted, blocked = _repair(state, view, placer, found, lacking, now_ms)
        if wanted:
            repairs.put(key)  # until the state shows it done
            yield from wanted
        elif blocked:
            lost = may_be_lost(state, found, lacking)
            if lost or time_ms - found.sealed_ms > 2 * view.dead_ms:
                repairs.block(key, blocked, lost=lost)
            else:
                repairs.put(key)  # what its servers have is not known yet


def _repair(
    state: State, view: ClusterView, placer: Placer, found: common_pb2.Range, lacking: list[str], now_ms: float
) -> tuple[list[pd_state_pb2.Command], str]:
    """Return the commands that repair one range, and, where a repair is wanted and impossible, the reason.

    Members stay as they are while no server at hand has the range: who once had it is not forgotten.
    """
    key = (found.stream_id, found.index)
    lost = [each for each in found.replicas if view.upkeep.is_lost(state, each.server, each.incarnation, now_ms)]
    if not lost and key not in state.short:
        return [], ""
    if found.start_offset < found.end_offset and not view.holders(state, found, now_ms):
        left = [each.server for each in left_of(state, found)]
        away = [each for each in left if each not in lacking]
        if away:
            return [], f"no server at hand has a whole copy; bring back {', '.join(away)}"
        if left and found.tiered_end_offset < found.end_offset:
            names = ", ".join(left)
            return [], f"every server that had a copy was wiped or removed; {names} took a place, and has no whole one"
        if found.tiered_end_offset == found.end_offset:
            return [_drop_hot(found.stream_id, found.index)], ""
        return [], "every server that had a copy was wiped or removed, and the tier has not all of it"
    places: list[common_pb2.Replica | None] = [*lost] if lost else [None]
    staying = [each for each in found.replicas if each not in lost]
    made, blocked = [], ""
    for gone in places:  # each by itself: one without a candidate does not prevent another from being replaced
        try:
            made.append(_with_another(state, placer, found, staying, gone))
        except NoPlacement as refusal:
            has_policy = policy_of(state.streams[found.stream_id].config) != ANY
            blocked = refusal.message if has_policy else "there is no living server that has no copy yet"
    return made, blocked


def _with_another(
    state: State,
    placer: Placer,
    of: common_pb2.Range,
    staying: list[common_pb2.Replica],
    lost: common_pb2.Replica | None,
) -> pd_state_pb2.Command:
    """Return the command for one more member of a range, on a living server and as its stream's policy wants it. It counts as
    one of those that stay from here on. Raises NoPlacement."""
    holding = [each.server for each in of.replicas if each != lost] + [each.server for each in staying]
    reason = common_pb2.REPLICA_REASON_FILLS_PLACE if lost is None else common_pb2.REPLICA_REASON_REPLACES_LOST
    replacement = choose_copy(state, placer, of, staying, holding, reason)
    staying.append(replacement)
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
