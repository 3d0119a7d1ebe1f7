"""Ten thousand connections of somebody who says nothing, at one port after the other of a cluster with TLS: work goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import resource
import socket
import time
from collections.abc import Callable, Iterator

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from tests.security.matrix import Target, targets_of
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(300)]

ClusterFactory = Callable[..., Cluster]
CONNECTIONS = 10_000
KEPT_FREE = 500
"""Descriptors of this process that are for other things."""
USUAL_FILES = 1_024
"""The soft limit that a process has on most machines."""
HELD_S = 1.5
GAP_MAX_S = 5.0


@contextlib.contextmanager
def open_files(count_max: int) -> Iterator[None]:
    """The soft limit of this process, and of those that it starts meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count_max, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Load:
    """A writer that waits for each ack."""

    def __init__(self) -> None:
        self.acked = 0
        self.gap_s = 0.0

    async def run(self, client: rangelog.Client) -> None:
        """Append until cancelled."""
        async with client.writer("load") as writer:
            last_s = time.monotonic()
            while True:
                await writer.append(b"%d" % self.acked)
                now_s = time.monotonic()
                self.gap_s = max(self.gap_s, now_s - last_s)
                last_s = now_s
                self.acked += 1
                await asyncio.sleep(0.005)


async def open_many(target: Target, count: int) -> list[socket.socket]:
    """Open connections and say nothing; a port that takes no more may refuse."""
    opened: list[socket.socket] = []
    for number in range(count):
        each = socket.socket()
        each.setblocking(False)
        try:
            each.connect((target.host, target.number))
        except BlockingIOError:
            pass
        except OSError as error:
            each.close()
            assert error.errno in (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAGAIN), error
            continue
        opened.append(each)
        if number % 50 == 0:
            await asyncio.sleep(0.002)
    return opened


@pytest.mark.parametrize(
    "gap_s_max",
    [
        pytest.param(math.inf, marks=pytest.mark.long, id="promises"),
        pytest.param(GAP_MAX_S, marks=pytest.mark.measure, id="gaps"),
    ],
)
async def test_silent_connections_stop_nobody(cluster_factory: ClusterFactory, gap_s_max: float) -> None:
    """Acks go on while they are held, new clients connect, and afterwards every record is there. Measured: the gaps."""
    with open_files(USUAL_FILES):
        cluster = cluster_factory(brokers=1, tls=True)
    with open_files(CONNECTIONS + KEPT_FREE):
        await _crowd(cluster, gap_s_max)


async def _crowd(cluster: Cluster, gap_s_max: float) -> None:
    count = min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - KEPT_FREE)
    load = Load()
    async with await rangelog.connect(cluster.connect_string, tls=cluster.client_tls) as client:
        await client.create_stream("load")
        running = asyncio.create_task(load.run(client))
        for target in {each.port: each for each in targets_of(cluster)}.values():
            opened = await open_many(target, count)
            try:
                before = load.acked
                await asyncio.sleep(HELD_S)
                await until(lambda before=before: load.acked > before or running.done(), "no ack beside the crowd")
                assert not running.done(), running.exception()
                print(
                    f"{target.port}: {len(opened)} opened, {load.acked - before} acks, longest gap {load.gap_s:.2f} s"
                )
                assert load.gap_s < gap_s_max, target
            finally:
                for each in opened:
                    each.close()
            async with await rangelog.connect(cluster.connect_string, tls=cluster.client_tls) as other:
                await other.describe_stream("load")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        values = [record.value async for record in client.reader("load", start="earliest", follow=False)]
        assert values[: load.acked] == [b"%d" % number for number in range(load.acked)]
    assert not [name for name, process in cluster.members.items() if not process.running]
