"""Cluster time against clocks that are wrong: never back, never a step that one clock alone asks for."""

from __future__ import annotations

import pytest

from rangelog_pd.cluster_time import APART_MS, TOLERANCE_MS, ClusterTime

DAY_MS = 86_400_000
TRUTH_MS = 1_700_000_000_000
SERVERS = ("rs1", "rs2", "rs3")


class Clocks:
    """A leader and three range servers, each with a wall clock that is off by so much; time passes by hand."""

    def __init__(self, *, registered: int = 3, **off_ms: int) -> None:
        self.clock = ClusterTime()
        self.now_ms = 5_000.0
        self.off_ms = dict.fromkeys(("leader", *SERVERS), 0) | off_ms
        self.registered = registered
        self.alive = SERVERS[:registered]

    @property
    def truth_ms(self) -> int:
        return TRUTH_MS + int(self.now_ms)

    def begin(self, time_ms: int) -> None:
        """Begin to lead."""
        self.clock.begin(self.now_ms, self.truth_ms + self.off_ms["leader"], time_ms)
        self.clock.judge(self.alive, self.registered)

    def hear(self, *names: str) -> None:
        """Heartbeats of all that are alive, or of these."""
        for name in names or self.alive:
            self.clock.heard(name, self.now_ms, self.truth_ms + self.off_ms[name])
        self.clock.judge(self.alive, self.registered)

    def read(self) -> int:
        return self.clock.read(self.now_ms, self.truth_ms + self.off_ms["leader"])

    def pass_ms(self, ms: float, step_ms: float = 500.0) -> int:
        """Time passes, with heartbeats; return the time at the end."""
        before = self.read()
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms += min(step_ms, end_ms - self.now_ms)
            self.hear()
            after = self.read()
            assert after >= before, "it goes back"
            before = after
        return before


def test_a_new_cluster_begins_at_its_leaders_clock() -> None:
    """Nothing is dated yet, and nobody else is there: the leader's clock is all there is, and it is not provisional."""
    clocks = Clocks(registered=0)
    clocks.begin(0)
    assert clocks.read() == clocks.truth_ms
    assert not clocks.clock.provisional


@pytest.mark.parametrize("who", ["leader", *SERVERS])
@pytest.mark.parametrize("off_ms", [8 * DAY_MS, -8 * DAY_MS])
def test_one_wrong_clock_moves_nothing(who: str, off_ms: int) -> None:
    """Ahead or behind, the leader's or a server's: the time stays right."""
    clocks = Clocks(**{who: off_ms})
    clocks.begin(clocks.truth_ms)
    assert abs(clocks.pass_ms(10 * 60_000) - clocks.truth_ms) <= TOLERANCE_MS


@pytest.mark.parametrize("first_ms", [600_000, 8 * DAY_MS])
def test_two_clocks_that_were_wrong_one_after_the_other_move_nothing(first_ms: int) -> None:
    """The leader knows a clock from its last heartbeat: the first was set right since, when the second jumps."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms)
    clocks.pass_ms(10_000)
    clocks.off_ms["rs1"] = first_ms
    clocks.hear("rs1")
    clocks.off_ms["rs1"], clocks.off_ms["rs2"] = 0, first_ms + 200_000
    clocks.hear("rs2")
    assert abs(clocks.read() - clocks.truth_ms) <= TOLERANCE_MS
    assert clocks.clock.provisional, "what is sealed now must not be dated before it is clear what the time is"
    assert abs(clocks.pass_ms(10 * 60_000) - clocks.truth_ms) <= TOLERANCE_MS
    assert not clocks.clock.provisional


def test_clocks_that_stay_apart_hold_time_up_for_a_minute_only() -> None:
    """All three differ by minutes and the cluster was off for a day: the middle one is believed in the end."""
    clocks = Clocks(rs1=-600_000, rs3=600_000)
    clocks.begin(clocks.truth_ms - DAY_MS)
    assert clocks.pass_ms(APART_MS / 2) < clocks.truth_ms - DAY_MS / 2
    assert clocks.clock.provisional
    assert abs(clocks.pass_ms(APART_MS) - clocks.truth_ms) <= TOLERANCE_MS
    assert not clocks.clock.provisional


@pytest.mark.parametrize("off_ms", [8 * DAY_MS, -8 * DAY_MS])
def test_of_two_servers_and_a_leader_the_middle_one_counts(off_ms: int) -> None:
    """With one server away its place is taken by the leader's clock, and one wrong clock still moves nothing."""
    for who in ("leader", "rs1"):
        clocks = Clocks(**{who: off_ms})
        clocks.alive = SERVERS[:2]
        clocks.begin(clocks.truth_ms)
        assert abs(clocks.pass_ms(60_000) - clocks.truth_ms) <= TOLERANCE_MS


