"""What the leader wants and proposes, on a virtual clock: seal, upload, drop, repair, retention, garbage, health."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile import commands as commands_module
from rangelog_pd.reconcile.directives import DELETE_GRACE_MS_DEFAULT
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS
from rangelog_proto.v1 import common_pb2, pd_pb2

ABC = ("rs1", "rs2", "rs3")


def beat_all(pd: Any, *but: str) -> None:
    """Everybody but these is heard of, with nothing new."""
    for name in pd.state.servers:
        if name not in but:
            pd.beat(name, complete=False)


def silence(pd: Any, name: str, ms: float) -> None:
    """Time passes; only one server is silent."""
    passed = 0
    while passed < ms:
        pd.pass_ms(1_000)
        passed += 1_000
        beat_all(pd, name)


# ---- health and reports


def test_health_follows_the_lease(pd: Any) -> None:
    """Alive, then suspect, then dead, by the leader's own clock; a heartbeat brings it back."""
    incarnation = pd.state.servers["rs1"].server.incarnation
    found = []
    for _ in range(4):
        found.append(pd.view.health(pd.state, "rs1", incarnation, pd.now_ms))
        pd.pass_ms(1_700)
    assert found == [ServerHealth.ALIVE, ServerHealth.SUSPECT, ServerHealth.SUSPECT, ServerHealth.DEAD]
    pd.beat("rs1", complete=False)
    assert pd.view.health(pd.state, "rs1", incarnation, pd.now_ms) is ServerHealth.ALIVE
    assert pd.view.health(pd.state, "rs1", 1, pd.now_ms) is ServerHealth.DEAD


def test_a_lost_heartbeat_makes_the_leader_ask_for_everything(pd: Any, make_report: Any) -> None:
    """Reports are differences: after a gap in their numbers only the whole report is trusted."""
    incarnation = pd.state.servers["rs1"].server.incarnation

    def beat(sequence: int, *, complete: bool = False) -> bool:
        request = pd_pb2.HeartbeatRequest(server="rs1", incarnation=incarnation, sequence=sequence, complete=complete)
        return bool(pd.view.heartbeat(request, pd.now_ms, pd.wall_ms))

    assert not beat(10, complete=True)
    assert not beat(11)
    assert beat(13)
    assert beat(14)
    assert beat(1, complete=True), "late: it says nothing"
    assert not beat(15, complete=True)


# ---- seal


def test_replicas_are_told_the_committed_end(pd: Any, stream: int, make_report: Any) -> None:
    """A replica of a sealed range that does not know its end is told, again and again until it does."""
    pd.beat("rs1", make_report(stream, 0, "OPEN", end=10))
    assert pd.directives("rs1") == {}
    pd.seal(stream, 0, 1, 10)
    for state in ("OPEN", "FENCED"):
        pd.beat("rs1", make_report(stream, 0, state, end=10))
        told = pd.directives("rs1")["seal_replica"]
        assert (told.seal_replica.start_offset, told.seal_replica.end_offset) == (0, 10)
    pd.beat("rs1", make_report(stream, 0, "SEALED", end=10))
    assert "seal_replica" not in pd.directives("rs1")


def test_nothing_is_told_before_the_whole_report_came(pd: Any, whole: int) -> None:
    """A leader that has not heard everything from a server wants nothing of it."""
    pd.view.start_leading(pd.now_ms)
    pd.beat("rs1", complete=False)
    assert pd.directives("rs1") == {}


# ---- upload


def uploader(pd: Any) -> str:
    """The one server that is told to upload."""
    told = [name for name in pd.state.servers if "upload_range" in pd.directives(name)]
    assert len(told) == 1, told
    return str(told[0])


def test_one_whole_replica_uploads(pd: Any, whole: int) -> None:
    """Exactly one server is told to upload a range, from where the tier ends."""
    name = uploader(pd)
    told = pd.directives(name)["upload_range"].upload_range
    assert (told.start_offset, told.end_offset, told.epoch, told.stream_name) == (0, 10, 1, "s")
    pd.commit(pd.prepare(whole, 0, 0, 4, name))
    assert pd.directives(uploader(pd))["upload_range"].upload_range.start_offset == 4
    pd.commit(pd.prepare(whole, 0, 4, 10, name))
    assert all("upload_range" not in pd.directives(each) for each in ABC)


