"""A range server's data plane, and a client's end of it: well-framed but hostile messages, and batches that lie.

What holds for the server: every request is answered with a typed error or done; afterwards no bytes count as in flight, no
fetch as waiting to be run, the replicas are whole, and a restart finds what was acked.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random
from typing import Any

from rangelog_core.errors import InternalError, ProtocolViolation, RangelogError
from rangelog_core.frame import Frame, FrameDecoder, FrameError, Opcode, encode_frame
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.net.data_connection import DataConnection, Replies
from rangelog_proto.v1 import data_pb2
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.store import Store
from rangelog_server.serving import connection as serving
from rangelog_server.serving.connection import ClientConnection, DataPlane
from rangelog_server.serving.handlers import HANDLERS
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk
from tests.fuzz import fuzz_loop
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed
from tests.fuzz.fuzz_targets_batches import (
    batch_seeds,
    change_columns,
    change_frame_header,
    change_header,
    repair_batch,
    repair_frames,
)
from tests.fuzz.fuzz_targets_log import check_store

SEGMENT_BYTES = 1 << 18
IDENTITY = DirectoryIdentity("rs1", 9, 1, 3)
KNOWN: tuple[Any, ...] = (0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 9, 10, 1 << 20, "rs1", "t")
MESSAGES: dict[Opcode, Any] = {
    Opcode.HELLO: data_pb2.Hello,
    Opcode.HELLO_REPLY: data_pb2.HelloReply,
    Opcode.APPEND: data_pb2.Append,
    Opcode.APPEND_REPLY: data_pb2.AppendReply,
    Opcode.CONFIRM: data_pb2.Confirm,
    Opcode.FETCH: data_pb2.Fetch,
    Opcode.FETCH_REPLY: data_pb2.FetchReply,
    Opcode.LOOKUP_TIMESTAMP: data_pb2.LookupTimestamp,
    Opcode.LOOKUP_TIMESTAMP_REPLY: data_pb2.LookupTimestampReply,
    Opcode.SEAL: data_pb2.Seal,
    Opcode.SEAL_REPLY: data_pb2.SealReply,
    Opcode.COMMIT_END: data_pb2.CommitEnd,
    Opcode.COMMIT_END_REPLY: data_pb2.CommitEndReply,
    Opcode.ERROR: data_pb2.Error,
    Opcode.PRODUCE: data_pb2.Produce,
    Opcode.PRODUCE_REPLY: data_pb2.ProduceReply,
    Opcode.FIND_BATCH: data_pb2.FindBatch,
    Opcode.STAGE: data_pb2.Stage,
    Opcode.FIND_BATCH_REPLY: data_pb2.FindBatchReply,
}


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()

    def write(self, data: Any) -> None:
        """See asyncio.Transport."""
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio.Transport."""
        for data in list_of_data:
            self.sent += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing to do."""

    def pause_reading(self) -> None:
        """Nothing to do."""

    def resume_reading(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def abort(self) -> None:
        """Nothing to do."""


class RaisingLog:
    """In place of the server's log: what it would log as a defect is kept."""

    def __init__(self) -> None:
        self.defect: BaseException | None = None

    def exception(self, event: str, **fields: object) -> None:
        """Keep the exception under way."""
        self.defect = self.defect or sys.exc_info()[1]

    def warning(self, event: str, **fields: object) -> None:
        """Nothing to do."""


def feed(connection: Any, data: bytes) -> None:
    """Hand bytes to a protocol as the event loop does."""
    position = 0
    while position < len(data):
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data) - position)
        buffer[:count] = data[position : position + count]
        connection.buffer_updated(count)
        position += count


def request(opcode: Opcode, request_id: int, payload: bytes = b"", /, **fields: Any) -> bytes:
    """One frame."""
    return encode_frame(opcode, request_id, MESSAGES[opcode](**fields).SerializeToString(), payload)


HELLO = request(Opcode.HELLO, 1, protocol_version=1, server="rs1", incarnation=9)


