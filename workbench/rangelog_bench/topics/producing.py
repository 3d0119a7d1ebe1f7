"""How fast brokers take records: many producers, one record in flight, and one in flight for each of many shards."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement
from rangelog_bench.meter import Meter
from rangelog_bench.ours import NAME, SETTING, pump_writer
from rangelog_bench.payload import make_record
from rangelog_bench.topics.topic_cluster import TopicCluster, topic_cluster
from rangelog_bench.workload import ONE_SIZE, PRODUCER_COUNT, PRODUCER_SHARDS, Effort, Emit, now

_SLICES = 4
"""Both of a pair are measured in turn, in so many parts each: what disturbs one is likely to disturb the other."""
_CLIENTS_OF_SHARDS = 2


async def measure_producers(directory: Path, effort: Effort, emit: Emit) -> None:
    """Producers flat out, without keys and with keys, in turn with one writer of one stream of the same cluster."""
    async with topic_cluster(directory, brokers=1) as cluster, cluster.client_processes() as clients:
        topic = await cluster.new_topic(PRODUCER_SHARDS)
        count = effort.client_processes
        each = {"endpoints": cluster.endpoints, "topic": topic.name, "size": ONE_SIZE}
        shares = [PRODUCER_COUNT // count + (number < PRODUCER_COUNT % count) for number in range(count)]
        await clients.start("flat-out", [{**each, "producers": share} for share in shares])
        await clients.ask({"seconds": min(1.0, effort.seconds), "keyed": False})
        await cluster.fresh_log()
        await cluster.pump(make_record(ONE_SIZE, 0), min(1.0, effort.seconds / 2))
        found: dict[str, list[tuple[int, float, dict[str, Any]]]] = {}
        for _ in range(_SLICES // 2):
            meter, started_s = Meter(cluster.pids()), now()
            acked = await _write(cluster, effort.seconds / _SLICES * 2)
            took_s = now() - started_s
            found.setdefault("stream", []).append((acked, took_s, meter.stop(acked * ONE_SIZE)))
            for metric in (m.PRODUCERS, m.PRODUCERS_KEYED):
                meter = Meter(cluster.pids())
                order = {"seconds": effort.seconds / _SLICES * 2, "keyed": metric == m.PRODUCERS_KEYED}
                answers = await clients.ask(order)
                acked = sum(answer["acked"] for answer in answers)
                took_s = max(a["ended_s"] for a in answers) - min(a["started_s"] for a in answers)
                found.setdefault(metric, []).append((acked, took_s, meter.stop(acked * ONE_SIZE)))
    stream = _rate(found["stream"])
    for metric in (m.PRODUCERS, m.PRODUCERS_KEYED):
        rate = _rate(found[metric])
        details = {
            "mb_per_s": round(rate * ONE_SIZE / 1e6, 2), "stream_per_s": round(stream, 1),
            "of_stream": round(rate / stream, 3), "client_processes": count,
        } | found[metric][-1][2]  # fmt: skip
        emit(Measurement(NAME, SETTING, metric, ONE_SIZE, round(rate, 1), m.RECORDS_PER_S, details))


async def _write(cluster: TopicCluster, seconds: float) -> int:
    return await pump_writer(cluster.writer, make_record(ONE_SIZE, 0), time.monotonic() + seconds)


def _rate(parts: list[tuple[int, float, dict[str, Any]]]) -> float:
    return sum(acked for acked, _, _ in parts) / sum(took_s for _, took_s, _ in parts)


async def measure_broker_latency(directory: Path, effort: Effort, emit: Emit) -> None:
    """One record in flight through a broker, in turn with one in flight from a writer."""
    async with topic_cluster(directory, brokers=1) as cluster:
        topic = await cluster.new_topic(1)
        await cluster.fresh_log()
        through: list[float] = []
        direct: list[float] = []
        payload = make_record(ONE_SIZE, 0)
        async with cluster.client.producer(topic.name) as producer:

            async def one_in_flight(append: Any, seconds: float) -> list[float]:
                end_s = now() + seconds
                latencies_s: list[float] = []
                while not latencies_s or now() < end_s:
                    sent_s = now()
                    await append(payload)
                    latencies_s.append(now() - sent_s)
                return latencies_s

            for append in (producer.send, cluster.append):
                await one_in_flight(append, effort.seconds / 10)
            meter = Meter(cluster.pids())
            for _ in range(_SLICES):
                direct += await one_in_flight(cluster.append, effort.seconds / _SLICES)
                through += await one_in_flight(producer.send, effort.seconds / _SLICES)
            used = meter.stop()
    details, of_writer = m.latency_details(through), m.latency_details(direct)
    for name in ("p50", "p99", "p99.9"):
        details[f"writer_{name}"] = of_writer[name]
        details[f"ratio_{name}"] = round(details[name] / of_writer[name], 3)
    emit(Measurement(NAME, SETTING, m.BROKER_LATENCY, ONE_SIZE, details["p50"], m.MS, details | used))


async def measure_shards(directory: Path, effort: Effort, emit: Emit) -> None:
    """One record in flight for each of many shards of a topic."""
    count = effort.shards
    async with topic_cluster(directory, brokers=1) as cluster, cluster.client_processes() as clients:
        started_s = now()
        topic = await cluster.new_topic(count)
        each = {"endpoints": cluster.endpoints, "topic": topic.name, "size": ONE_SIZE}
        parts = [list(range(count))[number::_CLIENTS_OF_SHARDS] for number in range(_CLIENTS_OF_SHARDS)]
        await clients.start("one-by-one", [{**each, "shards": part} for part in parts])
        opened_s = now() - started_s
        meter = Meter(cluster.pids())
        for client in clients.running:
            client.order({})
        await asyncio.sleep(effort.seconds)
        answers = await clients.ask({})
        used = meter.stop()
    rate = sum(answer["acked"] / answer["seconds"] for answer in answers)
    details = {"shards": count, "open_s": round(opened_s, 2)} | used
    emit(Measurement(NAME, SETTING, m.SHARDS_WAITING, ONE_SIZE, round(rate, 1), m.RECORDS_PER_S, details))
