"""The calls of operators: what is refused and why, and what a drain has left."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, RangelogError, RangeNotFound, Unavailable
from rangelog_pd.handlers import batches, operations, servers
from rangelog_pd.reconcile.complaints import GRACE_MS
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import operations_pb2 as ops
from rangelog_proto.v1 import pd_pb2 as pb

ACTIVE, CORDONED, DRAINING = (
    common_pb2.SERVER_MODE_ACTIVE,
    common_pb2.SERVER_MODE_CORDONED,
    common_pb2.SERVER_MODE_DRAINING,
)


@pytest.fixture
async def four(ready: Any) -> Any:
    """Four servers that have reported, and every feature."""
    await ready.driver.reconcile()
    await ready.beat_all()
    await ready.beat_all()
    return ready


async def set_mode(api: Any, name: str, mode: int, request_id: str = "") -> common_pb2.Server:
    """Set a mode."""
    api.number = getattr(api, "number", 0) + 1
    request = ops.SetServerModeRequest(request_id=request_id or f"mode-{api.number}", server=name, mode=mode)  # type: ignore[arg-type]
    return (await operations.set_server_mode(api.driver, request)).server


async def remove(api: Any, name: str, request_id: str = "remove", **more: Any) -> ops.RemoveServerResponse:
    """Remove a server."""
    request = ops.RemoveServerRequest(request_id=request_id, server=name, **more)
    return await operations.remove_server(api.driver, request)


async def left(api: Any, name: str) -> ops.DescribeDrainResponse:
    """What a server has left."""
    return await operations.describe_drain(api.driver, ops.DescribeDrainRequest(server=name))


def sealed(index: int = 0, end: int = 10) -> pb.ReplicaReport:
    """A whole replica of the stream's range."""
    return pb.ReplicaReport(
        stream_id=1, range_index=index, state=pb.REPLICA_STATE_SEALED, durable_offset=end, size_bytes=100
    )


def members(api: Any) -> list[str]:
    """The servers of range 0."""
    return [each.server for each in api.machine.state.ranges.of(1)[0].replicas]


async def test_modes_are_shown_and_need_the_level(four: Any) -> None:
    """A server is active until it is told otherwise; a cluster of earlier members refuses."""
    assert {each.mode for each in servers.describe_servers(four.driver, four.machine.state)} == {ACTIVE}
    assert (await set_mode(four, "rs1", CORDONED)).mode == CORDONED
    four.machine.state.cluster_version = 5
    with pytest.raises(Unavailable, match="upgrade"):
        await set_mode(four, "rs1", ACTIVE)


async def test_wrong_requests_are_refused(four: Any) -> None:
    """No request id, no such server, no such mode, no name."""
    with pytest.raises(InvalidArgument, match="request id"):
        await operations.set_server_mode(four.driver, ops.SetServerModeRequest(server="rs1", mode=CORDONED))
    for name, mode, error in (("rs9", CORDONED, RangeNotFound), ("rs1", 9, InvalidArgument), ("", 1, InvalidArgument)):
        with pytest.raises(error):
            await set_mode(four, name, mode)
    with pytest.raises(RangeNotFound):
        await remove(four, "rs9")
    with pytest.raises(RangeNotFound):
        await left(four, "rs9")
    for names in ([], ["rs1"] * 101):
        with pytest.raises(InvalidArgument):
            await operations.check_impact(four.driver, ops.CheckImpactRequest(names=names))
    with pytest.raises(RangeNotFound, match="rs9"):
        await operations.check_impact(four.driver, ops.CheckImpactRequest(names=["rs1", "rs9"]))


async def test_a_drain_that_could_not_end_is_refused(four: Any) -> None:
    """Three servers must remain for a range of three replicas: the dead and the cordoned are none."""
    await set_mode(four, "rs4", CORDONED)
    with pytest.raises(PreconditionFailed, match="2 servers would remain"):
        await set_mode(four, "rs1", DRAINING)
    assert not four.machine.state.modes.draining
    await set_mode(four, "rs4", ACTIVE)
    four.silence(6_000)
    for name in ("rs1", "rs2", "rs3"):
        await four.beat(name)
    with pytest.raises(PreconditionFailed, match="2 servers would remain"):
        await set_mode(four, "rs1", DRAINING)
    await four.beat("rs4")
    assert (await set_mode(four, "rs1", DRAINING)).mode == DRAINING
    assert (await set_mode(four, "rs1", DRAINING)).mode == DRAINING, "again: it is being drained already"


