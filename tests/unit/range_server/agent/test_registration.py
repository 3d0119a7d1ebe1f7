"""What a range server registers with, from its settings."""

from __future__ import annotations

from pathlib import Path

from rangelog_server.agent.registration import registration
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.settings import RangeServerSettings


def test_a_server_says_where_it_is_and_what_it_is_chosen_by(tmp_path: Path) -> None:
    """Zone, rack and labels; the capacity as configured."""
    settings = RangeServerSettings(
        name="rs1", data_dir=tmp_path, zone="z", rack="r", labels=["disk=ssd", "team=x"], capacity_bytes=1 << 30
    )
    made = registration(DirectoryIdentity("rs1", 7, 2, 0), 9, "h:1", "h:2", 100, settings)
    assert (made.zone, made.rack, list(made.labels)) == ("z", "r", ["disk=ssd", "team=x"])
    assert (made.server, made.incarnation, made.boot, made.process_id) == ("rs1", 7, 2, 9)
    assert (made.data_address, made.control_address, made.log_end, made.capacity_bytes) == ("h:1", "h:2", 100, 1 << 30)
