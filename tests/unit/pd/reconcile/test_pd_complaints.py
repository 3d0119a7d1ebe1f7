"""Gray failures: who is avoided, for how long, and when its replicas go elsewhere; heartbeats that come and go."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.complaints import (
    AVOIDED_SHARE,
    CALM_MS,
    CALM_MS_MAX,
    COMPLAINT_MS,
    GRACE_MS,
    LEAVE_AFTER_MS,
    RELAPSE_MS,
    REPORTERS_MAX,
    REPORTERS_MIN,
    Complaints,
)
from rangelog_proto.v1 import common_pb2, operations_pb2

FOUR = ("rs1", "rs2", "rs3", "rs4")


def complain(complaints: Complaints, server: str, now_ms: float, reporters: int = REPORTERS_MIN) -> None:
    """Several streams complain about a server."""
    for number in range(reporters):
        complaints.complain(server, f"stream {number}", now_ms)
    complaints.judge(FOUR, now_ms)


# ---- the core


def test_one_writer_is_not_believed() -> None:
    """However often it complains, and also two are too few; the third one makes the server avoided."""
    complaints = Complaints()
    for now_ms in range(0, 50_000, 100):
        for reporter in ("stream 1", "stream 2"):
            complaints.complain("rs1", reporter, float(now_ms))
        complaints.judge(FOUR, float(now_ms))
        assert not complaints.avoided
    complaints.complain("rs1", "server rs2", 50_000.0)
    complaints.judge(FOUR, 50_000.0)
    assert list(complaints.avoided) == ["rs1"] and "complain" in complaints.avoided["rs1"]


def test_complaints_are_forgotten() -> None:
    """Three reporters, but never three within a minute."""
    complaints = Complaints()
    for number in range(20):
        now_ms = number * COMPLAINT_MS / 2
        complaints.complain("rs1", f"stream {number}", now_ms)
        complaints.judge(FOUR, now_ms)
        assert not complaints.avoided


def test_a_calm_server_is_trusted_again() -> None:
    """Avoided while complaints come, and for the calm period after the last one."""
    complaints = Complaints()
    for now_ms in (0.0, 10_000.0, 20_000.0):
        complain(complaints, "rs1", now_ms)
    complaints.judge(FOUR, 20_000.0 + CALM_MS - 1)
    assert complaints.avoided
    complaints.judge(FOUR, 20_000.0 + CALM_MS)
    assert not complaints.avoided


def test_each_relapse_is_avoided_for_longer_up_to_a_bound() -> None:
    """The calm period doubles with each return; after a long time without trouble it is the first one again."""
    complaints = Complaints()
    now_ms, lengths = 0.0, []
    for _ in range(8):
        complain(complaints, "rs1", now_ms)
        began_ms = now_ms
        while complaints.avoided:
            now_ms += 5_000
            complaints.judge(FOUR, now_ms)
        lengths.append(now_ms - began_ms)
        now_ms += 10_000
    assert lengths == [min(CALM_MS_MAX, CALM_MS * 2**number) for number in range(8)]
    now_ms += RELAPSE_MS
    complain(complaints, "rs1", now_ms)
    complaints.judge(FOUR, now_ms + CALM_MS)
    assert not complaints.avoided


def test_long_trouble_makes_a_server_one_that_is_left() -> None:
    """Not before the bound, and no longer than the trouble."""
    complaints = Complaints()
    now_ms = 0.0
    while now_ms < LEAVE_AFTER_MS:
        complain(complaints, "rs1", now_ms)
        assert not complaints.left
        now_ms += 20_000
    complain(complaints, "rs1", now_ms)
    assert list(complaints.left) == ["rs1"] and "moved elsewhere" in complaints.avoided["rs1"]
    complaints.judge(FOUR, now_ms + CALM_MS)
    assert not complaints.left and not complaints.avoided


def test_when_everybody_is_complained_about_few_are_avoided() -> None:
    """The worst ones, and never more than a third: of three usable servers none, of four one, of seven two."""
    for count in (3, 4, 7):
        complaints = Complaints()
        names = [f"rs{number}" for number in range(count)]
        for number, name in enumerate(names):
            for reporter in range(REPORTERS_MIN + number):
                complaints.complain(name, f"stream {reporter}", 0.0)
        complaints.judge(names, 0.0)
        worst = list(reversed(names))[: (count - 1) // AVOIDED_SHARE]
        assert list(complaints.avoided) == worst


def test_servers_do_not_take_turns() -> None:
    """Of two in trouble one may be avoided: the first one, until its bout ends, however loud the other one's writers are."""
    complaints = Complaints()
    complain(complaints, "rs1", 0.0)
    for now_ms in range(1_000, int(CALM_MS), 1_000):
        complain(complaints, "rs2", float(now_ms), reporters=REPORTERS_MAX)
        assert list(complaints.avoided) == ["rs1"]
    complaints.judge(FOUR, CALM_MS)
    assert list(complaints.avoided) == ["rs2"]


