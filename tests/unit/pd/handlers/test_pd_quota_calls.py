"""Calls on quotas: from which cluster version on, what heartbeats say of them, and that calls here are held as well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog_core.errors import Unavailable
from rangelog_core.net.principals import Principal, Role
from rangelog_pd.handlers import quotas
from rangelog_pd.state.versions import LEVEL_QUOTAS, LEVEL_TOKENS
from rangelog_proto.v1 import quotas_pb2 as pb


@pytest.fixture
def accepting(ready: Any) -> Any:
    """A leader of a cluster that has quotas."""
    ready.machine.state.cluster_version = LEVEL_QUOTAS
    return ready


async def put(api: Any, principal: str, **rates: int) -> pb.Quota:
    request = pb.SetQuotaRequest(request_id=f"set-{principal}-{rates}", principal=principal, **rates)
    return (await quotas.set_quota(api.driver, request)).quota


async def test_not_before_all_members_know_them(accepting: Any) -> None:
    """The error says what to upgrade; from then on a call sets, lists and removes."""
    accepting.machine.state.cluster_version = LEVEL_TOKENS
    with pytest.raises(Unavailable, match="upgrade all placement drivers"):
        await put(accepting, "client:a", calls_per_s=5)
    with pytest.raises(Unavailable):
        await quotas.remove_quota(accepting.driver, pb.RemoveQuotaRequest(request_id="r", principal="client:a"))
    accepting.machine.state.cluster_version = LEVEL_QUOTAS
    await put(accepting, "client:b", calls_per_s=5)
    await put(accepting, "client:a", calls_per_s=5)
    listed = await quotas.list_quotas(accepting.driver, pb.ListQuotasRequest())
    assert [each.principal for each in listed.quotas] == ["client:a", "client:b"]
    assert listed.version == accepting.driver.machine.state.quotas.version == 2
    await quotas.remove_quota(accepting.driver, pb.RemoveQuotaRequest(request_id="r", principal="client:a"))
    assert accepting.driver.machine.state.quotas.version == 3


async def test_a_placement_driver_holds_calls_by_its_own_state(accepting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the next call on, without a heartbeat; calls of servers and administrators are not held."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    guard = accepting.driver.quotas
    guard.now_us = lambda: 1_000_000
    alice, listing = Principal(Role.CLIENT, "a"), "/rangelog.v1.PlacementDriver/ListStreams"
    await guard.hold_call(alice, listing, None)
    await put(accepting, "client:a", calls_per_s=1)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await guard.hold_call(alice, listing, None)
    await guard.hold_call(alice, listing, None)
    assert slept == [0.5]
    for principal in (Principal(Role.ADMIN, "a"), Principal(Role.BROKER, "a"), Principal(Role.CLIENT, "b"), None):
        await guard.hold_call(principal, listing, None)
    assert slept == [0.5]
    monkeypatch.undo()
    await quotas.remove_quota(accepting.driver, pb.RemoveQuotaRequest(request_id="r", principal="client:a"))
    await guard.hold_call(alice, listing, None)
    assert not guard.book.any
