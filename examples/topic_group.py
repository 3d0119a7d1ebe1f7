"""Two producers send orders to a topic; two members of a group share them.

python examples/topic_group.py --pd 127.0.0.1:7100
"""

from __future__ import annotations

import argparse
import asyncio
import collections

import rangelog

TOPIC, GROUP = "kitchen-orders", "cooks"


async def take_orders(client: rangelog.Client, waiter: str, count: int) -> None:
    """Send orders; those of one table stay in their order."""
    async with client.producer(TOPIC) as producer:
        for number in range(count):
            await producer.send(f"{waiter}: order {number}".encode(), key=b"table %d" % (number % 7))


async def cook(
    client: rangelog.Client, handled: collections.Counter[str], name: str, wanted: int, all_done: asyncio.Event
) -> None:
    """Handle orders until cancelled. After a crash another member handles again what was not committed."""
    async with client.group(GROUP, TOPIC) as member:
        async for chunk in member.chunks():  # consecutive records of one shard
            await member.commit()
            handled[name] += len(chunk.records)
            if handled.total() >= wanted:
                all_done.set()


async def main(addresses: str, count: int) -> None:
    """Send, then share."""
    async with rangelog.connect(addresses) as client:
        await client.topics.create(TOPIC, shards=4, exist_ok=True)
        await asyncio.gather(take_orders(client, "ann", count), take_orders(client, "ben", count))
        handled: collections.Counter[str] = collections.Counter()
        all_done = asyncio.Event()
        members = [asyncio.create_task(cook(client, handled, name, 2 * count, all_done)) for name in ("carla", "dan")]
        await all_done.wait()
        for each in members:
            each.cancel()
        await asyncio.gather(*members, return_exceptions=True)
        print(f"handled {handled.total()} of {2 * count} orders")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--count", type=int, default=50)
    given = parser.parse_args()
    asyncio.run(main(given.pd, given.count))
