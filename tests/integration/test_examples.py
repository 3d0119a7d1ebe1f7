"""The programs of examples/ as a user starts them, on one cluster, each twice: the second run finds what the first one left.

Those that end begin by a fork (`tests/support/forked.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import rangelog
import rangelog.sync
from rangelog import StreamConfig
from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import running
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.forked import run_script
from tests.support.waiting import until_arrived

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def local_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What `rangelog local` starts."""
    with running(tmp_path_factory.mktemp("examples"), brokers=2) as cluster:
        yield cluster


def run(cluster: Cluster, name: str, *arguments: str) -> str:
    """Start a program, and return what it printed; it must succeed and complain of nothing."""
    done = run_script(EXAMPLES / name, [*arguments, "--pd", cluster.connect_string], timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode()


async def read_topic(cluster: Cluster, topic: str) -> list[bytes]:
    """The values of a topic."""
    async with rangelog.connect(cluster.connect_string) as client:
        return [record.value async for record in client.topic_reader(topic)]


def test_produce_consume(local_cluster: Cluster) -> None:
    """It reads what it appended, and a second run goes on behind that."""
    first = run(local_cluster, "produce_consume.py", "--count", "500")
    assert first.startswith("appended 500 records from offset 0, read 500\nthe first: b'kitchen' b'21.5'")
    assert "from offset 500, read 500" in run(local_cluster, "produce_consume.py", "--count", "500")


def test_topic_group(local_cluster: Cluster) -> None:
    """Both members together handle each order once, and committed positions make the second run see only new ones."""
    for _ in range(2):
        assert run(local_cluster, "topic_group.py", "--count", "30") == "handled 60 of 60 orders\n"


async def test_transfer(local_cluster: Cluster) -> None:
    """After two runs each order of both has one invoice."""
    for _ in range(2):
        assert await asyncio.to_thread(run, local_cluster, "transfer.py", "--count", "40") == "billed 40 orders\n"

    async def invoices() -> list[bytes]:
        return sorted(await read_topic(local_cluster, "invoices"))

    wanted = sorted(2 * [b"invoice for order %d" % number for number in range(40)])
    await until_arrived(invoices, wanted, "a commit is decided before its records appear")


def test_stock_table(local_cluster: Cluster) -> None:
    """As many pieces are sold as there were."""
    for _ in range(2):
        said = run(local_cluster, "stock_table.py", "--pieces", "25", "--sellers", "5")
        assert said == "5 sellers sold 25 of 25; left: 0\n"


def test_import_csv_and_tier_duckdb(local_cluster: Cluster, tmp_path: Path) -> None:
    """A file that grew is imported from where the first import ended; once tiered, DuckDB counts its rows."""
    file = tmp_path / "flights.csv"
    lines = ["carrier,flight", *(f"{'UA' if number % 3 else 'AA'},{number}" for number in range(90))]
    file.write_text("\n".join(lines[:41]))
    arguments = (str(file), "--stream", "flights-csv", "--key", "carrier")
    assert run(local_cluster, "import_csv.py", *arguments) == "imported 40 rows, 0 were there\n"
    file.write_text("\n".join(lines))
    assert run(local_cluster, "import_csv.py", *arguments) == "imported 50 rows, 40 were there\n"
    assert run(local_cluster, "import_csv.py", *arguments) == "imported 0 rows, 90 were there\n"
    with rangelog.sync.connect(local_cluster.connect_string) as client:
        records = list(client.reader("flights-csv"))
    assert [json.loads(record.value)["flight"] for record in records] == [str(number) for number in range(90)]
    assert {record.key for record in records} == {b"UA", b"AA"}
    pdctl = Pdctl(local_cluster)
    pdctl("range", "seal", "flights-csv", "--yes")
    assert pdctl("task", "wait", "--all").returncode == 0
    shown = [json.loads(line) for line in run(local_cluster, "tier_duckdb.py", "flights-csv").splitlines()]
    assert shown == [{"name": "UA", "records": 60, "last": 89}, {"name": "AA", "records": 30, "last": 87}]


def test_duckdb_on_a_stream_that_is_not_tiered(local_cluster: Cluster) -> None:
    """It says so."""
    with rangelog.sync.connect(local_cluster.connect_string) as client:
        client.create_stream("hot", StreamConfig(tiered=False), exist_ok=True)
    with pytest.raises(AssertionError, match="nothing of hot is in the tier yet"):
        run(local_cluster, "tier_duckdb.py", "hot")


def post(url: str, body: bytes) -> int:
    """The status of a POST."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code


async def test_webhooks(local_cluster: Cluster) -> None:
    """Two starts in a row take requests; what was answered with 204 is in the topic, and what is too large is not."""
    broker = local_cluster.plan.brokers[0]
    rest = f"http://{broker.host}:{broker.rest_port}"
    command = [sys.executable, str(EXAMPLES / "webhooks.py"), "--pd", local_cluster.connect_string]
    for number in range(2):
        process = subprocess.Popen(
            [*command, "--rest", rest, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ
        )
        assert process.stdout is not None
        try:
            said = re.match(rb"listening at (\S+)", await asyncio.to_thread(process.stdout.readline))
            assert said is not None
            url = said[1].decode()
            assert await asyncio.to_thread(post, f"{url}/shop-7", b'{"number": %d}' % number) == 204
            assert await asyncio.to_thread(post, f"{url}/shop-7", b"x" * 70_000) == 413
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
    assert await read_topic(local_cluster, "hooks/received") == [b'{"number": 0}', b'{"number": 1}']
