"""Retention by cursors, and of what is not uploaded, as the leader proposes it: what is kept, how long, and how it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.reconcile.due_queue import RETRY_MS
from rangelog_pd.reconcile.retention import UNTIERED_FACTOR
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.unit.pd.state.test_pd_cursors import delete, put, ranges_of_ten

KEEP = common_pb2.CURSOR_RETENTION_KEEP
TRIM = common_pb2.CURSOR_RETENTION_TRIM
BOTH = common_pb2.CURSOR_RETENTION_KEEP_AND_TRIM
DAY_MS = 24 * 3_600_000


def made(pd: Any, name: str = "s", **config: Any) -> int:
    """A stream with three sealed ranges of ten records and an open one."""
    stream_id = int(pd.create_stream(name, **config).stream_id)
    ranges_of_ten(pd, stream_id, 3)
    return stream_id


def settle(pd: Any) -> list[str]:
    """Rounds until nothing is proposed; the kinds of what was."""
    kinds: list[str] = []
    for _ in range(10):
        found = [kind for kind in pd.reconcile() if kind != "mark_log_ends"]
        if not found:
            return kinds
        kinds += found
    raise AssertionError(f"the leader does not come to rest: {kinds}")


def trimmed_to(pd: Any, stream_id: int) -> int:
    settle(pd)
    return int(pd.state.streams[stream_id].trim_offset)


def held(pd: Any, *, failing_only: bool = False) -> list[pd_pb2.Task]:
    return list(pd.view.upkeep.held.tasks(pd.state, pd.wall_ms, failing_only=failing_only))


def pass_time(pd: Any, ms: int) -> None:
    pd.pass_ms(ms)
    pd.beat_all()


# ---- cursors


def test_what_a_cursor_has_not_passed_outlives_its_age(pd: Any) -> None:
    """It goes as the cursor passes whole ranges; until then it is shown, and costs no further proposals."""
    stream_id = made(pd, cursor_retention=KEEP, retention_ms=10_000)
    put(pd, stream_id, 15)
    pass_time(pd, 10_001)
    assert trimmed_to(pd, stream_id) == 10
    (task,) = held(pd)
    assert task.stream_name == "s" and task.kind == "retain-stream" and not task.last_error
    assert task.detail == "beyond its age from offset 10, and kept for cursor 'billing' at 15"
    for _ in range(5):
        pass_time(pd, RETRY_MS)
        assert settle(pd) == [], "it is looked at again when something changes"
    put(pd, stream_id, 19)
    assert settle(pd) == []
    put(pd, stream_id, 20)
    assert trimmed_to(pd, stream_id) == 20
    delete(pd, stream_id)
    pass_time(pd, RETRY_MS)
    assert trimmed_to(pd, stream_id) == 30
    assert held(pd) == []


def test_the_cursor_furthest_behind_counts(pd: Any) -> None:
    """Also one that is set for the first time while others are far ahead."""
    stream_id = made(pd, cursor_retention=KEEP, retention_ms=10_000)
    put(pd, stream_id, 30, "fast")
    put(pd, stream_id, 0, "slow")
    pass_time(pd, 10_001)
    assert trimmed_to(pd, stream_id) == 0
    put(pd, stream_id, 29, "slow")
    assert trimmed_to(pd, stream_id) == 20


def test_a_new_leader_keeps_and_shows_the_same(pd: Any) -> None:
    """What is kept follows from the rows."""
    stream_id = made(pd, cursor_retention=KEEP, retention_ms=10_000)
    put(pd, stream_id, 15)
    pass_time(pd, 10_001)
    settle(pd)
    before = held(pd)
    pd.reload()
    pd.view.start_leading(pd.now_ms)
    pd.beat_all()
    assert settle(pd) == []
    assert held(pd) == before


def test_what_a_cursor_has_not_passed_outgrows_its_size(pd: Any, make_report: Any) -> None:
    """A stream over its size is trimmed as far as its cursors let it."""
    stream_id = made(pd, cursor_retention=KEEP, retention_bytes=1_000)
    put(pd, stream_id, 10)
    for index in range(3):
        pd.beat("rs1", make_report(stream_id, index, "SEALED", end=10 * (index + 1), size=1_000), complete=False)
    assert trimmed_to(pd, stream_id) == 10
    assert "beyond its size from offset 10" in held(pd)[0].detail
    put(pd, stream_id, 25)
    assert trimmed_to(pd, stream_id) == 20
    assert held(pd) == []


def test_a_dead_cursor_keeps_nothing_for_ever(pd: Any) -> None:
    """Not set for its stream's expiry, it expires: it is still there, says so, and holds nothing."""
    stream_id = made(pd, cursor_retention=KEEP, retention_ms=10_000, cursor_expiry_ms=DAY_MS)
    put(pd, stream_id, 5, "dead")
    pass_time(pd, DAY_MS)
    put(pd, stream_id, 15, "alive")
    assert trimmed_to(pd, stream_id) == 0
    pass_time(pd, 1)
    assert trimmed_to(pd, stream_id) == 10
    assert pd.state.cursors.rows[stream_id, "dead"].expired
    assert not pd.state.cursors.rows[stream_id, "alive"].expired
    assert "'alive'" in held(pd)[0].detail


