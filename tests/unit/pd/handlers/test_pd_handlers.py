"""The API's handlers on a consensus in memory: validation, placement, leadership, reads behind a barrier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from rangelog_core.errors import (
    InvalidArgument,
    NoPlacement,
    NotLeader,
    OutcomeUnknown,
    StreamNotFound,
    Unavailable,
    WriterFenced,
)
from rangelog_pd.handlers import cluster, objects, ranges, servers, streams
from rangelog_pd.state.objects import ROW_GROUPS_MAX
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb

DIGEST = "sha256:" + "cd" * 32
WALL_MS = 1_700_000_000_000


# ---- requests


async def test_a_command_without_a_request_id_is_refused(ready: Any) -> None:
    """Without a request id a retry would do it twice: it is refused before anything is proposed."""
    before = ready.consensus.applied_index
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: ready.create("t", request_id=""),
        lambda: ready.open(request_id=""),
        lambda: ready.make_range(request_id=""),
        lambda: ready.seal(5, request_id=""),
        lambda: streams.delete_stream(ready.driver, pb.DeleteStreamRequest(name="s")),
        lambda: streams.trim_stream(ready.driver, pb.TrimStreamRequest(name="s")),
        lambda: streams.update_stream(ready.driver, pb.UpdateStreamRequest(name="s", fields=["acks"])),
        lambda: ready.open(request_id="x" * 101),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="request id"):
            await call()
    assert ready.consensus.applied_index == before


async def test_a_repeat_gets_the_first_answer_though_the_epoch_went_on(ready: Any) -> None:
    """A seal whose answer was lost is answered the same after a later writer opened the stream."""
    first = await ready.seal(10, request_id="same", create_next=True)
    await ready.open(request_id="later")
    again = await ready.seal(10, request_id="same", create_next=True)
    assert (again.range.end_offset, again.next_range.index) == (10, first.next_range.index)
    with pytest.raises(WriterFenced):
        await ready.seal(10, request_id="another", create_next=True)


async def test_a_repeat_gets_the_first_answer_though_servers_are_gone(ready: Any) -> None:
    """A seal that created the next range is answered so again when there would be no place any more."""
    await ready.seal(10, request_id="same", create_next=True)
    ready.silence(60_000)
    assert (await ready.seal(10, request_id="same", create_next=True)).next_range.index == 1


async def test_an_unknown_outcome_is_settled_by_asking_again(ready: Any) -> None:
    """Applied or not, the same request id leads to one range sealed at one end."""
    for applied in (True, False):
        ready.consensus.lose_next_outcome(applied=applied)
        with pytest.raises(OutcomeUnknown):
            await ready.open(request_id=f"open-{applied}")
        await ready.open(request_id=f"open-{applied}")
    assert ready.machine.state.streams[1].epoch == 3


async def test_a_deletion_says_what_was_open(ready: Any) -> None:
    """The answer has the open range with its replicas' addresses, to be fenced; a repeat has it, too; else there is none."""
    request = pb.DeleteStreamRequest(request_id="d", name="s")
    for _ in range(2):
        told = await streams.delete_stream(ready.driver, request)
        assert (told.stream.epoch, told.open_range.index) == (1, 0)
        assert {each.data_address for each in told.open_range.replicas} == {
            f"{each.server}:7" for each in told.open_range.replicas
        }
    await ready.create("t", request_id="t")
    told = await streams.delete_stream(ready.driver, pb.DeleteStreamRequest(request_id="e", name="t"))
    assert not told.HasField("open_range")


# ---- placement


async def test_too_few_living_servers_place_nothing(api: Any) -> None:
    """Acks need as many living servers; when they come the same request succeeds."""
    await api.create()
    await api.open()
    await api.register("rs1")
    with pytest.raises(NoPlacement, match="1 range server is alive"):
        await api.make_range()
    await api.register("rs2")
    assert {each.server for each in (await api.make_range()).replicas} == {"rs1", "rs2"}


async def test_an_excluded_server_is_avoided_or_nothing_happens(ready: Any) -> None:
    """With a fourth server the slow one is left; strictly without both nothing changes."""
    sick = ready.machine.state.ranges.of(1)[0].replicas[0].server
    with pytest.raises(NoPlacement):
        await ready.seal(10, request_id="no", create_next=True, exclude_servers=["rs1", "rs2"], exclude_strictly=True)
    assert ready.machine.state.ranges.of(1)[0].state == common_pb2.RANGE_STATE_OPEN
    answer = await ready.seal(10, request_id="yes", create_next=True, exclude_servers=[sick], exclude_strictly=True)
    assert sick not in [each.server for each in answer.next_range.replicas]


async def test_answers_name_addresses_and_health(ready: Any) -> None:
    """A range comes with where its replicas are and how they are."""
    ready.silence(60_000)
    await ready.beat("rs1")
    listed = await ranges.list_ranges(ready.driver, pb.ListRangesRequest(name="s"))
    found = {each.server: each for each in listed.ranges[0].replicas}
    assert {each.data_address for each in found.values()} == {f"{name}:7" for name in found}
    expected = {
        name: common_pb2.SERVER_HEALTH_ALIVE if name == "rs1" else common_pb2.SERVER_HEALTH_DEAD for name in found
    }
    assert {name: each.health for name, each in found.items()} == expected