async def test_a_drain_from_its_beginning_to_the_removal(four: Any) -> None:
    """What is left falls from open to sealed to copying to nothing; the server is removed at the end only, and stays away."""
    before = members(four)
    name = before[0]
    await set_mode(four, name, DRAINING)
    found = await left(four, name)
    assert (found.open_count, found.sealed_count, found.copying_count, found.reported) == (1, 0, 0, True)
    await four.seal(10)
    found = await left(four, name)
    assert (found.open_count, found.sealed_count) == (0, 1)
    for each in members(four):
        await four.beat(each, sealed())
    await four.driver.reconcile()
    assert name not in members(four)
    (new,) = set(members(four)) - set(before)
    found = await left(four, name)
    assert (found.open_count, found.sealed_count, found.copying_count) == (0, 0, 1)
    with pytest.raises(PreconditionFailed, match="1 ranges are left, such as range 0 of stream 's'"):
        await remove(four, name)
    await four.beat(new, sealed())
    told = await four.beat(name, sealed())
    assert [each.WhichOneof("action") for each in told.directives] == ["drop_replica"]
    await four.beat(name)
    assert not (await left(four, name)).copying_count
    assert (await remove(four, name)).incarnation == four.incarnation(name)
    assert (await remove(four, name)).incarnation == four.incarnation(name), "a repeat gets the first answer"
    with pytest.raises(PreconditionFailed, match="not registered"):
        await four.beat(name)
    with pytest.raises(PreconditionFailed, match="removed"):
        again = pb.RegisterServerRequest(
            request_id="again", server=name, incarnation=four.incarnation(name), boot=2, data_address=f"{name}:7"
        )
        await servers.register_server(four.driver, again)
    await four.driver.reconcile()
    assert name not in four.driver.view.servers


async def test_an_active_server_is_not_removed(four: Any) -> None:
    """Alive and not drained, whatever the caller claims; a suspect one counts as alive."""
    for dead in (False, True):
        with pytest.raises(PreconditionFailed, match="not drained"):
            await remove(four, "rs4", dead=dead)
    four.silence(3_000)
    with pytest.raises(PreconditionFailed, match="not drained"):
        await remove(four, "rs4")
    four.change_leader()
    await set_mode(four, "rs4", DRAINING)
    with pytest.raises(Unavailable, match="not reported"):
        await remove(four, "rs4")


async def test_a_dead_server_without_a_last_copy_is_removed(four: Any) -> None:
    """Its ranges are whole on the others; they are repaired at once, since it never comes back."""
    await four.seal(10)
    (gone, *others) = members(four)
    four.silence(6_000)
    for _ in range(2):
        for each in {"rs1", "rs2", "rs3", "rs4"} - {gone}:
            await four.beat(each, *([sealed()] if each in others else []))
    assert (await remove(four, gone)).incarnation
    await four.driver.reconcile()
    assert gone not in members(four) and len(members(four)) == 3


async def test_a_dead_server_with_a_last_copy_is_not_removed(four: Any) -> None:
    """The other members are incomplete or damaged: what the dead one has may be nowhere else. The tier is."""
    await four.seal(10)
    (gone, *others) = members(four)
    four.silence(6_000)
    for _ in range(2):
        for each in {"rs1", "rs2", "rs3", "rs4"} - {gone}:
            bad = pb.ReplicaReport(stream_id=1, range_index=0, state=pb.REPLICA_STATE_INCOMPLETE, durable_offset=3)
            await four.beat(each, *([bad] if each in others else []))
    with pytest.raises(PreconditionFailed, match="last copy of 1 ranges, such as range 0 of stream 's'"):
        await remove(four, gone)
    assert gone in four.machine.state.servers
    with pytest.raises(PreconditionFailed, match="alive"):
        await remove(four, others[0], "alive", accept_loss=True)
    assert (await remove(four, gone, "lost", accept_loss=True)).incarnation, "its disk is lost, says the operator"


async def test_a_removal_waits_for_what_is_not_known(four: Any) -> None:
    """A new leader has not heard what the others hold: it does not guess."""
    await four.seal(10)
    (gone, *_) = members(four)
    four.change_leader()
    await left(four, gone)
    four.silence(6_000)
    for each in {"rs1", "rs2", "rs3", "rs4"} - {gone}:
        await four.beat(each, complete=False)
    with pytest.raises(Unavailable, match="not known yet"):
        await remove(four, gone)


async def test_what_blocks_a_drain_is_listed(four: Any) -> None:
    """The range, its stream and the reason: nobody may take it, or who takes it fails."""
    await four.seal(10)
    name, *_ = members(four)
    (spare,) = {"rs1", "rs2", "rs3", "rs4"} - set(members(four))
    for each in members(four):
        await four.beat(each, sealed())
    await set_mode(four, name, DRAINING)
    await set_mode(four, spare, CORDONED)
    await four.driver.reconcile()
    (blocked,) = (await left(four, name)).blocked
    assert (blocked.stream_name, blocked.range_index) == ("s", 0) and f"{spare} is cordoned" in blocked.reason
    await set_mode(four, spare, ACTIVE)
    await four.driver.reconcile()
    (told,) = (await four.beat(spare)).directives
    await four.beat(spare, tasks=[pb.TaskReport(task_id=told.task_id, error="UNAVAILABLE: the disk is full")])
    (blocked,) = (await left(four, name)).blocked
    assert "the disk is full" in blocked.reason and spare in blocked.reason


