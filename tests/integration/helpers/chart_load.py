"""A program beside the pods: appends numbered records until its input ends, then reads all. Run in a pod's namespace.

Prints `acked` once the first is acked, and at the end a line of JSON: acked, read, lost, the longest gap between two acks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import rangelog
from rangelog.errors import RangelogError


async def main(addresses: str) -> None:
    """Append, read, compare."""
    acked: dict[int, bytes] = {}
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    async with await rangelog.connect(addresses) as client:
        await client.create_stream("kept")
        number, longest_s, last_s = 0, 0.0, time.monotonic()
        async with client.writer("kept") as writer:
            while not ended.done():
                value = b"%d" % number
                number += 1
                try:
                    acked[(await writer.append(value)).offset] = value
                except RangelogError as error:
                    print(error, file=sys.stderr)
                    continue
                if len(acked) == 1:
                    print("acked", flush=True)
                longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
        read = {record.offset: record.value async for record in client.reader("kept", start="earliest", follow=False)}
    lost = sum(read.get(offset) != value for offset, value in acked.items())
    print(
        json.dumps({"acked": len(acked), "read": len(read), "lost": lost, "longest_gap_s": round(longest_s, 2)}),
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