def test_one_restart_is_no_flapping_and_several_are() -> None:
    """The first return is trusted at once; the next ones, for longer each time. Replicas are not moved for it."""
    complaints = Complaints()
    now_ms, lengths = 0.0, []
    for _ in range(5):
        complaints.seen("rs1", now_ms, is_dead=True)
        now_ms += 10_000
        complaints.seen("rs1", now_ms, is_dead=False)
        complaints.judge(FOUR, now_ms)
        began_ms = now_ms
        while complaints.avoided:
            assert "comes and goes" in complaints.avoided["rs1"] and not complaints.left
            now_ms += 5_000
            complaints.judge(FOUR, now_ms)
        lengths.append(now_ms - began_ms)
    assert lengths == [0, CALM_MS, 2 * CALM_MS, 4 * CALM_MS, 8 * CALM_MS]


def test_a_server_that_is_down_is_not_avoided_but_down() -> None:
    """Only usable servers are judged; it is remembered, and avoided when it comes back too early."""
    complaints = Complaints()
    complain(complaints, "rs1", 0.0)
    complaints.judge(FOUR[1:], 0.0)
    assert not complaints.avoided
    complaints.judge(FOUR, 0.0)
    assert complaints.avoided


def test_a_restart_explains_the_complaints_before_it() -> None:
    """A server that was killed and started again is not avoided for what its writers said meanwhile, nor just afterwards."""
    complaints = Complaints()
    complain(complaints, "rs1", 0.0)
    assert complaints.avoided
    complaints.started("rs1", 1_000.0)
    complain(complaints, "rs1", 1_000.0 + GRACE_MS - 1)
    assert not complaints.avoided
    complain(complaints, "rs1", 1_000.0 + GRACE_MS)
    assert "2 times" in complaints.avoided["rs1"], "that it was in trouble before still counts"


def test_silence_explains_complaints() -> None:
    """What is said of a dead server does not count when it returns without a start, as after a pause."""
    complaints = Complaints()
    complain(complaints, "rs1", 0.0)
    complaints.seen("rs1", 5_000.0, is_dead=True)
    complain(complaints, "rs1", 6_000.0)
    complaints.seen("rs1", 7_000.0, is_dead=False)
    complaints.judge(FOUR, 7_000.0)
    assert not complaints.avoided


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["complain", "dead", "alive", "start", "judge"]),
            st.integers(0, 5),
            st.integers(0, 200),
            st.integers(0, 120_000),
        ),
        max_size=200,
    )
)
def test_memory_and_share_are_bounded(steps: list[tuple[str, int, int, int]]) -> None:
    """Whatever comes in which order: bounded reporters, at most a third avoided, left ones are avoided, and in the end calm."""
    complaints, now_ms = Complaints(), 0.0
    names = [f"rs{number}" for number in range(6)]
    for kind, server, reporter, passed_ms in steps:
        now_ms += passed_ms
        if kind == "complain":
            complaints.complain(names[server], f"stream {reporter}", now_ms)
        elif kind == "start":
            complaints.started(names[server], now_ms)
        elif kind == "judge":
            complaints.judge(names, now_ms)
        else:
            complaints.seen(names[server], now_ms, is_dead=kind == "dead")
        assert all(len(each.reporters) <= REPORTERS_MAX for each in complaints._entries.values())
        assert len(complaints.avoided) <= (len(names) - 1) // AVOIDED_SHARE
        assert complaints.left.keys() <= complaints.avoided.keys()
    for name in names:
        complaints.seen(name, now_ms, is_dead=False)
    complaints.judge(names, now_ms)
    for _ in range(3):
        now_ms += CALM_MS_MAX + RELAPSE_MS
        complaints.judge(names, now_ms)
    assert not complaints.avoided and not complaints._entries


def test_many_reporters_take_bounded_memory() -> None:
    """A thousand streams complain at once."""
    complaints = Complaints()
    complain(complaints, "rs1", 0.0, reporters=1_000)
    assert len(complaints._entries["rs1"].reporters) == REPORTERS_MAX


