"""Several programs sell from one stock, without selling anything twice.

python examples/stock_table.py --pd 127.0.0.1:7100
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

import rangelog

TABLE = "stock"


async def sell(table: rangelog.Table, item: bytes) -> bool:
    """Take one piece; False when none is left. Who is late reads again."""
    while True:
        row = await table.get(item)
        if row is None or row.value == b"0":
            return False
        try:
            await table.put_if_version(item, b"%d" % (int(row.value) - 1), row.version)
            return True
        except rangelog.PreconditionFailed:
            continue  # another seller was first


async def main(addresses: str, pieces: int, sellers: int) -> None:
    """Fill the stock, and let all sellers sell at once until it is empty."""
    async with rangelog.connect(addresses) as client:
        with suppress(rangelog.TopicExists):  # tables and topics share their names
            await client.tables.create(TABLE, partitions=2)
        table = client.table(TABLE)
        await table.put(b"apples", b"%d" % pieces)

        async def seller() -> int:
            sold = 0
            while await sell(table, b"apples"):
                sold += 1
            return sold

        sold = await asyncio.gather(*(seller() for _ in range(sellers)))
        row = await table.get(b"apples")
        left = row.value.decode() if row is not None else "nothing"
        print(f"{sellers} sellers sold {sum(sold)} of {pieces}; left: {left}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--pieces", type=int, default=40)
    parser.add_argument("--sellers", type=int, default=4)
    given = parser.parse_args()
    asyncio.run(main(given.pd, given.pieces, given.sellers))
