"""Real processes: what is left open is sealed and completed by itself, an idle writer keeps its range, and a loss is said."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import PreconditionFailed, RecordsLost
from rangelog_core.limits import OFFSETS_GIVEN_UP
from rangelog_core.net.pd_client import PdClient
from rangelog_core.stream_config import StreamConfig
from rangelog_proto.v1 import common_pb2, inspection_pb2, operations_pb2, pd_pb2, repair_pb2
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

SOON = {
    "RANGELOG_PD_SERVER_SUSPECT_MS": "700",
    "RANGELOG_PD_SERVER_DEAD_MS": "1500",
    "RANGELOG_PD_REPAIR_AFTER_MS": "1500",
    "RANGELOG_PD_ORPHAN_QUIET_MS": "1500",
}
WAIT_S = 60.0


@pytest.fixture
async def calls(cluster_factory: Callable[..., Cluster]) -> Any:
    """`await calls(cluster)`: the placement driver's calls."""
    made: list[PdClient] = []

    def open_client(cluster: Cluster) -> PdClient:
        made.append(PdClient(cluster.pd_addresses))
        return made[-1]

    yield open_client
    for each in made:
        await each.close()


async def ranges_of(pd: PdClient, stream: str) -> list[common_pb2.Range]:
    return list((await pd.call(pd_pb2.ListRangesRequest(name=stream), pd_pb2.ListRangesResponse, timeout_s=10)).ranges)


async def inspected(pd: PdClient, stream: str) -> list[inspection_pb2.InspectedRange]:
    request = inspection_pb2.InspectRangesRequest(name=stream, page_size=10)
    return list((await pd.call(request, inspection_pb2.InspectRangesResponse, timeout_s=10)).ranges)


def ends_of(of: inspection_pb2.InspectedRange) -> list[int]:
    """What its members hold durably, as they reported it."""
    return [copy.durable_offset for copy in of.copies]


async def repairs_of(pd: PdClient) -> repair_pb2.ListRepairsResponse:
    return await pd.call(repair_pb2.ListRepairsRequest(), repair_pb2.ListRepairsResponse, timeout_s=10)


async def append(client: rangelog.Client, stream: str, count: int) -> None:
    """Append records and end, without sealing the range."""
    async with client.writer(stream) as writer:
        for number in range(count):
            await writer.append(b"%d" % number)


