"""A client on another event loop than its own, and in a forked child: told at once what to do, without a hang."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

import rangelog
from rangelog.errors import InvalidArgument, Unavailable
from rangelog.testing import FakeCluster
from rangelog_core.net.home_loop import HomeLoop
from tests.support.threads import within


async def _check(home: HomeLoop) -> None:
    home.check()


def test_the_first_loop_is_home() -> None:
    """Checked again there it is quiet; on another loop the error says what to do."""
    home = HomeLoop()

    async def twice() -> None:
        home.check()
        home.check()

    within(lambda: asyncio.run(twice()))
    with pytest.raises(InvalidArgument, match=r"another event loop.*connect anew in each asyncio\.run.*rangelog\.sync"):
        within(lambda: asyncio.run(_check(home)))


def test_a_client_that_is_moved_to_another_loop() -> None:
    """Every call, and closing, whatever the first loop left."""

    async def connect() -> rangelog.Client:
        client = await rangelog.connect("127.0.0.1:1", first_contact_s=0.01)
        with pytest.raises(Unavailable):
            await client.describe_stream("s")
        return client

    client = within(lambda: asyncio.run(connect()))
    calls: list[Any] = [lambda: client.describe_stream("s"), lambda: client.writer("s").open(), client.close]
    for call in calls:
        with pytest.raises(InvalidArgument, match="another event loop"):
            within(partial(asyncio.run, call()))


def test_a_writer_that_is_moved_to_another_loop() -> None:
    """Nothing is appended, and nobody waits."""
    cluster = FakeCluster()

    async def opened() -> rangelog.Writer:
        client = cluster.client()
        await client.create_stream("s")
        writer = client.writer("s")
        await writer.open()
        await writer.append(b"at home")
        return writer

    writer = within(lambda: asyncio.run(opened()))

    async def submit() -> None:
        await writer.submit(b"x")

    def moved() -> list[Coroutine[Any, Any, Any]]:
        return [writer.append(b"x"), submit(), writer.append_batch([b"x"]), writer.append_all([b"x"]),
                writer.flush(), writer.ready()]  # fmt: skip

    for call in moved():
        with pytest.raises(InvalidArgument, match="another event loop"):
            within(partial(asyncio.run, call))

    async def read() -> list[bytes]:
        async with cluster.client() as client:
            return [record.value async for record in client.reader("s")]

    assert within(lambda: asyncio.run(read())) == [b"at home"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_in_a_forked_child() -> None:
    """The child, on a loop of its own, is told the process that the client belongs to; the parent goes on."""

    async def work() -> None:
        async with FakeCluster().client() as client:
            await client.create_stream("s")
            async with client.writer("s") as writer:
                await writer.append(b"1")
                for call in (
                    lambda: client.end_offset("s"),
                    lambda: writer.append(b"x"),
                    lambda: writer.append_all([b"x"]),
                    client.close,
                ):
                    told = _in_a_child(call)
                    assert told.startswith(f"this client was made in process {os.getpid()}, before a fork"), told
                assert (await writer.append(b"2")).offset == 1

    within(lambda: asyncio.run(work()))


def _in_a_child(call: Any) -> str:
    """What the call raises in a forked child on a new loop, or "hangs"; read through a pipe."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        told = "nothing"
        try:
            asyncio.new_event_loop().run_until_complete(call())
        except BaseException as error:
            told = str(error)
        os.write(writable, told.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return told or "hangs"
