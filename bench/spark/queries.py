"""The measured queries of Spark, the same for every side: batch reads, micro-batches, latency, sinks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from appender import STAMP
from spark_side import Side, random_values

from rangelog_bench.measurement import MS, RECORDS_PER_S, Measurement, latency_details
from rangelog_bench.meter import CLIENT, Meter
from rangelog_cli.local.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH, STREAM, LATENCY, SINK = "batch", "stream", "latency", "sink"
PARTS = (BATCH, STREAM, LATENCY, SINK)
TRIGGERS = {"every second": "1 second", "as fast as it goes": "0 seconds"}
STEPS = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Of a micro-batch, as Spark names them."""
BATCHES = 10
TASKS = 2
TIMED_BYTES = 1_024
RATE_PER_S = 1_000
_SEEN_S_MAX = 120.0
_ARRIVED_S_MAX = 60.0
_numbers = itertools.count()


@dataclass(frozen=True)
class Effort:
    """How much is measured. `records`: of each size, for reads; `written`: for sinks."""

    records: dict[int, int]
    written: dict[int, int]
    warm_s: float
    latency_s: float


def measure(part: str, side: Side, effort: Effort, folder: Path, spark: SparkSession) -> list[Measurement]:
    """Return the figures of one part for one side."""
    if part == BATCH:
        return [read_batch(side, size, count, kind) for size, count in effort.records.items() for kind in side.kinds]
    if part == STREAM:
        return [read_stream(side, size, count, folder) for size, count in effort.records.items()]
    if part == LATENCY:
        return [time_rows(side, trigger, effort, folder) for trigger in TRIGGERS]
    return [
        write_stream(side, size, count, kind, folder, spark)
        for size, count in effort.written.items()
        for kind in side.sinks
    ]


def read_batch(side: Side, size: int, count: int, kind: str) -> Measurement:
    """Count the rows and sum the lengths of their values."""
    meter, begun_s = Meter(side.pids()), time.perf_counter()
    (row,) = _totals(side.batch(size, kind))
    took_s = time.perf_counter() - begun_s
    _check(side, BATCH, tuple(row), (count, count * size))
    return _rate(side, f"{BATCH}, {kind}", size, count, took_s, meter.stop())


