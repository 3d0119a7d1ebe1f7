"""One connection of the data plane without a network: flow control, deadlines, slow readers, replies per group commit."""

from __future__ import annotations

import socket
from collections.abc import Callable
from unittest import mock

import pytest

from rangelog_core.batch import decode_records
from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import Overloaded
from rangelog_core.frame import Opcode
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges import hosted_replica
from rangelog_server.serving import connection as serving
from rangelog_server.serving import fetch_queue
from rangelog_server.serving.connection import DataPlane
from tests.support.memory_server import Client, MemoryServer
from tests.support.waiting import until


async def test_one_reply_per_group_commit_and_range(plane: DataPlane) -> None:
    """Many appends flushed together are answered by one frame, with one cumulative reply for each range."""
    client = Client(plane).hello()
    plane.store.wal.held = True  # type: ignore[attr-defined]
    for base in range(10):
        client.append(base)
        client.append(base, stream_id=2)
    assert client.wire.frames() == []
    plane.store.wal.flush()  # type: ignore[attr-defined]
    (frame,) = client.wire.frames()
    reply = data_pb2.AppendReply.FromString(frame.message)
    assert sorted((each.stream_id, each.durable_offset) for each in (reply, *reply.others)) == [(1, 10), (2, 10)]


async def test_a_confirm_speaks_for_several_ranges(plane: DataPlane) -> None:
    """Each moves by its own epoch; one that is not here, or of another epoch, moves nothing."""
    client = Client(plane).hello()
    for stream_id in (1, 2, 3):
        client.append(0, stream_id=stream_id)
    of = {"range_index": 0, "confirm_offset": 1}
    confirm = data_pb2.Confirm(stream_id=1, epoch=1, **of)  # type: ignore[arg-type]
    for stream_id, epoch in ((2, 1), (3, 9), (77, 1)):
        confirm.others.add(stream_id=stream_id, epoch=epoch, **of)  # type: ignore[arg-type]
    client.send(Opcode.CONFIRM, confirm)
    replicas = plane.store.replicas
    assert [replicas[stream_id, 0].core.confirm_offset for stream_id in (1, 2, 3)] == [1, 1, 0]


