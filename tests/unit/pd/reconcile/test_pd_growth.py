"""Open ranges that began while servers were few: their writers are asked to go on, once there are servers for more members."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.versions import LEAVE_WANTED_VERSIONS
from rangelog_pd.reconcile.growth import FORMAT
from rangelog_pd.reconcile.orphans import QUIET_MS_DEFAULT
from rangelog_pd.state import versions
from rangelog_proto.v1 import common_pb2, operations_pb2, pd_pb2
from rangelog_server.formats import FORMATS

SERVERS = ("rs1", "rs2", "rs3", "rs4")


@pytest.fixture
def knowing(pd: Any) -> Any:
    """The four servers know how to ask a writer."""
    pd.state.cluster_version = versions.FEATURE_LEVEL
    for name in SERVERS:
        knows(pd, name)
    return pd


def knows(pd: Any, name: str, **more: Any) -> None:
    """A server registers again, with the format."""
    asks = common_pb2.FormatVersions(format=FORMAT, lowest=1, highest=1)
    pd.register(name, formats=[asks], boot=2, zone=more.pop("zone", f"z{name[-1]}"), **more)
    pd.beat(name)
    pd.beat(name)


def begin(pd: Any, *members: str, **config: Any) -> int:
    """A stream whose open range has these members."""
    made = pd.create_stream(**config)
    pd.open_writer()
    pd.create_range(made.stream_id, 1, 0, *members)
    pd.reconcile()
    return int(made.stream_id)


def asked(pd: Any) -> dict[str, pd_pb2.LeaveRange]:
    """Who is told to ask the writer; each round of a leader comes before the heartbeats."""
    pd.reconcile()
    found = {name: pd.directives(name).get("leave_range") for name in SERVERS}
    return {name: each.leave_range for name, each in found.items() if each is not None}


def set_mode(pd: Any, name: str, mode: str) -> None:
    request = operations_pb2.SetServerModeRequest(server=name, mode=f"SERVER_MODE_{mode}")
    pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)


def test_the_format_is_what_a_server_reports() -> None:
    """Else nobody would ever be asked."""
    assert FORMATS[FORMAT] == LEAVE_WANTED_VERSIONS


def test_one_member_asks_the_writer(knowing: Any) -> None:
    """Not all of them, and nobody refuses appends: with two members each one is needed until the writer has left."""
    begin(knowing, "rs1", "rs2")
    (told,) = asked(knowing).items()
    assert (told[0], told[1].only_asks) == ("rs1", True)
    assert "2 members" in told[1].reason
    assert list(asked(knowing)) == ["rs1"], "until it is done"
    knowing.seal(1, 0, 1, 5, "rs1", "rs2", "rs3")
    assert asked(knowing) == {}


def test_a_range_of_which_no_server_has_anything_is_looked_at(knowing: Any, make_report: Any) -> None:
    """Nothing was appended: no report names it, and another leader asks all the same."""
    begin(knowing, "rs1", "rs2")
    knowing.view.start_leading(knowing.now_ms)
    for _ in range(2):  # the first heartbeat to a leader only asks for the second
        for name in SERVERS:
            knowing.beat(name)
    assert list(asked(knowing)) == ["rs1"]


def test_nobody_is_asked_while_there_are_no_servers(knowing: Any) -> None:
    """A cordoned server counts as none, and neither does a dead one; the writer is asked once one is there."""
    set_mode(knowing, "rs3", "CORDONED")
    set_mode(knowing, "rs4", "CORDONED")
    begin(knowing, "rs1", "rs2")
    assert asked(knowing) == {}
    assert not knowing.view.servers["rs1"].attention.waiting, "it costs nothing"
    set_mode(knowing, "rs4", "ACTIVE")
    assert list(asked(knowing)) == ["rs1"]
    knowing.pass_ms(6_000)
    for name in ("rs1", "rs2"):
        knowing.beat(name)
    assert asked(knowing) == {}, "rs4 is silent"


def test_a_stream_that_wants_more_than_there_are_keeps_its_range(knowing: Any) -> None:
    """A placement would give it no more members than it has."""
    begin(knowing, *SERVERS, replicas=5)
    assert asked(knowing) == {}
    knows(knowing, "rs5")
    assert list(asked(knowing)) == ["rs1"]


def test_more_replicas_are_wanted_of_a_stream(knowing: Any) -> None:
    """Its open range gets them without waiting for its end."""
    stream_id = begin(knowing, "rs1", "rs2", "rs3")
    assert asked(knowing) == {}
    request = pd_pb2.UpdateStreamRequest(name="s", config=common_pb2.StreamConfig(replicas=4), fields=["replicas"])
    knowing.do(pd_pb2.UpdateStreamResponse, update_stream=request)
    assert knowing.state.streams[stream_id].config.replicas == 4
    assert list(asked(knowing)) == ["rs1"]


@pytest.mark.parametrize("labelled", [2, 3])
def test_the_policy_of_the_stream_counts(knowing: Any, labelled: int) -> None:
    """Of four servers only those with its label may have a replica."""
    for name in SERVERS[:labelled]:
        knows(knowing, name, labels=["disk=ssd"])
    begin(knowing, "rs1", "rs2", server_labels=["disk=ssd"])
    assert bool(asked(knowing)) == (labelled == 3)
    if labelled == 2:
        knows(knowing, "rs4", labels=["disk=ssd"])
        assert list(asked(knowing)) == ["rs1"], "a label came"


def test_zones_that_are_missing_count(knowing: Any) -> None:
    """A placement that would be refused is none."""
    for name in SERVERS:
        knows(knowing, name, zone="z1")
    begin(knowing, "rs1", "rs2", zones_min=2)
    assert asked(knowing) == {}


def test_a_server_that_would_refuse_appends_is_not_told(pd: Any) -> None:
    """One of an earlier program does not know that it is only to ask; another member does it."""
    pd.state.cluster_version = versions.FEATURE_LEVEL
    begin(pd, "rs1", "rs2")
    assert asked(pd) == {}
    knows(pd, "rs2")
    assert list(asked(pd)) == ["rs2"]


@pytest.mark.parametrize("end", [0, 5])
def test_a_range_whose_writer_is_gone_is_sealed(knowing: Any, make_report: Any, end: int) -> None:
    """Then it gets the copies that it lacks; without a record as well, since nobody else would leave it."""
    begin(knowing, "rs1", "rs2")
    for _ in range(QUIET_MS_DEFAULT // 1_000 + 2):
        knowing.pass_ms(1_000)
        for name in SERVERS:
            knowing.beat(name, *([make_report(1, 0, "OPEN", end=end)] if name in ("rs1", "rs2") and end else []))
        knowing.reconcile()
        told = {name: knowing.directives(name) for name in SERVERS}
    found = [each["recover_range"] for each in told.values() if "recover_range" in each]
    assert len(found) == 1
    assert "servers for more" in found[0].recover_range.reason


def test_an_earlier_cluster_version_leaves_things_alone(knowing: Any) -> None:
    """Its members do not know the directive."""
    begin(knowing, "rs1", "rs2")
    knowing.state.cluster_version = versions.LEVEL_OPERATIONS - 1
    assert asked(knowing) == {}
