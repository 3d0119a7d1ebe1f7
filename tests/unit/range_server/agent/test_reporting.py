"""What heartbeats report: cost follows change, a change of state goes first, and nothing is lost with a heartbeat."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent import reporting
from rangelog_server.agent.reporting import Reporting
from rangelog_server.ranges.store import Store
from tests.fakes.faces import LogDisk
from tests.support.small_log import append, drop, end, open_store

Key = tuple[int, int]


def keys(request: pb.HeartbeatRequest) -> list[Key]:
    """What a heartbeat reports on."""
    return [(report.stream_id, report.range_index) for report in request.replicas]


async def beat(reports: Reporting, *, fails: bool = False) -> pb.HeartbeatRequest:
    """Make one heartbeat."""
    request = pb.HeartbeatRequest()
    await reports.fill(request)
    (reports.failed if fails else reports.answered)()
    return request


@pytest.fixture
def store() -> Store:
    """Ten open ranges."""
    made = open_store(LogDisk())
    for number in range(10):
        append(made, (1, number), b"record")
    return made


async def test_all_are_reported_once_then_only_what_changes(store: Store) -> None:
    """The first heartbeat has everything; the next one nothing; then what grew, was sealed, or was dropped."""
    reports = Reporting(store)
    first = await beat(reports)
    assert first.complete
    assert keys(first) == list(store.replicas)
    assert keys(await beat(reports)) == []
    append(store, (1, 3), b"more")
    end(store, (1, 4))
    drop(store, (1, 5))
    second = await beat(reports)
    assert not second.complete
    assert sorted(keys(second)) == [(1, 3), (1, 4), (1, 5)]
    states = {report.range_index: report.state for report in second.replicas}
    assert states[4] == pb.REPLICA_STATE_SEALED
    assert states[5] == pb.REPLICA_STATE_UNSPECIFIED
    assert keys(await beat(reports)) == []
    reports.want_complete()
    assert len(keys(await beat(reports))) == 9


async def test_a_failed_heartbeat_is_made_good(store: Store) -> None:
    """What it had is in the next one, with what came meanwhile; a whole report that failed is made again."""
    reports = Reporting(store)
    await beat(reports, fails=True)
    assert (await beat(reports)).complete
    end(store, (1, 1))
    append(store, (1, 2), b"more")
    assert sorted(keys(await beat(reports, fails=True))) == [(1, 1), (1, 2)]
    end(store, (1, 3))
    assert sorted(keys(await beat(reports))) == [(1, 1), (1, 2), (1, 3)]


async def test_open_ranges_that_grow_take_turns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many grow, one heartbeat reports a bounded number of them, each in its turn; a seal does not wait for them."""
    monkeypatch.setattr(reporting, "GROWN_MAX", 3)
    reports = Reporting(store)
    await beat(reports)
    found: list[list[Key]] = []
    for _ in range(4):
        for number in range(10):
            append(store, (1, number), b"more")
        found.append(keys(await beat(reports)))
    assert [len(each) for each in found] == [3, 3, 3, 3]
    assert {key for each in found for key in each} == set(store.replicas)
    end(store, (1, 9))
    assert (1, 9) in keys(await beat(reports))


async def test_a_whole_report_leaves_the_loop_its_turns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made a slice at a time; what is dropped meanwhile is reported as gone, what comes meanwhile the next time."""
    monkeypatch.setattr(reporting, "SLICE", 4)
    reports = Reporting(store)
    request = pb.HeartbeatRequest()
    task = asyncio.create_task(reports.fill(request))
    await asyncio.sleep(0)
    assert len(request.replicas) == 4
    drop(store, (1, 9))
    append(store, (2, 0), b"new")
    await task
    reports.answered()
    assert request.replicas[9].state == pb.REPLICA_STATE_UNSPECIFIED
    assert (2, 0) in keys(await beat(reports))


async def test_a_copy_that_became_whole_is_reported_when_it_is(store: Store) -> None:
    """A sealed replica is reported again once what it lacked is flushed, not only when that was submitted."""
    reports = Reporting(store)
    end(store, (1, 0), 2)
    (first,) = [each for each in (await beat(reports)).replicas if each.range_index == 0]
    assert first.state == pb.REPLICA_STATE_INCOMPLETE
    hosted = store.replicas[1, 0]
    hosted.core.flushed(1)
    store.on_flushed([(hosted, 1, None, 0, 0)])
    assert keys(await beat(reports)) == [(1, 0)]
