"""The acceptance of a loss through the API's handlers: what counts of a copy that is left."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed, RangelogError
from rangelog_pd.handlers import batches, repairs
from rangelog_pd.reconcile.orphans import QUIET_MS_DEFAULT
from rangelog_proto.v1 import common_pb2, pd_pb2, repair_pb2


def _report(state: str, end: int, problem: str = "") -> pd_pb2.ReplicaReport:
    return pd_pb2.ReplicaReport(
        stream_id=1, range_index=0, state=f"REPLICA_STATE_{state}", durable_offset=end, problem=problem
    )


async def _lose_two(api: Any, report: pd_pb2.ReplicaReport) -> str:
    """Two of three members of the open range lose their disks; the third reports what it is given. Its name."""
    left, *victims = [each.server for each in api.machine.state.ranges.of(1)[0].replicas]
    await _lose(api, victims, {left: report})
    return str(left)


async def _lose(api: Any, victims: list[str], reports: dict[str, pd_pb2.ReplicaReport]) -> None:
    """These servers lose their disks; the others report what they are given, until the range has been quiet for long."""
    api.silence(60_000)  # they are dead
    for name in victims:
        api.wiped[name] = 77
        await api.register(name)
    for _ in range(QUIET_MS_DEFAULT // 1_000 + 3):
        for name in ("rs1", "rs2", "rs3", "rs4"):
            await api.beat(name, *([reports[name]] if name in reports else []))
        await api.driver.reconcile()
        api.silence(1_000)


async def _accept(api: Any, **more: Any) -> repair_pb2.AcceptLossResponse:
    request = repair_pb2.AcceptLossRequest(request_id=f"accept{len(more)}", stream_id=1, range_index=0, **more)
    return await repairs.accept_loss(api.driver, request)


@pytest.mark.parametrize("problem", ["", "the tail of the log was damaged and cut"])
async def test_what_is_intact_on_the_last_member_is_kept(ready: Any, problem: str) -> None:
    """Behind a cut tail nothing can come back: the loss is accepted, and what is before it stays."""
    await _lose_two(ready, _report("OPEN", 5, problem))
    accepted = await _accept(ready)
    assert (accepted.kept.start_offset, accepted.kept.end_offset) == (0, 5)
    assert accepted.range.lost and accepted.range.start_offset == 5


async def test_a_quarantined_copy_is_given_up_only_if_it_is_said(ready: Any) -> None:
    """None of its records is trusted, but they are there: it takes a word more, and then nothing is kept."""
    left = await _lose_two(ready, _report("QUARANTINED", 5, "record 3 is damaged"))
    with pytest.raises(
        PreconditionFailed, match=rf"{left} may have records .*none of them is trusted.*--give-up-quarantined"
    ):
        await _accept(ready)
    assert ready.machine.state.ranges.of(1)[0].state == common_pb2.RANGE_STATE_OPEN
    accepted = await _accept(ready, give_up_quarantined=True)
    assert not accepted.HasField("kept")
    assert accepted.range.lost and accepted.range.start_offset == 0


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_damaged_copy_counts_as_gone(ready: Any, gone: int) -> None:
    """Two of three copies are wiped or quarantined: nobody can seal the range, and what the third one has can be kept."""
    sound, *others = [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]
    reports = {sound: _report("OPEN", 5)} | {name: _report("QUARANTINED", 9, "damage") for name in others[gone:]}
    await _lose(ready, others[:gone], reports)
    (found,) = (await repairs.list_repairs(ready.driver, repair_pb2.ListRepairsRequest())).repairs
    assert found.state == repair_pb2.REPAIR_STATE_LOST
    assert f"{others[0]}, {others[1]} lost their copies" in found.reason
    with pytest.raises(PreconditionFailed, match=f"{', '.join(others[gone:])} may have records"):
        await _accept(ready)
    accepted = await _accept(ready, give_up_quarantined=True)
    assert accepted.kept.end_offset == accepted.range.start_offset == 5


async def test_servers_that_a_caller_gives_up_do_not_count(ready: Any) -> None:
    """Which copies are quarantined is what the servers have reported, whatever the request says."""
    await _lose_two(ready, _report("OPEN", 5))
    accepted = await _accept(ready, given_up_servers=["rs1", "rs2", "rs3", "rs4"])
    assert accepted.kept.end_offset == 5


async def test_giving_up_what_is_quarantined_needs_a_level(ready: Any) -> None:
    """Members of an earlier level would refuse what the others apply."""
    await _lose_two(ready, _report("QUARANTINED", 5, "record 3 is damaged"))
    ready.machine.state.cluster_version = 8
    with pytest.raises(RangelogError, match="upgrade"):
        await _accept(ready, give_up_quarantined=True)


async def test_a_silent_member_may_still_have_all_of_it(ready: Any) -> None:
    """It is brought back, or removed: giving up what is quarantined does not concern it."""
    left = await _lose_two(ready, _report("OPEN", 5))
    ready.silence(60_000)
    for name in {"rs1", "rs2", "rs3", "rs4"} - {left}:
        await ready.beat(name)
    with pytest.raises(PreconditionFailed, match=f"{left} may have records .*does not report"):
        await _accept(ready, give_up_quarantined=True)


async def test_a_sealed_range_whose_last_member_found_no_copy(ready: Any) -> None:
    """It is shown as lost, and accepted as such by what that member reports, whatever the caller says of it."""
    seal = pd_pb2.SealRangeRequest(request_id="seal", stream_id=1, epoch=1, end_offset=5)
    await batches.seal_ranges(ready.driver, pd_pb2.SealRangesRequest(request_id="seals", seals=[seal]))
    left, *victims = [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]
    await _lose(ready, victims, {left: _report("SEALED", 5)})
    with pytest.raises(PreconditionFailed, match=f"may still have a copy on .*{left}"):
        await _accept(ready, lacking_servers=["rs1", "rs2", "rs3", "rs4"])
    members = [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]
    await _lose(ready, [left], {})
    (found,) = (await repairs.list_repairs(ready.driver, repair_pb2.ListRepairsRequest())).repairs
    assert found.state == repair_pb2.REPAIR_STATE_LOST and "took a place" in found.reason, members
    accepted = await _accept(ready)
    assert accepted.range.lost and not accepted.range.replicas
