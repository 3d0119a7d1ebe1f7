"""One whole broker on a cluster in memory, for the targets that ask it: its gRPC services on loopback, its REST application.

It lives as long as the process and keeps what inputs leave behind, as a broker does: an input may find a topic deleted or a
group filled by an earlier one. `settle` makes what the inputs of a target reckon with where it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from functools import cache
from typing import Any

from rangelog import Client
from rangelog.errors import NamespaceExists, RangelogError, TopicExists
from rangelog_broker import runtime as runtimes
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from tests.fuzz import fuzz_loop
from tests.support.owner_cluster import OwnerCluster, owner_cluster
from tests.support.waiting import until

GROUP, PROGRAM, NAMESPACE = "g", "job", "air"
TOPIC, TABLE, STREAM = "flights", "counts", "clicks"
TRIES_S = 30.0


class FuzzedBroker:
    """A running broker and a client of its cluster."""

    def __init__(self, cluster: OwnerCluster, client: Client, runtime: Runtime) -> None:
        self.cluster = cluster
        self.client = client
        self.row = runtime._row

    async def settle(self) -> None:
        """Make a topic, a table, a stream, a group and an open transaction, where they are missing."""
        topics, client = self.client.topics, self.client
        with suppress(NamespaceExists):
            await topics.create_namespace(NAMESPACE)
        with suppress(TopicExists):
            await topics.create(f"{NAMESPACE}/{TOPIC}", shards=2)
        with suppress(TopicExists):
            await client.tables.create(f"{NAMESPACE}/{TABLE}", partitions=1)
        with suppress(RangelogError):
            await client.create_stream(STREAM)
        with suppress(RangelogError):
            await client.groups.describe(GROUP)
            return
        with suppress(RangelogError):
            async with client.group(GROUP, f"{NAMESPACE}/{TOPIC}", member_id="m"):
                pass
        with suppress(RangelogError):
            program = client.transactional(PROGRAM, timeout_s=3_600)
            await program.open()
            await program.transaction().begin()


@cache
def broker() -> FuzzedBroker:
    """The one of this process."""
    return fuzz_loop.run(_start())


async def _start() -> FuzzedBroker:
    stack = AsyncExitStack()  # never left: it ends with the process
    cluster = await stack.enter_async_context(owner_cluster())
    production: Any = runtimes.Client
    runtimes.Client = lambda *_, **__: cluster.client()  # type: ignore[assignment,misc]
    settings = BrokerSettings(
        name="b", pd=["fake:1"], listen="127.0.0.1:0", control_listen="127.0.0.1:0", rest_listen=""
    )
    runtime = Runtime(settings)
    _kept.extend((stack, asyncio.create_task(runtime.run())))
    await until(lambda: cluster.calls["RegisterBroker"], within_s=TRIES_S)
    runtimes.Client = production  # type: ignore[misc]
    made = FuzzedBroker(cluster, cluster.client(), runtime)
    logging.getLogger("rangelog").setLevel(logging.ERROR)
    await made.settle()
    return made


_kept: list[object] = []
"""A task that nobody holds ends."""
