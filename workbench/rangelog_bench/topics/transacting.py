"""How fast transactions are: how long a commit takes, and how many are committed with some open at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement
from rangelog_bench.meter import Meter
from rangelog_bench.ours import NAME, SETTING
from rangelog_bench.topics.topic_cluster import TopicCluster, topic_cluster
from rangelog_bench.workload import ONE_SIZE, Effort, Emit

_SHARDS = 2
_RECORDS = 10
_OPEN = 50


async def measure_transactions(directory: Path, effort: Effort, emit: Emit) -> None:
    """Transactions of some records in two shards on two brokers: of one program, then of many at once."""
    async with topic_cluster(directory, brokers=2) as cluster:
        topic = await cluster.new_topic(_SHARDS)
        each = {
            "endpoints": cluster.endpoints, "topic": topic.name, "shards": list(range(_SHARDS)), "records": _RECORDS,
            "size": ONE_SIZE,
        }  # fmt: skip
        count = effort.client_processes
        alone, used = await _measure(cluster, [{**each, "name": "alone", "programs": 1}], effort)
        details = {"shards": _SHARDS, "records": _RECORDS} | m.latency_details(alone[0]["commit_s"]) | used
        details["whole_p50"] = m.latency_details(alone[0]["whole_s"])["p50"]
        emit(Measurement(NAME, SETTING, m.COMMIT, ONE_SIZE, details["p50"], m.MS, details))
        shares = [_OPEN // count + (number < _OPEN % count) for number in range(count)]
        settings = [
            {**each, "name": f"client-{number}", "programs": share} for number, share in enumerate(shares) if share
        ]
        answers, used = await _measure(cluster, settings, effort)
        took_s = max(a["ended_s"] for a in answers) - min(a["started_s"] for a in answers)
        rate = sum(answer["count"] for answer in answers) / took_s
        commits = m.latency_details(second for answer in answers for second in answer["commit_s"])
        details = {"open": _OPEN, "commit_p50": commits["p50"], "commit_p99": commits["p99"]}
        details |= {"client_processes": len(settings)} | used
        emit(Measurement(NAME, SETTING, m.TRANSACTIONS, ONE_SIZE, round(rate, 1), m.PER_S, details))


async def _measure(
    cluster: TopicCluster, settings: list[dict[str, Any]], effort: Effort
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The answers of client processes, and what was used meanwhile."""
    async with cluster.client_processes() as clients:
        await clients.start("transact", settings)
        meter = Meter(cluster.pids())
        answers = await clients.ask({"seconds": effort.seconds})
        return answers, meter.stop()