def read_stream(side: Side, size: int, count: int, folder: Path) -> Measurement:
    """The same in ten micro-batches: the rate is that of all but the first."""
    seen: list[tuple[int, int]] = []

    def look(batch: DataFrame, _: int) -> None:
        (row,) = _totals(batch)
        seen.append((row[0], row[1]))

    frame = side.follow(size, -(-count // BATCHES))
    meter = Meter(side.pids())
    writer = frame.writeStream.foreachBatch(look).option("checkpointLocation", _checkpoint(folder))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    used = meter.stop()
    _check(side, STREAM, (sum(rows for rows, _ in seen), sum(each for _, each in seen)), (count, count * size))
    return _rate_of_batches(side, STREAM, size, query, count, used)


def write_stream(side: Side, size: int, count: int, kind: str, folder: Path, spark: SparkSession) -> Measurement:
    """Write Parquet files in ten micro-batches: the rate is that of all but the first."""
    files = _files(folder, size, count)
    frame = spark.readStream.schema("value binary").option("maxFilesPerTrigger", TASKS).parquet(str(files))
    writer, arrived = side.sink(frame, kind)
    meter = Meter(side.pids())
    query = writer.option("checkpointLocation", _checkpoint(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    used = meter.stop()
    wait_until(lambda: arrived() >= count, _ARRIVED_S_MAX, f"{side.name}: rows are missing")
    _check(side, SINK, arrived(), count)
    return _rate_of_batches(side, f"{SINK}, {kind}", size, query, count, used)


def time_rows(side: Side, trigger: str, effort: Effort, folder: Path) -> Measurement:
    """Append at a fixed rate; the time from when a record was due until foreachBatch has it in the driver."""
    heads: list[tuple[int, list[bytes]]] = []

    def look(batch: DataFrame, _: int) -> None:
        timed = batch.where(f"length(value) = {TIMED_BYTES}")
        found = timed.selectExpr(f"substring(value, 1, {STAMP.size}) AS head").toArrow()
        heads.append((time.perf_counter_ns(), found.column("head").to_pylist()))

    def has(count: int) -> Callable[[], bool]:
        return lambda: _alive(query) and sum(len(rows) for _, rows in heads) >= count

    writer = side.tail().writeStream.foreachBatch(look).option("checkpointLocation", _checkpoint(folder))
    query = writer.trigger(processingTime=TRIGGERS[trigger]).start()
    try:
        warm, count = int(RATE_PER_S * effort.warm_s), int(RATE_PER_S * effort.latency_s)
        side.append(TIMED_BYTES, RATE_PER_S, warm)
        wait_until(has(warm), _SEEN_S_MAX, f"{side.name}: the query does not see the rows")
        heads.clear()
        meter = Meter(side.pids())
        side.append(TIMED_BYTES, RATE_PER_S, count)
        wait_until(has(count), _SEEN_S_MAX, f"{side.name}: the query does not see all rows")
        used = meter.stop()
    finally:
        query.stop()
    steps = steps_of([each for each in query.recentProgress if each["numInputRows"]])
    stamps = [(seen_ns, *STAMP.unpack(head)) for seen_ns, rows in heads for head in rows]
    _check(side, LATENCY, sorted(number for _, number, _ in stamps), list(range(count)))
    details = latency_details((seen_ns - due_ns) / 1e9 for seen_ns, _, due_ns in stamps)
    details |= {"micro_batches": len(heads), "cores_of_others": used["cores_of_others"], "cores": used["cores"]}
    details |= steps
    return Measurement(side.name, side.setting, f"{LATENCY}, {trigger}", TIMED_BYTES, details["p50"], MS, details)


# ---- parts


def _totals(frame: DataFrame) -> list[Any]:
    return list(frame.selectExpr("count(1) AS rows", "sum(length(value)) AS bytes").collect())


def _rate(side: Side, metric: str, size: int, count: int, took_s: float, used: dict[str, Any]) -> Measurement:
    of_spark_s = used["cpu_s"][CLIENT]
    rate = count / took_s
    details = {
        "mb_per_s": round(rate * size / 1e6, 1),
        "per_core": round(count / of_spark_s),
        "spark_cpu_s": of_spark_s,
        "servers_cpu_s": round(sum(used["cpu_s"].values()) - of_spark_s, 2),
        "cores_of_others": used["cores_of_others"],
    }
    return Measurement(side.name, side.setting, metric, size, round(rate), RECORDS_PER_S, details)


def _rate_of_batches(
    side: Side, metric: str, size: int, query: StreamingQuery, count: int, used: dict[str, Any]
) -> Measurement:
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    steady = progress[1:] or progress
    rows = sum(each["numInputRows"] for each in steady)
    took_s = sum(each["durationMs"]["triggerExecution"] for each in steady) / 1e3
    found = _rate(side, metric, size, count, took_s * count / rows, used)
    found.details["micro_batches"] = len(progress)
    found.details.update(steps_of(steady))
    return found


def steps_of(progress: Sequence[Any]) -> dict[str, float]:
    """How long a micro-batch takes in ms, and each of its steps, on average."""
    found: dict[str, float] = {}
    for step in STEPS:
        found[f"{step}_ms"] = round(
            sum(each["durationMs"].get(step, 0) for each in progress) / max(1, len(progress)), 1
        )
    return found


def _checkpoint(folder: Path) -> str:
    return str(folder / f"checkpoint-{next(_numbers)}")


def _files(folder: Path, size: int, count: int) -> Path:
    """Parquet files of a size: one for each task of each micro-batch."""
    place = folder / f"files-{size}"
    if not place.exists():
        place.mkdir()
        share = count // (BATCHES * TASKS)
        for number in range(BATCHES * TASKS):
            values = [value for some in random_values(size, share) for value in some]
            table = pa.table({"value": pa.array(values, pa.binary())})
            pq.write_table(table, place / f"{number:03}.parquet", use_dictionary=False, compression="none")
    return place


def _alive(query: StreamingQuery) -> bool:
    error = query.exception()
    if error is not None:
        raise RuntimeError(f"the query ended: {str(error)[:2_000]}")
    return True


def _check(side: Side, part: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise RuntimeError(f"{side.name}, {part}: {str(found)[:200]}, not {str(wanted)[:200]}")
