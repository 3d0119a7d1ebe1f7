"""Quotas in a cluster of processes: a client over its quota keeps to it, without error, seal or loss, and others go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.certs.authority import Authority
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RangelogError
from rangelog_core.net.tls import TlsConfig
from rangelog_core.stream_config import StreamConfig
from rangelog_proto.v1 import pd_pb2
from tests.security.rights import pdctl
from tests.support.certificates import TestCertificates

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.alone]

ClusterFactory = Callable[..., Cluster]
RATE = 1_000_000
MEASURED_S = 20.0
FREE_BYTES_MAX = 64_000_000
"""What is appended once the quota is gone: far below a full range, which a fast machine fills in three seconds."""
LEAST = pytest.mark.parametrize(
    "least",
    [pytest.param(0.01, marks=pytest.mark.long, id="kept"), pytest.param(1.0, marks=pytest.mark.measure, id="used")],
)
"""That a quota is kept holds on a machine of any speed. That it is used, and how fast others are, is measured: `least` is 1."""
KEPT = StreamConfig(tiered=False, hot_retention_seconds=float("inf"))


def quota(cluster: Cluster, *arguments: str) -> str:
    done = pdctl(cluster, "quota", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def clients(cluster: Cluster, directory: Path) -> Callable[[str], TlsConfig]:
    certificates = TestCertificates(directory, Authority.open(cluster.directory / "certs"))
    return lambda name: certificates.tls("client", name)


async def append_for(
    writer: rangelog.Writer, seconds: float, value: bytes, bytes_max: float = float("inf")
) -> tuple[int, float]:
    """Append as fast as the writer lets, for a time or until so many bytes; return how many are acked, and the time taken."""
    began_s = time.monotonic()
    began_offset = writer.confirm_offset
    end_offset = writer.next_offset + bytes_max / len(value)
    while time.monotonic() - began_s < seconds and writer.next_offset < end_offset:
        await writer.ready()
        writer.append_nowait(value)
        await asyncio.sleep(0)
    acked = writer.confirm_offset - began_offset
    return acked, time.monotonic() - began_s


async def latencies_ms(writer: rangelog.Writer, seconds: float) -> list[float]:
    """Append one record after the other."""
    found = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        await writer.append(b"x" * 100)
        found.append((time.monotonic() - began_s) * 1000)
        await asyncio.sleep(0.02)
    return sorted(found)


@LEAST
async def test_a_writer_keeps_to_its_quota_and_nobody_else_notices(
    cluster_factory: ClusterFactory, tmp_path: Path, least: float
) -> None:
    """At most 1.05 of the figure over 20 s; no range is sealed, no record is lost. Measured: 0.9, another client's acks."""
    cluster = cluster_factory(range_servers=3, tls=True)
    tls = clients(cluster, tmp_path)
    quota(cluster, "set", "--principal", "alice", "--append-bytes-per-s", "1MB")
    value = b"v" * 4000
    async with (
        await rangelog.connect(cluster.connect_string, tls=tls("alice")) as alice,
        await rangelog.connect(cluster.connect_string, tls=tls("bob")) as bob,
    ):
        await alice.create_stream("a", KEPT)
        await bob.create_stream("b", KEPT)
        async with alice.writer("a") as writer, bob.writer("b") as other:
            # What is free at once is used up, and servers know the quota.
            await asyncio.gather(append_for(writer, 3.0, value), latencies_ms(other, 3.0))
            (acked, took_s), others = await asyncio.gather(
                append_for(writer, MEASURED_S, value), latencies_ms(other, MEASURED_S)
            )
            rate = acked * len(value) / took_s / RATE
            median_ms, worst_ms = others[len(others) // 2], others[-1]
            print(f"\nquotas: {rate:.3f} of the quota; another client: {median_ms:.1f} ms, worst {worst_ms:.0f} ms")
            assert 0.9 * least <= rate <= 1.05
            assert least < 1 or (median_ms < 100 and len(others) > MEASURED_S * 5)
            quota(cluster, "remove", "--principal", "alice")
            await writer.flush()
            (acked, took_s), _ = await asyncio.gather(
                append_for(writer, 3.0, value, FREE_BYTES_MAX), latencies_ms(other, 3.0)
            )
            assert acked * len(value) / took_s > 2 * RATE * least  # nobody is held off any more
            ranges = await asyncio.to_thread(cluster_ranges, cluster, "a")
            assert ranges[-1]["state"] == "open"
            if len(ranges) > 1:  # a server stood still for half a second: the writer without a quota leaves it as well
                await latencies_ms(other, 5.0)
                assert len(await asyncio.to_thread(cluster_ranges, cluster, "b")) >= len(ranges), (
                    "the quota sealed a range"
                )
            appended = writer.next_offset
        count = 0
        async for record in alice.reader("a", start="earliest", follow=False):
            assert record.offset == count and record.value == value
            count += 1
        assert count == appended


def cluster_ranges(cluster: Cluster, stream: str) -> list[dict[str, Any]]:
    done = pdctl(cluster, "range", "list", stream, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@LEAST
async def test_readers_and_producers_are_held_off_as_well(
    cluster_factory: ClusterFactory, tmp_path: Path, least: float
) -> None:
    """A quota of a prefix holds for a topic's producers at the broker and for all its readers; nothing is lost or repeated."""
    cluster = cluster_factory(range_servers=3, brokers=1, tls=True)
    tls = clients(cluster, tmp_path)
    async with await rangelog.connect(cluster.connect_string, tls=tls("p")) as client:
        await client.topics.create_namespace("orders")
        await client.topics.create("orders/t")
        quota(cluster, "set", "--prefix", "orders/", "--append-bytes-per-s", "1MB", "--read-bytes-per-s", "1MB")
        value, count = os.urandom(4000), 5000  # topics are compressed
        async with client.producer("orders/t") as producer:
            began_s, before = time.monotonic(), 0
            while time.monotonic() - began_s < 3.0:  # servers hear of the quota, and what the topic is called
                await producer.send(value)
                before += 1
            began_s = time.monotonic()
            for _ in range(count):
                await producer.ready()
                producer.send_nowait(value)
            await producer.flush()
        took_s = time.monotonic() - began_s
        print(f"\nquotas: a producer at {count * len(value) / took_s / RATE:.2f} of the prefix's quota")
        assert 0.8 * least <= count * len(value) / took_s / RATE <= 1.15
        began_s, seen = time.monotonic(), 0
        async for _ in client.topic_reader("orders/t", start="earliest", follow=False):
            seen += 1
        took_s = time.monotonic() - began_s
        print(f"quotas: a reader at {seen * len(value) / took_s / RATE:.2f} of the prefix's quota")
        assert seen == count + before and 0.7 * least <= seen * len(value) / took_s / RATE <= 1.15


@LEAST
async def test_a_low_quota_is_kept_whoever_comes_and_however(
    cluster_factory: ClusterFactory, tmp_path: Path, least: float
) -> None:
    """By one reader and by ten, by calls with little time, and by rows of a table: nobody gets more than burst and rate."""
    cluster = cluster_factory(range_servers=3, brokers=1, tls=True)
    tls = clients(cluster, tmp_path)
    rate, seconds = 65_536, 12.0
    async with await rangelog.connect(cluster.connect_string, tls=tls("low")) as client:
        await client.create_stream("s", StreamConfig(tiered=False, replicas=1, acks=1))
        async with client.writer("s") as writer:
            for _ in range(400):
                await writer.append_batch([os.urandom(10_000)])
        await client.tables.create("rows", partitions=1)
        table = client.table("rows")
        await table.put(b"k", b"0")
        rates = ("--append-bytes-per-s", "64KiB", "--read-bytes-per-s", "64KiB")
        quota(cluster, "set", "--principal", "low", *rates)
        await bytes_read(client, 4.0)  # meanwhile servers hear of the quota
        for readers in (1, 10):
            read = await asyncio.gather(*(bytes_read(client, seconds) for _ in range(readers)))
            got = sum(read) / (rate * seconds)
            print(f"\nquotas: {readers} readers at {got:.2f} of the quota")
            ends = rate / 2 + 2 * 240 * 1024  # the burst, and a reply at each end
            assert 0.3 * least <= got <= 1.0 + ends / (rate * seconds)
        quota(cluster, "set", "--principal", "low", "--calls-per-s", "5")
        await bytes_read(client, 4.0)
        answered = await asyncio.gather(*(short_calls(client, 6.0) for _ in range(20)))
        print(f"quotas: {sum(answered)} calls of 200 ms in 6 s, 5 a second are allowed")
        assert 5 * least <= sum(answered) <= 5 * 6 + 10
        began_s, put = time.monotonic(), 0
        while time.monotonic() - began_s < 10.0:
            await table.put(b"k", os.urandom(50_000))
            put += 50_000
        got = put / (rate * (time.monotonic() - began_s))
        print(f"quotas: rows at {got:.2f} of the quota")
        assert 0.5 * least <= got <= 1.2


async def bytes_read(client: rangelog.Client, seconds: float) -> int:
    """Read a stream again and again."""
    found, until_s = 0, time.monotonic() + seconds
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while time.monotonic() < until_s:
                async for record in client.reader("s", start="earliest", follow=False):
                    found += len(record.value)
    return found


async def short_calls(client: rangelog.Client, seconds: float) -> int:
    """Call again and again with little time; return how many were answered."""
    answered, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        with contextlib.suppress(RangelogError):
            await client.metadata.pd.call(pd_pb2.ListStreamsRequest(), pd_pb2.ListStreamsResponse, timeout_s=0.2)
            answered += 1
    return answered
