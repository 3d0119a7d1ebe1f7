"""Writers of several streams on the connections that one client has: what befalls one is nothing to the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.data_connection import DataConnection

pytestmark = [pytest.mark.integration]
TAKEOVERS = 10


async def test_a_fenced_writer_leaves_the_others_alone(
    cluster_factory: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one stream of a client is taken over again and again, its connections stay, and its other stream its range."""
    closed: list[rangelog.RangelogError] = []
    close = DataConnection._close

    def noting(connection: DataConnection, error: rangelog.RangelogError) -> None:
        closed.append(error)
        close(connection, error)

    cluster = cluster_factory(pds=1, range_servers=4)
    async with (
        await rangelog.connect(cluster.connect_string) as client,
        await rangelog.connect(cluster.connect_string) as rival,
    ):
        for stream in ("a", "b"):
            await client.create_stream(stream)
        async with client.writer("b") as steady:
            await steady.append(b"first")
            monkeypatch.setattr(DataConnection, "_close", noting)
            for _ in range(TAKEOVERS):
                loser = client.writer("a")
                await loser.open()
                pending = [loser.submit(b"x" * 10_000) for _ in range(20)]
                await pending[0]
                async with rival.writer("a"):
                    with pytest.raises(rangelog.WriterFenced):
                        while True:
                            await loser.append(b"late")
                await loser.close(flush=False)
                await steady.append(b"still here")
            assert closed == []
            _, ranges = await client.metadata.ranges("b", 0)
            assert len(ranges) == 1
