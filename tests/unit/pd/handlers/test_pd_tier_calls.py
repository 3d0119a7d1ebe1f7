"""Calls on the tier: what the leader and the servers found, objects by id, and new uploads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, Unavailable
from rangelog_pd import tier_check
from rangelog_pd.handlers import cluster, objects, tier
from rangelog_proto.v1 import common_pb2, tier_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from tests.unit.pd.conftest import DIGEST, report


async def tiered(ready: Any) -> common_pb2.Object:
    """One sealed range whose object is committed, reported whole by nobody yet."""
    await ready.driver.reconcile()  # raises the cluster version
    await ready.create(tiered=True)
    await ready.open()
    made = await ready.make_range()
    await ready.seal(10)
    server = made.replicas[0]
    prepare = pb.PrepareObjectRequest(
        request_id="p", stream_id=1, end_offset=10, server=server.server, incarnation=server.incarnation
    )
    prepared = (await objects.prepare_object(ready.driver, prepare)).object
    commit = pb.CommitObjectRequest(
        request_id="q", object_id=prepared.object_id, server=server.server, incarnation=server.incarnation,
        size_bytes=1, digest=DIGEST, epoch=1,
    )  # fmt: skip
    return (await objects.commit_object(ready.driver, commit)).object


async def describe(ready: Any) -> dict[str, str]:
    """The error of each who checked."""
    found = await tier.describe_tier(ready.driver, tier_pb2.DescribeTierRequest())
    return {each.name: each.error for each in found.checks}


async def test_the_checks_of_leader_and_servers_are_shown(ready: Any) -> None:
    """Each with its last error; one of a server that is dead is not, nor one before its first heartbeat."""
    assert await describe(ready) == {"pd1": "", "rs1": "", "rs2": "", "rs3": "", "rs4": ""}
    ready.driver.tier_watch.error = "UNAVAILABLE: away"
    await ready.beat("rs2", tier_error="ACCESS_DENIED: " + "x" * 1_000)
    found = await describe(ready)
    assert found["pd1"] == "UNAVAILABLE: away" and found["rs2"].startswith("ACCESS_DENIED: x") and found["rs3"] == ""
    assert len(found["rs2"]) == 500
    await ready.beat("rs2")
    assert (await describe(ready))["rs2"] == ""
    ready.silence(6_000)
    await ready.beat("rs1")
    assert list(await describe(ready)) == ["pd1", "rs1"]


async def test_a_server_whose_log_cannot_grow_is_shown(ready: Any) -> None:
    """While its heartbeats say so: the cluster is degraded, though all servers are heard of."""
    await ready.beat("rs2", log_error="No space left on device")
    described = await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())
    assert [each.health_reason for each in described.servers] == [
        "",
        "its log cannot grow: No space left on device",
        "",
        "",
    ]
    assert described.health == "degraded"
    assert "range server rs2 is alive: its log cannot grow: No space left on device" in described.reasons
    await ready.beat("rs2")
    described = await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())
    assert not any(each.health_reason for each in described.servers)


async def test_objects_are_found_by_id(ready: Any) -> None:
    """Those that are there, in any state; ids that were never given out are told by the next one."""
    made = await tiered(ready)
    request = tier_pb2.FindObjectsRequest(object_ids=[made.object_id, 77])
    found = await tier.find_objects(ready.driver, request)
    assert [each.object_id for each in found.objects] == [made.object_id]
    assert found.next_object_id == made.object_id + 1 and found.time_ms
    with pytest.raises(InvalidArgument):
        await tier.find_objects(ready.driver, tier_pb2.FindObjectsRequest(object_ids=range(1_001)))


async def test_an_object_is_kept_while_no_server_reports_a_whole_copy(ready: Any) -> None:
    """The state's list of replicas is not enough: one of them must be alive and whole."""
    made = await tiered(ready)
    request = tier_pb2.ReuploadObjectRequest(request_id="again", object_id=made.object_id)
    with pytest.raises(PreconditionFailed, match="no living range server"):
        await tier.reupload_object(ready.driver, request)
    with ready.driver.state() as state:
        name = state.range(1, 0).replicas[1].server
    await ready.beat(name, report(1, 0, "INCOMPLETE", end=5))
    with pytest.raises(PreconditionFailed, match="no living range server"):
        await tier.reupload_object(ready.driver, request)
    await ready.beat(name, report(1, 0, "SEALED", end=10))
    answer = await tier.reupload_object(ready.driver, request)
    assert [each.object_id for each in answer.objects] == [made.object_id]
    assert await tier.reupload_object(ready.driver, request) == answer, "a repeat"
    directive = (await ready.beat(name, report(1, 0, "SEALED", end=10))).directives[0]
    assert directive.upload_range.start_offset == 0


