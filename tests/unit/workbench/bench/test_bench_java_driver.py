"""The client in Java that runs the workload's loops: its commands, on a log in memory, and what its answers become."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[4]
PEERS = ROOT / "bench" / "peers"
MEMORY_LOG = """
import java.util.*;
import java.util.concurrent.*;

final class MemoryLog implements Driver.Log {
    private final List<byte[]> records = new CopyOnWriteArrayList<>();
    private final ScheduledExecutorService later = Executors.newScheduledThreadPool(1);
    private volatile Driver.Delivery reader = (payload, seenNs) -> {};
    private int refusals = 1;

    public static void main(String[] arguments) throws Exception {
        new Driver(new MemoryLog()).serve();
        System.exit(0);
    }

    public void fresh() { records.clear(); }

    public void append(byte[] payload, Driver.Done done) {
        later.schedule(() -> {
            records.add(payload);
            reader.call(payload, System.nanoTime()); // before the ack
            done.call(null);
        }, 1, TimeUnit.MILLISECONDS);
    }

    public void append(byte[] payload) throws Exception {
        if (payload.length == 77 && refusals-- > 0) {
            throw new IllegalStateException("refused, \\"once\\"");
        }
        CountDownLatch acked = new CountDownLatch(1);
        append(payload, error -> acked.countDown());
        acked.await();
    }

    public long[] read(long count) {
        return new long[] {Math.min(count, records.size()), records.stream().limit(count).mapToLong(r -> r.length).sum()};
    }

    public long[] produce(int producers, int shards, byte[] payload, long durationNs, int inFlight, byte[][] keys) {
        if (keys.length == 0 || !new String(keys[keys.length - 1]).equals("key-" + (keys.length - 1))) {
            throw new IllegalStateException("no keys");
        }
        return new long[] {(long) producers * shards * payload.length * inFlight, durationNs};
    }

    public AutoCloseable follow(Driver.Delivery delivery) {
        reader = delivery;
        return () -> reader = (payload, seenNs) -> {};
    }

    public String inCharge() { return "[\\"memory:1\\"]"; }
}
"""


@pytest.fixture(scope="module")
def jvm() -> Iterator[ModuleType]:
    """The module `jvm` of the peers, which are scripts in a folder."""
    sys.path.insert(0, str(PEERS))
    try:
        import jvm

        yield jvm
    finally:
        sys.path.remove(str(PEERS))
        for name in ("jvm", "servers"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled driver with the log in memory."""
    if shutil.which("javac") is None:
        pytest.skip("no JDK")
    at = tmp_path_factory.mktemp("driver")
    (at / "MemoryLog.java").write_text(MEMORY_LOG)
    driver = PEERS / "java" / "driver" / "Driver.java"
    command = ["javac", "-Xlint:all", "-Werror", "-d", str(at), str(driver), str(at / "MemoryLog.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return at


@pytest.fixture
async def driver(jvm: ModuleType, classes: Path) -> AsyncIterator[object]:
    """A driver that runs."""
    command = ["java", "-Xmx64m", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-cp", str(classes), "MemoryLog"]
    started = await jvm.JavaDriver.start(command, classes / "errors")
    try:
        yield started
    finally:
        await started.stop()


async def test_appends_are_counted_and_read_back(driver) -> None:
    """A pump counts acks, a read gives records and bytes of the log in use only."""
    await driver.ask("fresh")
    acked = (await driver.ask("pump", 100, 0.1, 16))["acked"]
    assert acked >= 16
    assert await driver.ask("read", 10) == {"came": 10, "bytes": 1_000}
    assert (await driver.ask("read", 1_000_000))["came"] == acked
    await driver.ask("fresh")
    assert (await driver.ask("read", 10))["came"] == 0


async def test_producers_of_a_log_with_topics_get_what_was_asked_for(driver) -> None:
    """Producers, partitions, size, time, window and keys arrive, keys by number; count and time come back."""
    assert await driver.ask("produce", 100, 8, 1024, 0.5, 32, 3) == {
        "acked": 100 * 8 * 1024 * 32,
        "took_ns": 500_000_000,
    }
    with pytest.raises(RuntimeError, match="keys"):
        await driver.ask("produce", 100, 8, 1024, 0.5, 32, 0)


async def test_single_appends_take_what_an_ack_takes(driver) -> None:
    """Each latency is at least the millisecond that the log waits, and no duration means one append."""
    latencies_s = await driver.one_in_flight(1024, 0.1)
    assert 2 <= len(latencies_s) <= 100
    assert min(latencies_s) >= 0.001
    assert len(await driver.one_in_flight(1024, 0)) == 1


async def test_an_open_loop_sends_at_the_rate_and_not_early(driver) -> None:
    """A hundred appends at 1,000/s are all acked, none sent before it is due."""
    found = await driver.open_loop(100, 1_000, 100, 5.0)
    assert len(found.latencies_s) == len(found.late_s) == 100
    assert min(found.late_s) >= 0
    assert min(found.latencies_s) >= 0.001


async def test_a_reader_gets_every_record_and_early_ones_are_counted(driver) -> None:
    """The log shows records before their ack: all are found to be early, and those of the warm-up are not counted."""
    await driver.start_reader(100, 5.0)
    found = await driver.tail(100, 1_000, 50, 5.0)
    await driver.stop_reader()
    await driver.stop_reader()
    assert len(found.latencies_s) == found.seen_before_acked == 50


async def test_acks_in_the_background_have_times_of_this_process(driver) -> None:
    """Times of acks lie between start and end by this process's clock, and a refused append is made again."""
    before_s = time.perf_counter()
    await driver.start_appending(77)
    await until(driver.last_ack_s, "no ack")
    acks_s, failed = await driver.stop_appending(5.0)
    assert failed == 1
    assert acks_s == sorted(acks_s)
    assert before_s <= acks_s[0] <= acks_s[-1] <= time.perf_counter()


async def test_errors_are_reported_and_the_driver_goes_on(driver) -> None:
    """A command that fails is an error with the reason, and the next one is answered."""
    with pytest.raises(RuntimeError, match="unknown command dance"):
        await driver.ask("dance")
    assert (await driver.ask("in-charge"))["servers"] == ["memory:1"]


async def test_a_driver_that_gives_no_answer_is_ended(driver) -> None:
    """A time-out ends the process: a late answer is never taken for that of the next command."""
    with pytest.raises(RuntimeError, match=r"no answer in 0\.05 s"):
        await driver.ask("one", 100, 5, limit_s=0.05)
    with pytest.raises(RuntimeError, match="ended"):
        await driver.ask("in-charge")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"", "ended"), (b'{"acked": 1', "ended"), (b"Exception!\n", "answered"), (b"[1]\n", "answered"),
     (b'{"error": "no entry"}\n', "no entry")],
)  # fmt: skip
def test_other_answers_are_refused(jvm: ModuleType, answer: bytes, reason: str) -> None:
    """What is no JSON object, or an error, is an error that names the command."""
    with pytest.raises(RuntimeError, match=reason) as found:
        jvm.read_answer("pump 1 2 3", answer)
    assert "pump 1 2 3" in str(found.value)


