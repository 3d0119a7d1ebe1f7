"""Whether a broker accepts connections: asked by the leader when a peer reports that it does not.

What holds: a probe ends within PROBE_TIMEOUT_S; many reports of one address at a time cost one connection.
"""

from __future__ import annotations

import asyncio

from rangelog_core.net.addresses import split_address

PROBE_TIMEOUT_S = 1.0
"""A process that is killed is refused at once; this is for a host that is gone."""


class BrokerProbes:
    """The probes in progress. Bound to one event loop."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[bool]] = {}

    async def accepts(self, address: str) -> bool:
        """Return whether a connection to `address` (host:port) can be opened now. Raises InvalidArgument."""
        split_address(address)
        task = self._running.get(address)
        if task is None:
            task = self._running[address] = asyncio.create_task(_connects(address))
            task.add_done_callback(lambda _: self._running.pop(address, None))
        return await asyncio.shield(task)


async def _connects(address: str) -> bool:
    host, port = split_address(address)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True
