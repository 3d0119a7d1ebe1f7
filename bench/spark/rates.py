"""What Spark makes of rangelog, beside its own Kafka source on a real Kafka, in turn and with the same records.

    .venv/bin/python bench/spark/rates.py --quick
    .venv/bin/python bench/spark/rates.py --only batch --only stream --rounds 5

Four parts: batch reads, micro-batches, latency and sinks (queries.py). The first round warms up and is not counted. Where Kafka
or Java is not installed (bench/peers/install_java.sh), rangelog is measured alone. Figures of every round are in
build/bench/spark_rounds.jsonl, the medians in build/bench/spark.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "bench" / "peers")]

from kafka_side import KafkaSide, jars  # noqa: E402
from measure import end_once, say  # noqa: E402
from queries import PARTS, Effort, measure  # noqa: E402
from servers import Missing  # noqa: E402
from spark_side import HOT, RangelogSide, Side  # noqa: E402

import rangelog.sync  # noqa: E402
from rangelog.spark import create_session  # noqa: E402
from rangelog_bench.measurement import MS, Measurement, medians  # noqa: E402
from rangelog_bench.scratch import scratch  # noqa: E402

OUTPUT = ROOT / "build" / "bench"
SMALL, LARGE = 100, 1_024
RECORDS, QUICK_RECORDS = 5_000_000, 400_000
WRITTEN_PART = 2.5


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer records, one round")
    parser.add_argument("--only", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--records", type=int, help=f"of 100 B; a fifth of that of 1 KiB (default {RECORDS})")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--without-kafka", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, end_once)
    count = given.records or (QUICK_RECORDS if given.quick else RECORDS)
    effort = effort_of(count, quick=given.quick)
    rounds = given.rounds or (1 if given.quick else 3)
    found = run(given.only or PARTS, effort, rounds, with_kafka=not given.without_kafka)
    show(medians(found))
    return 0


def effort_of(count: int, *, quick: bool) -> Effort:
    """How much is measured, given the records of 100 B."""
    count -= count % 1_000
    written = int(count / WRITTEN_PART) // 1_000 * 1_000
    records = {SMALL: count, LARGE: count // 5}
    return Effort(records, {SMALL: written, LARGE: written // 5}, 3.0 if quick else 5.0, 4.0 if quick else 15.0)


def run(parts: Sequence[str], effort: Effort, rounds: int, *, with_kafka: bool) -> list[Measurement]:
    """Measure round by round; return the figures of all rounds but the first."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    counted: list[Measurement] = []
    lines = OUTPUT / "spark_rounds.jsonl"
    lines.unlink(missing_ok=True)
    with scratch(OUTPUT) as folder, opened(folder, effort, with_kafka=with_kafka) as (spark, sides):
        for number in range(rounds + 1):
            for part in parts:
                for side in sides if number % 2 else sides[::-1]:
                    found = measure(part, side, effort, folder, spark)
                    for each in found:
                        say(f"round {number}: {told(each)}")
                    if number:
                        counted += found
                        with lines.open("a") as output:
                            output.writelines(f"{each.to_json()}\n" for each in found)
    return counted


@contextlib.contextmanager
def opened(folder: Path, effort: Effort, *, with_kafka: bool) -> Iterator[tuple[object, list[Side]]]:
    """Start Spark, then the servers (Spark's process comes before the client: gRPC does not bear a fork), and fill them."""
    settings = {"spark_driver_memory": "3g", "spark_sql_streaming_noDataMicroBatches_enabled": "false"}
    if with_kafka:
        try:
            settings["spark_jars"] = jars()
        except Missing as missing:
            say(f"without Kafka: {missing}")
            with_kafka = False
    with contextlib.ExitStack() as stack:
        spark = create_session("rates", **settings)
        stack.callback(spark.stop)
        kafka = None
        if with_kafka:
            kafka = KafkaSide(spark)
            stack.callback(kafka.stop)
            kafka.start()
        cluster = stack.enter_context(RangelogSide.open_cluster(folder / "cluster"))
        client = stack.enter_context(rangelog.sync.connect(cluster.connect_string))
        ours = RangelogSide(spark, cluster, client)
        ours.wait()
        for size, count in effort.records.items():
            say(f"filling: {count:,} records of {size} B")
            ours.fill(size, count)
            if kafka is not None:
                kafka.fill(size, ours.batch(size, HOT))
        yield spark, [ours, kafka] if kafka is not None else [ours]


# ---- what is shown


def told(each: Measurement) -> str:
    """One figure in words."""
    details = each.details
    if each.unit == MS:
        return f"{each.system} {each.metric}: p50 {details['p50']:.0f} ms, p99 {details['p99']:.0f} ms"
    return (
        f"{each.system} {each.metric}, {each.record_size} B: {each.value:,.0f}/s, {details['mb_per_s']:.0f} MB/s, "
        f"{details['per_core']:,.0f} for a second of Spark's processor time, others {details['cores_of_others']} cores"
    )


def show(results: Sequence[Measurement]) -> None:
    """Print a table of the medians, and keep them."""
    (OUTPUT / "spark.jsonl").write_text("".join(f"{each.to_json()}\n" for each in results))
    print(
        "| query | system | record | median | MB/s | per s of Spark's processor time | runs |\n|---|---|---|---|---|---|---|"
    )
    for each in results:
        details = each.details
        cells = [each.metric, each.system, f"{each.record_size} B"]
        if each.unit == MS:
            cells += [f"{details['p50']:.0f} / {details['p99']:.0f} ms (p50 / p99)", "–", "–"]
        else:
            cells += [f"{each.value:,.0f}/s", f"{details['mb_per_s']:.0f}", f"{details['per_core']:,.0f}"]
        cells.append(", ".join(f"{run:,.0f}" for run in details["runs"]))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main())