async def test_what_an_operator_has_given_up_does_not_keep_a_drain_from_its_end(four: Any) -> None:
    """A damaged copy of a range whose loss was accepted is nothing that others could copy."""
    await four.seal(10)
    await set_mode(four, "rs4", DRAINING)
    await four.beat("rs4", sealed())
    assert (await left(four, "rs4")).copying_count == (0 if "rs4" in members(four) else 1)
    row = four.machine.state.ranges.copy((1, 0))
    row.lost = True
    del row.replicas[:]
    four.machine.state.put_range(row)
    found = await left(four, "rs4")
    assert (found.open_count, found.sealed_count, found.copying_count) == (0, 0, 0)


async def test_an_impact_counts_placement_drivers(four: Any) -> None:
    """A member of the group may be named beside range servers: a majority must be left."""
    one = await operations.check_impact(four.driver, ops.CheckImpactRequest(names=["rs4"]))
    assert one.safe and (one.members_reachable, one.members_needed) == (1, 1)
    two = await operations.check_impact(four.driver, ops.CheckImpactRequest(names=["rs4", "pd1"]))
    assert not two.safe and (two.members_reachable, two.range_count) == (0, 0)


async def test_an_impact_lists_what_would_be_wrong(four: Any) -> None:
    """With the stream's name, and the copies that would be left; a server that has not reported makes it a no."""
    first, second, _ = members(four)
    found = await operations.check_impact(four.driver, ops.CheckImpactRequest(names=[first, second]))
    assert not found.safe and [(each.stream_name, each.copies) for each in found.stalled] == [("s", 1)]
    assert (await operations.check_impact(four.driver, ops.CheckImpactRequest(names=[first]))).safe
    four.change_leader()
    found = await operations.check_impact(four.driver, ops.CheckImpactRequest(names=[first]))
    assert not found.safe and len(found.unreported) == 3


# ---- gray failures


def shown(api: Any, name: str) -> tuple[int, str]:
    """The health of a server as it is shown, and why."""
    found = servers.describe_server(api.driver, api.machine.state, name)
    return found.health, found.health_reason


async def pass_grace(api: Any) -> None:
    """Complaints count once the servers are heard of for a while."""
    passed = 0
    while passed < GRACE_MS:
        api.silence(1_000)
        passed += 1_000
        await api.beat_all()
        await api.driver.reconcile()


async def test_writers_complain_by_the_servers_that_they_exclude(four: Any) -> None:
    """By creations, seals and batches of them; a stream counts once, whatever it does. Three make the server suspect."""
    (sick, *_) = members(four)
    await pass_grace(four)
    for number in range(2):
        with pytest.raises(RangelogError):
            await four.make_range(start=99, request_id=f"wrong-{number}", exclude=(sick, "rs9"))
    await four.seal(10, request_id="z", create_next=True, exclude_servers=[sick])
    await four.driver.reconcile()
    assert shown(four, sick) == (common_pb2.SERVER_HEALTH_ALIVE, "")
    for name in ("t", "u"):
        await four.create(name, request_id=f"create-{name}")
    seals = [
        pb.SealRangeRequest(stream_id=stream_id, epoch=1, create_next=True, exclude_servers=[sick])
        for stream_id in (2, 3)
    ]
    await batches.seal_ranges(four.driver, pb.SealRangesRequest(request_id="many", seals=seals))
    await four.driver.reconcile()
    health, reason = shown(four, sick)
    assert health == common_pb2.SERVER_HEALTH_SUSPECT and "complain" in reason
    made = await four.seal(20, request_id="y", range_index=1, create_next=True)
    assert sick not in [each.server for each in made.next_range.replicas], "there are three others"
    four.change_leader()
    await four.driver.reconcile()
    assert shown(four, sick) == (common_pb2.SERVER_HEALTH_ALIVE, "")


async def test_peers_complain_by_failed_copies(four: Any) -> None:
    """Three servers cannot copy from the fourth: it is suspect."""
    await pass_grace(four)
    report = pb.TaskReport(task_id="copy-1/0-0@x", error="UNAVAILABLE: rs4: no answer", failed_servers=["rs4", "rs9"])
    for name in ("rs1", "rs2"):
        for _ in range(3):
            await four.beat(name, tasks=[report])
    await four.driver.reconcile()
    assert shown(four, "rs4")[1] == ""
    await four.beat("rs3", tasks=[report])
    await four.driver.reconcile()
    assert shown(four, "rs4")[0] == common_pb2.SERVER_HEALTH_SUSPECT
