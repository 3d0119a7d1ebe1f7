"""A real range server killed inside a system call: at the k-th write or flush of its log, by strace's injection."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import RangelogError
from rangelog_server.testing import NotedReplies, RawClient, ServerProcess, batch
from tests.support.waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not here"),
    pytest.mark.timeout(60),
]

ALL = bool(os.environ.get("CRASH_POINTS_ALL"))
SAMPLE = [("fdatasync", 9), ("pwritev2", 14), ("fdatasync", 30)]
"""While the first segments are made, among the first appends, later."""
EACH = [(call, number) for call in ("fdatasync", "pwritev2") for number in range(1, 40, 2)]
EACH += [("rename", number) for number in (1, 2, 3)] + [("fsync", number) for number in range(1, 6)]
"""No thread of a started server makes more of these calls before the log is full: identity, segments; the endpoint file, which
belongs to one process, is renamed and not flushed."""


def killing(home: Path, call: str, number: int) -> ServerProcess:
    """A server that is killed when it enters the call for the k-th time."""
    inject = f"inject={call}:signal=SIGKILL:when={number}"
    return ServerProcess(
        home, wrapper=["strace", "-D", "-f", "-qq", "-e", f"trace={call}", "-o", "/dev/null", "-e", inject]
    )


async def append_until_it_dies(server: ServerProcess) -> tuple[list[bytes], int]:
    """Return what was sent and up to where it was acked."""
    sent: list[bytes] = []
    try:
        client = await server.connect()
    except (RangelogError, OSError):
        return sent, 0
    acks: NotedReplies = client.listen()

    def died() -> bool:
        assert server.process is not None
        if server.process.poll() is not None or acks.errors:
            return True
        for _ in range(5):
            sent.append(batch(len(sent), [b"%d" % len(sent) * 50]))
            with suppress(RangelogError):
                client.append(sent[-1])
        return False

    await until(died, "the server goes on")
    client.close()
    return sent, acks.durable_offset


async def read_back(client: RawClient, acked: int) -> list[bytes]:
    """All batches below what was acked."""
    found: list[bytes] = []
    while len(found) < acked:
        _, payload = await client.fetch(len(found), known_end_offset=acked)
        more = [bytes(each) for each in split_batches(payload)]
        assert more
        found += more
    return found[:acked]


@pytest.mark.parametrize(("call", "number"), EACH if ALL else SAMPLE)
async def test_killed_inside_a_call(tmp_path: Path, call: str, number: int) -> None:
    """Everything that was acked is there after the restart, with the same bytes, and the start refuses nothing."""
    server = killing(tmp_path / "rs1", call, number)
    try:
        with suppress(AssertionError):  # it may be killed while it starts
            await asyncio.to_thread(server.start)
        sent, acked = await append_until_it_dies(server) if server.endpoint_file.exists() else ([], 0)
        assert server.process is not None
        server.process.wait(10)
        server.wrapper = []
        await asyncio.to_thread(server.start)
        if acked:
            client = await server.connect()
            assert await read_back(client, acked) == sent[:acked]
            client.close()
    finally:
        server.close()
