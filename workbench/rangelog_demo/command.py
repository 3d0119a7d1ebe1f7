"""`rangelog demo`: real flights through real kills, and then every flight accounted for.

The first scene is a stream with one writer (this module); the second one a topic with many producers, a group and a table
(`topic/scene.py`), on the same cluster.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import tempfile
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rangelog_cli.local.processes import Cluster, stop_all
from rangelog_core.stream_config import StreamConfig
from rangelog_demo.ack_log import read_acks
from rangelog_demo.appender import FLIGHTS_PER_S, WINDOW_RECORDS
from rangelog_demo.comparison import Comparison
from rangelog_demo.faults import Appending, WriterProcess
from rangelog_demo.flights import Flight, load_flights, write_spool
from rangelog_demo.progress import DemoProgress
from rangelog_demo.report import CarrierRow, ReportData, write_report
from rangelog_demo.report_parts import Check
from rangelog_demo.s3_server import S3Server, use_credentials
from rangelog_demo.timeline import Timeline, make_timeline
from rangelog_demo.topic import scaling
from rangelog_demo.topic.outcome import TopicOutcome

if TYPE_CHECKING:
    from rangelog_demo.metadata import StreamMetadata

STREAM = "flights"
RANGE_SERVERS = 4
BROKERS = 2
"""For the second scene."""
RANGE_SIZE_BYTES = 4 * 1024 * 1024
"""Small, so that some thirty ranges seal and go to the object store."""
PAUSE_TARGET_MS = 1_000
_SETTINGS = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_REPACK_TARGET_BYTES": "0",  # pyarrow counts the rows of all files in the bucket: none is replaced meanwhile
    **scaling.SETTINGS,
}


@dataclass
class DemoOutcome:
    """The result of the demo; `last_line` and `ok` are its short forms."""

    total: int
    appended: int = 0
    wrong_acks: int = 0
    timeline: Timeline = field(default_factory=lambda: make_timeline([], []))
    comparison: Comparison = field(default_factory=lambda: Comparison([]))
    carriers: list[CarrierRow] = field(default_factory=list)
    spark: str = "no"
    tier_objects: int = 0
    sealed_end: int = 0
    dropped_ranges: int = 0
    parquet: tuple[int, int, bool] = (0, 0, False)
    topic: TopicOutcome = field(default_factory=lambda: TopicOutcome(0))
    """Of the second scene."""

    def checks(self) -> list[Check]:
        """Return all checks of the first scene, with the expected and the found values."""
        read, total = self.comparison, f"{self.total:,}"
        objects, records, dense = self.parquet
        clean = f"{read.lost} lost, {read.duplicated} repeated, {read.misordered} moved, {read.altered} altered"
        return [
            Check("flights appended", total, f"{self.appended:,}", self.appended == self.total),
            Check("processes killed on the way", "3", str(len(self.timeline.kills)), len(self.timeline.kills) == 3),
            Check("acks naming another offset than the flight's", "0", str(self.wrong_acks), self.wrong_acks == 0),
            Check("records read back through the SDK", total, f"{read.read:,}", read.read == self.total),
            Check("… compared with the file", "0 of anything", clean, read.ok),
            Check("ranges read from S3 only", "1 or more", str(self.dropped_ranges), self.dropped_ranges > 0),
            Check(
                "Spark SQL agrees with pandas, carrier by carrier, for the stream and its copy",
                "yes",
                self.spark,
                self.spark != "no",
            ),
            Check(
                "records in the Parquet objects, by plain pyarrow",
                f"{self.sealed_end:,} in {self.tier_objects}",
                f"{records:,} in {objects}, offsets {'dense' if dense else 'NOT dense'}",
                dense and records == self.sealed_end and objects == self.tier_objects > 0,
            ),
        ]

    @property
    def ok(self) -> bool:
        """Whether all checks of both scenes passed."""
        return all(check.ok for check in self.checks()) and self.topic.ok

    @property
    def last_line(self) -> str:
        """The last line of the output, for scripts."""
        read = self.comparison
        return (
            f"demo: {'OK' if self.ok else 'FAILED'} appended={self.appended} read={read.read} lost={read.lost} "
            f"duplicated={read.duplicated} misordered={read.misordered} kills={len(self.timeline.kills)} "
            f"longest_ack_gap_ms={self.timeline.longest_gap_ms:.0f} spark_matches={self.spark} "
            f"tier_objects={self.tier_objects} {self.topic.line}"
        )


def run_demo(report: Path, *, keep: bool, flight_count: int | None, with_spark: bool) -> int:
    """Run the demo; return 0 if all checks pass, otherwise 1. Without `keep` only the logs of a failed run remain."""
    report.absolute().parent.mkdir(parents=True, exist_ok=True)  # fails now rather than after a minute
    use_credentials()
    directory = Path(tempfile.mkdtemp(prefix="rangelog-demo-"))
    keep_logs = True
    try:
        outcome = asyncio.run(_run(directory, report, flight_count, with_spark))
        keep_logs = not outcome.ok
    except (KeyboardInterrupt, asyncio.CancelledError):
        keep_logs = False
        raise KeyboardInterrupt from None
    finally:
        if keep_logs:
            logs = report.absolute().with_suffix(".logs")
            _keep_logs(directory, logs)
            click.echo(f"logs of the processes: {logs}", err=True)
        if keep:
            click.echo(f"data and logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    for check in [*outcome.checks(), *outcome.topic.checks()]:
        if not check.ok:
            click.echo(f"does not hold: {check.name}: expected {check.expected}, found {check.found}", err=True)
    click.echo(f"report: {report.absolute()}")
    click.echo(outcome.last_line)
    return 0 if outcome.ok else 1


def _keep_logs(directory: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for folder in (directory / "logs", directory / "cluster" / "logs"):
        if folder.is_dir():
            shutil.copytree(folder, target, dirs_exist_ok=True)


async def _run(directory: Path, report: Path, flight_count: int | None, with_spark: bool) -> DemoOutcome:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(DemoProgress())
        demo = await _start(directory, flight_count, progress, stack)
        await demo.append()
        await demo.tier()
        await demo.read_back()
        if with_spark:
            await demo.spark()
        else:
            demo.outcome.spark = "skipped"
        await demo.parquet()
        await demo.topic()
        with progress.step("write the report"):
            write_report(report, demo.report_data())
        return demo.outcome


@dataclass
class Demo:
    """The state that all parts of the demo share."""

    directory: Path
    flights: list[Flight]
    cluster: Cluster
    s3: S3Server
    metadata: StreamMetadata
    progress: DemoProgress
    stack: AsyncExitStack
    outcome: DemoOutcome

    async def append(self) -> None:
        """(b) All flights through three kills."""
        spool = self.directory / "flights.tsv"
        write_spool(spool, self.flights)
        writers = [
            WriterProcess(f"writer-{number}", self.directory, self.cluster.connect_string, STREAM, spool)
            for number in (1, 2)
        ]
        self.stack.callback(stop_all, [writer.process for writer in writers], 0.0)
        with self.progress.step("append through three kills", total=len(self.flights)) as bar:
            appending = Appending(self.cluster, self.metadata, writers, len(self.flights), bar)
            await appending.run()
            acks = [ack for writer in writers for ack in read_acks(writer.acks)]
            outcome = self.outcome
            outcome.appended = int(str(writers[1].status()["end"]))
            outcome.wrong_acks = sum(ack.offset is not None and ack.offset != ack.flight for ack in acks)
            outcome.timeline = make_timeline(acks, appending.kills)
            bar.note = f"longest pause {outcome.timeline.longest_gap_ms:.0f} ms"

    async def tier(self) -> None:
        """(c) Sealed ranges to S3, hot replicas of the older half dropped."""
        from rangelog_demo.tiering import drop_older_half, wait_tiered

        with self.progress.step("sealed ranges to S3", total=100) as bar:
            sealed = await wait_tiered(self.metadata, bar)
            self.outcome.sealed_end = sealed[-1].end_offset if sealed else 0
            self.outcome.tier_objects = len(await self.metadata.objects())
        with self.progress.step("drop the older half's hot copies") as bar:
            self.outcome.dropped_ranges, hot = await drop_older_half(self.metadata, sealed)
            bar.note = f"{self.outcome.dropped_ranges} ranges only in S3, {hot} in both, the rest only hot"

    async def read_back(self) -> None:
        """(d) Every record through the SDK, compared with the file."""
        import rangelog
        from rangelog_demo.verify import read_back

        with self.progress.step("read back and compare", total=len(self.flights)) as bar:
            async with await rangelog.connect(self.cluster.connect_string) as client:
                self.outcome.comparison = await read_back(client, STREAM, self.flights, bar)
            bar.note = f"{self.outcome.comparison.read:,} records"

    async def spark(self) -> None:
        """(e) The same question to Spark SQL and to pandas: of the stream, and of its copy by a streaming query in a topic."""
        from rangelog_demo.verify import answers_match, ask_spark

        with self.progress.step("Spark SQL against pandas") as bar:
            pds = self.cluster.connect_string
            self.outcome.carriers, copied = await ask_spark(self.directory, pds, STREAM, len(self.flights))
            self.outcome.spark = "yes" if answers_match(self.outcome.carriers) and answers_match(copied) else "no"
            bar.note = f"{len(self.outcome.carriers)} carriers, in the stream and in a topic that a query copied it to"

    async def parquet(self) -> None:
        """(f) The objects without any of our code."""
        from rangelog_demo.verify import count_parquet

        with self.progress.step("count in Parquet with pyarrow") as bar:
            self.outcome.parquet = await asyncio.to_thread(count_parquet, self.s3.endpoint)
            bar.note = f"{self.outcome.parquet[1]:,} records in {self.outcome.parquet[0]} objects"

    async def topic(self) -> None:
        """(g) The second scene: the same flights through a topic, a group and a table."""
        import rangelog
        from rangelog_demo.topic.placement import BrokerPlacement
        from rangelog_demo.topic.scene import TopicScene

        self.outcome.topic = TopicOutcome(len(self.flights))
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(await rangelog.connect(self.cluster.connect_string))
            placement = BrokerPlacement(self.cluster.pd_addresses)
            stack.push_async_callback(placement.close)
            scene = TopicScene(
                self.directory, self.flights, self.cluster, client, placement, self.progress, stack, self.outcome.topic
            )
            await scene.produce()
            await scene.compare()

    def report_data(self) -> ReportData:
        """(h) The data of the report."""
        from rangelog_demo.topic.scene import pace
        from rangelog_demo.topic.section import topic_sections

        pause = next((kill.gap_ms for kill in self.outcome.timeline.kills if kill.what == "a range server"), 0.0)
        target = Check(
            "target: pause after the range-server kill", f"under {PAUSE_TARGET_MS:,} ms", f"{pause:,.0f} ms",
            pause < PAUSE_TARGET_MS,
        )  # fmt: skip
        return ReportData(
            ok=self.outcome.ok,
            last_line=self.outcome.last_line,
            timeline=self.outcome.timeline,
            checks=[*self.outcome.checks(), target],
            steps=self.progress.steps,
            carriers=self.outcome.carriers,
            machine=_machine(),
            flight_count=len(self.flights),
            pace=f"Paced at {FLIGHTS_PER_S:,} flights a second, at most {WINDOW_RECORDS:,} of them not yet acked; "
            "each ack means that two of three replicas have the flight on disk.",
            more_sections=topic_sections(self.outcome.topic, pace(len(self.flights))),
        )


async def _start(directory: Path, flight_count: int | None, progress: DemoProgress, stack: AsyncExitStack) -> Demo:
    """(a) The processes, the flights and the stream; all of it is undone by `stack`."""
    with progress.step("load the flights") as bar:
        flights = (await asyncio.to_thread(load_flights))[:flight_count]
        bar.note = f"{len(flights):,} flights"
    with progress.step("start the processes") as bar:
        s3 = S3Server(directory)
        stack.callback(stop_all, [s3.process], 2.0)
        await asyncio.to_thread(s3.start)
        cluster = Cluster.open(
            directory / "cluster",
            pds=3,
            range_servers=RANGE_SERVERS,
            brokers=BROKERS,
            tier_url=s3.tier_url,
            env=_SETTINGS,
        )
        stack.callback(cluster.stop)
        await asyncio.to_thread(cluster.start)
        metadata = await _make_stream(cluster, stack)
        bar.note = f"3 placement drivers, {RANGE_SERVERS} range servers, {BROKERS} brokers, S3 at {s3.endpoint}"
    return Demo(directory, flights, cluster, s3, metadata, progress, stack, DemoOutcome(len(flights)))


async def _make_stream(cluster: Cluster, stack: AsyncExitStack) -> StreamMetadata:
    import rangelog
    from rangelog_demo.metadata import StreamMetadata, wait_for
    from rangelog_demo.tiering import KEEP_HOT

    metadata = StreamMetadata(cluster.pd_addresses, STREAM)
    stack.push_async_callback(metadata.close)

    async def all_alive() -> bool:
        return len(await metadata.alive_servers()) == RANGE_SERVERS

    await wait_for(all_alive, 30.0, "range servers have not registered")
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream(STREAM, StreamConfig(acks=2, range_size_bytes_max=RANGE_SIZE_BYTES))
    await metadata.set_hot_retention(KEEP_HOT, str(uuid.uuid4()))
    return metadata


def _machine() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{when} · {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()} · every process on this machine"
    )
