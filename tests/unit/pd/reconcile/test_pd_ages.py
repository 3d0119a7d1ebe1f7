"""Ages of what the state dates, under clocks that are wrong: nothing is trimmed, dropped or deleted before its time."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import StreamNotFound
from rangelog_pd.handlers import streams
from rangelog_pd.reconcile.directives import DELETE_GRACE_MS_DEFAULT, UPLOAD_GRACE_MS
from rangelog_pd.state.machine import response_of
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb

ABC = ("rs1", "rs2", "rs3")
WEEK_MS = 7 * 86_400_000


async def sealed_with_retention(api: Any, retention_ms: int = WEEK_MS) -> None:
    """Stream `s` keeps records for a week; range 0 is sealed, and every server was just heard."""
    await api.beat_all()
    config = common_pb2.StreamConfig(retention_ms=retention_ms, tiered=False)
    request = pb.UpdateStreamRequest(request_id="u", name="s", config=config, fields=["retention_ms", "tiered"])
    await streams.update_stream(api.driver, request)
    await api.seal(1_000)


async def trimmed_to(api: Any) -> int:
    """Where the stream begins after a round of reconciling."""
    await api.driver.reconcile()
    return api.machine.state.streams[1].trim_offset


async def test_one_leaders_clock_trims_nothing(ready: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A leader whose wall clock is eight days ahead goes by the others', and says so once; then retention goes on."""
    await sealed_with_retention(ready)
    ready.change_leader()
    ready.driver.skew_ms = 8 * 86_400_000
    for _ in range(3):
        ready.silence(500)
        await ready.beat_all()
        assert await trimmed_to(ready) == 0
    assert [each.message for each in caplog.records if "wall clock" in each.message] == [
        "the wall clock of pd1 is 691200 s ahead of cluster time: check the clocks; ages go by cluster time"
    ]
    ready.silence(WEEK_MS)
    await ready.beat_all()
    assert await trimmed_to(ready) == 1_000


async def test_what_a_leader_behind_sealed_is_not_old_to_the_next_one(ready: Any) -> None:
    """Dates are of cluster time, whose leader's own clock was eight days behind."""
    ready.driver.skew_ms = -8 * 86_400_000
    ready.change_leader()
    await sealed_with_retention(ready)
    ready.change_leader()
    ready.driver.skew_ms = 0
    for _ in range(3):
        ready.silence(500)
        await ready.beat_all()
        assert await trimmed_to(ready) == 0
    assert ready.machine.state.ranges.of(1)[0].sealed_ms == pytest.approx(ready.driver.wall_ms(), abs=5_000)


async def test_a_range_sealed_before_the_servers_are_heard_is_new(ready: Any) -> None:
    """The cluster was off for eight days; what is sealed in its first moments counts from there."""
    await ready.beat_all()
    await ready.open(request_id="old")
    ready.consensus.set_leader("pd2")
    await ready.driver.reconcile()
    ready.consensus.set_leader("pd1")
    ready.silence(8 * 86_400_000)
    config = common_pb2.StreamConfig(retention_ms=WEEK_MS, tiered=False)
    request = pb.UpdateStreamRequest(request_id="u", name="s", config=config, fields=["retention_ms", "tiered"])
    await streams.update_stream(ready.driver, request)
    await ready.seal(1_000, epoch=2)
    assert ready.machine.state.ranges.of(1)[0].sealed_ms == 0
    await ready.beat_all()
    ready.silence(1_000)
    await ready.beat_all()
    assert await trimmed_to(ready) == 0
    assert ready.machine.state.ranges.of(1)[0].sealed_ms == ready.driver.wall_ms()
    assert await trimmed_to(ready) == 0


# ---- time that nobody has confirmed


def test_what_is_sealed_in_provisional_time_is_as_old_as_the_first_confirmed_one(pd: Any) -> None:
    """After a week off, a range that is sealed before the servers were heard is new, not a week old."""
    made = pd.create_stream(retention_ms=10_000)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    pd.provisional = True
    pd.seal(made.stream_id, 0, 1, 10, *ABC)
    pd.reload()
    pd.provisional = False
    pd.pass_ms(7 * 86_400_000)
    assert pd.reconcile() == [], "it has no date yet"
    pd.open_writer()
    assert pd.state.ranges.of(made.stream_id)[0].sealed_ms == pd.wall_ms
    pd.pass_ms(10_000)
    assert pd.reconcile() == []
    pd.pass_ms(1)
    pd.beat_all()
    assert pd.reconcile() == ["trim_stream"]


