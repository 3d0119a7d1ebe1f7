"""A driver and its tasks' processes killed in mid-query: what the sink appended equals what the source has, exactly."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rangelog.sync
from rangelog_cli.local.processes import Cluster
from tests.spark.conftest import Streams
from tests.spark.killable import Driver
from tests.support.waiting import arrives

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

DRIVER = Path(__file__).parent / "copying_driver.py"
RECORDS = 3_000
KILLS_AT = [300]
"""So many records in the target, before the driver is killed."""
ENDS_S = 240.0


def copying(cluster: Cluster, folder: Path, kind: str, source: str, target: str) -> Driver:
    """Start the driver."""
    arguments = [cluster.connect_string, source, kind, target, str(folder / "checkpoint")]
    return Driver([sys.executable, str(DRIVER), *arguments], folder / "driver.log")


def target_of(client: rangelog.sync.Client, kind: str, name: str) -> Callable[[], list[tuple[bytes | None, bytes]]]:
    """Make it; return what reads it."""
    if kind == "stream":
        client.create_stream(name)
        return lambda: [(each.key, each.value) for each in client.reader(name)]
    client.topics.create(name, shards=2)
    return lambda: [(each.key, each.value) for each in client.topic_reader(name)]


@pytest.mark.parametrize("kind", ["stream", "topic"])
def test_killed_drivers_and_workers_lose_and_repeat_nothing(
    cluster: Cluster, client: rangelog.sync.Client, streams: Streams, tmp_path: Path, kind: str
) -> None:
    """The driver is killed, then the processes of its tasks and commits, each in the midst of the copy."""
    source, name = f"kills-{kind}-source", f"kills-{kind}"
    filled = streams.fill(source, RECORDS)
    found = target_of(client, kind, name)
    for count in KILLS_AT:
        driver = copying(cluster, tmp_path, kind, source, name)
        try:
            arrives(lambda: len(found()), count, f"the driver copies: {driver.log}", ENDS_S, by=operator.ge)
        finally:
            driver.kill()
    before = len(found())
    assert before < RECORDS, "the driver was done before it was killed"
    driver = copying(cluster, tmp_path, kind, source, name)
    try:
        arrives(lambda: len(found()), before, f"the driver copies: {driver.log}", ENDS_S, by=operator.gt)
        assert driver.kill_workers()
        driver.process.wait(ENDS_S)  # those of tasks are started anew; without that of the commits the query ends
    finally:
        driver.kill()
    driver = copying(cluster, tmp_path, kind, source, name)
    try:
        assert driver.process.wait(ENDS_S) == 0, driver.log.read_text()[-2_000:]
    finally:
        driver.kill()
    wanted = [(key, value) for _, _, key, value, _ in filled.rows]
    if kind == "topic":
        wanted.sort(key=repr)
        arrives(lambda: sorted(found(), key=repr), wanted, "the last transaction is merged")
    else:
        assert found() == wanted
