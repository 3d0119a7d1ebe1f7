"""`pdctl server check-impact --any`: whether any one range server may go down."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from pdctl.spare import hindrances, wait_until_spare
from rangelog_core.errors import RangelogError, Unavailable
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.pd_calls import CallsByName
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc


def described(**changed: Any) -> pd_pb2.DescribeClusterResponse:
    """A cluster with nothing to do, but for what is changed."""
    fields: dict[str, Any] = {
        "has_majority": True,
        "health": "healthy",
        "members": [pd_pb2.PdMember(name="pd1", leader=True)],
        "servers": [common_pb2.Server(name="rs1", health=common_pb2.SERVER_HEALTH_ALIVE)],
    }
    return pd_pb2.DescribeClusterResponse(**fields | changed)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"has_majority": False}, "no placement driver leads"),
        ({"members": [pd_pb2.PdMember(name="pd1")]}, "no placement driver leads"),
        ({"health": ""}, "earlier version"),
        ({"servers": []}, "no range server is registered"),
        ({"under_replicated_range_count": 7}, "fewer copies than wanted: 7 ranges"),
        ({"servers": [common_pb2.Server(name="rs2", health=common_pb2.SERVER_HEALTH_SUSPECT)]}, "not heard of lately: rs2"),
    ],
)  # fmt: skip
def test_what_hinders_it(changed: dict[str, Any], why: str) -> None:
    """Each alone; without any of them the answer is yes."""
    (found,) = hindrances(described(**changed))
    assert why in found
    assert not hindrances(described())


def test_what_does_not() -> None:
    """Words for people, failing tasks, and a dead server that has nothing any more: nobody would ever be allowed to go."""
    dead = [common_pb2.Server(name=name, health=common_pb2.SERVER_HEALTH_DEAD) for name in ("rs1", "rs2")]
    assert not hindrances(described(health="degraded", reasons=["the tier fails"], failing_task_count=3, servers=dead))


def test_it_asks_until_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or until its time is over; no answer is a no."""
    answers: list[pd_pb2.DescribeClusterResponse | RangelogError] = []
    now_s = 100.0

    class Pd(CallsByName):
        async def describe_cluster(self, _request: Any, *, timeout_s: float) -> pd_pb2.DescribeClusterResponse:
            assert timeout_s > 0
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, RangelogError):
                raise answer
            return answer

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        now_s += max(delay_s, 0.01)

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(asyncio, "sleep", sleep)

    def wait(wait_s: float) -> list[str]:
        with pytest.raises(StopIteration) as done:
            wait_until_spare(Pd(), 10, wait_s).send(None)  # type: ignore[arg-type]
        return list(done.value.value)

    answers[:] = [Unavailable("away"), described(under_replicated_range_count=1), described()]
    assert wait(60) == [] and len(answers) == 1
    answers[:] = [described(under_replicated_range_count=1)]
    assert wait(5) == ["fewer copies than wanted: 1 range"]
    answers[:] = [Unavailable("away")]
    with pytest.raises(Unavailable):
        wait_until_spare(Pd(), 10, 5).send(None)  # type: ignore[arg-type]


def test_by_the_command(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Against the real handlers: without a range server the answer is no. Names and --any exclude each other."""
    asked = run("server", "check-impact", "--any")
    assert (asked.exit_code, asked.stdout) == (1, "no: no range server is registered\n")
    asked = run("server", "check-impact", "--any", "-o", "json")
    assert json.loads(asked.stdout) == {"safe": False, "hindrances": ["no range server is registered"]}
    for arguments in ((), ("rs1", "--any")):
        assert "give names of servers, or --any" in run.fails(2, "server", "check-impact", *arguments)
