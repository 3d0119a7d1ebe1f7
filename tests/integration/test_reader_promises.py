"""What a reader or a writer was told on a real cluster stays true: positions, records, starts by time, outcomes, names."""

from __future__ import annotations

import asyncio
import operator
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rangelog
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import OffsetTrimmed, RangelogError, StreamNotFound
from rangelog_core.stream_config import StreamConfig
from tests.chaos import chaos_history
from tests.chaos.chaos_load import Client, Load, StreamPlan
from tests.chaos.chaos_network import Loopback
from tests.chaos.chaos_noting import Noting
from tests.chaos.chaos_proxy import DelayProxy
from tests.chaos.chaos_reading import read_back
from tests.chaos.chaos_starts import Starts
from tests.integration.helpers.holding_driver import HoldingDriver
from tests.support.history import Event, FileHistory, read_history
from tests.support.log_checker import check_log
from tests.support.log_report import Report
from tests.support.waiting import eventually, until, until_arrived

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

FAR_S = 0.05
RANGE_BYTES = 64 * 1024
STREAM = StreamPlan("s", rate=2_000, record_bytes=400, range_bytes=RANGE_BYTES, hot_retention_s=3600.0)
HOST = "here"
LIVES = 5
UNACKED = 60
SOON_S = 30.0
TIME_0_MS = 1_700_000_000_000
ClusterFactory = Callable[..., Cluster]


@pytest.fixture
def cluster(cluster_factory: ClusterFactory) -> Cluster:
    """One placement driver, so that clients cannot go round a proxy before it, and three range servers that nobody suspects:
    of those that stand still here none is avoided."""
    return cluster_factory(pds=1, env={"RANGELOG_PD_SERVER_SUSPECT_MS": "60000", "RANGELOG_PD_SERVER_DEAD_MS": "90000"})


@pytest.fixture
def load(cluster: Cluster, tmp_path: Path) -> Iterator[Load]:
    """Client processes of the chaos suite."""
    load = Load(tmp_path / "clients", Loopback(), cluster.connect_string, (STREAM,))
    load.directory.mkdir()
    yield load
    load.close()