def request_seeds() -> list[bytes]:
    """A range's life, its takeover by a recoverer, reads of every kind, and greetings."""
    place = {"stream_id": 1, "range_index": 0}
    life = [
        request(Opcode.APPEND, 2, batch(0, [b"a", b"b"]), **place, epoch=1),
        request(Opcode.APPEND, 3, batch(2, [b"c"]) + batch(3, [b"d"]), **place, epoch=1, confirm_offset=2),
        request(Opcode.APPEND, 3, batch(0, [b"a", b"b"]), **place, epoch=1),
        request(Opcode.CONFIRM, 4, **place, epoch=1, confirm_offset=4),
        request(Opcode.FETCH, 5, **place, offset=0, bytes_max=1 << 20),
        request(Opcode.FETCH, 6, **place, offset=4, bytes_max=1, wait_ms_max=1),
        request(Opcode.LOOKUP_TIMESTAMP, 7, **place, timestamp_ms=1),
        request(Opcode.SEAL, 8, **place, epoch=2),
        request(Opcode.FETCH, 9, **place, offset=0, bytes_max=10, recovery_epoch=2),
        request(Opcode.APPEND, 10, batch(4, [b"e"]), **place, epoch=2, recovery=True),
        request(Opcode.COMMIT_END, 11, **place, epoch=2, end_offset=5),
        request(Opcode.FETCH, 12, **place, offset=3, bytes_max=10, known_end_offset=5),
    ]
    pushed = [
        request(Opcode.FETCH, 15, **place, offset=0, bytes_max=1, wait_ms_max=1000, credit_bytes=200),
        request(Opcode.FETCH, 16, **place, offset=2, bytes_max=1, wait_ms_max=1000, credit_bytes=1),
        request(Opcode.FETCH, 17, **place, offset=1, bytes_max=1 << 20, credit_bytes=1 << 20, end_offset=3),
        request(Opcode.FETCH, 15, renews=True),
    ]
    zstd = batch_seeds()[5]
    return [
        HELLO + b"".join(life),
        HELLO + request(Opcode.APPEND, 2, zstd, **place, epoch=1, start_offset=3, memory=True) + life[4],
        HELLO + life[7] + life[10] + life[0],
        HELLO + b"".join([*life[:4], *pushed, *life[7:11], request(Opcode.FETCH, 16, renews=True, credit_bytes=50)]),
        request(Opcode.HELLO, 1, protocol_version=1, server="rs1", token="t", client="c" * 300) + life[4] + life[0],
        life[0],
    ]  # fmt: skip


def frames_of(data: bytes) -> list[Frame]:
    """The frames that can still be read."""
    decoder = FrameDecoder(message_bytes_max=1 << 16, payload_bytes_max=1 << 20)
    found: list[Frame] = []
    try:
        for at in range(0, len(data), 64):
            found += decoder.feed(data[at : at + 64])
    except FrameError:
        pass
    return found


def change_frames(data: bytes, random: Random) -> bytes:
    """Other messages and payloads in whole frames; some moved, repeated, left out or of another kind."""
    found = frames_of(data)
    for _ in range(random.choice((1, 2, 4))):
        if not found:
            return data
        at = random.randrange(len(found))
        frame = found[at]
        kind = random.randrange(7)
        if kind <= 2:
            message = encoded_changed(frame.message, MESSAGES[frame.opcode], random, KNOWN)
            found[at] = frame._replace(message=message[: 1 << 16])
        elif kind == 3 and frame.payload:
            change = random.choice((change_header, change_columns))
            found[at] = frame._replace(payload=repair_batch(change(frame.payload, random), random))
        elif kind == 4:
            found.insert(random.randrange(len(found) + 1), frame)
        elif kind == 5:
            found[at] = frame._replace(opcode=random.choice(list(Opcode)))
        elif len(found) > 1:
            del found[at]
    return b"".join(encode_frame(*frame) for frame in found[:64])


def change_append(data: bytes, random: Random) -> bytes:
    """A batch and an append that agree on another place: where ranges and offsets end."""
    found = frames_of(data)
    appends = [at for at, frame in enumerate(found) if frame.opcode is Opcode.APPEND]
    if not appends:
        return data
    base = random.choice((0, 5, (1 << 31), (1 << 63) - 2, (1 << 63), (1 << 64) - 2, (1 << 64) - 1))
    number, index = random.choice(((1, 0), (2, 0), (1, (1 << 32) - 1), ((1 << 64) - 1, 1), (0, 0)))
    epoch = random.choice((0, 1, 2, (1 << 64) - 1))
    values = [b"v"] * random.choice((1, 2, 3))
    packed = batch(min(base, (1 << 62)), values, stream_id=number, range_index=index, epoch=epoch)
    payload = repair_batch(packed[:40] + base.to_bytes(8, "little") + packed[48:], Random(1))
    start = random.choice((0, base))
    message = data_pb2.Append(
        stream_id=number, range_index=index, epoch=epoch, start_offset=start, confirm_offset=random.choice((0, base))
    )
    at = random.choice(appends)
    found[at] = found[at]._replace(message=message.SerializeToString(), payload=payload)
    return b"".join(encode_frame(*frame) for frame in found)