def test_without_a_tier_or_for_an_untiered_stream_nothing_is_uploaded(pd: Any, whole: int) -> None:
    """Uploads need a store and a stream that wants them."""
    assert all("upload_range" not in pd.directives(name, tier=False) for name in ABC)
    request = pd_pb2.UpdateStreamRequest(name="s", config=common_pb2.StreamConfig(tiered=False), fields=["tiered"])
    pd.do(pd_pb2.UpdateStreamResponse, update_stream=request)
    assert all("upload_range" not in pd.directives(name) for name in ABC)


def test_who_began_an_upload_goes_on_with_it(pd: Any, stream: int, make_report: Any) -> None:
    """A replica that becomes whole later does not take an upload away from who is at it."""
    pd.seal(stream, 0, 1, 10)
    pd.beat("rs3", make_report(stream, 0, "SEALED", end=10))
    assert uploader(pd) == "rs3"
    pd.prepare(stream, 0, 0, 10, "rs3")
    for name in ABC:
        pd.beat(name, make_report(stream, 0, "SEALED", end=10))
    assert uploader(pd) == "rs3"


def test_another_takes_over_when_the_uploader_dies(pd: Any, whole: int) -> None:
    """A dead uploader's claim is given up well before its time is over; a living replica uploads under another key."""
    first = uploader(pd)
    begun = pd.prepare(whole, 0, 0, 10, first, ttl=10_000_000)
    silence(pd, first, 6_000)
    assert "abandon_object" in pd.reconcile()
    second = uploader(pd)
    assert second != first
    assert pd.prepare(whole, 0, 0, 10, second).key != begun.key


def test_an_uploader_in_another_incarnation_has_lost_its_claim(pd: Any, whole: int) -> None:
    """A wiped server's upload is given up at once."""
    first = uploader(pd)
    pd.prepare(whole, 0, 0, 10, first, ttl=10_000_000)
    pd.register(first, incarnation=77)
    assert "abandon_object" in pd.reconcile()


def test_an_upload_out_of_time_is_given_up(pd: Any, whole: int) -> None:
    """A claim ends with its deadline, also when the uploader lives."""
    pd.prepare(whole, 0, 0, 10, "rs1", ttl=3_000)
    assert pd.reconcile() == []
    pd.pass_ms(3_001)
    beat_all(pd)
    assert pd.reconcile() == ["abandon_object"]


# ---- hot copies


def test_hot_copies_go_after_the_hot_retention(pd: Any, whole: int) -> None:
    """Wholly tiered and over its time: the state says so first, then the servers are told until they hold nothing."""
    pd.tier(whole, 0, "rs1")
    pd.pass_ms(599_999)
    beat_all(pd)
    assert "drop_hot" not in pd.reconcile()
    assert all("drop_replica" not in pd.directives(name) for name in ABC)
    pd.pass_ms(2)
    beat_all(pd)
    assert "drop_hot" in pd.reconcile()
    assert all("drop_replica" in pd.directives(name) for name in ABC)
    pd.beat("rs1")
    assert pd.directives("rs1") == {}


def test_without_objects_hot_copies_stay_for_ever(pd: Any, whole: int) -> None:
    """A range that the tier does not cover wholly is never dropped."""
    pd.commit(pd.prepare(whole, 0, 0, 9, "rs1"))
    pd.pass_ms(100_000_000)
    beat_all(pd)
    assert "drop_hot" not in pd.reconcile()


def test_minus_one_keeps_hot_copies(pd: Any, make_report: Any) -> None:
    """A hot retention of -1 means never."""
    made = pd.create_stream("k", tiered=True, hot_retention_ms=-1)
    pd.open_writer("k")
    pd.create_range(made.stream_id, 1, 0, *ABC)
    pd.seal(made.stream_id, 0, 1, 10)
    pd.tier(made.stream_id, 0, "rs1")
    pd.pass_ms(100_000_000)
    beat_all(pd)
    assert "drop_hot" not in pd.reconcile()


def test_an_empty_range_goes_like_a_tiered_one(pd: Any, stream: int, make_report: Any) -> None:
    """Nothing was appended, so nothing has to be in the store: its replicas go after the hot retention."""
    pd.seal(stream, 0, 1, 0)
    for name in ABC:
        pd.beat(name, make_report(stream, 0, "SEALED"))
    assert all("upload_range" not in pd.directives(name) for name in ABC)
    assert "drop_hot" not in pd.reconcile()
    pd.pass_ms(600_001)
    beat_all(pd)
    assert "drop_hot" in pd.reconcile()


# ---- what is never dropped


