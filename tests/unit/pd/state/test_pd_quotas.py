"""Quotas in the state machine: what is kept of them, what is refused, and that a snapshot keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed, UnsupportedVersion
from rangelog_pd.state import quotas as module
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import LEVEL_QUOTAS, LEVEL_TOKENS
from rangelog_proto.v1 import pd_state_pb2
from rangelog_proto.v1 import quotas_pb2 as pb

MB = 1_000_000


def put(pd: Any, principal: str = "", prefix: str = "", **rates: int) -> pb.Quota:
    request = pb.SetQuotaRequest(principal=principal, prefix=prefix, **rates)  # type: ignore[arg-type]
    return pd.do(pb.SetQuotaResponse, set_quota=request).quota


def remove(pd: Any, principal: str = "", prefix: str = "") -> pb.Quota:
    return pd.do(pb.RemoveQuotaResponse, remove_quota=pb.RemoveQuotaRequest(principal=principal, prefix=prefix)).quota


def test_rates_that_are_not_named_stay(pd: Any) -> None:
    """The version rises with each change, and with nothing else; 0 lifts one limit."""
    put(pd, "client:a", append_bytes_per_s=MB)
    both = put(pd, "client:a", read_bytes_per_s=2 * MB)
    assert (both.append_bytes_per_s, both.read_bytes_per_s, pd.state.quotas.version) == (MB, 2 * MB, 2)
    put(pd, "client:a", read_bytes_per_s=2 * MB)
    assert pd.state.quotas.version == 2
    assert put(pd, "client:a", append_bytes_per_s=0).append_bytes_per_s == 0
    with pytest.raises(InvalidArgument, match="pdctl quota remove"):
        put(pd, "client:a", read_bytes_per_s=0)
    assert pd.state.quotas.version == 3
    assert remove(pd, "client:a").read_bytes_per_s == 2 * MB
    assert pd.state.quotas.version == 4 and not pd.state.quotas.quotas
    with pytest.raises(PreconditionFailed, match="pdctl quota list"):
        remove(pd, "client:a")


def test_what_is_refused_changes_nothing(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of nobody, figures that are none, and more quotas than the limit."""
    monkeypatch.setattr(module, "QUOTAS_MAX", 2)
    put(pd, "*", calls_per_s=5)
    put(pd, prefix="orders/", append_bytes_per_s=MB)
    with pytest.raises(PreconditionFailed, match="limit"):
        put(pd, "client:a", calls_per_s=1)
    for bad in ({"principal": "client:a", "prefix": "b"}, {"principal": "broker:b"}, {}, {"prefix": "_journal-1"}):
        with pytest.raises(InvalidArgument):
            put(pd, **bad, append_bytes_per_s=MB)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            remove(pd, **bad)
    with pytest.raises(InvalidArgument, match="65,536"):
        put(pd, prefix="orders/", append_bytes_per_s=1)
    with pytest.raises(InvalidArgument, match="by principal"):
        put(pd, prefix="orders/", calls_per_s=1)
    assert pd.state.quotas.version == 2 and len(pd.state.quotas.quotas) == 2
    assert put(pd, "*", calls_per_s=6).calls_per_s == 6


def test_a_snapshot_keeps_them_and_members_of_before_stop(pd: Any) -> None:
    """An earlier program reads neither the commands nor the snapshot."""
    put(pd, "client:a", append_bytes_per_s=MB)
    put(pd, prefix="orders/", read_bytes_per_s=MB)
    pd.state.cluster_version = LEVEL_QUOTAS  # without which no leader proposes such commands
    data = pd.machine.snapshot()
    again = Machine()
    again.restore(data)
    assert again.state.quotas.version == 2 and again.snapshot() == data
    assert set(again.state.quotas.quotas) == {("client:a", ""), ("", "orders/")}
    for action in ("set_quota", "remove_quota"):
        command = pd_state_pb2.Command()
        getattr(command, action).SetInParent()
        assert needed_level(command) == LEVEL_QUOTAS
    with pytest.raises(UnsupportedVersion):
        Machine(LEVEL_TOKENS).restore(data)


@pytest.mark.parametrize("damage", ["version", "figure"])
def test_a_snapshot_that_does_not_fit(pd: Any, damage: str) -> None:
    """Quotas without a version, or one that limits nothing: Corruption."""
    put(pd, "client:a", append_bytes_per_s=MB)
    if damage == "version":
        pd.state.quotas.version = 0
    else:
        pd.state.quotas.quotas.put(("client:a", ""), pb.Quota(principal="client:a"))
    with pytest.raises(Corruption):
        Machine().restore(pd.machine.snapshot())
