"""How fast the job `compact` is: streams of one-MiB ranges on a cluster of processes, joined into objects of 64 MiB.

python tests/scale/compact.py                        3 rounds of 60 MB in records of 1 KiB
python tests/scale/compact.py --megabytes 200 --record-bytes 100
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import rangelog.sync
from rangelog.spark import create_session
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.limits import MIB
from rangelog_core.stream_config import StreamConfig
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.compact import compact_streams
from tests.support.waiting import eventually

VALUES = 1_000
BY_HAND = {"RANGELOG_PD_REPACK_TARGET_BYTES": "0"}
"""The cluster leaves the objects to the job."""
TIERED_S = 300.0


def main() -> int:
    """Fill, compact and print, round by round; the first one starts Spark's Python processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=60, help="of records in a round (default 60)")
    parser.add_argument("--record-bytes", type=int, default=1_024, help="of a value (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    options = parser.parse_args()
    spark = create_session("compact", spark_driver_memory="2g")
    rates: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster.open(Path(folder), pds=1, range_servers=3, env=BY_HAND) as cluster,
    ):
        wait_healthy(cluster)
        with rangelog.sync.connect(cluster.connect_string) as client:
            for number in range(options.rounds):
                name = f"round-{number}"
                fill(client, name, options.megabytes, options.record_bytes)
                address = ClusterAddress(cluster.connect_string)
                report = compact_streams(spark, address, stream=name, target_bytes=64 * MIB)
                (done,) = report.streams
                rates.append(done.repacked_bytes / 1e9 / report.seconds * 60)
                print(
                    f"{name}: {done.objects_before} objects of {done.bytes_before / 1e6:.0f} MB → {done.objects_after} of "
                    f"{done.bytes_after / 1e6:.0f} MB in {report.seconds:.1f} s: {rates[-1]:.2f} GB/min",
                    flush=True,
                )
    spark.stop()
    print(f"compact: record_bytes={options.record_bytes} gb_per_min={statistics.median(rates):.2f}")
    return 0


def fill(client: rangelog.sync.Client, name: str, megabytes: int, record_bytes: int) -> None:
    """Make a stream that is in the object store only; a quarter of each value compresses well."""
    chance = random.Random(1)
    noise = record_bytes * 3 // 4
    values = [chance.randbytes(noise) + b"x" * (record_bytes - noise) for _ in range(VALUES)]
    client.create_stream(name, StreamConfig(range_size_bytes_max=MIB, hot_retention_seconds=0))
    with client.writer(name) as writer:
        for number in range(megabytes * 1_000_000 // record_bytes):
            writer.submit(values[number % VALUES], key=b"k%d" % (number % 100))
        writer.flush()
    client.seal_stream(name)
    eventually(lambda: is_cold(client, name), f"the hot copies of {name} stay", TIERED_S)


def is_cold(client: rangelog.sync.Client, name: str) -> bool:
    """Whether all hot copies are gone."""
    _, ranges = client.run(client.asynchronous.metadata.ranges(name, 0))
    return all(each.hot_dropped for each in ranges)


if __name__ == "__main__":
    sys.exit(main())
