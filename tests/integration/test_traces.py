"""Traces through a real cluster whose processes have an SDK: client, placement driver, range servers, broker."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core import tracing
from tests.support.spans import recorded
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(180)]

# As `opentelemetry-instrument` does it: the SDK is configured before the program starts.
SDK = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

out = open(os.path.join(os.environ["TRACES"], f"{os.getpid()}.json"), "a")
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: json.dumps(json.loads(span.to_json())) + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""


async def test_one_trace_from_client_to_servers(
    cluster_factory: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls at the servers belong to the client's spans; a failover, an upload, a cold read and REST have theirs."""
    site, traces, tier = tmp_path / "site", tmp_path / "traces", tmp_path / "tier"
    for each in (site, traces, tier):
        each.mkdir()
    (site / "sitecustomize.py").write_text(SDK)
    env = {"PYTHONPATH": str(site), "TRACES": str(traces)}
    cluster = cluster_factory(pds=1, range_servers=3, brokers=1, tier_url=f"file://{tier}", env=env)

    def told(name: str) -> list[dict[str, Any]]:
        lines = [line for path in traces.iterdir() for line in path.read_text().splitlines(keepends=True)]
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each for each in found if each["name"] == name]

    with recorded(monkeypatch) as spans:
        async with await rangelog.connect(cluster.connect_string) as client:
            await client.create_stream("flights")
            first = client.writer("flights")
            await first.open()
            await first.append(b"one")
            async with client.writer("flights") as second:  # seals what the first left open
                await second.append(b"two")
            assert len(spans.named("rangelog.failover.seal")) == 1
            for batch in spans.named("rangelog.append"):
                assert (
                    len({each.attributes["rangelog.server"] for each in batch.events if each.attributes}) >= 2
                )  # acks
            opened = spans.named("rangelog.writer.open")
            ids = {f"0x{each.context.trace_id:032x}" for each in opened}
            calls = told("rangelog.v1.PlacementDriver/OpenWriter") + told("rangelog.v1.PlacementDriver/OpenWriters")
            assert ids <= {each["context"]["trace_id"] for each in calls}
            await asyncio.to_thread(eventually, lambda: bool(told("rangelog.tier.upload")), "an upload")
            reader = client.reader("flights", start=0, end=1, follow=False, read_preference="cold_only")
            assert [record.value async for record in reader] == [b"one"]
            assert spans.named("rangelog.read.cold")
            await first.close()
        with tracing.span("by hand"):
            headers = dict(tracing.with_context(()))
        url = f"http://127.0.0.1:{cluster.plan.brokers[0].rest_port}/v1/streams"
        await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(url, headers=headers), None, 30)
        await asyncio.to_thread(eventually, lambda: bool(told("REST GET")), "the span of the request", 30)
        (rest,) = told("REST GET")
        assert rest["context"]["trace_id"] == f"0x{spans.one('by hand').context.trace_id:032x}"
