"""The command `rangelog-spark mirror` on a real Kafka, its driver killed in the midst: each record once, in order.

Skipped where Kafka or Java is not installed: bench/peers/install_java.sh installs Kafka and Spark's source for it.
"""

from __future__ import annotations

import asyncio
import json
import operator
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rangelog.sync
from rangelog_cli.local.processes import Cluster
from rangelog_core.record import Record
from rangelog_jobs.mirror import NULL_VALUE_HEADER
from tests.spark.killable import Driver
from tests.support.waiting import arrives

pytestmark = [pytest.mark.spark, pytest.mark.release, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"
FILLER = Path(__file__).parent / "kafka_filler.py"
TOPIC, TARGET = "clicks", "clicks-of-kafka"
PARTITIONS = 3
RECORDS = 24_000
BATCH = 2_000
KILLS = 2
ENDS_S = 240.0


@dataclass(frozen=True)
class RunningKafka:
    """Three servers; `jars`: of Spark's Kafka source."""

    addresses: str
    jars: str


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningKafka]:
    """Kafka as `make bench` starts it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PEERS))
        import jvm
        import kafka
        import servers

        try:
            jvm.require("kafka")
            jvm.require("spark-kafka")
        except servers.Missing as missing:
            pytest.skip(f"a mirror of a real Kafka is not tested here: {missing}")
        jars = ",".join(str(path) for path in (jvm.JAVA / "spark-kafka" / "lib").glob("*.jar"))
        with asyncio.Runner() as runner:
            system = kafka.Kafka("page cache")
            try:
                runner.run(system.start())
                yield RunningKafka(system.addresses, jars)
            finally:
                runner.run(system.stop())


def fill(kafka: RunningKafka) -> list[tuple[int, int, int]]:
    """Make the topic; return partition, records, sum of times in ms."""
    arguments = [kafka.addresses, TOPIC, str(PARTITIONS), str(RECORDS), kafka.jars]
    filled = subprocess.run([sys.executable, str(FILLER), *arguments], capture_output=True, text=True, timeout=ENDS_S)
    assert filled.returncode == 0, filled.stderr[-2_000:]
    return [(each[0], each[1], each[2]) for each in json.loads(filled.stdout.splitlines()[-1])]


def mirroring(kafka: RunningKafka, cluster: Cluster, folder: Path) -> Driver:
    """Start the command."""
    options = {
        "--pd": cluster.connect_string, "--kafka": kafka.addresses, "--topic": TOPIC, "--to": TARGET,
        "--checkpoint": str(folder / "checkpoint"), "--batch-records": str(BATCH), "--master": "local[2]",
    }  # fmt: skip
    given = [word for pair in options.items() for word in pair]
    settings = ["--conf", f"spark.jars={kafka.jars}", "--conf", "spark.driver.memory=512m"]
    command = [sys.executable, "-m", "rangelog_jobs", "mirror", *given, *settings]
    return Driver(command, folder / "mirror.log")


def number_of(record: Record) -> int:
    """Which record of the topic it is."""
    return int(record.headers["number"])


def wanted(number: int) -> tuple[bytes | None, bytes, dict[str, bytes]]:
    """What the filler made of it, as the mirror documents it: key, value, headers."""
    headers = {"number": b"%d" % number}
    if number % 4 == 0:
        headers["twice"] = b"\x02"
    if number % 97 == 0:
        headers[NULL_VALUE_HEADER] = b""
    key = None if number % 5 == 0 else b"key-%d" % (number % 7)
    return key, b"" if number % 97 == 0 else b"value %d" % number, headers


def test_a_mirror_whose_driver_is_killed_has_each_record_once_and_in_order(
    kafka: RunningKafka, cluster: Cluster, client: rangelog.sync.Client, tmp_path: Path
) -> None:
    """SIGKILL in the midst, twice; the command goes on by its checkpoint each time, and ends well."""
    totals = fill(kafka)
    assert [(partition, count) for partition, count, _ in totals] == [
        (p, RECORDS // PARTITIONS) for p in range(PARTITIONS)
    ]
    client.create_stream(TARGET)
    killed_at: list[int] = []
    for _ in range(KILLS):
        begun = client.end_offset(TARGET)
        driver = mirroring(kafka, cluster, tmp_path)
        try:
            what = f"the driver copies: {driver.log}"
            arrives(lambda: client.end_offset(TARGET), begun + BATCH, what, ENDS_S, by=operator.gt)
            assert driver.process.poll() is None, "it was done before it was killed"
        finally:
            driver.kill()
        killed_at.append(client.end_offset(TARGET))
    assert killed_at[-1] < RECORDS, "all was copied before the last kill"
    driver = mirroring(kafka, cluster, tmp_path)
    try:
        assert driver.process.wait(ENDS_S) == 0, driver.log.read_text()[-2_000:]
    finally:
        driver.kill()
    found = list(client.reader(TARGET))
    sys.stdout.write(f"killed at {killed_at} of {RECORDS} records; found {len(found)}\n")
    for partition, _, sum_of_ms in totals:
        mine = [each for each in found if number_of(each) % PARTITIONS == partition]
        assert [number_of(each) for each in mine] == list(range(partition, RECORDS, PARTITIONS))
        assert sum(each.timestamp_ms for each in mine) == sum_of_ms
    assert all((each.key, each.value, dict(each.headers)) == wanted(number_of(each)) for each in found)