def test_what_a_killed_run_left_is_removed_by_the_next(jvm: ModuleType, tmp_path: Path) -> None:
    """Directories of processes that are gone go; those of running ones, of other peers and other things stay."""
    import servers

    gone = subprocess.Popen(["true"])
    gone.wait()
    names = [f"kafka-{gone.pid}-x", f"kafka-{os.getpid()}-x", f"bookkeeper-{gone.pid}-x", "kafka-what-ever"]
    for name in names:
        (tmp_path / name / "inside").mkdir(parents=True)
    servers.remove_left_over(tmp_path, "kafka")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(names[1:])


def test_a_program_that_must_end_first_is_waited_for(jvm: ModuleType) -> None:
    """One that ended well passes, a failed one is an error with what it wrote, one that goes on is a time-out."""
    import servers

    programs = servers.Servers("test")
    try:
        programs.spawn("good", ["true"])
        programs.finish("good")
        programs.spawn("bad", ["sh", "-c", "echo no disk; exit 3"])
        with pytest.raises(RuntimeError, match="bad ended with 3: no disk"):
            programs.finish("bad")
        programs.spawn("long", ["sleep", "60"])
        with pytest.raises(RuntimeError, match="long has not ended"):
            programs.finish("long", 0.05)
        assert list(programs.pids()) == ["long"]
    finally:
        programs.stop()
    assert programs.pids() == {}
    assert not programs.directory.exists()


async def test_a_wait_for_a_server_ends_when_it_listens_when_it_is_cancelled_or_too_late(jvm: ModuleType) -> None:
    """A port that nobody listens on is waited for no longer than asked, and a cancelled wait ends at once."""
    import servers

    (port,) = servers.free_ports(1)
    with pytest.raises(servers.Missing, match=f"port {port}"):
        await servers.listening(port, 0.1)
    waiting = asyncio.create_task(servers.listening(port, 60.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=5)
    assert waiting.cancelled()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), servers.HOST, port)
    await servers.listening(port, 10.0)
    server.close()


def test_a_program_in_java_writes_nowhere_else(jvm: ModuleType, tmp_path: Path) -> None:
    """Temporary files and error reports lie in the peer's directory, and no performance data is written."""
    command = jvm.java("kafka", tmp_path, ["-Xmx1g"], "Main", "argument")
    assert "-XX:-UsePerfData" in command
    assert f"-Djava.io.tmpdir={tmp_path}" in command
    assert command[-2:] == ["Main", "argument"]
