"""Append records to a stream and read them back.

python examples/produce_consume.py --pd 127.0.0.1:7100
"""

from __future__ import annotations

import argparse
import asyncio

import rangelog

STREAM = "readings"


async def produce(client: rangelog.Client, count: int) -> int:
    """Append one record and wait for its ack, then many as fast as acks come; return the offset of the first."""
    await client.create_stream(STREAM, exist_ok=True)
    async with client.writer(STREAM) as writer:  # fences any earlier writer of the stream
        first = await writer.append(b"21.5", key=b"kitchen", headers={"unit": b"celsius"})
        await writer.append_all(b"%d" % number for number in range(1, count))
    return first.offset


async def consume(client: rangelog.Client, start: int) -> list[rangelog.Record]:
    """Read from an offset to the end as it is now. `follow=True` would wait for more."""
    return [record async for record in client.reader(STREAM, start=start)]


async def main(addresses: str, count: int) -> None:
    """Do both."""
    async with rangelog.connect(addresses) as client:
        first = await produce(client, count)
        records = await consume(client, first)
        print(f"appended {count} records from offset {first}, read {len(records)}")
        print(f"the first: {records[0].key!r} {records[0].value!r} at {records[0].timestamp:%Y-%m-%d}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--count", type=int, default=10_000)
    given = parser.parse_args()
    asyncio.run(main(given.pd, given.count))
