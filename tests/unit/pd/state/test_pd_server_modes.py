"""Modes of range servers in the state: cordoned, draining, removed; who may come back."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, RangeNotFound
from rangelog_pd.state.operations import level_of
from rangelog_pd.state.server_modes import REMOVED_MAX
from rangelog_pd.state.versions import FEATURE_LEVEL_MIN, LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, operations_pb2, pd_pb2, pd_state_pb2, repair_pb2

ABC = ("rs1", "rs2", "rs3")


def set_mode(pd: Any, name: str, mode: str) -> common_pb2.Server:
    """Set a mode; return the server as it is shown."""
    request = operations_pb2.SetServerModeRequest(server=name, mode=f"SERVER_MODE_{mode}")
    answer: operations_pb2.SetServerModeResponse = pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)
    return answer.server


def remove(pd: Any, name: str, *, dead: bool = False, incarnation: int = 0, accept_loss: bool = False) -> int:
    """Remove a server; return the incarnation that is retired."""
    request = operations_pb2.RemoveServerRequest(
        server=name, dead=dead, incarnation=incarnation, accept_loss=accept_loss
    )
    answer: operations_pb2.RemoveServerResponse = pd.do(operations_pb2.RemoveServerResponse, remove_server=request)
    return answer.incarnation


def test_the_indexes_follow_the_modes(pd: Any) -> None:
    """A server is in the index of its mode only, also after a restart."""
    assert set_mode(pd, "rs1", "CORDONED").mode == common_pb2.SERVER_MODE_CORDONED
    set_mode(pd, "rs2", "DRAINING")
    for _ in range(2):
        assert (list(pd.state.modes.cordoned), list(pd.state.modes.draining)) == (["rs1"], ["rs2"])
        pd.reload()
    set_mode(pd, "rs1", "DRAINING")
    set_mode(pd, "rs2", "ACTIVE")
    assert (list(pd.state.modes.cordoned), list(pd.state.modes.draining)) == ([], ["rs1"])


def test_a_mode_survives_starts_and_a_wiped_disk(pd: Any) -> None:
    """An operator's decision is about the server, whatever its process and its disk are."""
    set_mode(pd, "rs1", "DRAINING")
    set_mode(pd, "rs2", "CORDONED")
    pd.register("rs1", boot=2)
    pd.register("rs2", incarnation=77)
    assert (list(pd.state.modes.cordoned), list(pd.state.modes.draining)) == (["rs2"], ["rs1"])


def test_wrong_requests_change_nothing(pd: Any) -> None:
    """An unknown server, a mode that cannot be given, a bad name."""
    for name, mode, error in (
        ("rs9", "CORDONED", RangeNotFound),
        ("rs1", "REMOVED", InvalidArgument),
        ("rs1", "UNSPECIFIED", InvalidArgument),
        ("no/name", "CORDONED", InvalidArgument),
    ):
        with pytest.raises(error):
            set_mode(pd, name, mode)
    assert not pd.state.modes.cordoned and not pd.state.modes.draining


def test_a_living_server_is_drained_before_it_is_removed(pd: Any, whole: int) -> None:
    """Neither an active nor a cordoned one goes, and a draining one only when it is a member of nothing."""
    for mode in ("ACTIVE", "CORDONED", "DRAINING"):
        set_mode(pd, "rs1", mode)
        with pytest.raises(PreconditionFailed, match="not drained"):
            remove(pd, "rs1")
    pd.replace(whole, 0, "rs1", "rs4")
    assert remove(pd, "rs1") and "rs1" not in pd.state.servers
    pd.reload()
    assert list(pd.state.removed) == ["rs1"] and not pd.state.modes.draining


def test_a_member_of_an_open_range_is_not_removed(pd: Any, stream: int) -> None:
    """What an open range's replica holds may be acked and nowhere else."""
    with pytest.raises(PreconditionFailed, match="open"):
        remove(pd, "rs1", dead=True)


