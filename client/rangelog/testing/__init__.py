"""A cluster in memory, for the tests of programs that use rangelog: no servers, no ports, no files, no extra packages.

    from rangelog.testing import FakeCluster

    async def test_an_order_is_logged():
        cluster = FakeCluster()
        async with cluster.client() as client:
            await client.create_stream("orders")
            await place_order(client, "coffee")  # the program under test: it takes a rangelog.Client
            assert [record.value async for record in client.reader("orders")] == [b"coffee"]

What is real: everything of the client. Batches, acks, fencing, ranges, readers and errors are the production code; the fake
answers in place of the placement driver (`FakePlacementDriver`) and of the range servers (`FakeRangeServer`), in the messages
of the protocol. What is not there: disks (nothing survives the FakeCluster), replication (one replica holds each range),
retention and the tier. Timeouts are the client's own, in real time; give short ones where a test waits for one.

`FakeCluster(brokers=1)` has topics, producers, groups, tables and transactions as well. It runs the production placement driver
and brokers on a thread of this process, and needs their packages: rangelog[pd,broker]. Close it, or use it with `with`.

One contract suite (tests/support/client_contract.py) runs against this and against real servers.
"""

from __future__ import annotations

from rangelog.testing.clock import FakeClock
from rangelog.testing.cluster import FakeCluster

__all__ = ["FakeClock", "FakeCluster"]