async def test_what_a_gone_writer_left_is_sealed_and_completed(
    cluster_factory: Callable[..., Cluster], calls: Any
) -> None:
    """Its range loses a server for good: nobody opens the stream, and soon three living servers hold all of it."""
    cluster = cluster_factory(pds=1, range_servers=4, env=SOON)
    pd = calls(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s", StreamConfig(tiered=False))
        await append(client, "s", 50)
        (left,) = await ranges_of(pd, "s")
        assert left.state == common_pb2.RANGE_STATE_OPEN
        gone = left.replicas[0].server
        await asyncio.to_thread(cluster.kill, gone)

        async def whole() -> bool:
            found = (await ranges_of(pd, "s"))[0]
            sealed = found.state == common_pb2.RANGE_STATE_SEALED and found.end_offset == 50
            repairs = await repairs_of(pd)
            idle = not (repairs.waiting_count or repairs.copying_count or repairs.blocked_count)
            return sealed and idle and gone not in [each.server for each in found.replicas]

        await until(whole, "the range is not whole")
        members = {each.server for each in (await ranges_of(pd, "s"))[0].replicas}
        replaced = {each.server for each in left.replicas} - members
        assert (await repairs_of(pd)).done_count == len(replaced), "one repair for each member that went"
        assert [record.value async for record in client.reader("s")] == [b"%d" % number for number in range(50)]


async def test_an_old_range_of_a_gone_writer_reaches_the_tier(
    cluster_factory: Callable[..., Cluster], calls: Any
) -> None:
    """No server dies: the range is sealed a grace after its age, and uploaded."""
    cluster = cluster_factory(pds=1, range_servers=3, env=SOON)
    pd = calls(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s", StreamConfig(range_age_seconds=2, tiered=True))
        await append(client, "s", 10)

        async def tiered() -> bool:
            found = (await ranges_of(pd, "s"))[0]
            return found.state == common_pb2.RANGE_STATE_SEALED and found.tiered_end_offset == 10

        await until(tiered, "the range is not in the tier")


@pytest.mark.hasty
async def test_an_idle_writer_keeps_its_range(cluster_factory: Callable[..., Cluster], calls: Any) -> None:
    """With no fourth server it cannot leave the lost one. It is asked, answers, and goes on much later, unfenced."""
    cluster = cluster_factory(pds=1, range_servers=3, env=SOON)
    pd = calls(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            await writer.append(b"0")

            async def on_all_three() -> int:
                """How many ranges there are, once no server lacks the record: the writer leaves one where two are behind."""
                found = await inspected(pd, "s")
                if writer._runner.core.should_leave(time.monotonic() * 1000):
                    return 0  # it gave up a server that stood still, and leaves the range for that
                is_whole = found[-1].range.start_offset == 1 or ends_of(found[-1]) == [1, 1, 1]
                return len(found) if is_whole else 0

            count = await until(on_all_three, "a server lacks the record")
            await asyncio.to_thread(cluster.kill, "rs3")

            async def asked() -> bool:
                found = await ranges_of(pd, "s")
                assert len(found) == count, found
                open_range = found[-1]
                assert open_range.state == common_pb2.RANGE_STATE_OPEN, open_range
                request = inspection_pb2.FindTasksRequest(kind="recover-range", include_done=True)
                tasks = (await pd.call(request, inspection_pb2.FindTasksResponse, timeout_s=10)).tasks
                assert not [each.last_error for each in tasks if each.last_error], "a writer that answers is no failure"
                return any(each.done for each in tasks)

            await until(asked, "nobody asked the writer")
            await writer.append(b"1")
        assert [record.value async for record in client.reader("s")] == [b"0", b"1"]


@pytest.mark.hasty
async def test_a_server_that_stood_still_has_its_place_again(
    cluster_factory: Callable[..., Cluster], calls: Any
) -> None:
    """The writer goes on with two, since there is no fourth; once the third is there, it appends to three again."""
    cluster = cluster_factory(pds=1, range_servers=3)
    pd = calls(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s")
        cluster.pause("rs2")
        async with client.writer("s") as writer:
            began_s = time.monotonic()
            await writer.append(b"0")
            while time.monotonic() - began_s < 3.0:  # longer than any replica may be behind
                await writer.append(b"1")
                await asyncio.sleep(0.1)
            cluster.resume("rs2")

            async def of_three() -> bool:
                await writer.append(b"2")
                return min(ends_of((await inspected(pd, "s"))[-1])) > 0

            await until(of_three, "the range has two replicas still")


@pytest.mark.hasty
async def test_a_loss_is_said_and_accepted(cluster_factory: Callable[..., Cluster], calls: Any) -> None:
    """All disks of a sealed range are gone: it is lost, a reader is told where to go on, and a trim ends the matter."""
    cluster = cluster_factory(pds=1, range_servers=3, env=SOON)
    pd = calls(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        stream = await client.create_stream("s", StreamConfig(tiered=False))
        await append(client, "s", 10)
        await client.seal_stream("s")
        request = repair_pb2.AcceptLossRequest(request_id="early", stream_id=stream.stream_id, range_index=0)
        with pytest.raises(PreconditionFailed):
            await pd.call(request, repair_pb2.AcceptLossResponse, timeout_s=10)
        for name in ("rs1", "rs2", "rs3"):
            await asyncio.to_thread(cluster.kill, name)
            shutil.rmtree(cluster.directory / name)

        async def dead() -> bool:
            """While others seem to live, the first that is back takes its own place, to copy from them."""
            listed = (await pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=10)).servers
            return len(listed) == 3 and all(each.health == common_pb2.SERVER_HEALTH_DEAD for each in listed)

        await until(dead, "the servers are not known to be dead")
        for name in ("rs1", "rs2", "rs3"):
            await asyncio.to_thread(cluster.start_member, name)
        await until(lambda: lost(pd), "the range is not lost")
        request.request_id = "late"
        await pd.call(request, repair_pb2.AcceptLossResponse, timeout_s=10)
        await append(client, "s", 5)
        with pytest.raises(RecordsLost) as told:
            async for _ in client.reader("s", start="earliest"):
                pass
        assert told.value.offset == 10
        assert [record.offset async for record in client.reader("s", start=10)] == list(range(10, 15))
        await client.trim_stream("s", 10)
        assert [record.offset async for record in client.reader("s", start="earliest")] == list(range(10, 15))


@pytest.mark.hasty
@pytest.mark.parametrize("left", [1, 0])
async def test_the_loss_of_an_open_range_is_accepted(
    cluster_factory: Callable[..., Cluster], calls: Any, left: int
) -> None:
    """Two of three disks are gone, or all: nobody can seal the range, until its loss is accepted; then the stream goes on.

    What the last member has stays readable, and no offset comes again.
    """
    cluster = cluster_factory(pds=1, range_servers=3, env=SOON)
    pd = calls(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        stream = await client.create_stream("s")
        await append(client, "s", 20)
        gone = ["rs1", "rs2", "rs3"][left:]
        for name in gone:
            await asyncio.to_thread(cluster.kill, name)
            shutil.rmtree(cluster.directory / name)
        request = repair_pb2.AcceptLossRequest(request_id="early", stream_id=stream.stream_id, range_index=0)
        with pytest.raises(PreconditionFailed, match="not known to be lost"):
            await pd.call(request, repair_pb2.AcceptLossResponse, timeout_s=10)
        for name in gone:
            await asyncio.to_thread(cluster.start_member, name)
        await until(lambda: lost(pd), "the range is not lost")
        assert (await repairs_of(pd)).orphaned_count == 0
        request.request_id = "late"
        done = await until(lambda: accepted(pd, request), "the loss is not accepted")
        kept, goes_on = done.kept.end_offset, done.range.end_offset
        assert 0 <= kept <= 20 and bool(kept) == done.HasField("kept")
        assert goes_on == kept + OFFSETS_GIVEN_UP
        assert bool(left) or not kept
        await append(client, "s", 5)
        seen = []
        with pytest.raises(RecordsLost) as told:
            async for record in client.reader("s", start="earliest"):
                seen.append(record.value)
        assert seen == [b"%d" % number for number in range(kept)]
        assert told.value.offset == goes_on
        found = [record async for record in client.reader("s", start=goes_on)]
        assert [record.offset for record in found] == list(range(goes_on, goes_on + 5))

        async def mended() -> bool:
            repairs = await repairs_of(pd)
            return not (repairs.waiting_count or repairs.copying_count or repairs.blocked_count or repairs.lost_count)

        await until(mended, "what was kept is not whole")


async def accepted(pd: PdClient, request: repair_pb2.AcceptLossRequest) -> repair_pb2.AcceptLossResponse | None:
    """Accept a loss; None while the range is quiet anew: what members report changes once the last new incarnation is heard."""
    try:
        return await pd.call(request, repair_pb2.AcceptLossResponse, timeout_s=10)
    except PreconditionFailed as error:
        assert "not known to be lost" in error.message
        return None


async def lost(pd: PdClient) -> bool:
    return (await repairs_of(pd)).lost_count == 1


async def test_ranges_that_began_with_two_members_get_the_third(
    cluster_factory: Callable[..., Cluster], calls: Any
) -> None:
    """A writer under load, one that has appended nothing, and one that is gone: nobody is refused, and no server is blamed."""
    cluster = cluster_factory(pds=1, range_servers=3, env=SOON)
    pd = calls(cluster)
    modes = pd

    async def set_mode(mode: common_pb2.ServerMode) -> None:
        request = operations_pb2.SetServerModeRequest(request_id=f"{mode}", server="rs3", mode=mode)
        await modes.call(request, operations_pb2.SetServerModeResponse, timeout_s=10)

    async with await rangelog.connect(cluster.connect_string) as client:
        for name in ("busy", "idle", "left"):
            await client.create_stream(name, StreamConfig(tiered=False))
        await set_mode(common_pb2.SERVER_MODE_CORDONED)
        await append(client, "left", 20)
        stop, acked = asyncio.Event(), 0
        async with client.writer("idle") as idle, client.writer("busy") as busy:

            async def load() -> None:
                nonlocal acked
                while not stop.is_set():
                    await busy.append(b"%d" % acked, timeout_s=5)
                    acked += 1
                    await asyncio.sleep(0.002)

            loading = asyncio.create_task(load())
            for name in ("busy", "idle", "left"):
                (found,) = await ranges_of(pd, name)
                assert [each.server for each in found.replicas] == ["rs1", "rs2"], name
            await set_mode(common_pb2.SERVER_MODE_ACTIVE)

            async def all_have_three() -> bool:
                lasts = [(await ranges_of(pd, name))[-1] for name in ("busy", "idle")]
                repairs = await repairs_of(pd)
                left = (await ranges_of(pd, "left"))[0]
                idle_pd = not (repairs.waiting_count or repairs.copying_count or repairs.blocked_count)
                sealed = left.state == common_pb2.RANGE_STATE_SEALED
                return idle_pd and sealed and all(len(each.replicas) == 3 for each in [*lasts, left])

            await until(all_have_three, "a range has two members")
            stop.set()
            await loading
            assert await idle.append(b"first") is not None
        assert [record.value async for record in client.reader("busy")] == [b"%d" % number for number in range(acked)]
        assert len([record async for record in client.reader("left")]) == 20
    servers = (await pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=10)).servers
    assert not [each.health_reason for each in servers if each.health_reason], "a server is blamed"

    async def all_alive() -> bool:
        servers = (await pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=10)).servers
        return [each.health for each in servers] == [common_pb2.SERVER_HEALTH_ALIVE] * 3

    await until(all_alive, "a server is not alive")
