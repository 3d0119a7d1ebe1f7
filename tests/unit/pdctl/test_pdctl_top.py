"""The rows of `pdctl top`: rates from two looks, none from a process that was started in between."""

from __future__ import annotations

from typing import Any

import pytest

from pdctl.top import Sample, rows
from rangelog_proto.v1 import common_pb2, range_server_pb2


def status(**changes: Any) -> range_server_pb2.GetStatusResponse:
    """A server in its first boot."""
    usual = {"incarnation": 1, "boot": 1, "disk_free_bytes": 25, "disk_total_bytes": 100}
    return range_server_pb2.GetStatusResponse(**(usual | changes))


def sample(at_s: float, *, health: str = "ALIVE", **statuses: Any) -> Sample:
    """One server, rs1, with three replicas, one of them open."""
    server = common_pb2.Server(
        name="rs1", health=f"SERVER_HEALTH_{health}", replica_count=3, open_range_count=1, used_bytes=64
    )
    return Sample(at_s, [server], statuses)


def test_rates_are_differences_over_time() -> None:
    """Of bytes, requests, records, reads and flushes."""
    before = sample(10.0, rs1=status(appended_bytes=100, append_count=1, append_record_count=5, flush_count=2))
    counters = {"appended_bytes": 1_100, "append_count": 5, "append_record_count": 25, "flush_count": 4}
    (row,) = rows(before, sample(12.0, rs1=status(fetched_bytes=10, pending_bytes=7, **counters)))
    assert row["appended_bytes_per_s"] == 500 and row["appends_per_s"] == 2 and row["records_per_s"] == 10
    assert row["fetched_bytes_per_s"] == 5 and row["flushes_per_s"] == 1 and row["pending_bytes"] == 7
    assert (row["open_ranges"], row["replicas"], row["disk_used_percent"], row["problem"]) == (1, 3, 75, "")


@pytest.mark.parametrize("later", [{"boot": 2}, {"incarnation": 2}])
def test_a_restart_has_no_rates(later: dict[str, int]) -> None:
    """Its counters began again: a difference would be negative, or wrong."""
    (row,) = rows(sample(1.0, rs1=status(appended_bytes=100)), sample(2.0, rs1=status(**later)))
    assert row["appended_bytes_per_s"] is None and row["connections"] == 0


def test_a_server_that_does_not_answer() -> None:
    """It has a row, and says so."""
    (row,) = rows(sample(1.0, rs1=status()), sample(2.0, health="DEAD"))
    assert row["health"] == "dead" and row["problem"] == "does not answer" and row["appends_per_s"] is None


def test_without_a_terminal_once_is_needed(pdctl: Any) -> None:
    """A table again and again is nothing for a pipe."""
    assert "--once" in pdctl.fails(2, "top")


def test_once_over_grpc(run: Any, member: Any) -> None:
    """One row per registered server, also of one that nobody reaches."""
    member.register("rs9")
    (row,) = [each for each in run.json("top", "--once", "--interval", "0.1") if each["name"] == "rs9"]
    assert row["problem"] == "does not answer"