def test_ranges_that_the_driver_never_knew_are_left_alone(pd: Any, stream: int, make_report: Any) -> None:
    """Data of another cluster, or of a lost state, is not thrown away because it is unknown."""
    pd.beat("rs1", make_report(99, 0, "SEALED"))
    assert pd.directives("rs1") == {}
    pd.beat("rs1", make_report(stream, 7, "SEALED"))
    assert pd.directives("rs1") == {}


def test_an_open_range_is_never_dropped(pd: Any, stream: int, make_report: Any) -> None:
    """A replica of an open range that the server should not have may be the truth about an ack: it stays."""
    pd.beat("rs4", make_report(stream, 0, "OPEN", end=10))
    assert pd.directives("rs4") == {}


def test_what_was_deleted_or_trimmed_goes(pd: Any, whole: int) -> None:
    """Replicas of ranges that were trimmed, and of deleted streams, are dropped everywhere."""
    pd.create_range(whole, 1, 10, *ABC)
    pd.trim(10)
    assert "drop_replica" in pd.directives("rs1")
    pd.delete_stream()
    assert "drop_replica" in pd.directives("rs2")


def test_a_replaced_replica_stays_until_the_others_are_whole(pd: Any, whole: int, make_report: Any) -> None:
    """A server that returns after it was replaced keeps its copy, and serves as a source, until enough members have one."""
    silence(pd, "rs3", REPLACE_AFTER_MS + 6_000)
    assert "replace_replica" in pd.reconcile()
    assert [each.server for each in pd.state.ranges.of(whole)[0].replicas].count("rs4") == 1
    pd.beat("rs2", make_report(whole, 0, "INCOMPLETE", end=3))
    pd.beat("rs3", make_report(whole, 0, "SEALED", end=10))
    assert "drop_replica" not in pd.directives("rs3")
    assert {each.server for each in pd.directives("rs4")["copy_replica"].copy_replica.sources} == {"rs1", "rs3"}
    pd.beat("rs4", make_report(whole, 0, "SEALED", end=10))
    assert "drop_replica" in pd.directives("rs3")


def spare(pd: Any, whole: int, make_report: Any) -> str:
    """rs4 took the place of rs3, which is told to drop its replica; return the name of that directive."""
    silence(pd, "rs3", REPLACE_AFTER_MS + 6_000)
    assert "replace_replica" in pd.reconcile()
    pd.beat("rs4", make_report(whole, 0, "SEALED", end=10))
    pd.beat("rs3", make_report(whole, 0, "SEALED", end=10))
    return str(pd.directives("rs3")["drop_replica"].task_id)


def test_what_was_told_to_go_counts_for_nothing(pd: Any, whole: int, make_report: Any) -> None:
    """A spare replica that takes a place again before it is gone lets no other one go: nothing might be left."""
    task = spare(pd, whole, make_report)
    pd.replace(whole, 0, "rs2", "rs3")
    pd.beat("rs1", make_report(whole, 0, "INCOMPLETE", end=3))
    assert "drop_replica" not in pd.directives("rs2"), "rs4 is whole, rs3 may be gone"
    pd.beat("rs3", complete=False, tasks={task: False})
    assert "drop_replica" not in pd.directives("rs2"), "rs3 is still at it"
    pd.beat("rs3", complete=False)
    assert "drop_replica" in pd.directives("rs2"), "rs3 has stopped, and holds it"


def test_reports_with_a_gap_before_them_count_for_nothing(pd: Any, whole: int, make_report: Any) -> None:
    """What a server held before heartbeats of it got lost is no reason to drop another replica."""
    spare(pd, whole, make_report)
    for name in ("rs1", "rs4"):
        pd.beat(name, complete=False, sequence=100)
    assert "drop_replica" not in pd.directives("rs3"), "only rs2 is known to be whole"
    pd.beat("rs4", make_report(whole, 0, "SEALED", end=10))
    assert "drop_replica" in pd.directives("rs3")


def test_a_late_heartbeat_says_nothing(pd: Any, whole: int, make_report: Any) -> None:
    """Overtaken by a newer one, by the first of a later process, or by a change of the leader: what it says is old."""
    sealed = make_report(whole, 0, "SEALED", end=10)
    incarnation = pd.state.servers["rs1"].server.incarnation
    pd.beat("rs1", sequence=50)
    pd.beat("rs1", sealed, sequence=40)
    assert pd.view.held("rs1", incarnation, (whole, 0)) is None, "it has gone since"
    pd.view.registered("rs1", incarnation, pd.now_ms, boot=2)
    pd.beat("rs1", sealed, sequence=51)
    assert pd.view.held("rs1", incarnation, (whole, 0)) is None, "of the process before"
    pd.view.start_leading(pd.now_ms)
    assert pd.beat("rs1", sealed, sequence=52), "a leader believes nothing that may have been sent before its time"
    assert pd.view.held("rs1", incarnation, (whole, 0)) is None
    assert not pd.beat("rs1", sealed)
    assert pd.view.held("rs1", incarnation, (whole, 0)) is not None


