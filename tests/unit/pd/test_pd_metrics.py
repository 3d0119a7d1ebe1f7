"""What a placement driver exports: the cluster by the leader alone, its own work by everyone; and when it is ready."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from rangelog_core.errors import StreamExists, StreamNotFound
from rangelog_pd.consensus.interface import ConsensusStatus, MemberStatus
from rangelog_pd.metrics import BEHIND_MAX, FIGURES, look, parts, problems
from rangelog_pd.reconcile.task_board import TaskBoard
from rangelog_proto.v1 import pd_pb2
from rangelog_server_common.grpc_server import GrpcServer


def values(driver: Any) -> dict[str, Any]:
    """All figures at this moment, by name; those without a value are left out."""
    facts = look(driver)
    found = {figure.name: figure.read(facts) for figure in FIGURES}
    return {name: value for name, value in found.items() if value is not None}


async def test_the_leader_exports_the_cluster(ready: Any) -> None:
    """Tables by their lengths, servers by health; a server that falls silent is counted elsewhere at once."""
    await ready.beat_all()
    before = values(ready.driver)
    assert before["rangelog_pd_servers"] == {"alive": 4, "suspect": 0, "dead": 0}
    assert (before["rangelog_pd_streams"], before["rangelog_pd_ranges"], before["rangelog_pd_open_ranges"]) == (1, 1, 1)
    assert before["rangelog_pd_under_replicated_ranges"] == 0
    members = [each.server for each in ready.machine.state.ranges.of(1)[0].replicas]
    ready.silence(6_000)
    for name in {"rs1", "rs2", "rs3", "rs4"} - {members[0]}:
        await ready.beat(name)
    after = values(ready.driver)
    assert after["rangelog_pd_servers"] == {"alive": 3, "suspect": 0, "dead": 1}
    assert after["rangelog_pd_server_up"] == {name: name != members[0] for name in ("rs1", "rs2", "rs3", "rs4")}
    assert after["rangelog_pd_server_silence_seconds"][members[0]] == 6.0
    assert after["rangelog_pd_under_replicated_ranges"] == 1


async def test_a_follower_exports_its_own_work_only(ready: Any) -> None:
    """Otherwise sums over all members would count the cluster several times."""
    leading = values(ready.driver)
    status = replace(ready.consensus.status(), leader="pd2")
    ready.consensus.status = lambda: status
    following = values(ready.driver)
    missing = {name for name in leading if name not in following}
    assert following["rangelog_pd_is_leader"] == 0 and following["rangelog_pd_knows_leader"] == 1
    assert {"rangelog_pd_servers", "rangelog_pd_streams", "rangelog_pd_under_replicated_ranges"} <= missing
    assert "rangelog_pd_commands_total" in following


async def test_commands_are_counted_by_result(ready: Any) -> None:
    """One that the state refuses has its error's code; its caller gets the error all the same."""
    before = look(ready.driver).counts.command_durations.count
    with pytest.raises(StreamExists):
        await ready.create(request_id="again")
    await ready.create("t", request_id="t")
    codes = look(ready.driver).counts.commands["create_stream"]
    assert codes["STREAM_EXISTS"] == 1 and codes["OK"] == 2
    assert look(ready.driver).counts.command_durations.count == before + 2
    with pytest.raises(StreamNotFound):
        await ready.open(name="nobody", request_id="n")


async def test_rounds_and_leaderships_are_counted(ready: Any) -> None:
    """Each round once."""
    before = look(ready.driver).counts.round_durations.count
    await ready.driver.reconcile()
    assert look(ready.driver).counts.round_durations.count == before + 1
    ready.change_leader()
    await ready.driver.reconcile()
    assert look(ready.driver).counts.leading_count == 2


def test_the_parts_of_an_endpoint() -> None:
    """The figures above, and those of calls."""
    names = [figure.name for part in parts(None, GrpcServerStub()) for figure in part.figures]  # type: ignore[arg-type]
    assert "rangelog_pd_servers" in names and "rangelog_grpc_calls_total" in names and len(set(names)) == len(names)


class GrpcServerStub(GrpcServer):
    """Nothing is looked at before a scrape."""

    def __init__(self) -> None:
        pass


def status(**changes: Any) -> ConsensusStatus:
    """A follower that has applied all."""
    members = tuple(MemberStatus(name, reachable=True, leader=name == "pd2") for name in ("pd1", "pd2"))
    usual = {"leader": "pd2", "term": 3, "applied_index": 10, "last_index": 10, "has_majority": True}
    return ConsensusStatus("pd1", members=members, **(usual | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"leader": "pd1"}, ""),
        ({"leader": None, "has_majority": False}, "no leader"),
        ({"leader": "pd1", "has_majority": False}, "not connected to a majority"),
        ({"has_majority": False}, "not connected to a majority"),  # the leader that it knows may be dead
        ({"last_index": 10 + BEHIND_MAX}, ""),
        ({"last_index": 11 + BEHIND_MAX}, "not applied"),
    ],
)
def test_ready(changes: dict[str, Any], reason: str) -> None:
    """Knows a leader, and has applied the log but for what is always on its way."""
    found = problems(status(**changes))
    assert reason in found[0] if reason else not found, found


@pytest.mark.parametrize("seed", range(20))
def test_counts_of_tasks_are_what_a_listing_has(seed: int) -> None:
    """Whatever happens to tasks: the counts that a scrape reads follow each change."""
    chance = random.Random(seed)
    board, now_ms, ended = TaskBoard(), 0, 0
    for _ in range(300):
        now_ms += chance.choice([0, 10, 3_000])
        task_id = f"t{chance.randrange(6)}"
        kind = "upload_range" if task_id < "t3" else "drop_replica"
        step = chance.randrange(10)
        if step < 5:
            action: Any = {kind: {}}
            board.want("rs1", pd_pb2.Directive(task_id=task_id, **action), "s", now_ms)
        elif step < 8:
            error = chance.choice(["", "UNAVAILABLE: x"])
            board.report([pd_pb2.TaskReport(task_id=task_id, done=chance.random() < 0.5, error=error)], now_ms)
        elif step == 8:
            board.cancel(task_id, now_ms)
        elif chance.random() < 0.05:
            board.clear()
        current = board.listing(now_ms, failing_only=False)
        kinds = [task.kind for task in current]
        assert {kind: count for kind, count in board.current_counts.items() if count} == {
            kind: kinds.count(kind) for kind in set(kinds)
        }
        assert board.failing_count == sum(bool(task.last_error) for task in current)
        assert sum(board.ended_counts.values()) >= ended
        ended = sum(board.ended_counts.values())
