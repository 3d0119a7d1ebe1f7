"""Two of three range servers have no room any more: who operates the cluster and who writes are told so, and why."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

import rangelog
from rangelog.errors import RangelogError, StorageFull
from rangelog_cli.local.processes import Cluster, Launch
from rangelog_core.limits import MIB
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

FULL_AT_BYTES = 96 * MIB
FULL = "its log cannot grow: the log has reached its capacity"


async def test_a_cluster_that_takes_no_append_is_not_healthy(tmp_path: Path) -> None:
    """Its servers are all alive; the program's error says what they refuse appends with."""
    small = Launch(env={"RANGELOG_SERVER_CAPACITY_BYTES": str(FULL_AT_BYTES)})
    launches = {"rs2": small, "rs3": small}
    with Cluster.open(tmp_path / "cluster", pds=1, range_servers=3, tier_url="", launches=launches) as cluster:
        pdctl = Pdctl(cluster)
        async with await rangelog.connect(cluster.connect_string) as client:
            await client.create_stream("s")
            writer = client.writer("s")
            await writer.open()
            with suppress(RangelogError):
                async with asyncio.timeout(60):
                    while True:
                        await writer.append(bytes(MIB - 1024), timeout_s=3.0)
            await until(lambda: pdctl("cluster", "status").returncode, "it says that it is healthy", 30)
            with pytest.raises(StorageFull, match="no room in the log"):
                await writer.append(bytes(MIB - 1024), timeout_s=3.0)
            status, listed = [
                await asyncio.to_thread(pdctl, *each) for each in (("cluster", "status"), ("server", "list"))
            ]
            await writer.close(flush=False)
    assert status.returncode == 1, status
    assert f"range server rs2 is alive: {FULL}" in status.stdout.decode()
    assert "PROBLEM" in listed.stdout.decode() and FULL in listed.stdout.decode()
