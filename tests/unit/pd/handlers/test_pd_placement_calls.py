"""Placement by the calls of writers: policies are kept, or the refusal says what is missing; and what earlier members know."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, NoPlacement, PreconditionFailed, Unavailable
from rangelog_pd.handlers import batches, placement, ranges, servers
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import LEVEL_HOSTS, LEVEL_OPERATIONS, LEVEL_TOPICS
from rangelog_proto.v1 import broker_pb2, common_pb2, pd_state_pb2, placement_pb2, topic_pb2
from rangelog_proto.v1 import pd_pb2 as pb


async def register(api: Any, name: str, zone: str, request_id: str = "", **more: Any) -> None:
    """A server registers and sends its first heartbeats."""
    request = pb.RegisterServerRequest(
        request_id=request_id or f"reg-{name}",
        server=name,
        incarnation=api.incarnation(name),
        boot=1,
        data_address=f"{name}:7",
        zone=zone,
        **more,
    )
    await servers.register_server(api.driver, request)
    if "host" not in more:
        await api.beat(name)


@pytest.fixture
async def zoned(api: Any) -> Any:
    """A cluster of this level with four servers in two zones, two of them with the label; stream `s` at epoch 1."""
    await api.driver.reconcile()
    for number, zone in enumerate(("a", "a", "b", "b"), 1):
        await register(api, f"rs{number}", zone, labels=["disk=ssd"] if number in (1, 3) else [])
    return api


async def test_a_range_keeps_the_policy_of_its_stream(zoned: Any) -> None:
    """Labels rule servers out, so the range has the two that are left; it says why they were chosen."""
    await zoned.create(server_labels=["disk=ssd"], zones_min=2)
    await zoned.open()
    made = await zoned.make_range()
    assert {each.server for each in made.replicas} == {"rs1", "rs3"}
    assert {each.reason for each in made.replicas} == {common_pb2.REPLICA_REASON_ONLY_CHOICE}
    listed = await ranges.list_ranges(zoned.driver, pb.ListRangesRequest(stream_id=1))
    assert {each.reason for each in listed.ranges[0].replicas} == {common_pb2.REPLICA_REASON_ONLY_CHOICE}


async def test_a_policy_that_cannot_be_kept_is_refused_with_what_is_missing(zoned: Any) -> None:
    """For the first range, and for the next one, whose refusal leaves the range unsealed."""
    await zoned.create(zones_min=3)
    await zoned.open()
    with pytest.raises(NoPlacement, match=r"wants replicas in 3 zones.*only a, b"):
        await zoned.make_range()
    await register(zoned, "rs5", "c")
    await zoned.make_range(request_id="again")
    with pytest.raises(NoPlacement, match=r"wants replicas in 3 zones.*beside the excluded"):
        await zoned.seal(10, create_next=True, exclude_servers=["rs5"], exclude_strictly=True)
    assert zoned.machine.state.range(1, 0).state == common_pb2.RANGE_STATE_OPEN


async def test_many_seals_at_once_keep_their_policies(zoned: Any) -> None:
    """As single ones do, each by its own stream."""
    await zoned.create(server_labels=["disk=ssd"])
    await zoned.open()
    await zoned.make_range()
    await zoned.create("free", request_id="c2")
    await zoned.open(request_id="o2", name="free")
    await ranges.create_range(zoned.driver, pb.CreateRangeRequest(request_id="r2", stream_id=2, epoch=1))
    seals = [pb.SealRangeRequest(stream_id=number, epoch=1, end_offset=10, create_next=True) for number in (1, 2)]
    answer = await batches.seal_ranges(zoned.driver, pb.SealRangesRequest(request_id="z", seals=seals))
    one, two = (result.response.next_range.replicas for result in answer.results)
    assert {each.server for each in one} == {"rs1", "rs3"}
    assert len(two) == 3 and all(each.reason for each in two)


@pytest.mark.parametrize("policy", [{"zones_min": 2}, {"server_labels": ["disk=ssd"]}])
async def test_a_policy_needs_members_that_keep_it(api: Any, policy: dict[str, Any]) -> None:
    """A group with members of an earlier level refuses it, at creation and as a change, also its removal."""
    await api.create()
    with pytest.raises(Unavailable, match="cluster version 6"):
        await api.create("p", request_id="p", **policy)
    request = pb.UpdateStreamRequest(request_id="u", name="s", fields=[*policy])
    with pytest.raises(Unavailable, match="cluster version 6"):
        await api.driver.propose_request(pb.UpdateStreamResponse, "u", update_stream=request)


async def test_labels_and_racks_wait_for_members_that_keep_them(api: Any) -> None:
    """A server of this program joins a group with earlier members; it has its labels from the registration after."""
    more: dict[str, Any] = {"labels": ["disk=ssd"], "rack": "r1"}
    await register(api, "rs1", "a", **more)
    assert not api.machine.state.servers["rs1"].server.labels
    await api.driver.reconcile()
    await register(api, "rs1", "a", request_id="second", **more)
    known = api.machine.state.servers["rs1"].server
    assert (list(known.labels), known.rack) == (["disk=ssd"], "r1")
    with pytest.raises(InvalidArgument, match="key=value"):
        await register(api, "rs2", "a", labels=["ssd"])


async def test_a_host_is_asked_for_once_all_members_keep_it(api: Any) -> None:
    """Before, a server registers without it; from then on each heartbeat with another host has the server register again."""
    beat = pb.HeartbeatRequest(server="rs1", host="h1", sequence=1, complete=True)
    await register(api, "rs1", "a", host="h1")
    state = api.machine.state
    beat.incarnation = state.servers["rs1"].server.incarnation
    assert not state.servers["rs1"].server.host
    await servers.heartbeat(api.driver, beat)
    await api.driver.reconcile()
    assert state.cluster_version >= LEVEL_HOSTS
    with pytest.raises(PreconditionFailed, match="its host"):
        await servers.heartbeat(api.driver, beat)
    await register(api, "rs1", "a", request_id="second", host="h1")
    assert state.servers["rs1"].server.host == "h1"
    beat.sequence = 2
    await servers.heartbeat(api.driver, beat)


async def test_reasons_are_kept_by_members_that_know_them(ready: Any) -> None:
    """Before that no command has any."""
    assert not any(each.reason for each in ready.machine.state.range(1, 0).replicas)
    await ready.driver.reconcile()
    await ready.seal(10, create_next=True)
    assert all(each.reason for each in ready.machine.state.range(1, 1).replicas)


async def test_a_command_with_a_policy_names_its_level() -> None:
    """In streams and topics alike, and for what is registered with labels; without one the level is as before."""
    stream = common_pb2.StreamConfig(zones_min=2)
    for command, level in (
        (pd_state_pb2.Command(create_stream=pb.CreateStreamRequest(config=stream)), LEVEL_OPERATIONS),
        (pd_state_pb2.Command(create_stream=pb.CreateStreamRequest()), 1),
        (pd_state_pb2.Command(update_stream=pb.UpdateStreamRequest(fields=["zones_min"])), LEVEL_OPERATIONS),
        (pd_state_pb2.Command(update_stream=pb.UpdateStreamRequest(fields=["tiered"])), 1),
        (
            pd_state_pb2.Command(
                create_topic=topic_pb2.CreateTopicRequest(config=topic_pb2.TopicConfig(stream=stream))
            ),
            6,
        ),
        (pd_state_pb2.Command(create_topic=topic_pb2.CreateTopicRequest()), LEVEL_TOPICS),
        (pd_state_pb2.Command(update_topic=topic_pb2.UpdateTopicRequest(fields=["stream.server_labels"])), 6),
        (pd_state_pb2.Command(register_server=pb.RegisterServerRequest(labels=["a=b"])), LEVEL_OPERATIONS),
        (pd_state_pb2.Command(register_server=pb.RegisterServerRequest(zone="z")), 1),
        (pd_state_pb2.Command(register_server=pb.RegisterServerRequest(host="h")), LEVEL_HOSTS),
        (pd_state_pb2.Command(register_broker=broker_pb2.RegisterBrokerRequest(host="h")), LEVEL_HOSTS),
    ):
        assert needed_level(command) == level, command


async def test_an_explanation_is_what_would_be_chosen(zoned: Any) -> None:
    """The rows say what each server has; asking changes nothing, and the next range goes where it was said."""
    await zoned.create()
    await zoned.open()
    for _ in range(2):
        found = await placement.explain_placement(zoned.driver, placement_pb2.ExplainPlacementRequest(name="s"))
    said = [each.server for each in found.servers if each.chosen]
    assert said == [each.server for each in (await zoned.make_range()).replicas] == ["rs1", "rs3", "rs2"]
    (other,) = [each for each in found.servers if not each.chosen]
    assert other.why_not == "it has as much load as rs3, which is first by name"
    found = await placement.explain_placement(zoned.driver, placement_pb2.ExplainPlacementRequest(name="s"))
    rows = {each.server: each for each in found.servers}
    assert (rows["rs1"].open_ranges, rows["rs1"].replicas, rows["rs4"].replicas) == (1, 1, 0)
    zoned.silence(6_000)
    found = await placement.explain_placement(zoned.driver, placement_pb2.ExplainPlacementRequest(name="s"))
    assert "0 range servers are alive" in found.refusal
    assert {each.why_not for each in found.servers} == {"it is dead"}