def test_a_last_copy_is_not_removed(pd: Any) -> None:
    """A dead server goes only when each of its ranges has another registered member, or is wholly in the tier."""
    made = pd.create_stream(replicas=1, acks=1, tiered=True)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1")
    pd.seal(made.stream_id, 0, 1, 10)
    with pytest.raises(PreconditionFailed, match="last copy of range 0 of stream 's'"):
        remove(pd, "rs1", dead=True)
    pd.commit(pd.prepare(made.stream_id, 0, 0, 9, "rs1"))
    with pytest.raises(PreconditionFailed, match="last copy"):
        remove(pd, "rs1", dead=True)
    pd.commit(pd.prepare(made.stream_id, 0, 9, 10, "rs1"))
    remove(pd, "rs1", dead=True)


def test_a_lost_disk_is_given_up_by_an_operators_word(pd: Any, stream: int) -> None:
    """Of a dead server only: then last copies and open ranges keep it no longer."""
    pd.seal(stream, 0, 1, 10, *ABC)
    with pytest.raises(PreconditionFailed, match="not drained"):
        remove(pd, "rs1", accept_loss=True)
    for name in ABC:
        assert remove(pd, name, dead=True, accept_loss=True)
    request = repair_pb2.AcceptLossRequest(stream_id=stream, range_index=0)
    assert pd.do(repair_pb2.AcceptLossResponse, accept_loss=request).range.lost


def test_copies_of_earlier_incarnations_do_not_count(pd: Any) -> None:
    """The other member's disk was wiped: it is no copy, so the first one's is the last."""
    made = pd.create_stream(replicas=2, acks=1)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, "rs1", "rs2")
    pd.seal(made.stream_id, 0, 1, 10)
    pd.register("rs2", incarnation=77)
    with pytest.raises(PreconditionFailed, match="last copy"):
        remove(pd, "rs1", dead=True)


def test_a_removed_incarnation_never_comes_back(pd: Any) -> None:
    """Its directory is refused, after a restart as well; an empty one may take the name, and begins as active."""
    set_mode(pd, "rs1", "DRAINING")
    gone = remove(pd, "rs1")
    pd.reload()
    with pytest.raises(PreconditionFailed, match="removed"):
        pd.register("rs1", incarnation=gone, boot=9)
    pd.register("rs1", incarnation=77)
    assert not pd.state.removed and not pd.state.modes.draining
    with pytest.raises(PreconditionFailed, match="removed"):
        pd.register("rs1", incarnation=gone, boot=9)


def test_another_incarnation_than_the_shown_one_is_not_removed(pd: Any) -> None:
    """The operator looked at a server that has been wiped and registered anew since."""
    shown = pd.state.servers["rs1"].server.incarnation
    pd.register("rs1", incarnation=77)
    with pytest.raises(PreconditionFailed, match="another incarnation"):
        remove(pd, "rs1", dead=True, incarnation=shown)


def test_removed_servers_are_kept_in_a_bounded_number(pd: Any) -> None:
    """The oldest of them is forgotten."""
    for number in range(REMOVED_MAX + 1):
        row = pd_state_pb2.RegisteredServer(
            server=common_pb2.Server(name=f"gone{number}", incarnation=1), mode=common_pb2.SERVER_MODE_REMOVED
        )
        if number < REMOVED_MAX:
            pd.state.removed.put(row.server.name, row)
    remove(pd, "rs4", dead=True)
    assert len(pd.state.removed) == REMOVED_MAX and "gone0" not in pd.state.removed and "rs4" in pd.state.removed


def test_earlier_programs_never_get_these_commands() -> None:
    """Both actions need the level of operations."""
    for action in ("set_server_mode", "remove_server"):
        assert level_of(action) == LEVEL_OPERATIONS > FEATURE_LEVEL_MIN


def test_a_row_without_a_mode_is_active(pd: Any) -> None:
    """A snapshot from before there were modes is read, and bars nobody."""
    assert all(each.mode == common_pb2.SERVER_MODE_UNSPECIFIED for each in pd.state.servers.values())
    pd.reload()
    assert not any(pd.state.modes.bars(name) for name in pd.state.servers)
    answer = pd.do(
        pd_pb2.RegisterServerResponse,
        register_server=pd_pb2.RegisterServerRequest(server="rs9", incarnation=1, boot=1, data_address="rs9:1"),
    )
    assert answer is not None