# ---- leadership


async def test_a_follower_names_the_leader(ready: Any) -> None:
    """Reads and commands of a follower end with the leader's address, and change nothing."""
    ready.consensus.set_leader("pd2")
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: ready.create("t"),
        lambda: ready.open(),
        lambda: ready.seal(1, create_next=True),
        lambda: ready.beat("rs1"),
        lambda: streams.describe_stream(ready.driver, pb.DescribeStreamRequest(name="s")),
        lambda: ranges.list_ranges(ready.driver, pb.ListRangesRequest(name="s")),
        lambda: servers.list_servers(ready.driver, pb.ListServersRequest()),
        lambda: cluster.list_tasks(ready.driver, pb.ListTasksRequest()),
    ]
    for call in calls:
        with pytest.raises(NotLeader) as refused:
            await call()
        assert refused.value.address == "pd2:2"


async def test_without_a_leader_commands_wait_and_the_cluster_can_still_be_described(ready: Any) -> None:
    """No majority: commands are Unavailable, but any member tells what it knows."""
    ready.consensus.set_leader(None)
    with pytest.raises(Unavailable):
        await ready.open()
    told = await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())
    assert (told.has_majority, told.stream_count, len(told.servers)) == (False, 1, 4)


async def test_a_new_leader_wants_every_report_anew(ready: Any) -> None:
    """What was heard in an earlier leadership is forgotten, also when this member led before."""
    assert not (await ready.beat("rs1")).send_complete
    ready.consensus.set_leader("pd2")
    await ready.driver.reconcile()
    ready.consensus.set_leader("pd1")
    assert (await ready.beat("rs1", complete=False)).send_complete