def run_requests(data: bytes) -> bool:
    """See the module."""
    disk = LogDisk()
    wal = Wal(Path("/log"), IDENTITY.salt, io=disk, segment_bytes=SEGMENT_BYTES)
    store = Store(wal, cache_bytes=0)
    store.open()
    plane = DataPlane(store, IDENTITY, None, fuzz_loop.loop(), fuzz_loop.Inline())  # type: ignore[arg-type]
    connection, wire, log = ClientConnection(plane, HANDLERS), Wire(), RaisingLog()
    production, serving._log = serving._log, log  # type: ignore[assignment]
    try:
        connection.connection_made(wire)
        feed(connection, data)
        for _ in range(100):
            fuzz_loop.turns(4)
            if _at_rest(connection):
                break
        store.wal.kick()
    finally:
        serving._log = production
    if log.defect is not None:
        raise log.defect
    assert connection._inflight_bytes == 0, "bytes count as in flight though nothing is"
    assert connection.fetches.active_count == 0
    assert _at_rest(connection), "a fetch is neither answered nor waiting"
    assert len(connection.fetches.following) <= connection.fetches.count
    check_store(store)
    again = Store(Wal(Path("/log"), IDENTITY.salt, io=disk.copy(), segment_bytes=SEGMENT_BYTES))
    again.open()
    assert not again.problems, again.problems
    for key, hosted in store.replicas.items():
        twin = again.replicas[key].core
        assert (twin.durable_offset, twin.epoch, twin.fenced, twin.sealed_end_offset) == (
            hosted.core.durable_offset, hosted.core.epoch, hosted.core.fenced, hosted.core.sealed_end_offset,
        )  # fmt: skip
    replies = frames_of(bytes(wire.sent))
    refused = [data_pb2.Error.FromString(each.message).code for each in replies if each.opcode is Opcode.ERROR]
    assert InternalError.code not in refused
    connection.connection_lost(None)
    return len(refused) < len(replies)


def _at_rest(connection: ClientConnection) -> bool:
    """Whether every fetch of the only connection waits, or is out of credit."""
    waiting = sum(len(hosted.waiters) for hosted in connection.store.replicas.values())
    spent = sum(each._out_of_credit for each in connection.fetches.following.values())  # type: ignore[attr-defined]
    return connection.closed or connection.fetches.count == waiting + spent


# ---- the client's end

REPLICA = ReplicaId("rs1", Incarnation(9))


def reply_seeds() -> list[bytes]:
    """What a server answers."""
    place = {"stream_id": 1, "range_index": 0}
    return [
        request(Opcode.HELLO_REPLY, 1, protocol_version=1, server="rs1", incarnation=9)
        + request(Opcode.APPEND_REPLY, 0, **place, epoch=1, durable_offset=7)
        + request(Opcode.FETCH_REPLY, 2, batch(0, [b"a"]), confirm_offset=1)
        + request(Opcode.ERROR, 3, code="FENCED", message="no", epoch=4, **place),
        request(Opcode.FETCH_REPLY, 5, batch(0, [b"a"]), confirm_offset=1)
        + request(Opcode.FETCH_REPLY, 5, confirm_offset=1)
        + request(Opcode.FETCH_REPLY, 5, confirm_offset=2, last=True)
        + request(Opcode.ERROR, 5, code="CORRUPTION", message="no"),
        request(Opcode.ERROR, 0, code="OVERLOADED", message="m" * 2_000),
        request(Opcode.SEAL_REPLY, 1, outcome=1, durable_offset=3) + request(Opcode.ERROR, 9, code="NEWER", **place),
    ]


class Listener:
    """Hears of a range."""

    def append_replied(self, reply: data_pb2.AppendReply) -> None:
        """Any number."""
        assert 0 <= reply.durable_offset < 1 << 64

    def append_refused(self, error: RangelogError) -> None:
        """Typed."""
        assert isinstance(error, RangelogError)

    def connection_closed(self, error: RangelogError) -> None:
        """Typed."""
        assert isinstance(error, RangelogError)


async def _connect(connection: DataConnection) -> None:
    connection.connection_made(Wire())


def run_replies(data: bytes) -> bool:
    """Whatever a server sends, requests end in a frame or a typed error, and a broken stream in a closed connection."""
    connection = DataConnection(REPLICA)
    fuzz_loop.run(_connect(connection))
    connection.listen(1, 0, Listener())
    loop = fuzz_loop.loop()
    futures = [loop.create_future() for _ in range(4)]
    connection._pending = dict(enumerate(futures, 1))
    replies = connection._subscriptions[5] = Replies(connection, 5)
    feed(connection, data)
    fuzz_loop.turns(1)
    answered = [future for future in futures if future.done()]
    for future in answered:
        error = future.exception()
        assert error is None or isinstance(error, RangelogError)
    assert replies._error is None or isinstance(replies._error, RangelogError)
    assert sum(not each.payload for each in replies._frames) <= len(replies._frames) / 2 + 1
    if connection.closed is not None:
        assert len(answered) == len(futures) and replies._error is not None
        raise connection.closed if not isinstance(connection.closed, InternalError) else ProtocolViolation("told so")
    connection.close()
    for future in futures:
        future.exception()
    return bool(answered) or bool(replies._frames)


TARGETS = (
    Target(
        "data-plane", request_seeds, run_requests, repair_frames,
        (change_frames, change_frames, change_append, change_frame_header), plain_share=0.1, ci_inputs=75,
        peak_bytes_max=48 * MIB,
    ),
    Target(
        "data-connection", reply_seeds, run_replies, repair_frames, (change_frames, change_frame_header), plain_share=0.2,
        peak_bytes_max=48 * MIB,
    ),
)  # fmt: skip
