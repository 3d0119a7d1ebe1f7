"""A real cluster with something to see on every view of the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import rangelog
from rangelog_cli.local.page_ports import enable_page
from rangelog_cli.local.processes import Cluster
from rangelog_proto.v1 import pd_pb2
from tests.support.waiting import until

HOSTILE = b"<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>\xe2\x80\xae"
RANGE_RECORDS = (900, 2_200, 300, 1_500)
"""Records of each range of `flights`: a writer that is followed by another one leaves a sealed range."""
TRIMMED = 500
GROUP_RECORDS = 400
CONSUMED = 150


def opened(directory: Path, env: Mapping[str, str]) -> tuple[Cluster, list[str]]:
    """Return a cluster of three placement drivers, five range servers and two brokers, not started, and its pages' URLs."""
    cluster = Cluster.open(directory, pds=3, range_servers=5, brokers=2, env=env)
    return cluster, enable_page(cluster)


async def fill(cluster: Cluster) -> None:
    """Make `flights` with several ranges, some trimmed, `clicks`, the topic `default/orders`, and a group behind it."""
    async with await rangelog.connect(cluster.connect_string, tls=cluster.client_tls) as client:
        await client.create_stream("flights")
        for number, count in enumerate(RANGE_RECORDS):
            async with client.writer("flights") as writer:
                for each in range(count):
                    writer.append_nowait(
                        b'{"flight": "UA%d", "range": %d}' % (each, number), key=b"UA", headers={"source": b"demo"}
                    )
                    await writer.ready()
                await writer.flush()
        await client.trim_stream("flights", TRIMMED)
        await client.create_stream("clicks")
        await client.append("clicks", [HOSTILE, b"\xff\x00\x01"])
        await client.create_stream("empty")
        await client.topics.create("orders", shards=4, tags={"team": "kitchen"})
        async with client.producer("orders") as producer:
            for each in range(GROUP_RECORDS):
                await producer.send(b"order %d" % each, key=b"table %d" % (each % 23))
        seen = 0
        async with client.group("kitchen", "orders") as member:
            async for _ in member:
                seen += 1
                if seen == CONSUMED:
                    await member.commit()
                    break


async def until_tiered(cluster: Cluster, ranges: int) -> None:
    """Wait until so many ranges of `flights` are in the tier."""
    async with await rangelog.connect(cluster.connect_string, tls=cluster.client_tls) as client:
        request = pd_pb2.ListObjectsRequest(knows_encryption=True, name="flights")

        async def tiered() -> bool:
            return (
                len((await client.metadata.pd.call(request, pd_pb2.ListObjectsResponse, timeout_s=5)).objects) >= ranges
            )

        await until(tiered, "ranges are not in the tier")
