"""The alert rules fire: a real Prometheus scrapes a real cluster, in which a range server dies, a log is full, nobody leads."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml

import rangelog
from rangelog import errors
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.metrics_ports import TARGETS_FILE, enable_metrics
from rangelog_cli.local.ports import free_ports
from rangelog_cli.local.processes import Cluster, Launch
from tests.support.waiting import Seen, eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed"),
]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules.yml"
MIB = 1024 * 1024
ENV = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * MIB),
    "RANGELOG_PD_SERVER_SUSPECT_MS": "500",
    "RANGELOG_PD_SERVER_DEAD_MS": "1000",
}
FULL_AT_BYTES = 96 * MIB
DOWN = {"RangelogRangeServerDown rs1", "RangelogUnderReplicated", "RangelogProcessDown"}
"""What fires while rs1 is down."""


class Prometheus:
    """A Prometheus over one cluster, with the rules of the repository; only their waiting is shortened."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        directory.mkdir()
        rules = re.sub(r"^( +for:) .*$", r"\1 0s", RULES.read_text(), flags=re.MULTILINE)
        (directory / "rules.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": "rangelog",
                    "file_sd_configs": [{"files": [str(cluster.directory / TARGETS_FILE)]}],
                }
            ],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.port = free_ports(1)[0]
        self.log = (directory / "log").open("wb")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def ask(self, path: str) -> dict[str, Any]:
        """Return the data of an answer; nothing while it starts."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return json.load(response)["data"] if response.status == 200 else {}
        except OSError:
            return {}
        finally:
            connection.close()

    def firing(self) -> set[str]:
        """Return the names of alerts that fire, with the server that they name, if any."""
        return {
            " ".join(filter(None, (each["labels"]["alertname"], each["labels"].get("server"))))
            for each in self.ask("/api/v1/alerts").get("alerts", ())
            if each["state"] == "firing"
        }

    def up_count(self) -> int:
        """Return how many processes were scraped."""
        found = self.ask("/api/v1/query?query=sum(up)").get("result")
        return int(found[0]["value"][1]) if found else 0

    def until(self, alert: str, *, fires: bool = True) -> None:
        """Wait until an alert fires, or does not any more."""
        what = "does not fire" if fires else "still fires"
        eventually(lambda: (alert in self.firing()) == fires, f"{alert} {what}")

    def until_calm(self) -> None:
        """Wait until nothing fires, as before the first scrape "no leader" does."""
        eventually(lambda: Seen(not (firing := self.firing()), firing), "alerts fire on a healthy cluster", 30)

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three placement drivers; three range servers, the last with little room; all serve metrics."""
    small = Launch(env={"RANGELOG_SERVER_CAPACITY_BYTES": str(FULL_AT_BYTES)})
    made = Cluster.open(tmp_path / "cluster", pds=3, range_servers=3, env=ENV, tier_url="", launches={"rs3": small})
    enable_metrics(made)
    with made:
        wait_healthy(made)
        yield made


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    """It has scraped every process at least once."""
    made = Prometheus(cluster, tmp_path / "prometheus")
    try:
        eventually(lambda: made.up_count() == len(cluster.members), "not every process is scraped")
        yield made
    finally:
        made.close()


async def fill(cluster: Cluster, prometheus: Prometheus) -> None:
    """Append until the small server has no room, and a little more; the other two take it. What a server has not taken when its
    writer closes does not reach it any more, so the writer stays open until the alert."""
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s")
        with suppress(errors.RangelogError):  # a range for which there are no three servers any more
            async with client.writer("s") as writer:
                for _ in range(FULL_AT_BYTES * 5 // 4 // MIB):
                    writer.append_nowait(bytes(MIB - 1024))
                    await writer.ready()
                await asyncio.to_thread(prometheus.until, "RangelogLogFull")


async def test_alerts_fire_on_faults_and_end(cluster: Cluster, prometheus: Prometheus) -> None:
    """None on a healthy cluster; each fault its own; none of them after the repair."""
    prometheus.until_calm()
    await fill(cluster, prometheus)
    prometheus.until("RangelogLogFull")
    cluster.kill("rs1")
    for alert in DOWN:
        prometheus.until(alert)
    # "No leader" fires in an election too, since no rule waits here; it ends by itself while somebody leads.
    eventually(
        lambda: (firing := prometheus.firing()) >= DOWN and "RangelogNoLeader" not in firing, "more fires than is down"
    )
    for name in ("pd1", "pd2"):
        cluster.kill(name)
    prometheus.until("RangelogNoLeader")
    for name in ("pd1", "pd2", "rs1"):
        cluster.start_member(name)
    prometheus.until("RangelogNoLeader", fires=False)
    prometheus.until("RangelogRangeServerDown rs1", fires=False)
    prometheus.until("RangelogProcessDown", fires=False)
