"""The way out of a connection: what a full transport makes wait is kept as it is, in order, and leaves when there is room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import pytest

from rangelog_core.net.send_queue import TRANSPORT_BYTES_MAX, SendQueue

LARGE = bytes(64 * 1024)


class Transport(asyncio.WriteTransport):
    """Takes all bytes, and says that it is full above its limit, from within the write, as those of asyncio do."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.held_bytes = 0
        self.high = 0
        self.queue: SendQueue | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.queue is not None
        self.writes.append(bytes(data))
        self.held_bytes += len(data)
        if self.held_bytes > self.high:
            self.queue.hold()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def drain(self) -> None:
        """The peer has read all."""
        assert self.queue is not None
        self.held_bytes = 0
        self.queue.release()

    @property
    def said(self) -> bytes:
        return b"".join(self.writes)


def opened() -> tuple[SendQueue, Transport]:
    transport = Transport()
    transport.queue = SendQueue(transport)
    return transport.queue, transport


async def turns(count: int = 2) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_first_frame_of_a_turn_leaves_at_once_and_the_others_together() -> None:
    """One call of the kernel for the first, one for all that follow it in the turn."""
    queue, transport = opened()
    for word in (b"a", b"b", b"c"):
        queue.put([word, word])
    assert transport.writes == [b"aa"]
    await turns()
    assert transport.writes == [b"aa", b"bbcc"]
    queue.put([b"d"])
    assert transport.writes[-1] == b"d"


async def test_a_large_buffer_is_not_joined_with_others() -> None:
    """Its head goes before it, the next head after it, and it is never copied."""
    queue, transport = opened()
    queue.put([b"h", LARGE])
    queue.put([b"i"])
    queue.put([b"j", LARGE])
    await turns()
    assert [len(each) for each in transport.writes] == [1, len(LARGE), 2, len(LARGE)]


async def test_a_full_transport_is_given_nothing_more() -> None:
    """It holds its limit and one buffer at most, however much waits."""
    queue, transport = opened()
    for _ in range(100):
        queue.put([b"head", LARGE])
        await turns()
    assert TRANSPORT_BYTES_MAX < transport.held_bytes <= TRANSPORT_BYTES_MAX + len(LARGE)
    written = len(transport.said)
    transport.drain()
    assert written < len(transport.said) <= 2 * written + len(LARGE)


@pytest.mark.parametrize("seed", range(20))
async def test_bytes_leave_in_the_order_in_which_they_were_put(seed: int) -> None:
    """Whatever their sizes, and whenever the transport is full."""
    draw = random.Random(seed)
    queue, transport = opened()
    put = bytearray()
    for number in range(300):
        frame = [number.to_bytes(4, "big"), bytes([number % 256]) * draw.choice((0, 1, 900, 40_000, 300_000))]
        put += b"".join(frame)
        queue.put(frame)
        if draw.random() < 0.3:
            await turns(1)
        if draw.random() < 0.2:
            transport.drain()
    while len(transport.said) < len(put):
        before = len(transport.said)
        transport.drain()
        await turns()
        assert len(transport.said) > before
    assert transport.said == put


async def test_a_closed_one_writes_nothing_more() -> None:
    """What waits is forgotten with the connection."""
    queue, transport = opened()
    queue.put([b"a"])
    queue.put([b"b"])
    queue.close()
    await turns()
    transport.drain()
    assert transport.writes == [b"a"]


async def test_small_frames_share_a_record_of_tls() -> None:
    """Each write would be a record of its own; a large buffer is not copied."""

    class Encrypted(Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return object() if name == "sslcontext" else default

        def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
            raise AssertionError("one record for each of them")

    transport = Encrypted()
    queue = transport.queue = SendQueue(transport)
    queue.put([b"head", b"a", b"b", LARGE, b"tail"])
    assert transport.writes == [b"headab", LARGE, b"tail"]
