"""Reads all records back in three independent ways: the SDK, Spark SQL against pandas, and plain pyarrow."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_cli.local.processes import Process
from rangelog_core.errors import RequestTimeout, Unavailable
from rangelog_demo.comparison import Comparison
from rangelog_demo.flights import Flight, data_file
from rangelog_demo.progress import Bar
from rangelog_demo.report import CarrierRow
from rangelog_demo.s3_server import BUCKET, CREDENTIALS, REGION

if TYPE_CHECKING:
    from rangelog import Client

SPARK_TIMEOUT_S = 240.0
_TOLERANCE = 1e-9
"""Relative: two engines may add the same numbers in another order."""
_POLL_S = 0.1


async def read_back(client: Client, stream: str, flights: Sequence[Flight], bar: Bar) -> Comparison:
    """Read the stream from its start to its end through the SDK and compare every record."""
    comparison = Comparison(flights)
    async for record in client.reader(stream, start="earliest", follow=False):
        comparison.add(record.offset, record.timestamp_ms, record.key, record.value)
        if comparison.read % 4_096 == 0:
            bar.update(comparison.read)
    return comparison


async def ask_spark(directory: Path, pds: str, stream: str, count: int) -> tuple[list[CarrierRow], list[CarrierRow]]:
    """Run the query in Spark, and in pandas over the first `count` flights; return one row per carrier.

    The second list is of the topic into which Spark has copied the stream.

    Raises Unavailable when the Spark job fails, RequestTimeout when it takes too long.
    """
    output = directory / "spark.json"
    arguments = ["-m", "rangelog_demo.spark_job", "--pds", pds, "--stream", stream, "--output", str(output)]
    job = Process("spark", arguments, log_path=directory / "logs" / "spark.log")
    job.start()
    try:
        expected = await asyncio.to_thread(ask_pandas, count)
        for _ in range(int(SPARK_TIMEOUT_S / _POLL_S)):
            if not job.running:
                break
            await asyncio.sleep(_POLL_S)
        else:
            raise RequestTimeout(f"Spark did not answer within {SPARK_TIMEOUT_S:g} s: see {job.log_path}")
    finally:
        job.kill()
    if job.returncode != 0:
        raise Unavailable(f"the Spark job ended with exit code {job.returncode}: {job.last_words()}")
    answers = json.loads(output.read_text())
    rows, copied = (join_answers({row[0]: row[1:] for row in answers[name]}, expected) for name in ("rows", "copied"))
    return rows, copied


def ask_pandas(count: int) -> dict[str, tuple[int, float, float]]:
    """carrier → (flights, mean departure delay in minutes, share cancelled), straight from the CSV."""
    import pandas  # type: ignore[import-untyped,unused-ignore]

    columns = ["carrier", "dep_delay", "dep_time", "time_hour", "minute"]
    table = pandas.read_csv(data_file(), usecols=columns)
    if count < len(table):
        order = pandas.to_datetime(table["time_hour"]) + pandas.to_timedelta(table["minute"], unit="min")
        table = table.loc[order.sort_values(kind="stable").index[:count]]
    groups = table.assign(cancelled=table["dep_time"].isna()).groupby("carrier")
    answers = groups.agg(flights=("carrier", "size"), delay=("dep_delay", "mean"), cancelled=("cancelled", "mean"))
    return {str(row.Index): (int(row.flights), float(row.delay), float(row.cancelled)) for row in answers.itertuples()}


def join_answers(spark: Mapping[str, Sequence[float]], pandas: Mapping[str, Sequence[float]]) -> list[CarrierRow]:
    """One row for each carrier that either knows; what one of them lacks is not a number."""
    missing = (0, math.nan, math.nan)
    rows = []
    for carrier in sorted(spark.keys() | pandas.keys()):
        ours, theirs = spark.get(carrier, missing), pandas.get(carrier, missing)
        flights = int(ours[0]) if ours[0] == theirs[0] else -1  # no count that both have
        rows.append(CarrierRow(carrier, flights, ours[1], theirs[1], ours[2], theirs[2]))
    return rows


def answers_match(rows: Sequence[CarrierRow]) -> bool:
    """Same carriers, same counts, same figures up to the order of addition."""
    return bool(rows) and all(
        row.flights >= 0
        and math.isclose(row.mean_delay_spark, row.mean_delay_pandas, rel_tol=_TOLERANCE)
        and math.isclose(row.cancelled_share_spark, row.cancelled_share_pandas, rel_tol=_TOLERANCE, abs_tol=1e-15)
        for row in rows
    )


def count_parquet(endpoint: str) -> tuple[int, int, bool]:
    """(objects, records, whether their offsets run 0, 1, 2, … without gap or repeat), by pyarrow alone."""
    from pyarrow import fs, parquet

    store = fs.S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=endpoint.removeprefix("http://"),
        scheme="http",
        region=REGION,
    )
    infos = store.get_file_info(fs.FileSelector(BUCKET, recursive=True))
    paths = [info.path for info in infos if info.type == fs.FileType.File and info.path.endswith(".parquet")]
    columns = [parquet.ParquetFile(store.open_input_file(path)).read(columns=["offset"])["offset"] for path in paths]
    records = sum(len(column) for column in columns)
    offsets = sorted(int(offset) for column in columns for offset in column.to_numpy())
    return len(paths), records, offsets == list(range(records))
