"""The measurements of rangelog alone: Arrow, many streams at once, two more kinds of failover, and reads from the tier."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import time
from collections.abc import Collection, Sequence
from html import unescape
from urllib.parse import quote

import rangelog
from rangelog import Writer
from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement
from rangelog_bench.meter import Meter, give_back_memory, memory_bytes
from rangelog_bench.ours import Rangelog, arrow_chunks, pump_writer
from rangelog_bench.payload import make_record
from rangelog_bench.workload import (
    ONE_SIZE,
    Effort,
    Emit,
    attempt,
    catchup_records,
    gap_measurement,
    longest_gap,
    measure_catchup,
    now,
    top_up,
)
from rangelog_core.errors import RangelogError, RequestTimeout, Unavailable
from rangelog_demo.s3_server import BUCKET, S3Server, use_credentials

ARROW, STREAMS, END, GAP_PD, TAKEOVER, COLD = "arrow", "streams", "end", "pd-failover", "takeover", "cold"
OWN = (ARROW, STREAMS, END, GAP_PD, TAKEOVER, COLD)
NEEDS_OWN_CLUSTER = frozenset({GAP_PD, COLD})

_OPENING_AT_ONCE = 16
_STREAMS_WEIGHED_MIN = 100
"""What fewer weigh is lost among what else changes in a process."""
_COLD_RANGE_BYTES = 32 << 20
_TIER_TIMEOUT_S = 180.0
_POLL_S = 0.05
_SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/s3/aws4_request"}
"""The server requires a signature and does not check it."""


async def run_own_round(ours: Rangelog, effort: Effort, only: Collection[str], emit: Emit) -> list[str]:
    """Measure everything in `only`, once; `ours` was started. Returns what failed, in words.

    The cold read comes last: it changes the cluster.
    """
    failed: list[str] = []
    if ARROW in only:
        failed += await attempt(ARROW, measure_arrow(ours, effort, emit))
    if STREAMS in only:
        for count in effort.stream_counts:
            failed += await attempt(f"{STREAMS} {count}", measure_streams(ours, effort, count, emit))
    if END in only:
        failed += await attempt(END, measure_end(ours, effort, emit))
    if TAKEOVER in only:
        failed += await attempt(TAKEOVER, measure_takeover(ours, effort, emit))
    if GAP_PD in only:
        failed += await attempt(GAP_PD, measure_pd_gap(ours, effort, emit))
    if COLD in only:
        failed += await attempt(COLD, measure_cold(ours, effort, emit))
    return failed


async def measure_arrow(ours: Rangelog, effort: Effort, emit: Emit) -> None:
    """Catch-up as Arrow record batches."""
    await ours.fresh_log()
    await ours.append(make_record(ONE_SIZE, 0))
    await ours.read_all_arrow(1)  # so that nothing is imported while it is measured
    for size in effort.sizes:
        await ours.fresh_log()
        acked = await ours.pump(make_record(size, 0), effort.seconds / 2)
        count = catchup_records(effort, size, acked)
        await top_up(ours, size, acked, count, 2 * acked / effort.seconds)
        await measure_catchup(ours, m.CATCHUP_ARROW, ours.read_all_arrow, size, count, emit)


async def measure_streams(ours: Rangelog, effort: Effort, count: int, emit: Emit) -> None:
    """`count` streams open at once in one client, all appended to in turn; and what an open stream weighs."""
    held_before = _held_bytes(ours)
    names = [await ours.new_stream() for _ in range(count)]
    writers = [ours.client.writer(name) for name in names]
    try:
        opening_s = now()
        for at in range(0, count, _OPENING_AT_ONCE):
            await asyncio.gather(*(writer.open() for writer in writers[at : at + _OPENING_AT_ONCE]))
        opened_s = now() - opening_s
        held = {name: size - held_before.get(name, 0) for name, size in _held_bytes(ours).items()}
        idle = Meter(ours.pids())
        await asyncio.sleep(min(2.0, effort.seconds))
        details = {"open_s": round(opened_s, 2), "idle_cores": idle.stop()["cores"]}
        if count >= _STREAMS_WEIGHED_MIN:
            details["client_kb_per_stream"] = round(held.pop("client") / count / 1e3, 1)
            details["servers_kb_per_stream"] = round(sum(held.values()) / count / 1e3, 1)
        details["waiting_per_s"] = await _append_one_by_one(writers, min(3.0, effort.seconds))
        payload, meter, started_s = make_record(ONE_SIZE, 0), Meter(ours.pids()), now()
        end_s = time.monotonic() + effort.seconds
        acked = sum(await asyncio.gather(*(pump_writer(writer, payload, end_s) for writer in writers)))
        took_s = now() - started_s
        details |= {"mb_per_s": round(acked * ONE_SIZE / took_s / 1e6, 2)} | meter.stop(acked * ONE_SIZE)
    finally:
        for writer, name in zip(writers, names, strict=True):
            await writer.close(flush=False)
            await ours.client.delete_stream(name)
    value = round(acked / took_s, 1)
    emit(Measurement(ours.name, ours.setting, f"{m.STREAMS}_{count}", ONE_SIZE, value, m.RECORDS_PER_S, details))


async def _append_one_by_one(writers: Sequence[Writer], seconds: float) -> float:
    """Appends/s of all writers together when each waits for an ack before its next append."""
    payload, started_s = make_record(ONE_SIZE, 0), now()

    async def append(writer: Writer) -> int:
        count = 0
        while now() - started_s < seconds:
            await writer.append(payload)
            count += 1
        return count

    acked = sum(await asyncio.gather(*map(append, writers)))
    return round(acked / (now() - started_s), 1)


def _held_bytes(ours: Rangelog) -> dict[str, int]:
    give_back_memory()
    return {"client": memory_bytes(os.getpid())} | {name: memory_bytes(pid) for name, pid in ours.pids().items()}


async def measure_pd_gap(ours: Rangelog, effort: Effort, emit: Emit) -> None:
    """Kill the placement driver that leads while appending: acks should not notice."""
    await ours.fresh_log()
    victim = ""

    async def kill() -> None:
        nonlocal victim
        victim = await ours.pd_leader()
        ours.kill(victim)

    gap = await longest_gap(ours, effort, kill)
    emit(gap_measurement(ours, m.GAP_PD, gap))
    await ours.restore(victim)


async def measure_end(ours: Rangelog, effort: Effort, emit: Emit) -> None:
    """Ask where the log ends, one call after the other: what a bounded read pays before its first record."""
    await ours.fresh_log()
    payload, stream = make_record(ONE_SIZE, 0), ours.writer.stream

    async def ask(seconds: float) -> list[float]:
        took_s, end_s = [], now() + seconds
        while now() < end_s:
            began_s = now()
            await ours.client.end_offset(stream)
            took_s.append(now() - began_s)
        return took_s

    seconds = min(3.0, effort.seconds)
    busy, _ = await asyncio.gather(ask(seconds), pump_writer(ours.writer, payload, time.monotonic() + seconds))
    for metric, took_s in ((m.END_BUSY, busy), (m.END_IDLE, await ask(seconds / 3))):
        details = m.latency_details(took_s)
        emit(Measurement(ours.name, ours.setting, metric, ONE_SIZE, details["p50"], m.MS, details))


async def measure_takeover(ours: Rangelog, effort: Effort, emit: Emit) -> None:
    """A second client opens a writer while the first one appends: from its start to its first ack."""
    await ours.fresh_log()
    first = ours.writer
    last_ack_s = now()

    async def append_on() -> None:
        nonlocal last_ack_s
        try:
            while True:
                await first.append(make_record(ONE_SIZE, 0))
                last_ack_s = now()
        except RangelogError:
            return  # fenced, as it must be

    appending = asyncio.create_task(append_on())
    try:
        await asyncio.sleep(min(1.0, effort.before_kill_s))
        async with await rangelog.connect(ours.endpoints) as client:
            started_s = now()
            async with client.writer(first.stream) as second:
                await second.append(make_record(ONE_SIZE, 1))
                acked_s = now()
            await asyncio.wait([appending], timeout=effort.resume_s_max)
    finally:
        appending.cancel()
    value = round((acked_s - started_s) * 1e3, 2)
    details = {"gap_between_acks": round((acked_s - last_ack_s) * 1e3, 2)}
    emit(Measurement(ours.name, ours.setting, m.TAKEOVER, ONE_SIZE, value, m.MS, details))


# ---- the tier


async def measure_cold(ours: Rangelog, effort: Effort, emit: Emit) -> None:
    """Append, seal, wait until all is in a local S3 server, and read it from there only; beside that, plain GETs.

    A cluster of its own: this one keeps its objects in that server.
    """
    await ours.stop_cluster()
    use_credentials()
    directory = ours.directory / "cold"
    server = S3Server(directory)
    cold = Rangelog(directory)
    try:
        await asyncio.to_thread(server.start)
        await cold.start_cluster(3, pds=1, tier_url=server.tier_url)
        stream, count = await _fill_tier(cold, effort)
        await _measure_gets(cold, server, emit)
        size = ONE_SIZE

        async def records(_count: int) -> int:
            came = size_bytes = 0
            async for chunk in cold.client.reader(stream, read_preference="cold_only").chunks():
                for record in chunk:  # each is made and looked at
                    size_bytes += len(record.value)
                came += len(chunk)
            assert size_bytes == came * ONE_SIZE
            return came

        async def arrow(_count: int) -> int:
            came = 0
            async for chunk in arrow_chunks(cold.client, stream, end=count, read_preference="cold_only"):
                came += sum(table.num_rows for table in chunk)
            return came

        async for _ in cold.client.reader(stream, end=1, read_preference="cold_only").chunks():
            pass  # so that nothing is imported while it is measured
        await measure_catchup(cold, m.COLD_FIRST, records, size, count, emit)
        await measure_catchup(cold, m.COLD, records, size, count, emit)
        await measure_catchup(cold, m.COLD_ARROW, arrow, size, count, emit)
    finally:
        await cold.stop()
        server.process.kill()


async def _fill_tier(cold: Rangelog, effort: Effort) -> tuple[str, int]:
    stream = await cold.new_stream(tiered=True, range_size_bytes_max=_COLD_RANGE_BYTES)
    wanted = effort.cold_bytes // ONE_SIZE
    async with cold.client.writer(stream) as writer:
        while writer.next_offset < wanted:
            writer.submit(os.urandom(ONE_SIZE))  # never the same twice: objects are compressed
            await writer.ready()
    count = await cold.client.seal_stream(stream)
    end_s = now() + _TIER_TIMEOUT_S
    while now() < end_s:
        _, ranges = await cold.client.metadata.ranges(stream, 0)
        if all(each.tiered_end_offset == each.end_offset for each in ranges):
            return stream, count
        await asyncio.sleep(_POLL_S)
    raise RequestTimeout(f"the ranges are not in the object store after {_TIER_TIMEOUT_S:g} s: see `pdctl task list`")


async def _measure_gets(cold: Rangelog, server: S3Server, emit: Emit) -> None:
    """The rate of the server itself: whole objects, one after the other, on one connection."""
    keys = await asyncio.to_thread(_list_keys, server.port)
    meter = Meter({**cold.pids(), "s3": server.process.pid})
    started_s = now()
    size = await asyncio.to_thread(_get_all, server.port, keys)
    took_s = now() - started_s
    details = {"objects": len(keys), "bytes": size, "mb_per_s": round(size / took_s / 1e6, 2)} | meter.stop(size)
    emit(Measurement(cold.name, cold.setting, m.COLD_GET, ONE_SIZE, round(size / took_s / 1e6, 2), "MB/s", details))


def _list_keys(port: int) -> list[str]:
    """The objects of the tier as S3 itself lists them (up to 1,000: there are dozens)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", f"/{BUCKET}?list-type=2&prefix=tier/", headers=_SIGNED)
        listed = connection.getresponse().read().decode()
    finally:
        connection.close()
    keys = [unescape(key) for key in re.findall(r"<Key>([^<]+)</Key>", listed)]
    return [key for key in keys if key.endswith(".parquet")]


def _get_all(port: int, keys: list[str]) -> int:
    total = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        for key in keys:
            connection.request("GET", quote(f"/{BUCKET}/{key}"), headers=_SIGNED)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise Unavailable(f"the S3 server answered HTTP {answer.status} to a plain GET")
            total += len(body)
    finally:
        connection.close()
    return total