async def test_a_new_upload_needs_a_request_id(ready: Any) -> None:
    """Without one a retry would give up what was uploaded meanwhile."""
    made = await tiered(ready)
    with ready.driver.state() as state:
        name = state.range(1, 0).replicas[0].server
    await ready.beat(name, report(1, 0, "SEALED", end=10))
    with pytest.raises(InvalidArgument):
        await tier.reupload_object(ready.driver, tier_pb2.ReuploadObjectRequest(object_id=made.object_id))


async def test_another_store_is_checked_before_it_is_taken(ready: Any, tmp_path: Path) -> None:
    """One that fails changes nothing and is no reason for a retry; one that works is told with the next heartbeat."""
    await ready.driver.reconcile()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "probe").write_bytes(b"in the way")
    request = tier_pb2.SetTierRequest(request_id="t1", url=f"file://{tmp_path}/new")
    with pytest.raises(PreconditionFailed, match="stays as it is") as caught:
        await tier.set_tier(ready.driver, request)
    assert not caught.value.retriable
    with pytest.raises(PreconditionFailed, match="CONFIG_INVALID"):
        await tier.set_tier(ready.driver, tier_pb2.SetTierRequest(request_id="t2", url="ftp:x"))
    with pytest.raises(InvalidArgument):
        await tier.set_tier(ready.driver, tier_pb2.SetTierRequest(request_id="t3", url="file:///a b"))
    assert (await ready.beat("rs1")).tier_url == "file:///nowhere"
    (tmp_path / "new" / "probe").unlink()
    answer = await tier.set_tier(ready.driver, request)
    assert answer.tier_url.startswith("file:///nowhere ") and answer.tier_url.endswith(f"=file://{tmp_path}/new")
    assert (await ready.beat("rs1")).tier_url == answer.tier_url
    described = await cluster.describe_cluster(ready.driver, pb.DescribeClusterRequest())
    assert described.tier_url == answer.tier_url


async def test_a_mistyped_directory_is_refused(ready: Any, tmp_path: Path) -> None:
    """Once it were taken, uploads would fail, or go to a directory of its own on each server, and the state would keep it."""
    await ready.driver.reconcile()
    (tmp_path / "file").write_bytes(b"no directory")
    for number, name in enumerate(("none", "file")):
        request = tier_pb2.SetTierRequest(request_id=f"t{number}", url=f"file://{tmp_path}/{name}")
        with pytest.raises(PreconditionFailed, match=f"stays as it is.*no directory {tmp_path}/{name}"):
            await tier.set_tier(ready.driver, request)
    assert not (tmp_path / "none").exists()
    assert (await ready.beat("rs1")).tier_url == "file:///nowhere"


async def test_a_check_that_takes_long_is_asked_for_again(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends, the check goes on, and the next try gets its result; there are not many at a time."""
    checking = threading.Event()
    checks: list[str] = []

    def check(url: str) -> None:
        checks.append(url)
        checking.wait(30)

    monkeypatch.setattr(tier_check, "check_new_tier", check)
    monkeypatch.setattr(tier_check, "TRIAL_WAIT_S", 0.01)
    await ready.driver.reconcile()
    request = tier_pb2.SetTierRequest(request_id="t", url="file:///slow")
    for _ in range(3):
        with pytest.raises(Unavailable, match="being checked"):
            await tier.set_tier(ready.driver, request)
    for number in range(tier_check.TRIALS_MAX):
        with pytest.raises(Unavailable):
            await tier.set_tier(ready.driver, tier_pb2.SetTierRequest(request_id="u", url=f"file:///{number}"))
    checking.set()
    monkeypatch.setattr(tier_check, "TRIAL_WAIT_S", 10.0)
    assert (await tier.set_tier(ready.driver, request)).tier_url.endswith("=file:///slow")
    assert checks.count("file:///slow") == 1 and len(checks) == tier_check.TRIALS_MAX