def test_a_damaged_replica_is_dropped_only_beside_living_whole_ones(pd: Any, whole: int, make_report: Any) -> None:
    """What a dead server once reported does not count as a copy."""
    pd.beat("rs1", make_report(whole, 0, "QUARANTINED"))
    assert "drop_replica" in pd.directives("rs1")
    pd.pass_ms(6_000)
    pd.beat("rs1", make_report(whole, 0, "QUARANTINED"))
    assert "drop_replica" not in pd.directives("rs1")


def test_a_damaged_replica_of_an_open_range_stays(pd: Any, stream: int, make_report: Any) -> None:
    """Dropped, it could answer a seal with "nothing here", which would be a lie."""
    for name in ("rs2", "rs3"):
        pd.beat(name, make_report(stream, 0, "OPEN", end=10))
    pd.beat("rs1", make_report(stream, 0, "QUARANTINED"))
    assert pd.directives("rs1") == {}


# ---- repair


def test_an_incomplete_replica_copies_from_whole_living_ones(pd: Any, whole: int, make_report: Any) -> None:
    """Sources are alive and whole, with their addresses; without any there is nothing to tell."""
    pd.beat("rs1", make_report(whole, 0, "INCOMPLETE", end=3))
    copy = pd.directives("rs1")["copy_replica"].copy_replica
    assert {(each.server, each.data_address) for each in copy.sources} == {("rs2", "rs2:1"), ("rs3", "rs3:1")}
    pd.pass_ms(6_000)
    pd.beat("rs1", make_report(whole, 0, "INCOMPLETE", end=3))
    assert "copy_replica" not in pd.directives("rs1")


def test_a_server_that_holds_nothing_of_its_range_copies_it(pd: Any, whole: int) -> None:
    """A member that was down at the time fetches the sealed range."""
    pd.beat("rs2")
    assert "copy_replica" in pd.directives("rs2")


def test_a_short_absence_replaces_nobody(pd: Any, whole: int) -> None:
    """A server that restarts is waited for."""
    silence(pd, "rs3", 20_000)
    assert "replace_replica" not in pd.reconcile()


def test_a_wiped_server_is_its_own_replacement_where_there_is_no_other(pd: Any, whole: int) -> None:
    """With no fourth server the new incarnation takes the place of the lost one."""
    silence(pd, "rs4", 6_000)
    pd.register("rs3", incarnation=77)
    pd.beat("rs3")
    assert "replace_replica" in pd.reconcile()
    replicas = pd.state.ranges.of(whole)[0].replicas
    assert [(each.server, each.incarnation) for each in replicas if each.server == "rs3"] == [("rs3", 77)]


