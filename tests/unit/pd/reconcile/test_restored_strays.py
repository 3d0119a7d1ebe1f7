"""Replicas of the former cluster on servers that join a restored one: they may be all that is left, and stay."""

from __future__ import annotations

from typing import Any

from tests.support.lost_clusters import SERVERS, LostCluster, restored


def test_replicas_of_the_former_cluster_are_not_dropped(make_report: Any) -> None:
    """Neither of a range that was cut off, nor of one that is in the tier, nor of a stream that is not there."""
    lost = LostCluster()
    stream_id = lost.create("flights")
    lost.upload(lost.append(stream_id, 10), 10)
    cut_off = lost.append(stream_id, 5)
    lost.take_snapshot()
    pd = restored(lost.plan())
    for name in SERVERS:
        pd.register(name)
    former = [
        make_report(stream_id, 0, "SEALED", end=10, size=1),
        make_report(stream_id, cut_off.index, "SEALED", end=15, size=1),
        make_report(77, 0, "SEALED", end=5, size=1),
    ]
    pd.beat("rs1", *former)
    assert "drop_replica" not in pd.directives("rs1")


def test_replicas_of_today_are_dropped_as_ever(make_report: Any) -> None:
    """A stream that was made after the restore, and deleted; a range of today that was trimmed away."""
    lost = LostCluster()
    lost.create("flights")
    lost.take_snapshot()
    pd = restored(lost.plan())
    for name in SERVERS:
        pd.register(name)
    made = pd.create_stream("new").stream_id
    pd.delete_stream("new")
    pd.beat("rs1", make_report(made, 0, "SEALED", end=5, size=1))
    assert "drop_replica" in pd.directives("rs1")
