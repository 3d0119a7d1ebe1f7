"""Deleting a stream that is being written: once it is deleted, nothing more is acked."""

from __future__ import annotations

import asyncio

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import AppendTimeout, RangelogError
from tests.support.waiting import until

pytestmark = pytest.mark.integration

STREAMS = 5
LONGER_THAN_A_DIRECTIVE_S = 1.5


async def append_all_the_time(writer: rangelog.Writer, begun: list[bool], deleted: asyncio.Event) -> int:
    """Append until it fails; return how many appends that began after the deletion were acked."""
    acked = 0
    while True:
        late = deleted.is_set()
        begun.append(late)
        try:
            await writer.append(b"x", timeout_s=LONGER_THAN_A_DIRECTIVE_S)
        except AppendTimeout:
            if deleted.is_set():
                return acked
            continue  # two servers stood still for so long: nothing was deleted yet
        except RangelogError:
            return acked
        acked += late


@pytest.mark.hasty
@pytest.mark.parametrize("down", ["", "rs1"])
async def test_nothing_is_acked_once_the_stream_is_deleted(cluster: Cluster, down: str) -> None:
    """A writer of another client that appends all the time gets no ack for what it began after the deletion returned."""
    async with (
        await rangelog.connect(cluster.connect_string) as writing,
        await rangelog.connect(cluster.connect_string) as deleting,
    ):
        for number in range(STREAMS):
            await deleting.create_stream(f"s{number}")
            writer = writing.writer(f"s{number}")
            await writer.open()
            await writer.append(b"first")
            if down and number == 0:
                await asyncio.to_thread(cluster.kill, down)
                await writer.append(b"without one")
            begun: list[bool] = []
            deleted = asyncio.Event()
            task = asyncio.create_task(append_all_the_time(writer, begun, deleted))
            await until(lambda begun=begun: len(begun) >= 20, "it does not append")  # type: ignore[misc]
            await deleting.delete_stream(f"s{number}")
            deleted.set()
            assert await task == 0
            assert sum(begun) <= 1, "the first that failed ended it"
            await writer.close(flush=False)
