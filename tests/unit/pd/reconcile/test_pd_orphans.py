"""Open ranges whose writer is gone: which are sealed by a server, when, and which never."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.reconcile.orphans import QUIET_MS_DEFAULT
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, operations_pb2, pd_pb2, repair_pb2
from tests.unit.pd.reconcile.test_pd_reconcile import ABC, beat_all

AGE_MS = 600_000


@pytest.fixture(autouse=True)
def upgraded(pd: Any) -> None:
    """All members have this program."""
    pd.state.cluster_version = FEATURE_LEVEL


@pytest.fixture
def aging(pd: Any, make_report: Any) -> int:
    """A stream whose ranges have an age limit, and an open range of 5 records on rs1, rs2 and rs3; its id."""
    made = pd.create_stream(tiered=True, range_age_ms_max=AGE_MS)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    for name in ABC:
        pd.beat(name, make_report(made.stream_id, 0, "OPEN", end=5))
    return int(made.stream_id)


def pass_ms(pd: Any, ms: int, *silent: str) -> None:
    """Time passes in rounds of the leader; all but some servers are heard of."""
    for _ in range(ms // 1_000):
        pd.pass_ms(1_000)
        beat_all(pd, *silent)
        pd.reconcile()


def told(pd: Any) -> dict[str, pd_pb2.RecoverRange]:
    """Who is told to seal an open range."""
    found = {name: pd.directives(name).get("recover_range") for name in pd.state.servers}
    return {name: each.recover_range for name, each in found.items() if each is not None}


def test_an_old_range_that_nobody_writes_is_sealed(pd: Any, aging: int) -> None:
    """Its writer would have left it at its age: a grace and a quiet time later one member is told to, with the epoch."""
    pass_ms(pd, AGE_MS)
    assert told(pd) == {}
    pass_ms(pd, AGE_MS // 8 + QUIET_MS_DEFAULT + 2_000)
    (directive,) = told(pd).values()
    assert (directive.stream_name, directive.epoch) == ("s", 1)
    assert "age limit" in directive.reason


def test_a_writer_that_has_just_opened_the_stream_is_not_taken_for_the_dead_one(pd: Any, aging: int) -> None:
    """A member that was chosen before it names the epoch of before, so its claim is refused; then another quiet time passes."""
    pass_ms(pd, AGE_MS + AGE_MS // 8 + QUIET_MS_DEFAULT + 2_000)
    ((_, before),) = told(pd).items()
    pd.open_writer()
    assert {each.epoch for each in told(pd).values()} <= {before.epoch}, "who opens it from now on is no dead writer"
    pass_ms(pd, QUIET_MS_DEFAULT - 2_000)
    assert told(pd) == {}
    pass_ms(pd, 6_000)
    assert [each.epoch for each in told(pd).values()] == [before.epoch + 1], (
        "it died as well, before it sealed the range"
    )


def test_a_range_that_grows_is_left_to_its_writer(pd: Any, aging: int, make_report: Any) -> None:
    """Each report of a longer end begins the quiet time anew, however old the range is."""
    for number in range(30):
        pass_ms(pd, AGE_MS // 20)
        pd.beat("rs1", make_report(aging, 0, "OPEN", end=6 + number), complete=False)
        assert told(pd) == {}
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert list(told(pd)) == ["rs1"], "the member that holds the most"


def test_an_empty_range_is_left_alone_until_something_is_in_it(pd: Any, make_report: Any) -> None:
    """There is nothing to bring to the tier; with its first record an old range is looked at again."""
    made = pd.create_stream(tiered=True, range_age_ms_max=AGE_MS)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    for name in ABC:
        pd.beat(name, make_report(made.stream_id, 0, "OPEN", end=0))
    pass_ms(pd, 2 * AGE_MS)
    assert told(pd) == {}
    assert not pd.view.upkeep.orphans._suspects, "it costs nothing"
    for name in ABC:
        pd.beat(name, make_report(made.stream_id, 0, "OPEN", end=1))
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert len(told(pd)) == 1


@pytest.mark.parametrize("reported", [False, True])
def test_an_empty_range_leaves_a_server_that_is_drained(pd: Any, make_report: Any, reported: bool) -> None:
    """The drain would wait for good for a writer that is gone: a member seals it, once all that are heard have nothing."""
    pd.register("rs4")
    pd.beat("rs4")
    made = pd.create_stream(tiered=True)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    for name in ABC:
        pd.beat(name, *([make_report(made.stream_id, 0, "OPEN", end=0)] if reported else []))
    request = operations_pb2.SetServerModeRequest(server="rs2", mode=common_pb2.SERVER_MODE_DRAINING)
    pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)
    assert pd.directives("rs2").get("leave_range") is not None, "its writer may be there: it is sent away first"
    pd.view.start_leading(pd.now_ms)
    for name in (*ABC, "rs4", *ABC, "rs4"):  # the first heartbeat to a leader only asks for the second
        pd.beat(name, *([make_report(made.stream_id, 0, "OPEN", end=0)] if reported and name in ABC else []))
    assert pd.directives("rs2").get("leave_range") is not None, "a new leader says so as well"
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    (directive,) = told(pd).values()
    assert "empty" in directive.reason and "rs2" in directive.reason


def test_a_writer_that_answers_ends_the_matter_for_a_while(pd: Any, aging: int) -> None:
    """The range is no orphan then; it is looked at again after another quiet time."""
    pd.register("rs2", incarnation=77)
    pd.beat("rs2")
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert len(told(pd)) == 1
    pd.view.upkeep.orphans.writer_answers((aging, 0), pd.now_ms)
    assert told(pd) == {}
    pass_ms(pd, QUIET_MS_DEFAULT - 2_000)
    assert told(pd) == {}
    pass_ms(pd, 4_000)
    assert len(told(pd)) == 1


def test_a_range_without_an_age_limit_does_not_become_old(pd: Any, make_report: Any) -> None:
    """Age 0 is never."""
    made = pd.create_stream(tiered=True, range_age_ms_max=0)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    pd.beat("rs1", make_report(made.stream_id, 0, "OPEN", end=5))
    assert pd.state.due.open_ages == {}
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert told(pd) == {}


@pytest.mark.parametrize("way", ["silent", "wiped"])
def test_a_range_that_lost_a_member_is_sealed(pd: Any, aging: int, way: str) -> None:
    """A living writer leaves such a range; when nothing is appended for the quiet time, a living member seals it."""
    if way == "wiped":
        pd.register("rs2", incarnation=77)
        pd.beat("rs2")
        pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    else:
        pass_ms(pd, 60_000 + QUIET_MS_DEFAULT + 2_000, "rs2")
    found = told(pd)
    assert list(found) in (["rs1"], ["rs3"])
    assert "rs2" in next(iter(found.values())).reason


@pytest.mark.parametrize("new_leader", [False, True])
def test_a_range_with_a_damaged_member_is_sealed(pd: Any, aging: int, make_report: Any, new_leader: bool) -> None:
    """Its copy is lost as if its disk were, so the range is made whole again without waiting for its age."""
    damaged = make_report(aging, 0, "OPEN", end=3)
    damaged.problem = "the tail of the log was damaged and cut"
    if new_leader:
        pd.view.start_leading(pd.now_ms)
        for name in [*pd.state.servers, *pd.state.servers]:  # the first heartbeat to a leader only asks for the second
            pd.beat(
                name, *([damaged if name == "rs2" else make_report(aging, 0, "OPEN", end=5)] if name in ABC else [])
            )
    else:
        pd.beat("rs2", damaged, complete=False)
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    (directive,) = told(pd).values()
    assert directive.reason == "its replica on rs2 is damaged: the tail of the log was damaged and cut"


def test_a_member_that_comes_back_in_time_ends_the_suspicion(pd: Any, aging: int) -> None:
    """The writer may go on with the three of them."""
    pass_ms(pd, 80_000, "rs2")
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert told(pd) == {}


def test_once_the_range_is_sealed_nobody_is_told(pd: Any, aging: int, make_report: Any) -> None:
    """The seal ends it; its members get the ordinary directives."""
    pd.register("rs2", incarnation=77)
    pd.beat("rs2")
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert told(pd)
    pd.open_writer()
    pd.seal(aging, 0, 2, 5)
    pd.reconcile()
    assert told(pd) == {}
    assert pd.view.upkeep.orphans.found == {}
    assert pd.state.ranges.of(aging)[0].state == common_pb2.RANGE_STATE_SEALED


def test_a_new_leader_finds_it_again(pd: Any, aging: int, make_report: Any) -> None:
    """What the leader knew is in memory only; the next one waits its own quiet time."""
    pass_ms(pd, AGE_MS + AGE_MS // 8 + QUIET_MS_DEFAULT + 2_000)
    assert told(pd)
    pd.view.start_leading(pd.now_ms)
    for name in [*pd.state.servers, *pd.state.servers]:  # the first heartbeat to a leader only asks for the second
        pd.beat(name, *([make_report(aging, 0, "OPEN", end=5)] if name in ABC else []))
    pd.reconcile()
    assert told(pd) == {}
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert len(told(pd)) == 1


def test_an_earlier_cluster_version_knows_no_such_directive(pd: Any, aging: int) -> None:
    """Members of an earlier level would not apply the guarded opening in the same way."""
    pd.state.cluster_version = 5
    pass_ms(pd, AGE_MS + AGE_MS // 8 + QUIET_MS_DEFAULT + 2_000)
    assert pd.view.upkeep.orphans.found
    assert told(pd) == {}


def wipe(pd: Any, *names: str) -> None:
    """Their disks are lost, and they are there again."""
    for name in names:
        pd.register(name, incarnation=77)
        pd.beat(name)


@pytest.mark.parametrize("gone", [ABC[:2], ABC])
def test_a_range_that_nobody_can_seal_is_lost_once_it_is_quiet(pd: Any, aging: int, gone: tuple[str, ...]) -> None:
    """Too few members are left to say where it ends. An empty one, too: its stream would be stuck for ever."""
    key = (aging, 0)
    wipe(pd, gone[0])
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert key in pd.view.upkeep.orphans.found and key not in pd.view.upkeep.orphans.lost, "two can say where it ends"
    wipe(pd, *gone[1:])
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert list(pd.view.upkeep.orphans.lost) == [key]
    assert "lost their copies" in pd.view.upkeep.orphans.found[key].reason
    request = repair_pb2.AcceptLossRequest(stream_id=aging, survivor_end_offset=5)
    pd.do(repair_pb2.AcceptLossResponse, accept_loss=request)
    pass_ms(pd, 2_000)
    assert not pd.view.upkeep.orphans.lost
    assert not pd.view.upkeep.orphans.found


def test_an_empty_range_that_nobody_can_seal_is_lost(pd: Any, make_report: Any) -> None:
    """Its stream could never be opened again."""
    made = pd.create_stream()
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *ABC)
    for name in ABC:
        pd.beat(name, make_report(made.stream_id, 0, "OPEN", end=0))
    wipe(pd, "rs1", "rs2")
    pass_ms(pd, QUIET_MS_DEFAULT + 2_000)
    assert list(pd.view.upkeep.orphans.lost) == [(made.stream_id, 0)]