async def test_a_new_term_of_the_same_leader_is_a_new_leadership(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was paused, replaced and elected again unnoticed must not trust its old reports."""
    assert not (await ready.beat("rs1")).send_complete
    status = replace(ready.consensus.status(), term=7)
    monkeypatch.setattr(ready.consensus, "status", lambda: status)
    assert (await ready.beat("rs1", complete=False)).send_complete


# ---- streams and objects


async def test_a_stream_is_tiered_when_the_cluster_has_a_tier(make_api: Any) -> None:
    """Unset, `tiered` follows the cluster; set, it is what was asked for."""
    with_tier, without = make_api(), make_api(tier_url="")
    assert (await with_tier.create()).config.tiered
    assert not (await without.create()).config.tiered
    assert not (await with_tier.create("t", "c2", tiered=False)).config.tiered


async def test_bad_names_and_unknown_streams(ready: Any) -> None:
    """A bad name is invalid, an unknown one not found, whatever the call."""
    with pytest.raises(InvalidArgument):
        await ready.create("a/b", request_id="bad")
    with pytest.raises(StreamNotFound):
        await streams.describe_stream(ready.driver, pb.DescribeStreamRequest(name="nobody"))
    with pytest.raises(StreamNotFound):
        await ranges.list_ranges(ready.driver, pb.ListRangesRequest())
    with pytest.raises(StreamNotFound):
        await ready.seal(1, request_id="q", stream_id=99, create_next=True)


async def test_pages_join_without_gap_or_repeat(ready: Any) -> None:
    """Streams and ranges page by page are the whole list."""
    for number in range(5):
        await ready.create(f"p{number}", request_id=f"p{number}")
    for index in range(4):
        await ready.seal(10 * (index + 1), request_id=f"seal-{index}", range_index=index, create_next=True)
    names, token = [], ""
    while True:
        page = await streams.list_streams(
            ready.driver, pb.ListStreamsRequest(prefix="p", page_size=2, page_token=token)
        )
        names += [each.name for each in page.streams]
        token = page.next_page_token
        if not token:
            break
    assert names == [f"p{number}" for number in range(5)]
    indexes: list[int] = []
    while True:
        listed = await ranges.list_ranges(
            ready.driver, pb.ListRangesRequest(name="s", from_offset=10, from_index=len(indexes) + 1, page_size=2)
        )
        indexes += [each.index for each in listed.ranges]
        if not listed.more:
            break
    assert indexes == [1, 2, 3, 4]


async def prepared(api: Any) -> common_pb2.Object:
    """Range 0 sealed at 2000, its upload begun by its first member."""
    await api.seal(2_000)
    member = api.machine.state.ranges.of(1)[0].replicas[0]
    request = pb.PrepareObjectRequest(
        request_id="prep",
        stream_id=1,
        range_index=0,
        start_offset=0,
        end_offset=2_000,
        server=member.server,
        incarnation=member.incarnation,
    )
    return (await objects.prepare_object(api.driver, request)).object


def commit_of(found: common_pb2.Object, groups: int) -> pb.CommitObjectRequest:
    """A commit whose index has a row group for each record, up to `groups`."""
    count = 2_000 // groups
    rows = [
        common_pb2.RowGroup(
            start_offset=index * count, count=count, timestamp_ms_min=1_000 + index, timestamp_ms_max=2_000 + index
        )
        for index in range(groups)
    ]
    return pb.CommitObjectRequest(
        request_id="commit",
        object_id=found.object_id,
        server=found.server,
        incarnation=found.incarnation,
        size_bytes=5,
        digest=DIGEST,
        row_groups=rows,
        epoch=1,
    )


async def test_an_index_with_too_many_row_groups_is_made_coarser(ready: Any) -> None:
    """A commit stays below the size of a Raft command: neighbouring row groups become one, and still tile the object."""
    found = await prepared(ready)
    await objects.commit_object(ready.driver, commit_of(found, 2_000))
    groups = ready.machine.state.objects[found.object_id].row_groups
    assert len(groups) <= ROW_GROUPS_MAX
    assert sum(each.count for each in groups) == 2_000
    assert (groups[0].timestamp_ms_min, groups[-1].timestamp_ms_max) == (1_000, 3_999)
    listed = await objects.list_objects(ready.driver, pb.ListObjectsRequest(name="s"))
    assert [each.end_offset for each in listed.objects] == [2_000]


async def test_deleted_objects_are_forgotten_by_their_ids(ready: Any) -> None:
    """Only what the directive named is forgotten, though more tombstones came meanwhile; foreign reports do nothing."""
    found = await prepared(ready)
    await objects.commit_object(ready.driver, commit_of(found, 4))
    for name in ("rs1", "rs2", "rs3", "rs4"):
        await ready.beat(name)
    await streams.delete_stream(ready.driver, pb.DeleteStreamRequest(request_id="d", name="s"))
    ready.silence(ready.driver.settings.delete_grace_ms)
    for name in ("rs1", "rs2", "rs3", "rs4"):
        answer = await ready.beat(name)
        told = [each for each in answer.directives if each.WhichOneof("action") == "delete_objects"]
        if told:
            break
    assert list(told[0].delete_objects.object_ids) == [found.object_id]
    await ready.beat(name, tasks=[pb.TaskReport(task_id="delete-1-9-9@x", done=True)])
    await ready.beat(name, tasks=[pb.TaskReport(task_id="delete-nonsense", done=True)])
    assert found.object_id in ready.machine.state.objects
    await ready.beat(name, tasks=[pb.TaskReport(task_id=told[0].task_id, done=True)])
    assert not ready.machine.state.objects


async def test_a_failing_upload_is_listed_with_its_last_error(ready: Any) -> None:
    """What is wanted and goes wrong is visible: since when, how often, and what the server said last."""
    await ready.seal(10)
    name = ""
    for member in ready.machine.state.ranges.of(1)[0].replicas:
        report = pb.ReplicaReport(stream_id=1, range_index=0, state=pb.REPLICA_STATE_SEALED, durable_offset=10)
        told = await ready.beat(member.server, report)
        if any(each.WhichOneof("action") == "upload_range" for each in told.directives):
            name, task_id = member.server, told.directives[0].task_id
            break
    assert name
    await ready.beat(name, report, tasks=[pb.TaskReport(task_id=task_id, error="UNAVAILABLE: no such bucket")])
    listed = (await cluster.list_tasks(ready.driver, pb.ListTasksRequest(failing_only=True))).tasks
    assert [(each.kind, each.server, each.stream_name) for each in listed] == [("upload-range", name, "s")]
    assert "no such bucket" in listed[0].last_error
    described = await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())
    assert described.failing_task_count == 1


async def test_ranges_have_an_age_by_default_and_streams_do_not_roll_together(api: Any) -> None:
    """The proposer fills in about an hour, spread by name; a stream of its own age, or of none, keeps that."""
    made = [await api.create(f"s{number}", f"c{number}") for number in range(50)]
    ages_ms = [each.config.range_age_ms_max for each in made]
    assert all(3_240_000 <= each <= 3_600_000 and each % 1_000 == 0 for each in ages_ms)
    assert len(set(ages_ms)) > 30
    assert (await api.create("never", "n", range_age_ms_max=0)).config.range_age_ms_max == 0
    assert (await api.create("day", "d", range_age_ms_max=86_400_000)).config.range_age_ms_max == 86_400_000
    request = pb.UpdateStreamRequest(request_id="u", name="day", fields=["range_age_ms_max"])
    assert (await streams.update_stream(api.driver, request)).stream.config.range_age_ms_max == 0


@pytest.mark.parametrize(
    ("setting", "given", "found"),
    [
        (1, {}, (1, 1)),
        (3, {}, (3, 2)),
        (1, {"replicas": 3}, (3, 2)),
        (1, {"acks": 2}, (2, 2)),
    ],
)
async def test_replicas_that_are_not_given_are_the_clusters_default(
    api: Any, setting: int, given: dict[str, int], found: tuple[int, int]
) -> None:
    """The setting's number, and no fewer than what else is asked for needs; acks follow."""
    api.driver.settings = api.driver.settings.model_copy(update={"stream_replicas": setting})
    request = pb.CreateStreamRequest(request_id="r", name="x", config=common_pb2.StreamConfig(**given))
    config = (await streams.create_stream(api.driver, request)).stream.config
    assert (config.replicas, config.acks) == found
