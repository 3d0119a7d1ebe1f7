"""docs/event-files.md as a reader follows it, and the way of events into a cluster and back."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from tests.support.forked import run_rangelog
from tests.support.page_examples import PageRunner

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "event-files.md"


async def test_the_page_of_event_files(broker_cluster: Cluster, tmp_path: Path) -> None:
    """Its programs and commands succeed one after the other, and print what it shows."""
    runner = PageRunner(PAGE, broker_cluster.connect_string, tmp_path, {"/srv/events": f"{tmp_path}/events"})
    async with asyncio.timeout(150):
        assert await runner.run() == 5


async def test_import_and_export_keep_times_keys_headers_and_the_order_of_a_key(
    broker_cluster: Cluster, tmp_path: Path
) -> None:
    """5,000 events of 20 keys by two writers into a topic of three shards, and back into files."""
    pd = broker_cluster.connect_string
    opened = rangelog.open_files(f"file://{tmp_path}/who", create=True)
    async with opened as store, store.writer() as one, store.writer() as two:
        for number in range(5_000):
            value, key = b"%d" % number, b"%d" % (number % 20)
            (one, two)[number % 20 % 2].submit(
                value, key=key, headers={"n": value}, timestamp=1_700_000_000_000 + number
            )
    async with rangelog.connect(pd) as client:
        await client.topics.create("files-who", shards=3)
    for command in (["import", "who", "files-who"], ["export", "files-who", "back"]):
        done = await asyncio.to_thread(
            run_rangelog, ["files", *command, "--pd", pd, "-o", "json"], env=os.environ, directory=tmp_path, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["records"] == 5_000
    async with rangelog.open_files(f"file://{tmp_path}/back") as store:
        records = [record async for record in store.reader()]
    assert len(records) == 5_000
    for key in range(20):
        own = [record for record in records if record.key == b"%d" % key]
        assert [int(record.value) for record in own] == list(range(key, 5_000, 20))
        assert all(record.timestamp_ms == 1_700_000_000_000 + int(record.value) for record in own)
        assert all(record.headers == {"n": record.value} for record in own)


async def test_import_into_a_topic_that_is_not_there_names_it(broker_cluster: Cluster, tmp_path: Path) -> None:
    """Without --create; and nothing is made."""
    async with rangelog.open_files(f"file://{tmp_path}/who", create=True):
        pass
    arguments = ["files", "import", "who", "no-such-topic", "--pd", broker_cluster.connect_string]
    done = await asyncio.to_thread(run_rangelog, arguments, env=os.environ, directory=tmp_path, timeout=60)
    assert done.returncode == 1
    assert b"no-such-topic" in done.stderr
