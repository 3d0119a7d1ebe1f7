"""What a range server registers with, from its settings, and the refusal that ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import DirectoryGivenUp
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.registration import register, registration
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.settings import RangeServerSettings
from tests.support.pd_calls import CallsByName


def test_a_server_says_where_it_is_and_what_it_is_chosen_by(tmp_path: Path) -> None:
    """Zone, rack and labels; the capacity as configured."""
    settings = RangeServerSettings(
        name="rs1", data_dir=tmp_path, zone="z", rack="r", labels=["disk=ssd", "team=x"], capacity_bytes=1 << 30
    )
    made = registration(DirectoryIdentity("rs1", 7, 2, 0), 9, "h:1", "h:2", 100, settings)
    assert (made.zone, made.rack, list(made.labels)) == ("z", "r", ["disk=ssd", "team=x"])
    assert (made.server, made.incarnation, made.boot, made.process_id) == ("rs1", 7, 2, 9)
    assert (made.data_address, made.control_address, made.log_end, made.capacity_bytes) == ("h:1", "h:2", 100, 1 << 30)


async def test_a_directory_that_never_counts_again_ends_the_server() -> None:
    """It does not ask again: no later answer can be another one."""

    class Driver(CallsByName):
        asked = 0

        async def register_server(self, request: pb.RegisterServerRequest, *, timeout_s: float) -> Any:
            self.asked += 1
            raise DirectoryGivenUp("rs1 was removed")

    driver = Driver()
    with pytest.raises(DirectoryGivenUp, match="rs1 was removed"):
        await register(driver, DirectoryIdentity("rs1", 7, 2, 0), pb.RegisterServerRequest())  # type: ignore[arg-type]
    assert driver.asked == 1
