"""Which range servers carry repacks out: living ones that know how, and that are neither in trouble nor on their way out."""

from __future__ import annotations

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State

FORMAT = "repack"
"""What a server that knows repacks reports among its formats."""


def order_repacks(state: State, view: ClusterView, now_ms: float, time_ms: int) -> None:
    """Find repacks and give them to servers. `now_ms`: the leader's monotonic clock; `time_ms`: cluster time."""

    def is_there(server: str, incarnation: int) -> bool:
        return view.health(state, server, incarnation, now_ms) is not ServerHealth.DEAD

    view.upkeep.repacks.work(state, is_there, lambda: able_servers(state, view, now_ms), now_ms, time_ms)


def able_servers(state: State, view: ClusterView, now_ms: float) -> list[tuple[str, int]]:
    """Return the servers that may begin a repack, with their incarnations; those that are written to least come first."""
    found = []
    for name, registered in state.servers.items():
        server, heard = registered.server, view.of(name, registered.server.incarnation)
        if heard is None:
            continue
        if view.health(state, name, server.incarnation, now_ms) is not ServerHealth.ALIVE:
            continue
        if state.modes.bars(name) or name in view.complaints.avoided or heard.tier_error:
            continue
        if any(each.format == FORMAT for each in server.formats):
            found.append((heard.writes.bytes_per_s, name, server.incarnation))
    return [(name, incarnation) for _, name, incarnation in sorted(found)]