def test_a_cursor_that_is_set_lives_and_a_set_costs_the_queue_nothing(pd: Any) -> None:
    """The entry of its stream is put off when it is due, not at each set."""
    stream_id = made(pd, cursor_retention=KEEP, cursor_expiry_ms=DAY_MS)
    put(pd, stream_id, 5)
    settle(pd)
    for _ in range(200):
        pass_time(pd, DAY_MS // 100)
        put(pd, stream_id, 5)
        assert settle(pd) == []
    assert len(pd.view.upkeep.expiries) == 1
    assert not pd.state.cursors.rows[stream_id, "billing"].expired


def test_a_shorter_expiry_counts_at_once(pd: Any) -> None:
    """So an operator who needs the space gets it."""
    stream_id = made(pd, cursor_retention=KEEP, retention_ms=10_000)
    put(pd, stream_id, 5)
    pass_time(pd, DAY_MS)
    assert trimmed_to(pd, stream_id) == 0
    config = common_pb2.StreamConfig(cursor_expiry_ms=DAY_MS // 2)
    request = pd_pb2.UpdateStreamRequest(name="s", config=config, fields=["cursor_expiry_ms"])
    pd.do(pd_pb2.UpdateStreamResponse, update_stream=request)
    assert trimmed_to(pd, stream_id) == 30


def test_a_cursor_without_a_date_does_not_expire(pd: Any) -> None:
    """It counts from the first confirmed time."""
    stream_id = made(pd, cursor_retention=KEEP, retention_ms=10_000, cursor_expiry_ms=DAY_MS)
    pd.provisional = True
    put(pd, stream_id, 5)
    pass_time(pd, 2 * DAY_MS)
    assert trimmed_to(pd, stream_id) == 0
    pd.provisional = False
    pd.apply_nothing()
    pass_time(pd, DAY_MS)
    assert trimmed_to(pd, stream_id) == 0
    pass_time(pd, 1)
    assert trimmed_to(pd, stream_id) == 30


def test_what_all_cursors_have_passed_is_trimmed(pd: Any) -> None:
    """At once, as far as the slowest is, in whole ranges; never without a cursor."""
    stream_id = made(pd, cursor_retention=BOTH)
    assert trimmed_to(pd, stream_id) == 0
    put(pd, stream_id, 12, "slow")
    put(pd, stream_id, 30, "fast")
    assert trimmed_to(pd, stream_id) == 10
    put(pd, stream_id, 33, "slow")
    assert trimmed_to(pd, stream_id) == 30
    pd.seal(stream_id, 3, 1, 40, "rs1", "rs2", "rs3")
    assert trimmed_to(pd, stream_id) == 30
    put(pd, stream_id, 40, "slow")
    put(pd, stream_id, 41, "fast")
    assert trimmed_to(pd, stream_id) == 40


def test_a_seal_behind_the_cursors_is_enough_to_trim(pd: Any) -> None:
    """The records were passed while their range was open."""
    stream_id = made(pd, cursor_retention=TRIM)
    put(pd, stream_id, 40)
    assert trimmed_to(pd, stream_id) == 30
    pd.seal(stream_id, 3, 1, 40, "rs1", "rs2", "rs3")
    assert trimmed_to(pd, stream_id) == 40


@pytest.mark.parametrize(("mode", "kept"), [(0, 30), (TRIM, 30), (KEEP, 10), (BOTH, 10)])
def test_what_wins_over_age(pd: Any, mode: common_pb2.CursorRetention, kept: int) -> None:
    """Cursors, where the stream keeps for them; its age otherwise."""
    stream_id = made(pd, cursor_retention=mode, retention_ms=10_000)
    put(pd, stream_id, 15)
    pass_time(pd, 10_001)
    assert trimmed_to(pd, stream_id) == kept


def test_streams_without_cursor_retention_are_not_looked_at(pd: Any) -> None:
    """Cursors that nothing depends on cost no queue, and do not expire."""
    stream_id = made(pd)
    put(pd, stream_id, 5)
    pass_time(pd, 100 * DAY_MS)
    assert settle(pd) == []
    assert not pd.view.upkeep.passed and len(pd.view.upkeep.expiries) == 0
    assert not pd.state.cursors.rows[stream_id, "billing"].expired


# ---- what is not uploaded


def test_a_range_that_was_never_uploaded_outlives_its_age_and_is_shown(pd: Any) -> None:
    """The tier is away: what should be in it stays up to twice its age, as a failing task; then it goes."""
    pd.has_tier = True
    stream_id = made(pd, tiered=True, retention_ms=10_000, hot_retention_ms=-1)
    pd.tier(stream_id, 0, "rs1")
    pass_time(pd, 10_001)
    assert trimmed_to(pd, stream_id) == 10, "what is in the tier goes at its age"
    (task,) = held(pd, failing_only=True)
    assert task.stream_name == "s" and "beyond its age from offset 10" in task.last_error
    assert "not in the tier" in task.last_error and pd.view.upkeep.held.untiered_count() == 1
    for _ in range(3):
        pass_time(pd, 1_000)
        assert settle(pd) == [], "it is looked at again when something changes"
    pd.tier(stream_id, 1, "rs1")
    assert trimmed_to(pd, stream_id) == 20, "its upload lets it go"
    pass_time(pd, 10_000 * UNTIERED_FACTOR - 13_001)
    assert trimmed_to(pd, stream_id) == 20
    pass_time(pd, 1)
    assert trimmed_to(pd, stream_id) == 30, "the disk is bounded"
    assert held(pd) == [] and pd.view.upkeep.held.untiered_count() == 0


def test_a_stream_that_is_not_uploaded_outgrows_its_size_up_to_twice(pd: Any, make_report: Any) -> None:
    """And is shown meanwhile."""
    pd.has_tier = True
    stream_id = made(pd, tiered=True, retention_bytes=1_500)
    for index in range(3):
        pd.beat("rs1", make_report(stream_id, index, "SEALED", end=10 * (index + 1), size=1_000), complete=False)
    assert trimmed_to(pd, stream_id) == 0
    assert "beyond its size from offset 0" in held(pd, failing_only=True)[0].last_error
    pd.seal(stream_id, 3, 1, 40, "rs1", "rs2", "rs3")
    pd.beat("rs1", make_report(stream_id, 3, "SEALED", end=40, size=1_000), complete=False)
    assert trimmed_to(pd, stream_id) == 10, "4,000 bytes are more than twice its size"
    pd.tier(stream_id, 1, "rs1")
    assert trimmed_to(pd, stream_id) == 20


@pytest.mark.parametrize(("has_tier", "tiered"), [(False, True), (True, False)])
def test_where_nothing_is_to_be_uploaded_age_trims_in_time(pd: Any, has_tier: bool, tiered: bool) -> None:
    """The cluster has no tier, or the stream is not tiered."""
    pd.has_tier = has_tier
    stream_id = made(pd, tiered=tiered, retention_ms=10_000)
    pass_time(pd, 10_001)
    assert trimmed_to(pd, stream_id) == 30


def test_what_cursors_have_passed_does_not_wait_for_its_upload(pd: Any) -> None:
    """Its consumers have it: that is why it is trimmed."""
    pd.has_tier = True
    stream_id = made(pd, tiered=True, cursor_retention=TRIM)
    put(pd, stream_id, 25)
    assert trimmed_to(pd, stream_id) == 20


def test_a_deleted_stream_is_forgotten(pd: Any) -> None:
    """Also while it is kept."""
    stream_id = made(pd, cursor_retention=BOTH, retention_ms=10_000)
    put(pd, stream_id, 5)
    pass_time(pd, 10_001)
    settle(pd)
    assert held(pd)
    pd.delete_stream()
    assert settle(pd) == [] and held(pd) == []
    pass_time(pd, 100 * DAY_MS)
    assert settle(pd) == []