async def test_bytes_in_flight_pause_reading(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the connection is not read until the flush; another connection is not held up by it."""
    monkeypatch.setattr(serving, "INFLIGHT_BYTES_MAX", 10_000)
    client, other = Client(plane).hello(), Client(plane).hello()
    plane.store.wal.held = True  # type: ignore[attr-defined]
    client.append(0, b"x" * 20_000)
    assert not client.wire.reading
    other.append(0, stream_id=2)
    assert other.wire.reading
    plane.store.wal.flush()  # type: ignore[attr-defined]
    assert client.wire.reading


async def test_refused_appends_do_not_leak_bytes_in_flight(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors and repeats settle their bytes."""
    monkeypatch.setattr(serving, "INFLIGHT_BYTES_MAX", 10_000)
    client = Client(plane).hello()
    client.append(0, b"x" * 9_000)
    for _ in range(20):
        client.append(0, b"x" * 9_000)
        client.append(5, b"x" * 9_000)
        client.append(0, b"y" * 9_000)
    assert client.wire.reading
    codes = [frame.opcode for frame in client.wire.frames()]
    assert codes.count(Opcode.APPEND_REPLY) == 21
    assert codes.count(Opcode.ERROR) == 40
    plane.store.wal.held = True  # type: ignore[attr-defined]
    client.append(1, b"x" * 9_000)
    client.append(1, b"x" * 9_000)
    assert not client.wire.reading
    plane.store.wal.flush()  # type: ignore[attr-defined]
    assert client.wire.reading
    assert [frame.opcode for frame in client.wire.frames()] == [Opcode.APPEND_REPLY] * 2


async def test_slow_reader_is_paused_then_disconnected(plane: DataPlane) -> None:
    """A client that does not read is not read from, its fetches wait, and after the deadline it is disconnected."""
    client = Client(plane).hello()
    client.append(0, confirm_offset=1)
    client.wire.frames()
    client.connection.pause_writing()
    assert not client.wire.reading
    client.fetch(0)
    assert client.wire.frames() == []
    now = plane.loop.time()
    client.connection.check_deadlines(now + serving.SLOW_READER_TIMEOUT_S - 1)
    assert client.wire.ended == ""
    client.connection.resume_writing()
    assert client.wire.reading
    assert [frame.opcode for frame in client.wire.frames()] == [Opcode.FETCH_REPLY]
    client.connection.pause_writing()
    client.connection.check_deadlines(now + serving.SLOW_READER_TIMEOUT_S + 60)
    assert client.wire.ended == "aborted"


async def test_deadlines_for_hello_and_frames(plane: DataPlane) -> None:
    """Who says no hello in time, or begins a frame and does not end it, is closed; an idle client is not."""
    silent, dribbling, idle = Client(plane), Client(plane).hello(), Client(plane).hello()
    dribbling.feed(b"RL\x01")
    now = plane.loop.time()
    for client in (silent, dribbling, idle):
        client.connection.check_deadlines(now + serving.HELLO_TIMEOUT_S + 1)
    assert [client.wire.ended for client in (silent, dribbling, idle)] == ["closed", "", ""]
    for client in (dribbling, idle):
        client.connection.check_deadlines(now + serving.FRAME_TIMEOUT_S + 1)
    assert [client.wire.ended for client in (dribbling, idle)] == ["closed", ""]


async def test_connections_are_bounded(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the limit is told so and closed, and nothing it asks is done; when one leaves there is room again."""
    monkeypatch.setattr(serving, "CONNECTIONS_MAX", 2)
    first, _, third = Client(plane), Client(plane), Client(plane)
    (frame,) = third.wire.frames()
    error = data_pb2.Error.FromString(frame.message)
    assert (frame.opcode, frame.request_id, error.code) == (Opcode.ERROR, 0, "OVERLOADED")
    assert error.message == "this server has 2 connections already, its limit"
    assert third.wire.ended == "closed"
    third.append(0)
    assert third.wire.frames() == [] and not plane.store.replicas
    third.connection.connection_lost(None)
    first.connection.connection_lost(None)
    assert Client(plane).wire.ended == ""


async def test_refused_connections_are_logged_now_and_then(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands that knock do not fill the log: one line an interval, with how many there were since the last."""
    said: list[int] = []

    class Log:
        def warning(self, event: str, *, refused: int, **fields: object) -> None:
            said.append(refused)

    now = [1_000.0]
    monkeypatch.setattr(serving, "_log", Log())
    monkeypatch.setattr(serving, "CONNECTIONS_MAX", 0)
    for _ in range(3):
        plane.refused(now[0])
    now[0] += serving.REFUSALS_LOGGED_EVERY_S
    plane.refused(now[0])
    assert said == [1, 3]


async def test_a_refused_client_hears_why(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real socket too: its hello fails with Overloaded, which is worth another try."""
    monkeypatch.setattr(serving, "CONNECTIONS_MAX", 0)
    server = await MemoryServer(plane).start()
    with pytest.raises(Overloaded, match="its limit"):
        await DataConnection.connect(server.replica.data_address, replica_id("rs1", 9))
    server.stop()


async def test_silent_peers_are_found_out_by_the_kernel(plane: DataPlane) -> None:
    """An accepted socket asks an idle peer whether it is there, and gives up on one that answers nothing within a minute."""
    server = await MemoryServer(plane).start()
    client = await DataConnection.connect(server.replica.data_address, replica_id("rs1", 9))
    (connection,) = plane.connections
    accepted = connection._transport.get_extra_info("socket")
    tcp = socket.IPPROTO_TCP
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle_s, interval_s = accepted.getsockopt(tcp, socket.TCP_KEEPIDLE), accepted.getsockopt(tcp, socket.TCP_KEEPINTVL)
    assert 40 <= idle_s + interval_s * accepted.getsockopt(tcp, socket.TCP_KEEPCNT) <= 75
    assert 40_000 <= accepted.getsockopt(tcp, socket.TCP_USER_TIMEOUT) <= 75_000
    client.close()
    server.stop()


async def test_waiting_fetches_are_bounded_and_forgotten(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """More long polls than the limit are refused with OVERLOADED; a closed connection's polls do no harm."""

    monkeypatch.setattr(fetch_queue, "FETCHES_WAITING_MAX", 3)
    client, other = Client(plane).hello(), Client(plane).hello()
    client.append(0)
    client.wire.frames()
    for _ in range(4):
        client.fetch(0, wait_ms_max=60_000)
    frames = client.wire.frames()
    assert [data_pb2.Error.FromString(frame.message).code for frame in frames] == ["OVERLOADED"]
    client.fetch(0, bytes_max=0)  # a question: who follows at the limit may still ask where the end is
    assert client.wire.frames()[-1].opcode is Opcode.FETCH_REPLY
    client.connection.connection_lost(None)
    assert (plane.fetches.count, plane.deadlines._ticks) == (0, {})
    other.append(1, confirm_offset=1)
    other.fetch(0)
    reply = other.wire.frames()[-1]
    assert [record.value for data in split_batches(reply.payload) for record in decode_records(data)] == [b"x"]


async def test_waiting_fetches_of_all_connections_are_bounded(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many connections share one limit; what one of them gives back, whatever way, another one may use."""
    monkeypatch.setattr(fetch_queue, "FETCHES_WAITING_IN_ALL_MAX", 4)
    clients = [Client(plane).hello() for _ in range(3)]
    clients[0].append(0)
    clients[0].wire.frames()
    for client in clients[:2]:
        for _ in range(2):
            client.fetch(0, wait_ms_max=60_000, credit_bytes=1 << 20)
    clients[2].fetch(0, wait_ms_max=60_000)
    assert data_pb2.Error.FromString(clients[2].wire.frames()[-1].message).code == "OVERLOADED"
    clients[0].connection.connection_lost(None)
    clients[1].renew(2, 0)
    assert plane.fetches.count == 1
    for _ in range(3):
        clients[2].fetch(0, wait_ms_max=60_000)
    assert clients[2].wire.frames() == []
    assert plane.fetches.count == 4


async def test_fetch_waits_for_flush_and_confirm(plane: DataPlane) -> None:
    """Confirmed but not durable here: not served; once the flush is done the waiting fetch is answered."""
    client = Client(plane).hello()
    client.append(0, confirm_offset=0)
    client.wire.frames()
    plane.store.wal.held = True  # type: ignore[attr-defined]
    client.append(1, confirm_offset=1)
    client.append(2, confirm_offset=2)
    client.fetch(1, wait_ms_max=10_000)
    assert client.wire.frames() == []
    plane.store.wal.flush()  # type: ignore[attr-defined]
    reply = client.wire.frames()[-1]
    assert reply.opcode is Opcode.FETCH_REPLY
    assert [record.offset for data in split_batches(reply.payload) for record in decode_records(data)] == [1]
    client.connection.store.cache._batches.clear()
    client.fetch(0)
    frames = await until(client.wire.frames, within_s=5)
    assert [record.offset for data in split_batches(frames[0].payload) for record in decode_records(data)] == [0, 1]


async def test_timestamps_are_found_though_they_fall(plane: DataPlane) -> None:
    """LookupTimestamp answers the first batch with a record at or after the time, in logs whose times go back as well."""
    hosted_times = [5, 3, 9, 7, 20]
    client = Client(plane).hello()
    from rangelog_core.batch import encode_batch

    for base, stamp in enumerate(hosted_times):
        data = encode_batch(stream_id=1, range_index=0, epoch=1, base_offset=base, timestamps_ms=[stamp], values=[b"v"])
        message = data_pb2.Append(stream_id=1, range_index=0, epoch=1, confirm_offset=base)
        client.send(Opcode.APPEND, message, data)
    hosted = plane.store.find(1, 0)
    for stamp in range(25):
        expected = next((base for base, time in enumerate(hosted_times[:4]) if time >= stamp), None)
        assert hosted.find_timestamp(stamp, 4) == expected
        early = [base + 1 for base, time in enumerate(hosted_times[:4]) if time < stamp]
        assert hosted.find_until(stamp, 4) == (early[-1] if early else 0)
    with mock.patch.object(hosted_replica, "LOOK_BACK_MAX", 2):  # it may stop early, and says less then, nothing wrong
        assert [hosted.find_until(stamp, 4) for stamp in (0, 4, 8)] == [3, 3, 4]


@pytest.mark.parametrize(("known_end_offset", "readable_end"), [(0, 2), (3, 3), (9, 4)])
async def test_a_lookup_says_how_far_it_looked(plane: DataPlane, known_end_offset: int, readable_end: int) -> None:
    """Up to the confirm offset, or the end that the reader knows, and never beyond what is durable here."""
    client = Client(plane).hello()
    for base in range(4):
        client.append(base, confirm_offset=min(base, 2))
    client.wire.frames()
    for timestamp_ms, found in ((0, True), (1 << 50, False)):
        lookup = data_pb2.LookupTimestamp(
            stream_id=1, range_index=0, timestamp_ms=timestamp_ms, known_end_offset=known_end_offset
        )
        client.send(Opcode.LOOKUP_TIMESTAMP, lookup)
        (frame,) = client.wire.frames()
        reply = data_pb2.LookupTimestampReply.FromString(frame.message)
        assert (reply.found, reply.confirm_offset, reply.readable_end_offset) == (found, 2, readable_end)


async def test_an_append_without_a_segment_is_refused_as_overload(plane: DataPlane) -> None:
    """Not as a full disk, of which programs are told at once. Nothing of it is kept: it is taken once there is a segment."""
    client, wal, jobs = Client(plane).hello(), plane.store.wal, list[Callable[[], None]]()
    client.append(0)
    client.wire.frames()
    with mock.patch.object(wal, "_do", jobs.append), mock.patch.object(wal, "_fits", return_value=False):
        client.append(1)
        (refusal,) = client.wire.frames()
        assert refusal.opcode is Opcode.ERROR
        assert data_pb2.Error.FromString(refusal.message).code == Overloaded.code
        assert not client.wire.reading
        jobs[0]()
        client.append(1)
        (reply,) = client.wire.frames()
    assert data_pb2.AppendReply.FromString(reply.message).durable_offset == 2
