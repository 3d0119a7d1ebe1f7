"""Appends stamped records to a stream of rangelog at a fixed rate, in a process of its own, as Kafka's Java client does.

    .venv/bin/python bench/spark/appender.py 127.0.0.1:7100 tail-1 1024 1000 15000

What holds: each record carries its number and when it was due (`time.perf_counter_ns`, one clock for all processes). All are
acked when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import time

import rangelog

STAMP = struct.Struct("<qq")
"""At the head of a record that is timed: its number, and when it was due by `time.perf_counter_ns`."""


async def append(pd: str, stream: str, size: int, rate_per_s: int, count: int) -> None:
    """Append so many records, and return once all are acked."""
    noise = os.urandom(size - STAMP.size)
    async with await rangelog.connect(pd) as client, client.writer(stream) as writer:
        started_ns = time.perf_counter_ns()
        for number in range(count):
            due_ns = started_ns + number * 1_000_000_000 // rate_per_s
            if (left_ns := due_ns - time.perf_counter_ns()) > 0:
                await asyncio.sleep(left_ns / 1e9)
            await writer.ready()
            writer.append_nowait(STAMP.pack(number, due_ns) + noise)
        await writer.flush()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pd", help="a placement driver: host:port")
    parser.add_argument("stream", help="the stream's name; it exists and nobody writes to it")
    parser.add_argument("size", type=int, metavar="BYTES", help=f"of a value, at least {STAMP.size}")
    parser.add_argument("rate_per_s", type=int, metavar="RECORDS_PER_S", help="how many records are due in a second")
    parser.add_argument("count", type=int, metavar="RECORDS", help="how many there are")
    given = parser.parse_args()
    asyncio.run(append(given.pd, given.stream, given.size, given.rate_per_s, given.count))


if __name__ == "__main__":
    main()
