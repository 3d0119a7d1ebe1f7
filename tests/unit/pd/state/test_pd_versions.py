"""Feature levels: members of two programs stay one state machine, and one that is too old stops."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed, Unavailable, UnsupportedVersion
from rangelog_pd.handlers import batches, cluster, ranges, streams
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1 import pd_state_pb2
from tests.support.pd_rows import level_1_snapshot


def command(version: int, **action: Any) -> bytes:
    return pd_state_pb2.Command(version=version, now_ms=1_000, **action).SerializeToString()


def test_a_member_that_meets_a_newer_command_stops_and_changes_nothing() -> None:
    """To answer it as unknown and to go on would fork the state."""
    machine = Machine(feature_level=1)
    machine.apply(1, command(1, create_stream=pb.CreateStreamRequest(name="a")))
    before = machine.snapshot()
    with pytest.raises(UnsupportedVersion, match="feature level 2"):
        machine.apply(2, command(2, set_cluster_version=pd_state_pb2.SetClusterVersion(version=2)))
    unknown = pd_state_pb2.Command(version=99, now_ms=9_000_000).SerializeToString() + b"\xfa\x0f\x02\x08\x01"
    with pytest.raises(UnsupportedVersion, match="log entry 3"):
        machine.apply(3, unknown)
    assert machine.snapshot() == before


def test_a_command_below_the_level_of_its_action_is_no_command() -> None:
    """No program proposes one: a member of level 1 would not have understood it."""
    machine = Machine()
    for entry in (
        command(1, seal_ranges=pd_state_pb2.PlacedSealRanges()),
        command(1, trim_stream=pb.TrimStreamRequest(name="a", expected_version=4)),
        command(0, create_stream=pb.CreateStreamRequest(name="a")),
        command(1),
    ):
        result = pd_state_pb2.CommandResult.FromString(machine.apply(1, entry))
        assert result.error_code == "INTERNAL"
    assert not machine.state.streams


def test_a_snapshot_of_a_newer_cluster_is_refused_by_an_older_member() -> None:
    """It says what to do, and its own state stays."""
    newer = Machine()
    newer.apply(1, command(2, set_cluster_version=pd_state_pb2.SetClusterVersion(version=2)))
    older = Machine(feature_level=1)
    with pytest.raises(UnsupportedVersion, match="the program that the other members run"):
        older.restore(newer.snapshot())
    assert older.state.cluster_version == 1


def test_a_section_of_an_unknown_kind_or_version_is_refused() -> None:
    """A newer program wrote it: what it means is not known, so nothing is taken over."""
    whole = Machine().snapshot()
    for changed in (
        pd_state_pb2.Section(kind=99, version=1),  # type: ignore[arg-type]
        pd_state_pb2.Section(kind=pd_state_pb2.SECTION_KIND_STREAMS, version=99),
    ):
        section = changed.SerializeToString()
        data = whole[:4] + len(section).to_bytes(4, "little") + section + whole[4:]
        with pytest.raises(UnsupportedVersion):
            Machine().restore(data)


def test_a_snapshot_of_level_1_is_read(pd: Any, whole: int) -> None:
    """A member that was upgraded starts from what its former program wrote."""
    data = level_1_snapshot(pd.machine).SerializeToString()
    other = Machine()
    other.restore(data)
    other.state.validate_indexes()
    assert level_1_snapshot(other) == level_1_snapshot(pd.machine)
    assert other.state.cluster_version == 1


async def test_the_cluster_goes_on_at_a_level_once_all_members_have_it(ready: Any) -> None:
    """The leader proposes it; until then what needs it is refused with the reason."""
    status = ready.consensus.status()
    older = status.members[0].__class__("pd2", reachable=True, leader=False, feature_level=1)
    mixed = status.__class__(
        status.name, status.leader, status.term, status.applied_index, status.has_majority, (*status.members, older)
    )
    ready.consensus.status = lambda: mixed
    await ready.driver.reconcile()
    assert (await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())).cluster_version == 1
    request = pb.TrimStreamRequest(request_id="t", name="s", trim_offset=0, expected_version=1)
    with pytest.raises(Unavailable, match="cluster version 2"):
        await streams.trim_stream(ready.driver, request)
    ready.consensus.status = lambda: status
    await ready.driver.reconcile()
    assert (await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())).cluster_version == FEATURE_LEVEL
    with pytest.raises(PreconditionFailed, match="changed meanwhile"):
        await streams.trim_stream(ready.driver, request)


@pytest.mark.parametrize("level", [1, 2])
async def test_many_seals_in_one_call_are_answered_as_the_single_ones(make_api: Any, level: int) -> None:
    """Each item has its own answer or error, a repeat gets the first answers, whatever level the cluster is at."""
    api = make_api()
    await api.register("rs1", "rs2", "rs3", "rs4")
    if level == 2:
        await api.driver.reconcile()
    for number in range(300):
        await api.create(f"s{number}", f"c{number}")
    opened = await batches.open_writers(
        api.driver,
        pb.OpenWritersRequest(request_id="open", writers=[pb.OpenWriterRequest(name=f"s{n}") for n in range(301)]),
    )
    assert [each.response.stream.epoch for each in opened.results[:300]] == [1] * 300
    assert opened.results[300].error.code == "STREAM_NOT_FOUND"
    for number in range(300):
        request = pb.CreateRangeRequest(request_id=f"r{number}", stream_id=number + 1, epoch=1)

        await ranges.create_range(api.driver, request)
    seals = [
        pb.SealRangeRequest(stream_id=n + 1, epoch=1 if n != 7 else 9, end_offset=n, create_next=n % 2 == 0)
        for n in range(300)
    ]
    sealed = await batches.seal_ranges(api.driver, pb.SealRangesRequest(request_id="seal", seals=seals))
    again = await batches.seal_ranges(api.driver, pb.SealRangesRequest(request_id="seal", seals=seals))
    assert [each.error.code for each in sealed.results] == ["FENCED" if n == 7 else "" for n in range(300)]
    for number, (first, second) in enumerate(zip(sealed.results, again.results, strict=True)):
        if number == 7:
            continue
        assert first.response.range.end_offset == second.response.range.end_offset == number
        assert first.response.HasField("next_range") == (number % 2 == 0)
        if number % 2 == 0:
            placed = [each.server for each in first.response.next_range.replicas]
            assert placed == [each.server for each in second.response.next_range.replicas] and len(placed) == 3
            assert all(each.data_address for each in first.response.next_range.replicas)
    api.machine.state.validate()
    api.machine.state.validate_indexes()
    if level == 1:
        return
    counts = [len(api.machine.state.hosted.of(f"rs{n}", api.incarnation(f"rs{n}")).open) for n in (1, 2, 3, 4)]
    assert max(counts) - min(counts) <= 2, "each placement counts as load for the next"
