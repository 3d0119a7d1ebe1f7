"""The word for a cluster and for a range: what is short of copies, gone or failing is said, with counts and names."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.reconcile.health import FirstNames, cluster_health
from rangelog_pd.reconcile.shortfalls import LOOKED_AT_MAX, Shortfalls
from rangelog_proto.v1 import common_pb2, pd_pb2


def _described(**changes: Any) -> pd_pb2.DescribeClusterResponse:
    fields: dict[str, Any] = {
        "has_majority": True,
        "members": [
            pd_pb2.PdMember(name="pd1", leader=True, reachable=True),
            pd_pb2.PdMember(name="pd2", reachable=True),
        ],
        "servers": [common_pb2.Server(name="rs1", health="SERVER_HEALTH_ALIVE")],
        "range_count": 300,
    }
    return pd_pb2.DescribeClusterResponse(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "word", "reason"),
    [
        ({}, "healthy", ""),
        ({"under_replicated_range_count": 12}, "degraded", "under-replicated: 12 of 300 ranges: s/1, s/2, s/3, …"),
        ({"blocked_repair_count": 1}, "degraded", "no server can take a further copy of 1 range at the moment"),
        ({"lost_range_count": 2}, "degraded", "lost: 2 ranges of which no copy can come back"),
        ({"failing_task_count": 1}, "degraded", "failing: 1 task, the oldest: upload-range of s/4 on rs1: no room"),
        ({"servers": []}, "degraded", "no range server is registered"),
        ({"servers": [common_pb2.Server(name="rs1", health="SERVER_HEALTH_SUSPECT")]}, "degraded",
         "range server rs1 is suspect"),
        ({"servers": [common_pb2.Server(name="rs1", health="SERVER_HEALTH_DEAD")]}, "degraded",
         "range server rs1 is dead"),
        ({"servers": [common_pb2.Server(name="rs1", health="SERVER_HEALTH_ALIVE", health_reason="its log is full")]},
         "degraded", "range server rs1 is alive: its log is full"),
        ({"servers": [common_pb2.Server(name="rs1", health="SERVER_HEALTH_ALIVE", mode="SERVER_MODE_DRAINING")]},
         "degraded", "range server rs1 is draining"),
        ({"members": [pd_pb2.PdMember(name="pd1", leader=True, reachable=True), pd_pb2.PdMember(name="pd2")]},
         "degraded", "placement driver pd2 is unreachable"),
        ({"members": [pd_pb2.PdMember(name="pd1", reachable=True)]}, "unavailable", "no placement driver leads"),
        ({"has_majority": False}, "unavailable", "no placement driver leads"),
    ],
)  # fmt: skip
def test_each_defect_has_its_word_and_reason(changes: dict[str, Any], word: str, reason: str) -> None:
    """Any one defect ends "healthy" and is named in a line of its own."""
    task = pd_pb2.Task(kind="upload-range", stream_name="s", range_index=4, server="rs1", last_error="no room")
    said, reasons = cluster_health(_described(**changes), FirstNames(["s/1", "s/2", "s/3"], failing=[task]))
    assert said == word
    assert not reasons if word == "healthy" else [each for each in reasons if each.startswith(reason)], reasons


def test_a_failing_tier_is_a_reason_once_per_error() -> None:
    """Whoever has the same error is in one line; uploads wait meanwhile, so the cluster is not healthy."""
    errors = [("pd1", "denied"), ("rs1", "denied"), ("rs2", "slow")]
    word, reasons = cluster_health(_described(), FirstNames(tier_errors=errors))
    assert (word, reasons) == ("degraded", ["the tier fails for pd1, rs1: denied", "the tier fails for rs2: slow"])


def _count(pd: Any) -> Any:
    shortfalls = Shortfalls()
    shortfalls.follow(pd.state, pd.wall_ms)
    return shortfalls.count(pd.state, pd.view, pd.now_ms, pd.wall_ms)


def test_a_range_made_on_too_few_servers_is_short_open_and_sealed(pd: Any, make_report: Any) -> None:
    """Two members of three wanted: short from its creation on, until a third one is named and has copied it."""
    made = pd.create_stream()
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1", "rs2")
    assert (_count(pd).count, _count(pd).open_count) == (1, 1)
    pd.seal(made.stream_id, 0, 1, 10)
    for name in ("rs1", "rs2"):
        pd.beat(name, make_report(made.stream_id, 0, "SEALED", end=10))
    assert (_count(pd).count, _count(pd).open_count, _count(pd).first) == (1, 0, ((made.stream_id, 0),))
    assert "replace_replica" in pd.reconcile()
    (new,) = {each.server for each in pd.state.ranges.of(made.stream_id)[0].replicas} - {"rs1", "rs2"}
    pd.beat(new)
    assert "copy_replica" in pd.directives(new)
    assert _count(pd).count == 1, "named is not copied"
    pd.beat(new, make_report(made.stream_id, 0, "SEALED", end=10))
    pd.directives(new)
    assert _count(pd).count == 0


def test_more_replicas_wanted_make_ranges_short(pd: Any, whole: int) -> None:
    """A stream that gets more replicas has too few copies at once."""
    shortfalls = Shortfalls()
    shortfalls.follow(pd.state, pd.wall_ms)
    request = pd_pb2.UpdateStreamRequest(name="s", fields=["replicas"], config=common_pb2.StreamConfig(replicas=4))
    pd.do(pd_pb2.UpdateStreamResponse, update_stream=request)
    pd.pass_ms(1_000)
    shortfalls.follow(pd.state, pd.wall_ms)
    began_ms = pd.wall_ms
    pd.pass_ms(9_000)
    pd.beat_all()
    shortfalls.follow(pd.state, pd.wall_ms)
    found = shortfalls.count(pd.state, pd.view, pd.now_ms, pd.wall_ms)
    assert (found.count, found.since_ms) == (1, began_ms)


def test_a_dead_server_makes_its_ranges_short_once(pd: Any, whole: int, make_report: Any) -> None:
    """Ranges of two dead servers count once; a range that is wholly in the tier does not depend on copies."""
    assert _count(pd).count == 0
    pd.pass_ms(6_000)
    pd.beat("rs1", complete=False)
    pd.beat("rs4", complete=False)
    found = _count(pd)
    assert (found.count, found.exact, found.since_ms) == (1, True, pd.wall_ms - 6_000)
    pd.tier(whole, 0, "rs1")
    assert _count(pd).count == 0


def test_many_ranges_are_counted_without_looking_at_all(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound a dead server's ranges count as they are, and the answer says that it is an upper bound."""
    monkeypatch.setattr("rangelog_pd.reconcile.shortfalls.LOOKED_AT_MAX", 3)
    for number in range(5):
        made = pd.create_stream(f"s{number}")
        pd.open_writer(f"s{number}")
        pd.create_range(made.stream_id, 1, 0, "rs1", "rs2", "rs3")
    pd.pass_ms(6_000)
    for name in ("rs1", "rs2", "rs4"):
        pd.beat(name, complete=False)
    found = _count(pd)
    assert (found.count, found.exact) == (5, False) and LOOKED_AT_MAX >= 1_000


def test_a_range_that_is_moved_is_not_short(pd: Any, whole: int, make_report: Any) -> None:
    """The former member holds it until the new one has copied it; without both, it is short."""
    pd.replace(whole, 0, "rs1", "rs4")
    pd.beat("rs4")
    pd.beat("rs1", make_report(whole, 0, "SEALED", end=10))
    pd.view.strays[whole, 0] = {"rs1": None}  # it is no member any more, and has not been told to drop its copy
    assert "copy_replica" in pd.directives("rs4")
    assert _count(pd).count == 0
    pd.pass_ms(6_000)
    for name in ("rs2", "rs3", "rs4"):
        pd.beat(name, complete=False)
    assert _count(pd).count == 1


def test_a_restart_of_the_state_keeps_what_is_short(pd: Any) -> None:
    """A follower of the changes starts over where it has missed some."""
    made = pd.create_stream()
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1", "rs2")
    shortfalls = Shortfalls()
    shortfalls.follow(pd.state, 1)
    pd.reload()
    shortfalls.follow(pd.state, 2)
    assert shortfalls.count(pd.state, pd.view, pd.now_ms, pd.wall_ms).count == 1
