"""How fast one producer is against a broker that only acks: what the client costs, without disks and replicas.

    python -m tests.scale.producer_rate

The broker is a process of its own, and checks nothing. Prints a line for each size of records and way of sending: records per
second of wall time, microseconds of the client's processor time per record, and which share of that is the encoding of batches.
"""

from __future__ import annotations

import asyncio
import sys
import time

from rangelog._client import Client
from rangelog._produce import record_rows
from rangelog_core.frame import Frame, FrameDecoder, Opcode, encode_frame
from rangelog_core.limits import FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.versions import DATA_PLANE_VERSIONS
from rangelog_proto.v1 import data_pb2
from tests.support.fake_brokers import FakeTopic, FakeTopicPd

CASES = (
    # bytes of a value, records, keys, shards
    (1024, 400_000, 0, 1),
    (1024, 400_000, 1_000, 1),
    (1024, 400_000, 1_000, 16),
    (100, 1_000_000, 0, 1),
    (100, 1_000_000, 1_000, 1),
    (100, 1_000_000, 1_000, 16),
)
READY_EVERY = 500


class AckingBroker(asyncio.BufferedProtocol):
    """Acks each batch as it arrives."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder(
            message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX
        )
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(b"".join([_reply(frame) for frame in self._decoder.received(nbytes)]))


def _reply(frame: Frame) -> bytes:
    if frame.opcode is Opcode.HELLO:
        hello = data_pb2.HelloReply(protocol_version=DATA_PLANE_VERSIONS.highest)
        return encode_frame(Opcode.HELLO_REPLY, frame.request_id, hello.SerializeToString())
    return encode_frame(Opcode.PRODUCE_REPLY, frame.request_id, data_pb2.ProduceReply(offset=1).SerializeToString())


async def serve() -> None:
    """Be the broker."""
    server = await asyncio.get_running_loop().create_server(AckingBroker, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class EncodingClock:
    """The processor time that batches are encoded for."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._encode = record_rows.encode_batch
        record_rows.encode_batch = self  # type: ignore[assignment]

    def __call__(self, **fields: object) -> bytes:
        start = time.process_time()
        data = self._encode(**fields)  # type: ignore[arg-type]
        self.spent_s += time.process_time() - start
        return data


async def measure(address: str, size_bytes: int, count: int, keys: int, shards: int, clock: EncodingClock) -> None:
    """Send so many records, and print what it took."""
    topic = FakeTopic(shards, broker_count=1)
    broker = topic.brokers[0]
    broker.address, broker.alive = address, True
    for shard in topic.current:
        topic.assign(shard.shard_id, broker)
    value = bytes(size_bytes)
    names = [b"key %d" % number for number in range(keys)] or [None]
    client = Client("fake:1", token=None, tls=None, tier_url=None, pd=FakeTopicPd(topic))
    async with client, client.producer("t") as producer:
        for shard in topic.current:
            await producer.send(value, shard=shard.shard_id)
        clock.spent_s = 0.0
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for number in range(count):
            producer.send_nowait(value, key=names[number % len(names)])
            if number % READY_EVERY == 0:
                await producer.ready()
        await producer.flush()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(
        f"{size_bytes:5} B, {keys:4} keys, {shards:2} shards: {count / wall_s:9,.0f} records/s, "
        f"{cpu_s / count * 1e6:.2f} us of processor time per record, {clock.spent_s / cpu_s:.0%} of it encoding"
    )


async def main() -> None:
    """All cases, against one broker."""
    command = [sys.executable, "-m", "tests.scale.producer_rate", "broker"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        address = f"127.0.0.1:{int(await process.stdout.readline())}"
        clock = EncodingClock()
        for case in CASES:
            await measure(address, *case, clock)
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1:] == ["broker"] else main())
