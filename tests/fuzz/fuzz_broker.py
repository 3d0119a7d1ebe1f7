"""One whole broker on a cluster in memory, for the targets that ask it: its gRPC services on loopback, its REST application.

It lives as long as the process and keeps what inputs leave behind, as a broker does: an input may find a topic deleted or a
group filled by an earlier one. `settle` makes what the inputs of a target reckon with where it is gone.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, suppress
from functools import cache

from rangelog.errors import NamespaceExists, RangelogError, TopicExists
from tests.fuzz import fuzz_loop
from tests.support.owner_cluster import owner_cluster
from tests.support.whole_broker import WholeBroker

GROUP, PROGRAM, NAMESPACE = "g", "job", "air"
TOPIC, TABLE, STREAM = "flights", "counts", "clicks"


class FuzzedBroker:
    """A running broker and a client of its cluster."""

    def __init__(self, whole: WholeBroker) -> None:
        self.whole = whole
        self.client = whole.client

    @property
    def control_address(self) -> str:
        """Of its gRPC services."""
        return self.whole.runtime._row.control_address

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


def everything_opens() -> None:
    """What inputs have left behind is opened by the next owner, at the same addresses."""
    fuzz_loop.run(broker().whole.everything_opens())


async def _start() -> FuzzedBroker:
    stack = AsyncExitStack()  # never left: it ends with the process
    whole = WholeBroker(await stack.enter_async_context(owner_cluster()))
    await whole.start()
    made = FuzzedBroker(whole)
    _kept.extend((stack, made))
    logging.getLogger("rangelog").setLevel(logging.ERROR)
    await made.settle()
    return made


_kept: list[object] = []
"""A task that nobody holds ends."""