# ---- in the leader


def trouble(pd: Any, name: str) -> None:
    """Three streams leave a server out."""
    for stream in range(REPORTERS_MIN):
        pd.view.complain(pd.state, [name], f"stream {stream}", pd.now_ms)


def test_an_avoided_server_is_suspect_and_the_last_choice(pd: Any, whole: int) -> None:
    """Readers and people see it as suspect though it is heard of; placement takes the others; its lease is not concerned."""
    pd.pass_ms(int(GRACE_MS))
    pd.beat_all()
    trouble(pd, "rs2")
    assert pd.reconcile() == []
    incarnation = pd.state.servers["rs2"].server.incarnation
    assert pd.view.health(pd.state, "rs2", incarnation, pd.now_ms) is ServerHealth.ALIVE
    (filled,) = pd.view.fill_in(pd.state, [pd.state.ranges.of(whole)[0]], pd.now_ms)
    assert {each.server: each.health for each in filled.replicas} == {
        "rs1": common_pb2.SERVER_HEALTH_ALIVE,
        "rs2": common_pb2.SERVER_HEALTH_SUSPECT,
        "rs3": common_pb2.SERVER_HEALTH_ALIVE,
    }
    assert [each.server for each in pd.view.fleet.candidates(pd.state, pd.now_ms) if each.avoided] == ["rs2"]
    pd.view.complain(pd.state, ["nobody"], "stream 1", pd.now_ms)
    assert "nobody" not in pd.view.complaints._entries, "bounded by the registered servers"


def test_a_server_in_trouble_for_long_is_left(pd: Any, whole: int, make_report: Any) -> None:
    """Its sealed replicas go elsewhere, the copy stays until all members are whole; a new leader begins calm."""
    pd.pass_ms(int(GRACE_MS))
    pd.beat_all()
    passed = 0
    while passed < LEAVE_AFTER_MS:
        trouble(pd, "rs2")
        assert pd.reconcile() == []
        pd.pass_ms(1_000)
        passed += 1_000
        pd.beat_all()
    trouble(pd, "rs2")
    assert pd.reconcile() == ["replace_replica"]
    assert [each.server for each in pd.state.ranges.of(whole)[0].replicas] == ["rs1", "rs4", "rs3"]
    sealed = make_report(whole, 0, "SEALED", end=10)
    pd.beat("rs2", sealed)
    assert "drop_replica" not in pd.directives("rs2")
    pd.beat("rs4", sealed)
    pd.beat("rs2", complete=False)
    assert "drop_replica" in pd.directives("rs2")
    pd.view.start_leading(pd.now_ms)
    assert not pd.view.complaints.avoided and not pd.view.complaints.left


def test_no_range_leaves_for_an_avoided_server(pd: Any, whole: int) -> None:
    """A drain waits rather than to move replicas to a server in trouble."""
    pd.pass_ms(int(GRACE_MS))
    pd.beat_all()
    trouble(pd, "rs4")
    request = operations_pb2.SetServerModeRequest(server="rs1", mode=common_pb2.SERVER_MODE_DRAINING)
    assert pd.reconcile() == []
    pd.register("rs5", zone="z5")
    pd.beat("rs5")
    pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)
    assert pd.reconcile() == ["replace_replica"]
    assert "rs5" in [each.server for each in pd.state.ranges.of(whole)[0].replicas]


def test_writers_that_a_drained_server_sends_away_do_not_complain(pd: Any) -> None:
    """They leave its open ranges because they are told to: uncordoned again, it is trusted."""
    pd.pass_ms(int(GRACE_MS))
    pd.beat_all()
    for mode in (common_pb2.SERVER_MODE_DRAINING, common_pb2.SERVER_MODE_ACTIVE):
        request = operations_pb2.SetServerModeRequest(server="rs1", mode=mode)
        pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)
        if mode == common_pb2.SERVER_MODE_DRAINING:
            trouble(pd, "rs1")
        pd.reconcile()
    assert not pd.view.complaints.avoided


def test_a_server_that_comes_and_goes_is_avoided(pd: Any) -> None:
    """Dead and back twice within ten minutes: the second return is not trusted at once."""
    for returns in range(2):
        for _ in range(6):
            pd.pass_ms(1_000)
            for name in ("rs1", "rs2", "rs3"):
                pd.beat(name, complete=False)
            pd.reconcile()
        pd.beat("rs4", complete=False)
        pd.reconcile()
        assert list(pd.view.complaints.avoided) == (["rs4"] if returns else [])
