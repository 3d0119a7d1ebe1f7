"""The candidates that are kept in order are those that are read anew; what counts as load."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.fleet import FULL_AT_PERCENT, REFRESH_MS, WORK_UNIT_BYTES_PER_S
from rangelog_pd.reconcile.write_rate import WriteRate
from rangelog_proto.v1 import pd_pb2
from tests.unit.pd.conftest import Pd

NAMES = st.sampled_from([f"rs{number}" for number in range(1, 6)])


class FleetFollows(RuleBasedStateMachine):
    """Registrations, heartbeats, ranges, silence and changes of leader, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pd = Pd()
        self.stream_id = self.pd.create_stream(replicas=2, acks=1, tiered=False).stream_id
        self.boots = 0
        self.end = 0
        for number in range(1, 4):
            self.register(f"rs{number}", "z1")

    @rule(name=NAMES, zone=st.sampled_from(["", "z1", "z2"]))
    def register(self, name: str, zone: str) -> None:
        """A server starts, perhaps in another zone."""
        self.boots += 1
        self.pd.register(name, zone=zone, boot=self.boots)

    @rule(name=NAMES, grown=st.integers(0, 1 << 24), used=st.integers(0, 100))
    def beat(self, name: str, grown: int, used: int) -> None:
        """A server says how far its log and its disk are."""
        if name in self.pd.state.servers:
            incarnation = self.pd.state.servers[name].server.incarnation
            view = self.pd.view.servers.get(name)
            request = pd_pb2.HeartbeatRequest(
                server=name,
                incarnation=incarnation,
                sequence=(view.sequence if view is not None else 0) + 1,
                log_end=(view.log_end if view is not None else 0) + grown,
                used_bytes=used,
                capacity_bytes=100,
            )
            self.pd.view.heartbeat(request, self.pd.now_ms, self.pd.wall_ms)

    @rule(names=st.sets(NAMES, min_size=1, max_size=2).map(sorted))
    def roll(self, names: list[str]) -> None:
        """The writer goes on with the next range."""
        if all(name in self.pd.state.servers for name in names):
            self.pd.open_writer()
            stream = self.pd.state.streams[self.stream_id]
            last = self.pd.state.ranges.of(self.stream_id).last()
            if last is None:
                self.pd.create_range(self.stream_id, stream.epoch, 0, *names)
            else:
                self.end += 10
                self.pd.seal(self.stream_id, last.index, stream.epoch, self.end, *names)

    @rule(ms=st.sampled_from([1, 100, 450, 1_600, 6_000]))
    def wait(self, ms: int) -> None:
        """Leases may end."""
        self.pd.pass_ms(ms)

    @rule()
    def lead(self) -> None:
        """Another leader's view begins empty."""
        self.pd.view.start_leading(self.pd.now_ms)

    @invariant()
    def they_are_equal(self) -> None:
        """In all but what is compared with the mean of all servers, which may be half a second old."""
        fleet = self.pd.view.fleet
        kept = {each.server: each for each in fleet.placer(self.pd.state, self.pd.now_ms).candidates()}
        anew = {each.server: each for each in fleet.candidates(self.pd.state, self.pd.now_ms)}
        assert kept == anew


FleetFollows.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestFleetFollows = FleetFollows.TestCase


def test_a_choice_counts_until_the_state_says_otherwise(pd: Any, stream: int) -> None:
    """Placements that are not applied yet spread; what came of none of them is forgotten within half a second."""
    chosen = [pd.view.fleet.placer(pd.state, pd.now_ms).place(replicas=1, acks=1)[0].server for _ in range(4)]
    assert chosen == ["rs4", "rs1", "rs2", "rs3"]
    pd.pass_ms(int(REFRESH_MS))
    assert pd.view.fleet.placer(pd.state, pd.now_ms).place(replicas=1, acks=1)[0].server == "rs4"


def test_what_is_written_counts_as_work(pd: Any, stream: int) -> None:
    """A server whose log grows fast is avoided for one with as many open ranges; after silence of its writers it is not."""

    def grow(bytes_per_s: int, seconds: int) -> None:
        for _ in range(seconds):
            pd.pass_ms(1_000)
            for name in pd.state.servers:
                end = pd.view.servers[name].log_end
                pd.beat(name, complete=False, log_end=end + (bytes_per_s if name == "rs4" else 0))

    grow(0, 1)
    grow(int(WORK_UNIT_BYTES_PER_S) * 8, 120)
    assert pd.view.fleet.placer(pd.state, pd.now_ms).place(replicas=1, acks=1)[0].server == "rs1"
    grow(0, 300)
    assert pd.view.fleet.placer(pd.state, pd.now_ms).place(replicas=1, acks=1)[0].server == "rs4"


def test_a_nearly_full_disk_is_avoided(pd: Any) -> None:
    """By what the server's heartbeat says of its capacity; a server that says nothing of it is not full."""
    view = pd.view.servers["rs1"]
    view.used_bytes, view.capacity_bytes = FULL_AT_PERCENT, 100
    candidates = {each.server: each for each in pd.view.fleet.candidates(pd.state, pd.now_ms)}
    assert candidates["rs1"].full
    assert not candidates["rs2"].full
    pd.view.fleet.note("rs1")
    placer = pd.view.fleet.placer(pd.state, pd.now_ms)
    assert {each.server for each in placer.place(replicas=3, acks=2)} == {"rs2", "rs3", "rs4"}


def test_a_lapsed_lease_counts_at_once(pd: Any) -> None:
    """Health is not as old as the rest: whose lease ended is not chosen a moment later."""
    placer = pd.view.fleet.placer(pd.state, pd.now_ms)
    assert placer.get("rs1").health is ServerHealth.ALIVE
    pd.pass_ms(1_400)
    for name in ("rs2", "rs3", "rs4"):
        pd.beat(name, complete=False)
    pd.view.fleet.placer(pd.state, pd.now_ms)
    pd.pass_ms(101)
    assert pd.view.fleet.placer(pd.state, pd.now_ms).get("rs1").health is ServerHealth.SUSPECT


def test_a_silent_server_is_dead_at_once_when_its_time_is_over(pd: Any) -> None:
    """Not only at the next reading of all servers: a placement prefers a server that is late to one that is gone."""
    pd.pass_ms(4_900)
    for name in ("rs2", "rs3"):
        pd.beat(name)
    assert pd.view.fleet.placer(pd.state, pd.now_ms).get("rs1").health is ServerHealth.SUSPECT
    pd.pass_ms(100)
    assert pd.view.fleet.placer(pd.state, pd.now_ms).get("rs1").health is ServerHealth.DEAD


def test_a_rate_is_smoothed_and_falls_to_nothing() -> None:
    """A steady rate is found, one burst moves it little, and a log that stands still has none; the first end says nothing."""
    rate, end, now_ms = WriteRate(), 1 << 40, 0.0
    rate.note(end, now_ms)
    assert rate.bytes_per_s == 0
    for _ in range(300):
        end, now_ms = end + 5_000, now_ms + 500
        rate.note(end, now_ms)
    assert 9_500 < rate.bytes_per_s <= 10_000
    rate.note(end + 50_000, now_ms + 500)
    assert rate.bytes_per_s < 12_000
    rate.note(end + 50_000, now_ms + 500)
    rate.note(end + 50_000, now_ms + 600_000)
    assert rate.bytes_per_s < 1
