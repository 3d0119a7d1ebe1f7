"""Take orders from one topic, write invoices to another: each order has one invoice, whatever crashes.

python examples/transfer.py --pd 127.0.0.1:7100
"""

from __future__ import annotations

import argparse
import asyncio

import rangelog

ORDERS, INVOICES, GROUP = "orders-to-bill", "invoices", "billing"


async def bill(client: rangelog.Client, wanted: int) -> int:
    """Write an invoice for each order that has none; invoices and the group's positions are committed together."""
    written = 0
    async with (
        client.transactional("billing-1", timeout_s=30) as program,  # a second start of the program fences the first
        client.group(GROUP, ORDERS, auto_commit_s=None) as member,
    ):
        async for chunk in member.chunks():
            transaction = program.transaction()
            try:
                async with transaction:
                    for order in chunk.records:
                        await transaction.submit(INVOICES, b"invoice for " + order.value, key=order.key)
                    await transaction.commit_positions(member)
            except rangelog.RangelogError:
                if program.closed:
                    raise  # another instance took over
                if not await transaction.outcome():
                    member.rewind()  # nothing of it happened: the same orders come again
                    continue
            written += len(chunk.records)
            if written >= wanted:
                return written
    return written


async def main(addresses: str, count: int) -> None:
    """Place orders, bill them, and count the invoices."""
    async with rangelog.connect(addresses) as client:
        for topic in (ORDERS, INVOICES):
            await client.topics.create(topic, shards=2, exist_ok=True)
        async with client.producer(ORDERS) as producer:
            for number in range(count):
                producer.send_nowait(b"order %d" % number, key=b"customer %d" % (number % 5))
        async with asyncio.timeout(60):
            print(f"billed {await bill(client, count)} orders")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--count", type=int, default=100)
    given = parser.parse_args()
    asyncio.run(main(given.pd, given.count))