@pytest.mark.parametrize("off_ms", [8 * DAY_MS, -8 * DAY_MS])
def test_a_clock_that_is_set_is_not_followed(off_ms: int) -> None:
    """The leader's wall clock jumps while it leads: the time goes on as before."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms)
    clocks.pass_ms(10_000)
    clocks.off_ms["leader"] = off_ms
    assert abs(clocks.pass_ms(60_000) - clocks.truth_ms) <= TOLERANCE_MS


def test_after_idle_days_the_witnesses_bring_it_forward() -> None:
    """The last command was days ago: too few witnesses leave it there, provisional; two confirm that days have passed."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms - 5 * DAY_MS)
    clocks.hear("rs1")
    assert clocks.read() == clocks.truth_ms - 5 * DAY_MS
    assert clocks.clock.provisional
    clocks.hear("rs1", "rs2")
    assert not clocks.clock.provisional
    assert clocks.read() == clocks.truth_ms


def test_without_witnesses_it_runs_and_stays_provisional() -> None:
    """No server says anything: the rate of the monotonic clock, whatever the leader's wall clock shows."""
    clocks = Clocks(leader=8 * DAY_MS)
    clocks.alive = ()
    clocks.begin(TRUTH_MS)
    assert clocks.pass_ms(3_600_000) == TRUTH_MS + 3_600_000
    assert clocks.clock.provisional


def test_witnesses_that_went_away_leave_it_confirmed() -> None:
    """Once it was confirmed, a leader's time needs nobody: its monotonic clock goes on."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms)
    clocks.pass_ms(1_000)
    clocks.alive = ()
    assert clocks.pass_ms(DAY_MS, step_ms=60_000) == clocks.truth_ms
    assert not clocks.clock.provisional


def test_ahead_of_all_clocks_it_slows_down() -> None:
    """An earlier leader had put it an hour ahead: it runs at nine tenths until the clocks have caught up, and no slower."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms + 3_600_000)
    before = clocks.read()
    assert clocks.pass_ms(600_000) - before == pytest.approx(540_000, abs=2_000)
    assert clocks.pass_ms(12 * 3_600_000, step_ms=10_000) - clocks.truth_ms == pytest.approx(TOLERANCE_MS, abs=1_000)


def test_ahead_after_a_long_pause_it_falls_no_further_than_to_the_middle() -> None:
    """A leader that was paused for an hour does not come out behind the clocks."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms + 5_000)
    clocks.hear()
    clocks.now_ms += 3_600_000
    assert clocks.read() == clocks.truth_ms


def test_a_leader_that_was_suspended_asks_the_servers_again() -> None:
    """Its monotonic clock stood still and its wall clock did not: provisional until two servers were heard."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms)
    clocks.pass_ms(1_000)
    for name in clocks.off_ms:
        clocks.off_ms[name] = 3 * DAY_MS
    before = clocks.read()
    assert clocks.clock.provisional
    assert before == clocks.truth_ms
    clocks.hear()
    assert not clocks.clock.provisional
    assert clocks.read() == clocks.truth_ms + 3 * DAY_MS


@pytest.mark.parametrize("who", ["leader", "rs1"])
def test_of_two_clocks_the_earlier_one_counts(who: str) -> None:
    """With one server registered nobody can tell which clock is wrong: one that is ahead moves nothing."""
    clocks = Clocks(registered=1, **{who: 8 * DAY_MS})
    clocks.begin(clocks.truth_ms)
    assert abs(clocks.pass_ms(60_000) - clocks.truth_ms) <= TOLERANCE_MS


def test_servers_that_register_later_must_be_heard() -> None:
    """A new cluster's time counts as confirmed only as long as nobody could contradict it."""
    clocks = Clocks(registered=0, leader=-8 * DAY_MS)
    clocks.begin(0)
    assert not clocks.clock.provisional
    clocks.registered, clocks.alive = 3, SERVERS
    clocks.clock.judge(clocks.alive, 3)
    assert clocks.clock.provisional
    clocks.hear()
    assert clocks.read() == clocks.truth_ms


def test_a_server_of_an_early_version_is_no_witness() -> None:
    """A heartbeat without a wall clock says nothing about the time."""
    clocks = Clocks()
    clocks.begin(clocks.truth_ms)
    for name in SERVERS:
        clocks.clock.heard(name, clocks.now_ms, 0)
    clocks.clock.judge(SERVERS, 3)
    assert clocks.clock.provisional