@asynccontextmanager
async def a_stream(cluster: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client, and the stream."""
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream(STREAM.name, StreamConfig(range_size_bytes_max=RANGE_BYTES))
        yield client


async def judged(load: Load, client: rangelog.Client) -> Report:
    """Everything that clients noted, beside what is in the log at last."""
    await client.seal_stream(STREAM.name)
    finals, _ = await read_back(client, STREAM.name, "hot", "hot_first")
    noted = [read_history(each) for each in sorted(load.directory.glob("*.jsonl"))]
    everything: list[Iterator[Event]] = [*noted, iter(finals)]
    return check_log(*everything)


async def acks(writer: Client, count: int) -> None:
    """Wait until a writer process got so many."""
    await asyncio.to_thread(
        eventually, lambda: writer.pulse.records > count, f"{writer.name}: {writer.process.last_words()}", SOON_S
    )


# ---- the end of an open range


async def test_what_readers_saw_stays_where_writers_roll_far_from_the_placement_driver(
    cluster: Cluster, load: Load
) -> None:
    """Writers 50 ms away roll and die while readers start: nothing seen changes, no end goes back, no position is refused."""
    dice = random.Random(1)
    (target,) = cluster.plan.pds
    async with a_stream(cluster) as client:
        with DelayProxy(FAR_S) as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
            proxy.forward(listener.dup(), (target.host, target.api_port))
            far = f"127.0.0.1:{listener.getsockname()[1]}"
            for seed in range(2):
                load.side_reader(STREAM, HOST, "starts", seed=seed, pause=0.01)
            for life in range(LIVES):
                load.connect_string = far
                writer = load.side_writer(STREAM, HOST)
                await acks(writer, dice.randrange(800, 2_400))
                if life < LIVES - 1:
                    writer.process.kill()
            writer.process.request_stop()
            await asyncio.to_thread(eventually, lambda: not writer.process.running, "the writer does not end", SOON_S)
        for reader in load.side_readers:
            assert reader.process.running, reader.process.last_words()
            assert reader.pulse.records
            reader.process.kill()
        report = await judged(load, client)
    assert report.clean, report.violations
    assert report.acked and report.read


async def leave_a_range(cluster: Cluster, load: Load, reader: Starts) -> None:
    """A writer's seal is on its way while a reader reads to the end; it dies as soon as the seal was answered.

    Two of three servers stop for a moment before the writer decides: so there is something that they have not acked then.
    """
    async with HoldingDriver(cluster.connect_string) as driver, asyncio.timeout(SOON_S):
        load.connect_string = driver.address
        writer = load.side_writer(STREAM, HOST)
        await driver.probed.wait()
        stopped = list(cluster.range_servers)[:2]
        for name in stopped:
            cluster.pause(name)
        try:
            await until(lambda: writer.pulse.invoked >= writer.pulse.records + UNACKED)
            driver.let_probe.set()
            await driver.asked.wait()
        finally:
            for name in stopped:
                cluster.resume(name)
        for number in range(3):
            await reader.own(f"during-{number}")
        driver.let_through.set()
        await driver.done.wait()
        writer.process.kill()
    await reader.own("afterwards")


@pytest.mark.hasty
async def test_what_a_reader_saw_of_a_range_that_is_being_left_stays(cluster: Cluster, load: Load) -> None:
    """A reader reads to the end while a seal is on its way, and the writer dies: the next one writes behind what was read."""
    async with a_stream(cluster) as client:
        pulse = chaos_history.PulseFile(load.directory / "reader.pulse")
        noting = Noting(STREAM.name, "reader", FileHistory(load.directory / "reader.jsonl"), pulse)
        reader = Starts(client, cluster.connect_string, STREAM.name, noting, random.Random(2))
        await leave_a_range(cluster, load, reader)
        load.connect_string = cluster.connect_string
        heir = load.side_writer(STREAM, HOST)
        await acks(heir, 100)
        heir.process.request_stop()
        await asyncio.to_thread(eventually, lambda: not heir.process.running, "the heir does not end", SOON_S)
        await reader.own("at-last")
        report = await judged(load, client)
    assert report.clean, report.violations
    assert pulse.last.records > heir.pulse.records, "nothing was read before the heir wrote"


# ---- starts by time


@pytest.mark.hasty
async def test_a_start_by_time_gives_all_that_was_acked_where_a_replica_is_behind(cluster: Cluster) -> None:
    """The replica that readers ask first was stopped until the writer went on without it: starts by time skip nothing."""
    async with a_stream(cluster) as client:
        writer = client.writer(STREAM.name)
        await writer.open()
        await writer.append(b"0", timestamp=TIME_0_MS)
        _, ranges = await client.metadata.ranges(STREAM.name, 0)
        victim, left = ranges[-1].replicas[0].server, ranges[-1].index
        cluster.pause(victim)
        count = 1
        assert writer._runner is not None
        core = writer._runner.core

        async def one_is_left() -> bool:
            nonlocal count
            await writer.append(b"%d" % count, timestamp=TIME_0_MS + count)
            count += 1
            window = core._window.replicas.items()
            if victim not in [each.server for each, progress in window if progress.live and not progress.failed]:
                return True  # given up
            _, now = await client.metadata.ranges(STREAM.name, 0)
            return now[-1].index > left  # left behind, though the next range may have it as a member again

        await until(one_is_left, "the writer waits for the server that stands still", SOON_S)
        first = count
        acked = [
            await writer.append(b"%d" % number, timestamp=TIME_0_MS + number) for number in range(first, first + 100)
        ]
        await writer.close()
        cluster.resume(victim)
        await asyncio.to_thread(wait_healthy, cluster)
    async with await rangelog.connect(cluster.connect_string) as client:  # its connections have seen no pause
        for wanted in (0, first, first + 50, first + 99):
            start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=TIME_0_MS + wanted)
            found = [record.value async for record in client.reader(STREAM.name, start=start)]
            assert found[-(first + 100 - wanted) :] == [b"%d" % number for number in range(wanted, first + 100)]
    assert acked[-1].offset == first + 99


# ---- outcomes


async def test_an_append_that_failed_for_certain_is_not_in_the_log(cluster: Cluster) -> None:
    """Takeovers and closes with appends in flight: where an error says that nothing happened, nothing did."""
    failed: list[bytes] = []
    unknown: list[bytes] = []

    def told(value: bytes, future: asyncio.Future[rangelog.Ack]) -> None:
        error = future.exception()
        if error is not None:
            assert isinstance(error, RangelogError)
            (unknown if error.outcome_unknown else failed).append(value)

    async def submit(writer: rangelog.Writer, life: int) -> None:
        """More than is sent at once; some of it is on its way when this returns."""
        for number in range(400):
            value = b"%d:%d:" % (life, number) + bytes(1_000)
            try:
                future = writer.submit(value)
            except RangelogError:
                return
            future.add_done_callback(lambda done, value=value: told(value, done))
            if number % 50 == 0:
                await asyncio.sleep(0)

    async with a_stream(cluster) as client, await rangelog.connect(cluster.connect_string) as other:
        for life in range(12):
            writer = client.writer(STREAM.name)
            await writer.open()
            if life % 2:
                heir = other.writer(STREAM.name)
                opening = asyncio.create_task(heir.open())
                while not opening.done():
                    await submit(writer, life)
                    life += 100
                    await asyncio.wait([opening], timeout=0.002)
                await opening
                await heir.close()
            else:
                await submit(writer, life)
            await writer.close(flush=False)
        await client.seal_stream(STREAM.name)
        found = {record.value async for record in client.reader(STREAM.name)}
    wrong = [value[:20] for value in failed if value in found]
    assert not wrong, f"{len(wrong)} appends failed for certain and are in the log, such as {wrong[:3]}"
    assert unknown and any(value in found for value in unknown), "nothing was in flight: the test shows nothing"


# ---- names


async def test_a_follower_of_a_deleted_stream_is_told_so(cluster: Cluster) -> None:
    """A stream is deleted and made again under a follower and a writer: both get StreamNotFound, and nothing of the new one."""
    async with a_stream(cluster) as client, await rangelog.connect(cluster.connect_string) as other:
        old = other.writer(STREAM.name)
        await old.open()
        await old.append_batch([b"old %d" % number for number in range(50)])
        seen: list[bytes] = []

        async def follow() -> None:
            async for record in other.reader(STREAM.name, follow=True, timeout_s=SOON_S):
                seen.append(record.value)

        following = asyncio.create_task(follow())
        await until_arrived(lambda: len(seen), 50, "the follower reads", SOON_S, by=operator.ge)
        await client.delete_stream(STREAM.name)
        await client.create_stream(STREAM.name)
        async with client.writer(STREAM.name) as writer:
            await writer.append_batch([b"new %d" % number for number in range(100)])
            with pytest.raises(StreamNotFound):
                async with asyncio.timeout(SOON_S):
                    await following
            with pytest.raises(StreamNotFound):
                await old.append(b"late", timeout_s=SOON_S)
        assert seen == [b"old %d" % number for number in range(50)]
        assert [record.value async for record in client.reader(STREAM.name)] == [b"new %d" % n for n in range(100)]


async def test_a_start_by_name_is_looked_up_again(shared_cluster: Cluster) -> None:
    """Retention is faster than the first record: a stream's reader, a new cursor's and one by time begin at what is there."""
    name = "promises-quick-retention"
    async with await rangelog.connect(shared_cluster.connect_string) as client:
        await client.create_stream(name)
        begun = datetime.now(UTC)
        await client.append(name, [b"%d" % number for number in range(20)])
        await client.seal_stream(name)
        readers = [client.reader(name, start=each) for each in ("earliest", -20, begun - timedelta(seconds=5))]
        readers += [client.reader(name, start="earliest", cursor="c"), client.reader(name, start=0)]
        for reader in readers:
            await reader.begin()
        await client.trim_stream(name, 15)
        for reader in readers:
            await reader._view.refresh(0)  # as a reader does whose range was dropped
        for reader in readers[:-1]:
            assert [record.offset async for record in reader] == list(range(15, 20))
        with pytest.raises(OffsetTrimmed):
            _ = [record async for record in readers[-1]]
