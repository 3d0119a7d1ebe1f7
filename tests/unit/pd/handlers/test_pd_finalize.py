"""The call FinalizeUpgrade: what it refuses, that a dry run changes nothing, that a repeat does no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.handlers import brokers, inspection, operations
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import broker_pb2, inspection_pb2
from rangelog_proto.v1 import operations_pb2 as ops

EARLIER = FEATURE_LEVEL - 1


@pytest.fixture
async def held(ready: Any) -> Any:
    """A cluster at the earlier version, whose members have the new level, with `auto_finalize` off; servers tell no level."""
    await ready.driver.reconcile()
    ready.driver.settings.auto_finalize = False
    ready.machine.state.cluster_version = EARLIER
    await ready.driver.reconcile()
    assert ready.machine.state.cluster_version == EARLIER
    return ready


async def finalize(api: Any, **fields: bool) -> ops.FinalizeUpgradeResponse:
    return await operations.finalize_upgrade(api.driver, ops.FinalizeUpgradeRequest(**fields))


def announce(api: Any, monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """A second member of another level."""
    status = api.driver.consensus.status()
    other = replace(status.members[0], name="pd2", leader=False, feature_level=level)
    monkeypatch.setattr(api.driver.consensus, "status", lambda: replace(status, members=(*status.members, other)))


@pytest.mark.parametrize("level", [0, EARLIER, FEATURE_LEVEL + 1])
async def test_it_is_refused_while_a_member_has_another_level(
    held: Any, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """Whatever else is accepted; and the leader does not do it by itself either."""
    announce(held, monkeypatch, level)
    with pytest.raises(PreconditionFailed, match="placement driver pd2"):
        await finalize(held, accept_older=True)
    assert held.machine.state.cluster_version == EARLIER
    held.driver.settings.auto_finalize = level <= EARLIER
    await held.driver.reconcile()
    assert held.machine.state.cluster_version == EARLIER


async def test_it_waits_for_range_servers_and_brokers_unless_told(held: Any) -> None:
    """A dry run says the same, and changes nothing. A broker that is lost does not count."""
    register = broker_pb2.RegisterBrokerRequest(request_id="b", name="b1", incarnation=7, address="b1:1")
    await brokers.register_broker(held.driver, register)
    dry = await finalize(held, dry_run=True)
    assert (dry.cluster_version_before, dry.cluster_version) == (EARLIER, FEATURE_LEVEL)
    assert [each.split()[-1] for each in (hindrance.split(" tells")[0] for hindrance in dry.hindrances)] == [
        "rs1", "rs2", "rs3", "rs4", "b1",
    ]  # fmt: skip
    with pytest.raises(PreconditionFailed, match=f"stays {EARLIER}: range server rs1 tells no level"):
        await finalize(held)
    for name in ("rs1", "rs2", "rs3", "rs4"):
        await held.beat(name, feature_level=FEATURE_LEVEL)
    heartbeat = broker_pb2.BrokerHeartbeatRequest(name="b1", incarnation=7, feature_level=FEATURE_LEVEL, complete=True)
    assert len((await finalize(held, dry_run=True)).hindrances) == 1
    await brokers.broker_heartbeat(held.driver, heartbeat)
    assert not (await finalize(held, dry_run=True)).hindrances
    assert held.machine.state.cluster_version == EARLIER
    done = await finalize(held)
    assert (done.cluster_version_before, done.cluster_version) == (EARLIER, FEATURE_LEVEL)
    assert held.machine.state.cluster_version == FEATURE_LEVEL
    again = await finalize(held)
    assert (again.cluster_version_before, again.cluster_version) == (FEATURE_LEVEL, FEATURE_LEVEL)


async def test_older_servers_may_be_accepted(held: Any) -> None:
    """They are no members: nothing that they apply has another meaning."""
    assert (await finalize(held, accept_older=True)).cluster_version == FEATURE_LEVEL
    assert held.machine.state.cluster_version == FEATURE_LEVEL


async def test_a_member_tells_whether_it_finalizes(held: Any) -> None:
    """Each for itself: whoever leads decides."""
    assert not (await inspection.inspect_member(held.driver, inspection_pb2.InspectMemberRequest())).auto_finalize
    listed = await brokers.list_brokers(held.driver, broker_pb2.ListBrokersRequest())
    assert all(each.feature_level == 0 for each in listed.brokers)