def test_what_is_uploaded_and_deleted_in_provisional_time_keeps_its_graces(pd: Any, whole: int) -> None:
    """Hot retention and the grace before deletion count from the first confirmed time, also through a snapshot."""
    pd.provisional = True
    pd.tier(whole, 0, "rs1")
    pd.pass_ms(7 * 86_400_000)
    pd.beat_all()
    assert pd.reconcile() == [], "not dated"
    pd.reload()
    pd.provisional = False
    pd.create_stream("another")
    assert pd.state.ranges.of(whole)[0].tiered_ms == pd.wall_ms
    pd.provisional = True
    pd.delete_stream()
    pd.reload()
    pd.pass_ms(DELETE_GRACE_MS_DEFAULT + 1)
    pd.beat_all()
    assert all("delete_objects" not in pd.directives(name) for name in pd.state.servers)
    pd.provisional = False
    pd.delete_stream("another")
    pd.pass_ms(DELETE_GRACE_MS_DEFAULT)
    pd.beat_all()
    assert any("delete_objects" in pd.directives(name) for name in pd.state.servers)


# ---- what is deleted, and whose


def test_with_a_short_grace_a_given_up_upload_still_waits_for_its_deadline(pd: Any, whole: int) -> None:
    """The grace after a deadline holds, however short the one after a deletion is set."""
    pd.delete_grace_ms = 0
    pd.prepare(whole, 0, 0, 10, "rs3", ttl=30_000)
    pd.register("rs3", incarnation=77)
    assert "abandon_object" in pd.reconcile()
    pd.pass_ms(30_000 + UPLOAD_GRACE_MS)
    pd.beat_all()
    assert all("delete_objects" not in pd.directives(name) for name in pd.state.servers)
    pd.pass_ms(1)
    assert any("delete_objects" in pd.directives(name) for name in pd.state.servers)


def test_the_namesake_of_a_deleted_stream_is_not_trimmed(pd: Any) -> None:
    """What the leader proposes goes by id: a stream made anew between its look and the apply is another one."""
    made = pd.create_stream(retention_ms=10_000)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    pd.seal(made.stream_id, 0, 1, 10, *ABC)
    pd.pass_ms(10_001)
    late = pd.proposals()
    pd.delete_stream()
    again = pd.create_stream()
    pd.open_writer()
    pd.create_range(again.stream_id, 1, 0, *ABC)
    pd.seal(again.stream_id, 0, 1, 10, *ABC)
    trims = [each for each in late if each.HasField("trim_stream")]
    assert len(trims) == 1
    with pytest.raises(StreamNotFound):
        response_of(pd.apply(trims[0]))
    assert pd.state.streams[again.stream_id].trim_offset == 0


async def test_a_dead_server_does_not_hold_time_up(ready: Any) -> None:
    """One of three servers is left when a leader begins: once the others' lease is over, its clock and the leader's decide."""
    await ready.beat_all()
    ready.change_leader()
    ready.silence(ready.driver.settings.server_dead_ms // 2)
    await ready.beat("rs1")
    await ready.driver.reconcile()
    assert ready.driver._clock.provisional
    ready.silence(ready.driver.settings.server_dead_ms)
    await ready.beat("rs1")
    await ready.driver.reconcile()
    assert not ready.driver._clock.provisional
    ready.driver.skew_ms = 8 * 86_400_000
    await sealed_with_retention_alone(ready)
    assert await trimmed_to(ready) == 0


async def test_with_all_servers_dead_no_clock_decides(ready: Any) -> None:
    """A leader that hears from no server goes by its own wall clock in nothing."""
    await ready.beat_all()
    ready.change_leader()
    ready.silence(2 * ready.driver.settings.server_dead_ms)
    await ready.driver.reconcile()
    assert ready.driver._clock.provisional


async def sealed_with_retention_alone(api: Any) -> None:
    """Stream `s` keeps records for a week; range 0 is sealed, and one server was just heard."""
    config = common_pb2.StreamConfig(retention_ms=WEEK_MS, tiered=False)
    request = pb.UpdateStreamRequest(request_id="alone", name="s", config=config, fields=["retention_ms", "tiered"])
    await streams.update_stream(api.driver, request)
    await api.seal(1_000)
    await api.beat("rs1")
