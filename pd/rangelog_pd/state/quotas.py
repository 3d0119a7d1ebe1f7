"""Commands on quotas: one is set, or removed.

What holds: a refused command changes nothing; a command without effect leaves the version, so servers fetch nothing again.
"""

from __future__ import annotations

from rangelog_core.errors import PreconditionFailed
from rangelog_core.quotas import FIELDS, QUOTAS_MAX, check_key, check_quota, key_of
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import quotas_pb2 as pb


def set_quota(state: State, request: pb.SetQuotaRequest, now_ms: int) -> pb.SetQuotaResponse:
    """Set the rates that are named; others stay. Raises InvalidArgument, PreconditionFailed (too many quotas)."""
    key, table = key_of(request), state.quotas
    check_key(*key)
    known = table.quotas.find(key)
    quota = copy_of(known) if known is not None else pb.Quota(principal=key[0], prefix=key[1])
    for field in FIELDS.values():
        if request.HasField(field):  # type: ignore[arg-type]
            setattr(quota, field, getattr(request, field))
    check_quota(quota)
    if known is None and len(table.quotas) >= QUOTAS_MAX:
        raise PreconditionFailed(f"{QUOTAS_MAX:,} quotas exist, which is the limit: use prefixes or *, or remove some")
    if quota != known:
        table.quotas.put(key, quota)
        table.version += 1
    return pb.SetQuotaResponse(quota=quota)


def remove_quota(state: State, request: pb.RemoveQuotaRequest, now_ms: int) -> pb.RemoveQuotaResponse:
    """Remove a quota; return it. Raises InvalidArgument, PreconditionFailed (no such quota)."""
    key, table = key_of(request), state.quotas
    check_key(*key)
    known = table.quotas.find(key)
    if known is None:
        raise PreconditionFailed(f"{(key[0] or key[1])!r} has no quota of its own: see `pdctl quota list`")
    table.quotas.remove(key)
    table.version += 1
    return pb.RemoveQuotaResponse(quota=known)
