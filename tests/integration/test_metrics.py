"""Metrics and probes of real processes: every process of a cluster, under load, and while parts of it are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rangelog
from rangelog_cli.local.health import leader, wait_healthy
from rangelog_cli.local.metrics_ports import TARGETS_FILE, enable_metrics
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import Unavailable
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ENV = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_SERVER_SUSPECT_MS": "500",
    "RANGELOG_PD_SERVER_DEAD_MS": "1000",
}
RECORDS = 500


class Watched:
    """A cluster whose processes serve metrics."""

    def __init__(self, cluster: Cluster, addresses: dict[str, str]) -> None:
        self.cluster = cluster
        self.addresses = addresses

    def ask(self, name: str, path: str) -> tuple[int, str]:
        """Return status and body."""
        connection = HTTPConnection(self.addresses[name], timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def scrape(self, name: str) -> dict[str, float]:
        """Return every sample of a process, by name and labels."""
        status, body = self.ask(name, "/metrics")
        assert status == 200
        return {
            sample.name + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
        }

    def leading(self) -> dict[str, float]:
        """Scrape the placement driver that leads, once one does."""
        found: dict[str, float] = {}

        def leads() -> bool:
            found.clear()
            with suppress(Unavailable):
                name = leader([each.api_address for each in self.cluster.plan.pds if self.runs(each.name)])
                found.update(self.scrape(name))
            return "rangelog_pd_streams" in found

        eventually(leads, "no placement driver leads")
        return found

    def runs(self, name: str) -> bool:
        """Whether a member runs."""
        return self.cluster.members[name].running


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Three placement drivers, three range servers, a broker."""
    cluster = Cluster.open(tmp_path / "cluster", pds=3, range_servers=3, brokers=1, env=ENV)
    addresses = enable_metrics(cluster)
    with cluster:
        wait_healthy(cluster)
        yield Watched(cluster, addresses)


async def produce(watched: Watched) -> None:
    """Append to a stream, read it, and send to a topic."""
    async with await rangelog.connect(watched.cluster.connect_string) as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            for number in range(RECORDS):
                writer.append_nowait(b"record %d" % number)
            await writer.flush()
        count = 0
        async for _ in client.reader("s", start="earliest"):
            count += 1
            if count == RECORDS:
                break
        await client.topics.create("t", shards=2)
        async with client.producer("t") as producer:
            for number in range(RECORDS):
                await producer.send(b"value", key=b"%d" % number)


async def test_every_process_is_scraped(watched: Watched) -> None:
    """Figures are those of the work that was done; the file for Prometheus names every process; no secret is shown."""
    await produce(watched)
    targets = json.loads((watched.cluster.directory / TARGETS_FILE).read_text())
    assert {each["labels"]["name"] for each in targets} == set(watched.cluster.members)
    for target in targets:
        name = target["labels"]["name"]
        assert target["targets"] == [watched.cluster.members[name].endpoint()["metrics_address"]]
        assert watched.ask(name, "/livez") == watched.ask(name, "/readyz") == (200, "ok\n")
        status, body = watched.ask(name, "/metrics")
        assert status == 200 and watched.cluster.plan.raft_secret not in body and "record 1" not in body
        assert f'role="{target["labels"]["role"]}"' in body
    servers = [watched.scrape(name) for name in watched.cluster.range_servers]
    appended = [each["rangelog_server_append_records_total"] for each in servers]
    assert sum(appended) >= 2 * 2 * RECORDS and min(appended) > 0
    assert sum(each["rangelog_server_fetch_bytes_total source=memory"] for each in servers) > RECORDS
    for each in servers:
        flushes = each["rangelog_server_log_flushes_total"]
        assert 0 < each["rangelog_server_log_commit_duration_seconds_count"] <= flushes
        assert each["rangelog_server_log_write_duration_seconds_bucket le=+Inf"] > 0
        assert each["rangelog_server_registered"] == 1
    shown = Pdctl(watched.cluster)("top", "--once", "-o", "json")
    assert shown.returncode == 0, shown
    top = json.loads(shown.stdout)
    assert [each["name"] for each in top] == ["rs1", "rs2", "rs3"] and not any(each["problem"] for each in top)
    assert all(each["appends_per_s"] >= 0 and each["replicas"] > 0 for each in top)
    broker = watched.scrape("broker1")
    assert broker["rangelog_broker_received_records_total"] == RECORDS
    assert broker["rangelog_broker_produce_duration_seconds_count"] >= broker["rangelog_broker_acked_batches_total"] > 0
    assert broker["rangelog_broker_open_shards"] == 2

    def members() -> list[dict[str, float]]:
        return [watched.scrape(name) for name in watched.cluster.placement_drivers]

    eventually(lambda: sum(each["rangelog_pd_is_leader"] for each in members()) == 1, "not one leads")
    eventually(
        lambda: sum("rangelog_pd_streams" in each for each in members()) == 1, "not one has the cluster's figures"
    )
    eventually(lambda: watched.leading()["rangelog_pd_servers health=alive"] == 3, "not all are alive")
    assert watched.leading()["rangelog_pd_topics"] == 1
    created = "rangelog_pd_commands_total action=create_stream code=OK"
    assert sum(each.get(created, 0) for each in members()) == 1, "whoever led then"


async def test_faults_are_seen(watched: Watched) -> None:
    """A dead range server; then no leader: each is in the figures that alerts are made of, and in the probes."""
    await produce(watched)
    watched.cluster.kill("rs1")
    eventually(
        lambda: (
            (found := watched.leading())["rangelog_pd_servers health=dead"] == 1
            and found["rangelog_pd_server_up server=rs1"] == 0
            and found["rangelog_pd_under_replicated_ranges"] > 0
        ),
        "the death of rs1 is in no figure",
    )
    assert watched.ask("rs2", "/readyz")[0] == 200
    for name in ("pd1", "pd2"):
        watched.cluster.kill(name)
    eventually(lambda: watched.ask("pd3", "/readyz")[0] == 503, "pd3 is ready without a majority")
    status, reasons = watched.ask("pd3", "/readyz")
    assert status == 503 and "majority" in reasons
    assert watched.ask("pd3", "/livez")[0] == 200
    found = watched.scrape("pd3")
    assert found["rangelog_pd_has_majority"] == 0 and "rangelog_pd_streams" not in found
    eventually(lambda: watched.ask("broker1", "/readyz")[0] == 503, "broker1 is ready without a placement driver")
    assert watched.ask("rs2", "/readyz") == (200, "ok\n"), "a range server serves without placement drivers"
    assert watched.scrape("rs2")["rangelog_server_heartbeat_failures_total"] > 0
    for name in ("pd1", "pd2", "rs1"):
        watched.cluster.start_member(name)
    for name in watched.cluster.members:
        eventually(lambda name=name: watched.ask(name, "/readyz")[0] == 200, f"{name} is not ready again")  # type: ignore[misc]
