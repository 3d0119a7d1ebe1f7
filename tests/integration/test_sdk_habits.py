"""What programs do every day with the SDK, against a cluster of processes and against addresses where there is none."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import rangelog
import rangelog.sync
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import InvalidArgument, StreamExists, TopicExists, Unavailable, WriterFenced
from rangelog_core.stream_config import StreamConfig

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def address(shared_cluster: Cluster) -> str:
    return shared_cluster.connect_string


async def test_connect_is_awaited_or_entered(address: str) -> None:
    """Both, and the forgotten await is named."""
    async with rangelog.connect(address) as client:
        assert [each.name async for each in client.list_streams("no-")] == []
    client = await rangelog.connect(address)
    await client.close()
    async with await rangelog.connect(address) as client:
        assert client
    with pytest.raises(AttributeError, match=r"await rangelog\.connect"):
        rangelog.connect(address).create_stream("s")  # type: ignore[attr-defined]


async def test_what_exists_is_taken(address: str) -> None:
    """With exist_ok, as it is; without it that is an error still."""
    async with rangelog.connect(address) as client:
        made = await client.create_stream("again", StreamConfig(retention_seconds=60))
        with pytest.raises(StreamExists):
            await client.create_stream("again")
        assert await client.create_stream("again", exist_ok=True) == made
        await client.topics.create_namespace("air", exist_ok=True)
        await client.topics.create_namespace("air", exist_ok=True)
        first = await client.topics.create("air/again", shards=2)
        with pytest.raises(TopicExists):
            await client.topics.create("air/again")
        assert (await client.topics.create("air/again", exist_ok=True)).topic_id == first.topic_id
    with rangelog.sync.connect(address) as blocking:
        assert blocking.create_stream("again", exist_ok=True).stream_id == made.stream_id


async def test_polls_follow_a_stream(address: str) -> None:
    """With a position, a lag, and a cursor that has what was polled and not more."""
    async with rangelog.connect(address) as client:
        await client.create_stream("polled")
        await client.append("polled", [b"%d" % number for number in range(10)])
        async with client.reader("polled", follow=True) as reader:
            assert await reader.lag() == 10
            first = await reader.poll(count_max=4, timeout_s=30)
            assert [each.value for each in first] == [b"0", b"1", b"2", b"3"]
            assert (reader.next_offset, await reader.lag(), reader.ended) == (4, 6, False)
            rest: list[int] = []
            async with asyncio.timeout(20):
                while len(rest) < 6:
                    rest += [each.offset for each in await reader.poll(count_max=4, timeout_s=0.2)]
            assert rest == [4, 5, 6, 7, 8, 9]
            assert (await reader.lag(), await reader.poll(timeout_s=0.05)) == (0, [])
        async with client.reader("polled") as bounded:
            count = 0
            while not bounded.ended:
                count += len(await bounded.poll(timeout_s=5))
            assert count == 10
        cursor = client.reader("polled", cursor="billing")
        async with cursor:
            await cursor.poll(count_max=3, timeout_s=30)
            assert (await cursor.commit()).offset == 3, "what was read ahead is not handed out"
        assert [each.offset async for each in client.reader("polled", cursor="billing")] == [3, 4, 5, 6, 7, 8, 9]


async def test_what_may_be_appended(address: str) -> None:
    """Anything that has bytes, copied; text is refused with what to do. Times need a zone."""
    async with rangelog.connect(address) as client:
        await client.create_stream("values")
        changing = bytearray(b"abc")
        async with client.writer("values") as writer:
            writer.append_nowait(changing, key=memoryview(b"xkeyx")[1:4])
            changing[:] = b"zzz"
            await writer.append(memoryview(b"view"), timestamp=datetime(2026, 1, 1, tzinfo=UTC))
            with pytest.raises(InvalidArgument, match=r"value is bytes.*not str: pass text.encode\(\)"):
                await writer.append("text")  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match=r"key is bytes.*not str"):
                await writer.append(b"v", key="k")  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="no time zone"):
                await writer.append(b"v", timestamp=datetime(2026, 1, 1))
            await writer.append(b"old", timestamp=1)
            await writer.append(b"old as well", timestamp=datetime(1970, 2, 1, tzinfo=UTC))
        found = [(each.key, each.value) async for each in client.reader("values")]
        assert found == [(b"key", b"abc"), (None, b"view"), (None, b"old"), (None, b"old as well")]
        with pytest.raises(InvalidArgument, match="no time zone"):
            await client.reader("values", start=datetime(2026, 1, 1)).find_start()


@pytest.fixture
def web_server() -> Iterator[str]:
    """Something that is no placement driver."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(5)


@pytest.mark.parametrize(
    "named_s_max",
    [pytest.param(math.inf, id="named"), pytest.param(5.0, marks=pytest.mark.measure, id="soon")],
)
@pytest.mark.parametrize("what", ["refused", "unknown", "another"])
async def test_a_wrong_address_is_named(what: str, web_server: str, named_s_max: float) -> None:
    """Measured: soon, not after the 15 s that a call may take while a cluster elects."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        wrong, said = {
            "refused": (f"127.0.0.1:{unused.getsockname()[1]}", "connection refused"),
            "unknown": ("no-such-host.invalid:7100", "unknown host"),
            "another": (web_server, "another program listens there"),
        }[what]
        async with rangelog.connect(wrong) as client:
            began_s = time.monotonic()
            with pytest.raises(Unavailable, match=f"no placement driver at {wrong}: .*{said}") as raised:
                await client.describe_stream("s")
            assert time.monotonic() - began_s < named_s_max
            assert not raised.value.outcome_unknown


async def test_a_fenced_writer_is_told_by_whom(address: str) -> None:
    """Host and process of the client that took the stream over, in the error of the append and of each later call."""
    async with rangelog.connect(address) as first, rangelog.connect(address) as second:
        await first.create_stream("contended")
        writer = first.writer("contended")
        await writer.open()
        await writer.append(b"one")
        async with second.writer("contended") as other:
            await other.append(b"two")
            for _ in range(2):
                with pytest.raises(WriterFenced) as told:
                    await writer.append(b"three")
                assert f", by {socket.gethostname()}/{os.getpid()}: a later writer took" in told.value.message
                assert "stream 'contended'" in told.value.message