def test_a_lost_member_without_a_replacement_does_not_keep_another_from_one(pd: Any, whole: int) -> None:
    """Of two lost members one has nowhere to go; the new incarnation of the other one takes its place all the same."""
    for _ in range(int(REPLACE_AFTER_MS + 6_000) // 1_000):
        pd.pass_ms(1_000)
        pd.beat("rs2", complete=False)
        pd.beat("rs3", complete=False)
    pd.register("rs3", incarnation=77)
    pd.beat("rs3")
    assert pd.state.ranges.of(whole)[0].replicas[0].server == "rs1"
    pd.reconcile()
    replicas = pd.state.ranges.of(whole)[0].replicas
    assert [(each.server, each.incarnation) for each in replicas if each.server == "rs3"] == [("rs3", 77)]


def test_a_replacement_goes_to_another_zone(pd: Any, whole: int) -> None:
    """Anti-affinity holds in repair as well: a zone that has no replica of the range is preferred."""
    pd.register("rs5", zone="z1")
    pd.register("rs0", zone="z2")
    pd.beat("rs5")
    pd.beat("rs0")
    silence(pd, "rs3", REPLACE_AFTER_MS + 6_000)
    pd.reconcile()
    assert "rs4" in [each.server for each in pd.state.ranges.of(whole)[0].replicas]


def test_a_free_place_is_filled(pd: Any, make_report: Any) -> None:
    """A range made while servers were few gets its missing replica once it is sealed."""
    made = pd.create_stream()
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1", "rs2")
    assert pd.reconcile() == []
    pd.seal(made.stream_id, 0, 1, 10)
    for name in ("rs1", "rs2"):
        pd.beat(name, make_report(made.stream_id, 0, "SEALED", end=10))
    assert pd.reconcile() == ["replace_replica"]
    assert len(pd.state.ranges.of(made.stream_id)[0].replicas) == 3
    assert pd.reconcile() == []


# ---- retention and garbage


def test_retention_by_time_trims_whole_ranges(pd: Any) -> None:
    """Ranges sealed longer ago than the retention go; the rest stays."""
    made = pd.create_stream(retention_ms=10_000)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    pd.seal(made.stream_id, 0, 1, 10, *ABC)
    pd.pass_ms(6_000)
    pd.seal(made.stream_id, 1, 1, 20, *ABC)
    pd.pass_ms(5_000)
    beat_all(pd)
    assert pd.reconcile() == ["trim_stream"]
    assert pd.state.streams[made.stream_id].trim_offset == 10


def test_retention_by_bytes_counts_hot_and_tiered(pd: Any, make_report: Any) -> None:
    """The oldest ranges go until the rest fits, whether they are in the tier or only on servers."""
    made = pd.create_stream(retention_bytes=2_500)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    for index in range(3):
        pd.seal(made.stream_id, index, 1, 10 * (index + 1), *ABC)
    pd.tier(made.stream_id, 1, "rs1")
    pd.beat("rs1", *(make_report(made.stream_id, index, "SEALED", size=1_000) for index in (0, 2)))
    assert pd.reconcile() == ["trim_stream"]
    assert pd.state.streams[made.stream_id].trim_offset == 10


def test_tombstones_are_deleted_by_one_living_server(pd: Any, whole: int) -> None:
    """Objects of what is gone are removed from the store by one server, with their keys and ids, after a grace."""
    pd.tier(whole, 0, "rs1")
    pd.delete_stream()
    pd.pass_ms(DELETE_GRACE_MS_DEFAULT - 1)
    beat_all(pd)
    assert not [name for name in pd.state.servers if "delete_objects" in pd.directives(name)]
    pd.pass_ms(1)
    told = [name for name in pd.state.servers if "delete_objects" in pd.directives(name)]
    assert len(told) == 1
    action = pd.directives(told[0])["delete_objects"].delete_objects
    assert list(action.object_ids) == [1]
    assert action.keys[0].endswith("-1.parquet")


def test_a_given_up_upload_is_deleted_when_nobody_can_be_writing_it(pd: Any, whole: int) -> None:
    """A slow uploader may still put its object: the key is collected only well after its time is over."""
    pd.prepare(whole, 0, 0, 10, "rs1", ttl=30_000)
    silence(pd, "rs1", 6_000)
    pd.reconcile()
    assert all("delete_objects" not in pd.directives(name) for name in pd.state.servers)
    pd.pass_ms(DELETE_GRACE_MS_DEFAULT)
    beat_all(pd)
    assert any("delete_objects" in pd.directives(name) for name in pd.state.servers)


# ---- log ends


def test_log_ends_are_marked_together_once_a_second(pd: Any) -> None:
    """Whose log moved is marked with the others, in one command a second at most: a rolled-back directory shows itself."""
    pd.beat("rs1", log_end=1_000)
    pd.beat("rs2", log_end=2_000)
    assert pd.reconcile() == ["mark_log_ends"]
    assert [pd.state.servers[name].log_end for name in ABC] == [1_000, 2_000, 0]
    pd.pass_ms(999)
    pd.beat("rs1", log_end=1_001)
    assert pd.reconcile() == []
    pd.pass_ms(1)
    assert pd.reconcile() == ["mark_log_ends"]
    assert pd.state.servers["rs1"].log_end == 1_001
    pd.pass_ms(1_000)
    assert pd.reconcile() == []


def test_log_ends_go_before_everything_else(pd: Any, stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that is full of other work marks log ends all the same."""
    monkeypatch.setattr(commands_module, "COMMANDS_MAX", 1)
    pd.seal(stream, 0, 1, 0)
    pd.pass_ms(600_001)
    pd.beat("rs1", complete=False, log_end=1_000)
    assert pd.reconcile() == ["mark_log_ends"]
    assert pd.reconcile() == ["drop_hot"]
