"""Placement drivers of two feature levels in one group, upgraded one by one under load; and one that is too old."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import StreamConfig
from rangelog.errors import RangelogError
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.consensus.files.journal import JournalEntry, RaftJournal
from rangelog_pd.state.versions import FEATURE_LEVEL
from tests.integration.helpers.pd_group import described, wait_for_version
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

EARLIER = {"RANGELOG_PD_FEATURE_LEVEL_MAX": "1", "RANGELOG_PD_SNAPSHOT_ENTRIES": "100"}
NAMES = ("pd1", "pd2", "pd3")
ROLL_BYTES = 64 * 1024


class Load:
    """A writer that rolls often, so that the placement drivers have work; and what was acked."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.acked: dict[int, bytes] = {}
        self.stopping = False

    async def run(self) -> None:
        number = 0
        async with self.client.writer("upgraded") as writer:
            while not self.stopping:
                value = b"%08d" % number + b"." * 1_000
                with contextlib.suppress(RangelogError):
                    self.acked[(await writer.append(value)).offset] = value
                number += 1

    async def grow(self, count: int) -> None:
        """Until that many more are acked."""
        wanted = len(self.acked) + count
        await until(lambda: len(self.acked) >= wanted, "no acks")


@pytest.mark.hasty
async def test_members_of_two_levels_are_one_group_and_the_cluster_goes_on_when_all_are_new(
    cluster_factory: Any,
) -> None:
    """Nothing is lost while each is replaced; the version rises only with the last; then an earlier program stops."""
    cluster = cluster_factory(env=EARLIER)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("upgraded", StreamConfig(range_size_bytes_max=ROLL_BYTES))
        load = Load(client)
        running = asyncio.create_task(load.run())
        try:
            await load.grow(200)
            assert (await described(cluster)).cluster_version == 1
            for name in NAMES:
                assert (await described(cluster)).cluster_version == 1, "one of them is still of the earlier level"
                cluster.placement_drivers[name].env["RANGELOG_PD_FEATURE_LEVEL_MAX"] = str(FEATURE_LEVEL)
                await asyncio.to_thread(cluster.restart, name)
                await load.grow(200)
            found = await wait_for_version(cluster, FEATURE_LEVEL)
            assert {each.feature_level for each in found.members} == {FEATURE_LEVEL}
            await load.grow(200)
            leader = next(each.name for each in found.members if each.leader)
            await asyncio.to_thread(cluster.kill, leader)
            await load.grow(200)
            await asyncio.to_thread(cluster.start_member, leader)
            await _an_earlier_program_stops(cluster, leader)
            await load.grow(200)
        finally:
            load.stopping = True
            await asyncio.wait_for(running, 30)
        read = {record.offset: record.value async for record in client.reader("upgraded", follow=False)}
        assert all(read.get(offset) == value for offset, value in load.acked.items()), "an acked record is missing"
        assert list(read) == list(range(len(read)))
        stream = await client.describe_stream("upgraded")
        assert stream.range_count > 10


async def _an_earlier_program_stops(cluster: Any, name: str) -> None:
    """Started on the data of a member of the later level: it says why, and harms nothing.

    If its own snapshot is of before the upgrade, the leader may send it a later one: it stores that, cannot read it, and stops.
    """
    process = cluster.placement_drivers[name]
    await asyncio.to_thread(cluster.kill, name)
    raft = Path(cluster.directory) / name / "raft"
    committed, snapshot_index = _kept(raft)
    process.env["RANGELOG_PD_FEATURE_LEVEL_MAX"] = "1"
    process.start()
    await until(lambda: not process.running, "it goes on")
    assert "feature level" in Path(process.log_path).read_text().splitlines()[-1]
    kept, later_index = _kept(raft)
    assert later_index >= snapshot_index
    lost = [index for index, entry in committed.items() if index > later_index and kept.get(index) != entry]
    assert not lost, "an entry that was committed is neither in the journal nor below the snapshot"
    process.env["RANGELOG_PD_FEATURE_LEVEL_MAX"] = str(FEATURE_LEVEL)
    await asyncio.to_thread(cluster.start_member, name)

    async def is_back() -> bool:
        members = (await described(cluster)).members
        return any(each.name == name and each.reachable and each.feature_level == FEATURE_LEVEL for each in members)

    await until(is_back, "it does not come back with the right program")


def _kept(raft: Path) -> tuple[dict[int, JournalEntry], int]:
    """Return the entries of a stopped member that it knew to be committed, and the index that its snapshot reaches."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(raft, Path(folder) / "raft"))
        state, snapshot = hard_state.load(copy / "vote"), snapshot_file.read(copy / "snapshot")
        assert state is not None and snapshot is not None
        journal = RaftJournal(copy / "journal")
        entries = {each.log_index: each for each in journal.entries if each.log_index <= state.commit_index}
        journal.close()
    return entries, snapshot.last.log_index
