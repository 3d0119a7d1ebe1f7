"""The stores that the tier got since the placement drivers' setting named the first one.

What holds: objects that were prepared before a change keep their store, all later ones go to the new one; an object's id, and
so its key, names its store. Each change has a number of its own, above all earlier ones, so a server that has not heard of the
latest one finds that by the objects that it is given. Without a row, all objects are where the setting says.
"""

from __future__ import annotations

from rangelog_core.errors import PreconditionFailed
from rangelog_core.tier_stores import STORES_MAX, TierStore, check_url, tier_text
from rangelog_pd.state.store import State
from rangelog_proto.v1 import tier_pb2


def set_tier(state: State, request: tier_pb2.SetTierRequest, now_ms: int) -> tier_pb2.SetTierResponse:
    """Store later objects elsewhere; with `moved` all objects are there. Raises InvalidArgument, PreconditionFailed."""
    check_url(request.url)
    latest = state.tier_stores.find(tier_id_now(state))
    if latest is not None and latest.url == request.url and not request.moved:
        return tier_pb2.SetTierResponse()
    if request.moved:
        for first_object_id in list(state.tier_stores):
            state.tier_stores.remove(first_object_id)
    elif len(state.tier_stores) + 2 > STORES_MAX:
        raise PreconditionFailed(
            f"the tier has {STORES_MAX} stores: copy all objects to one of them, and name it with --moved"
        )
    row = tier_pb2.TierStore(
        first_object_id=state.next_object_id, url=request.url, since_ms=state.date(), moved=request.moved
    )
    state.next_object_id += 1  # no object has the number of a change
    state.tier_stores.put(row.first_object_id, row)
    return tier_pb2.SetTierResponse()


def tier_url(state: State, first_url: str) -> str:
    """Return the tier's URL, of all its stores. `first_url`: the setting; empty: the tier began with a row."""
    rows = [state.tier_stores[first] for first in sorted(state.tier_stores)]
    is_first = bool(first_url) and not (rows and rows[0].moved)
    beginning = [TierStore(0, first_url)] if is_first else []
    return tier_text([*beginning, *(TierStore(each.first_object_id, each.url) for each in rows)])


def tier_id_now(state: State) -> int:
    """Return the store of objects that are prepared now; 0: that of the setting."""
    return max(state.tier_stores, default=0)
