"""Repairs keep what new ranges keep: zones apart, a stream's policy; they go to many servers, and say why."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS
from rangelog_proto.v1 import common_pb2, pd_pb2


def lose(pd: Any, *names: str) -> None:
    """Only these are silent, for as long as it takes to be replaced."""
    for _ in range(int(REPLACE_AFTER_MS // 1_000) + 1):
        pd.pass_ms(1_000)
        for name in pd.state.servers:
            if name not in names:
                pd.beat(name, complete=False)


def repair(pd: Any) -> None:
    """Rounds until nothing is replaced any more."""
    for _ in range(10):
        if "replace_replica" not in pd.reconcile():
            return
    raise AssertionError("repairs without an end")


def members(pd: Any, stream_id: int, index: int = 0) -> dict[str, int]:
    """The members of a range, and why they were chosen."""
    return {each.server: each.reason for each in pd.state.range(stream_id, index).replicas}


def zones(pd: Any, stream_id: int) -> list[str]:
    """The zones of the members of range 0."""
    return sorted(pd.state.servers[name].server.zone for name in members(pd, stream_id))


@pytest.fixture
def make_sealed(pd: Any, make_report: Any) -> Any:
    """`make_sealed("rs1", "rs2", "rs3", zones_min=3)`: a stream whose range 0 is sealed and whole on these; its id."""

    def make(*names: str, name: str = "p", **config: Any) -> int:
        stream_id: int = pd.create_stream(name, tiered=False, **config).stream_id
        pd.open_writer(name)
        pd.create_range(stream_id, 1, 0, *names)
        pd.seal(stream_id, 0, 1, 10)
        for each in names:
            pd.beat(each, make_report(stream_id, 0, "SEALED", end=10, size=1_000), complete=False)
        return stream_id

    return make


def test_a_repair_leaves_the_zones_of_others_alone(pd: Any, make_sealed: Any) -> None:
    """Without a policy the replacement goes to the free zone, however loaded; without a free one to any."""
    pd.register("rs5", zone="z2")
    pd.beat("rs5")
    stream_id = make_sealed("rs1", "rs2", "rs3")
    for number in range(5):
        make_sealed("rs4", name=f"load{number}", replicas=1, acks=1)
    lose(pd, "rs1")
    repair(pd)
    assert members(pd, stream_id).keys() == {"rs2", "rs3", "rs4"}
    lose(pd, "rs1", "rs4")
    repair(pd)
    assert members(pd, stream_id).keys() == {"rs2", "rs3", "rs5"}


def test_no_repair_puts_a_second_copy_on_a_host(pd: Any, make_sealed: Any) -> None:
    """The repair waits while the only free server shares a host with a member; it goes on once another host has a server."""
    for name, host in (("rs1", "h1"), ("rs2", "h2"), ("rs3", "h3"), ("rs4", "h2")):
        pd.register(name, boot=2, host=host)
        pd.beat(name)
    stream_id = make_sealed("rs1", "rs2", "rs3")
    lose(pd, "rs1")
    repair(pd)
    assert members(pd, stream_id).keys() == {"rs1", "rs2", "rs3"}
    pd.register("rs5", host="h4")
    pd.beat("rs5")
    repair(pd)
    assert members(pd, stream_id).keys() == {"rs2", "rs3", "rs5"}


def test_zones_min_holds_for_repairs(pd: Any, make_sealed: Any) -> None:
    """With a zone gone no repair lowers the number of zones; a server in a further zone gets the replica when it comes."""
    pd.register("rs5", zone="z2")
    pd.beat("rs5")
    stream_id = make_sealed("rs1", "rs2", "rs3", zones_min=3)
    lose(pd, "rs1", "rs4")
    repair(pd)
    assert members(pd, stream_id).keys() == {"rs1", "rs2", "rs3"}, "rs5 is in a zone that has a replica"
    pd.register("rs6", zone="z9")
    pd.beat("rs6")
    repair(pd)
    assert zones(pd, stream_id) == ["z2", "z3", "z9"]


def test_two_lost_at_once_span_the_zones_again(pd: Any, make_sealed: Any) -> None:
    """The first replacement counts for the second: both do not go to one zone, and each zone that can be had is taken."""
    for name in ("rs5", "rs6"):
        pd.register(name, zone="z3")
        pd.beat(name)
    strict, two = (
        make_sealed("rs1", "rs2", "rs3", zones_min=3),
        make_sealed("rs1", "rs2", "rs3", zones_min=2, name="two"),
    )
    lose(pd, "rs1", "rs2")
    repair(pd)
    assert zones(pd, strict) in (["z1", "z3", "z4"], ["z2", "z3", "z4"]), (
        "one of the lost keeps its place: no third zone is left"
    )
    assert len(set(zones(pd, two))) >= 2
    assert not {"rs1", "rs2"} & members(pd, two).keys()


def test_labels_hold_for_repairs(pd: Any, make_sealed: Any) -> None:
    """A server without the label is no replacement; one that registers again with the label is one."""
    stream_id = make_sealed("rs1", "rs2", "rs3", server_labels=["disk=ssd"])
    lose(pd, "rs1")
    repair(pd)
    assert "rs1" in members(pd, stream_id), "rs4 has no label"
    pd.register("rs4", zone="z4", boot=2, labels=["disk=ssd"])
    pd.beat("rs4")
    repair(pd)
    assert members(pd, stream_id).keys() == {"rs2", "rs3", "rs4"}


def test_repairs_of_many_ranges_go_to_many_servers(pd: Any, make_sealed: Any) -> None:
    """Within one round each repair counts for the next: the ranges of a lost server are not all copied to one other."""
    for number in range(5, 9):
        pd.register(f"rs{number}", zone="z4")
        pd.beat(f"rs{number}")
    streams = [make_sealed("rs1", "rs2", "rs3", name=f"m{number}") for number in range(10)]
    lose(pd, "rs1")
    repair(pd)
    targets = [name for stream_id in streams for name in members(pd, stream_id) if name not in ("rs2", "rs3")]
    counts = [targets.count(name) for name in ("rs4", "rs5", "rs6", "rs7", "rs8")]
    assert counts == [2, 2, 2, 2, 2]


def test_a_repair_is_told_from_a_first_choice(pd: Any, make_sealed: Any) -> None:
    """Once all drivers keep reasons, a replacement says that it is one, and so does the filling of a free place."""
    stream_id, short = make_sealed("rs1", "rs2", "rs3"), make_sealed("rs1", "rs2", name="short")
    lose(pd, "rs1")
    assert "replace_replica" in pd.reconcile()
    assert not any(members(pd, stream_id).values()), "members of an earlier level do not keep reasons"
    pd.state.cluster_version = 6
    repair(pd)
    pd.register("rs5", zone="z5")
    pd.beat("rs5")
    lose(pd, "rs1", "rs4")
    repair(pd)
    assert members(pd, stream_id)["rs5"] == common_pb2.REPLICA_REASON_REPLACES_LOST
    assert common_pb2.REPLICA_REASON_FILLS_PLACE in members(pd, short).values()
    pd.reload()
    assert members(pd, stream_id)["rs5"] == common_pb2.REPLICA_REASON_REPLACES_LOST


def test_a_policy_can_be_given_and_taken_away(pd: Any) -> None:
    """An update sets the labels, and an empty list removes them; the zones of a stream never exceed its replicas."""
    pd.create_stream("u")

    def update(**config: Any) -> common_pb2.StreamConfig:
        request = pd_pb2.UpdateStreamRequest(name="u", config=common_pb2.StreamConfig(**config), fields=[*config])
        return pd.do(pd_pb2.UpdateStreamResponse, update_stream=request).stream.config

    assert update(server_labels=["disk=ssd"], zones_min=2).server_labels == ["disk=ssd"]
    assert update(server_labels=[]).server_labels == []
    for wrong in ({"zones_min": 4}, {"server_labels": ["ssd"]}, {"server_labels": ["a=1", "a=2"]}):
        with pytest.raises(InvalidArgument):
            update(**wrong)
    assert pd.state.stream("u").config.zones_min == 2
