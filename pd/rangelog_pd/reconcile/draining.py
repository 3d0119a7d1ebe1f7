"""How far a drain is, whether it can end at all, and what keeps a server from being removed.

What holds: a server is drained when it is a member of no range and reports no copy of one that exists: then every other
member is whole (directives.py drops the copy no earlier). A drain is refused where it could not end: fewer servers would
remain than a range of the server has replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from rangelog_core.errors import PreconditionFailed, Unavailable
from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile import impact
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import pd_state_pb2

NAMED_MAX = 3
"""Ranges that a refusal names."""


@dataclass(slots=True)
class Drain:
    """The replicas that a server still has."""

    open_count: int
    sealed_count: int
    copying: list[RangeKey]
    """Ranges that others have taken over, and do not hold wholly yet."""
    reported: bool

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.reported and not (self.open_count or self.sealed_count or self.copying)


def progress(state: State, view: ClusterView, known: pd_state_pb2.RegisteredServer) -> Drain:
    """Return what a server has left. Its cost is that of what the server holds."""
    name, incarnation = known.server.name, known.server.incarnation
    hosted = state.hosted.of(name, incarnation)
    heard = view.of(name, incarnation)
    reports = heard.reports if heard is not None else {}
    copying = [
        key
        for key in reports
        if key not in hosted and (found := state.ranges.find(key)) is not None and not (found.hot_dropped or found.lost)
    ]
    return Drain(len(hosted.open), len(hosted.sealed), copying, heard is not None and heard.complete)


def check_drain(state: State, view: ClusterView, name: str, now_ms: float) -> None:
    """Check that a drain could end. Raises PreconditionFailed, with the reason."""
    known = state.servers[name]
    hosted = state.hosted.of(name, known.server.incarnation)
    remaining = [
        each.server
        for each in view.fleet.candidates(state, now_ms)
        if each.server != name and not each.barred and each.health is not ServerHealth.DEAD
    ]
    for part in (hosted.sealed, hosted.open):
        for key in part:
            found = state.ranges[key]
            if len(found.replicas) > len(remaining):
                raise PreconditionFailed(
                    f"{name} cannot be drained: range {key[1]} of stream {state.streams[key[0]].name!r} has "
                    f"{len(found.replicas)} replicas, and {len(remaining)} servers would remain that may have one: add a "
                    "server or uncordon one first"
                )


def check_removal(state: State, view: ClusterView, name: str, now_ms: float, *, accept_loss: bool) -> bool:
    """Check that a server holds nothing that is nowhere else; return whether it is dead, so that it need not be drained.

    `accept_loss`: an operator knows that the disk of a dead server is lost. Raises PreconditionFailed (alive and not drained,
    or with a last copy), Unavailable (not known yet).
    """
    known = state.servers[name]
    if view.health(state, name, known.server.incarnation, now_ms) is not ServerHealth.DEAD:
        _check_drained(state, view, known)
        return False
    if accept_loss:
        return True
    silent = impact.unreported(state, view, (name,), now_ms)
    if silent:
        shown = ", ".join(silent[:NAMED_MAX])
        raise Unavailable(
            f"what is left without {name} is not known yet: {shown} has not reported to the leader; try again"
        )
    for found in (
        impact.check(state, view, (name,), now_ms, NAMED_MAX),
        impact.check_copies_to_come(state, view, name, now_ms, NAMED_MAX),
    ):
        if found.lost_count:
            shown = ", ".join(f"range {key[1]} of stream {state.streams[key[0]].name!r}" for key, _ in found.lost)
            raise PreconditionFailed(
                f"{name} may have the last copy of {found.lost_count} ranges, such as {shown}: start it again, or the "
                "servers that have the others; if its disk is lost for good, remove it with --accept-loss"
            )
    return True


def _check_drained(state: State, view: ClusterView, known: pd_state_pb2.RegisteredServer) -> None:
    name = known.server.name
    if name not in state.modes.draining:
        raise PreconditionFailed(
            f"{name} is alive and not drained: run `pdctl server drain {name} --wait`, or stop it and wait until it is dead"
        )
    left = progress(state, view, known)
    if not left.reported:
        raise Unavailable(f"{name} has not reported to the leader yet what it holds: try again")
    if not left.is_over:
        keys = [*islice(state.hosted.of(name, known.server.incarnation).sealed, NAMED_MAX), *left.copying]
        shown = ", ".join(
            f"range {index} of stream {state.streams[stream].name!r}" for stream, index in keys[:NAMED_MAX]
        )
        raise PreconditionFailed(
            f"{name} is not drained yet, {left.open_count + left.sealed_count + len(left.copying)} ranges are left"
            + (f", such as {shown}" if shown else "")
            + f": run `pdctl server drain {name} --wait`"
        )
