"""One real range server: what it acked survives kill -9, fences hold, and bad bytes hurt nobody else."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rangelog_core.batch import HEADER_BYTES, decode_records
from rangelog_core.batch_extension import Tag, encode_extension
from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import (
    AppendConflict,
    Corruption,
    InvalidArgument,
    OffsetOutOfRange,
    OutOfOrder,
    ProtocolViolation,
    RangelogError,
    RangeNotFound,
    StorageFull,
    Unauthorized,
    UnsupportedVersion,
    WriterFenced,
    WrongServer,
)
from rangelog_core.frame import FrameDecoder, Opcode, encode_frame, encode_head
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_core.versions import BATCH_HEADER_EXTENSION
from rangelog_proto.v1 import data_pb2, range_server_pb2
from rangelog_proto.v1.range_server_pb2_grpc import RangeServerStub
from rangelog_server.testing import NotedReplies, RawClient, ServerProcess, batch
from rangelog_server.wal.entry import SEGMENT_VERSIONS
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A range server without a placement driver."""
    process = ServerProcess(tmp_path / "rs1")
    yield process.start()
    process.close()


def values_of(payload: bytes) -> list[bytes]:
    """All record values of a fetched payload."""
    return [record.value for data in split_batches(payload) for record in decode_records(data)]


async def refused(acks: NotedReplies) -> RangelogError:
    """Wait for the next refusal."""
    await until(lambda: acks.errors)
    return acks.errors.pop(0)


async def test_acked_records_survive_kill_9(server: ServerProcess) -> None:
    """Everything below the last acked offset is there, byte for byte, after kill -9 in the middle of appends."""
    client = await server.connect()
    acks = client.listen()
    for number in range(200):
        client.append(batch(number * 10, [b"%d:%d" % (number, i) * 20 for i in range(10)]))
    await until(lambda: acks.durable_offset >= 500)
    server.kill()
    acked = acks.durable_offset
    client.close()

    server.start()
    client = await server.connect()
    sealed = await client.seal(2)
    assert sealed.outcome in (data_pb2.SEAL_OUTCOME_FENCED, data_pb2.SEAL_OUTCOME_DOUBTFUL)
    assert sealed.durable_offset >= acked
    found: list[bytes] = []
    while len(found) < sealed.durable_offset:
        _, payload = await client.fetch(len(found), recovery_epoch=2)
        found += values_of(payload)
    assert found == [b"%d:%d" % (number, i) * 20 for number in range(200) for i in range(10)][: len(found)]
    client.close()


async def test_fence_and_end_survive_restart(server: ServerProcess) -> None:
    """After kill -9 a fenced range refuses the old epoch, and a committed end is still known and never changes."""
    client = await server.connect()
    acks = client.listen()
    client.append(batch(0, [b"a", b"b"]))
    await until(lambda: acks.durable_offset == 2)
    assert (await client.seal(5)).durable_offset == 2
    client.close()
    server.kill()
    server.start()

    client = await server.connect()
    acks = client.listen()
    client.append(batch(2, [b"late"]))
    error = await refused(acks)
    assert isinstance(error, WriterFenced)
    assert error.epoch == 5
    reply = await client.commit_end(5, 2)
    assert reply.complete
    client.close()
    server.kill()
    server.start()

    client = await server.connect()
    with pytest.raises(RangelogError, match="sealed at 2"):
        await client.commit_end(5, 1)
    told, payload = await client.fetch(0)
    assert told.sealed
    assert told.sealed_end_offset == 2
    assert values_of(payload) == [b"a", b"b"]
    client.close()


async def test_appends_are_acked_cumulatively_and_checked(server: ServerProcess) -> None:
    """Repeats are success, gaps and other bytes are refused with the expected offset, several batches fit one frame."""
    client = await server.connect()
    acks = client.listen()
    client.append(batch(0, [b"a"]) + batch(1, [b"b", b"c"]))
    await until(lambda: acks.durable_offset == 3)
    before = acks.replies
    client.append(batch(0, [b"a"]))
    await until(lambda: acks.replies > before)
    client.append(batch(7, [b"gap"]))
    error = await refused(acks)
    assert isinstance(error, OutOfOrder)
    assert error.offset == 3
    client.append(batch(0, [b"x"]))
    assert isinstance(await refused(acks), AppendConflict)
    client.append(batch(3, [b"d"])[:-1] + b"\0")
    assert isinstance(await refused(acks), Corruption)
    client.append(batch(3, [b"d"], stream_id=2))
    assert isinstance(await refused(acks), ProtocolViolation)
    client.append(batch(3, [b"d"]), start_offset=1)
    assert isinstance(await refused(acks), ProtocolViolation)
    client.append(b"not a batch")
    assert isinstance(await refused(acks), ProtocolViolation)
    client.append(batch(3, [b"d"]))
    await until(lambda: acks.durable_offset == 4)
    client.close()


async def test_readers_see_what_is_confirmed_and_wait_for_more(server: ServerProcess) -> None:
    """A fetch ends at the confirm offset; one at the tail waits, and a confirm wakes it."""
    client = await server.connect()
    acks = client.listen()
    client.append(batch(0, [b"a", b"b"]))
    client.append(batch(2, [b"c"]), confirm_offset=2)
    await until(lambda: acks.durable_offset == 3)
    told, payload = await client.fetch(0)
    assert values_of(payload) == [b"a", b"b"]
    assert told.confirm_offset == 2

    waiting = asyncio.create_task(client.fetch(2, wait_ms_max=20_000))
    await asyncio.sleep(0)
    client.confirm(3)
    told, payload = await asyncio.wait_for(waiting, 5)
    assert values_of(payload) == [b"c"]

    told, payload = await client.fetch(3, wait_ms_max=50)
    assert payload == b""
    with pytest.raises(OffsetOutOfRange) as caught:
        await client.fetch(9)
    assert caught.value.offset == 3
    with pytest.raises(RangeNotFound):
        await client.fetch(0, range_index=7)
    found = data_pb2.LookupTimestampReply.FromString(
        (
            await client.request(
                Opcode.LOOKUP_TIMESTAMP, data_pb2.LookupTimestamp(stream_id=1, range_index=0, timestamp_ms=2)
            )
        ).message
    )
    assert found.found
    assert found.offset == 2
    client.close()


async def test_memory_durability_is_answered_and_read(server: ServerProcess) -> None:
    """durability="memory" appends are answered and can be read at once."""
    client = await server.connect()
    acks = client.listen()
    client.append(batch(0, [b"a"]), memory=True)
    client.append(batch(1, [b"b"]), memory=True, confirm_offset=1)
    await until(lambda: acks.durable_offset == 2)
    client.confirm(2)
    _, payload = await client.fetch(0, wait_ms_max=5_000)
    assert values_of(payload)[0] == b"a"
    client.close()


async def test_segments_fill_and_survive(server: ServerProcess) -> None:
    """More than one segment of data is acked, read from the disk, and read again after a clean stop."""
    client = await server.connect()
    acks = client.listen()
    value = b"v" * 500_000
    for number in range(80):
        client.append(batch(number, [value]))
    await until(lambda: acks.durable_offset == 80, within_s=30)
    client.confirm(80)
    client.close()
    assert server.stop() == 0
    assert not server.endpoint_file.exists()
    assert "Traceback" not in server.log()
    server.start()

    client = await server.connect()
    await client.seal(2)
    for number in range(0, 80, 7):
        _, payload = await client.fetch(number, bytes_max=1, recovery_epoch=2)
        assert values_of(payload) == [value]
    client.close()


def read_error(connection: socket.socket) -> data_pb2.Error:
    """Return the error frame that the server sends before it closes the connection."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    frames = FrameDecoder(message_bytes_max=1 << 20, payload_bytes_max=1 << 20).feed(data)
    assert frames[-1].opcode is Opcode.ERROR
    return data_pb2.Error.FromString(frames[-1].message)


def hello_of(server: ServerProcess, **fields: object) -> bytes:
    """Return a hello frame with some fields changed."""
    hello = data_pb2.Hello(protocol_version=1, server=server.name, incarnation=server.endpoint["incarnation"])
    for name, value in fields.items():
        setattr(hello, name, value)
    return encode_frame(Opcode.HELLO, 1, hello.SerializeToString())


async def test_bad_bytes_close_their_connection_only(server: ServerProcess) -> None:
    """Garbage, oversized frames, a missing hello and undecodable messages are answered once; others go on."""
    healthy = await server.connect()
    acks = healthy.listen()
    oversized = encode_head(Opcode.APPEND, 2, b"", 1 << 30)
    for bad in (
        b"GET / HTTP/1.1\r\n\r\n" * 4,
        hello_of(server) + b"\0" * 64,
        hello_of(server) + oversized,
        encode_frame(Opcode.FETCH, 1, data_pb2.Fetch(stream_id=1).SerializeToString()),
        hello_of(server) + encode_frame(Opcode.SEAL, 2, b"\xff\xff\xff"),
        hello_of(server, protocol_version=0),
    ):
        with server.socket() as connection:
            connection.sendall(bad)
            assert read_error(connection).code == "PROTOCOL_VIOLATION"
    with server.socket() as connection:
        connection.sendall(hello_of(server, protocol_version=99, protocol_version_min=98))
        assert read_error(connection).code == "UNSUPPORTED_VERSION"
    healthy.append(batch(0, [b"a"]))
    await until(lambda: acks.durable_offset == 1)
    healthy.close()
    assert "Traceback" not in server.log()


async def test_wrong_server_or_incarnation_is_refused(server: ServerProcess) -> None:
    """A caller that means another server or incarnation is refused; incarnation 0 may read and not write."""
    endpoint = server.endpoint
    for name, incarnation in (("rs1", endpoint["incarnation"] + 1), ("rs2", endpoint["incarnation"])):
        with pytest.raises(WrongServer):
            await DataConnection.connect(endpoint["data_address"], replica_id(name, incarnation))
    reader = RawClient(await DataConnection.connect(endpoint["data_address"], replica_id("rs1", 0)))
    with pytest.raises(WrongServer):
        await reader.seal(1)
    reader.close()


async def test_token(tmp_path: Path) -> None:
    """With a token set, a hello without it or with another one is refused; one that cannot travel is not sent."""
    server = ServerProcess(tmp_path / "rs1", env={"RANGELOG_SERVER_TOKEN": "s3cret"})
    try:
        server.start()
        for token in (None, "other"):
            with pytest.raises(Unauthorized):
                await server.connect(token=token)
        with pytest.raises(InvalidArgument):
            await server.connect(token="é")
        (await server.connect(token="s3cret")).close()
        assert "s3cret" not in server.log()
    finally:
        server.close()


async def test_header_fields_are_stored_and_served_as_they_came(server: ServerProcess) -> None:
    """A batch with optional and unknown critical fields survives kill -9 byte by byte; a malformed one is refused."""
    client = await server.connect()
    assert BATCH_HEADER_EXTENSION in client.connection.features
    acks = client.listen()
    sent = b""
    for base, fields in enumerate(({}, {Tag.PRODUCER: b"p", 0xFFFF: b"q"}, {9: bytes(900)})):
        data = batch(base, [b"v"], extension=encode_extension(fields))
        client.append(data, confirm_offset=base)
        sent += data
    await until(lambda: acks.durable_offset == 3)
    malformed = bytearray(data)
    malformed[HEADER_BYTES : HEADER_BYTES + 2] = bytes(2)
    malformed[-4:] = google_crc32c.value(bytes(malformed[:-4])).to_bytes(4, "little")
    client.append(bytes(malformed))
    assert isinstance(await refused(acks), ProtocolViolation)
    client.confirm(3)
    client.close()
    server.kill()
    server.start()
    client = await server.connect()
    await client.commit_end(1, 3)
    reply, payload = await client.fetch(0, known_end_offset=3)
    assert (reply.sealed_end_offset, payload) == (3, sent)
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        values_of(payload)
    client.close()


@pytest.mark.parametrize("file", ["wal/wal-0000000000000001.seg", "identity.json"])
async def test_what_a_newer_program_wrote_is_refused_at_start(server: ServerProcess, file: str) -> None:
    """In one line that names file, versions and what to do, exit code 1; files stay as they are, and an upgrade reads on."""
    client = await server.connect()
    acks = client.listen()
    client.append(batch(0, [b"a"]))
    await until(lambda: acks.durable_offset == 1)
    client.close()
    server.stop()
    path = server.home / file
    before = path.read_bytes()
    if file == "identity.json":
        fields = json.loads(before)
        del fields["crc"]
        fields["version"] += 1
        fields["crc"] = google_crc32c.value(json.dumps(fields, sort_keys=True).encode())
        path.write_text(json.dumps(fields))
    else:
        newer = bytearray(before)
        newer[8] = SEGMENT_VERSIONS.highest + 1
        newer[28:32] = google_crc32c.value(bytes(newer[:28])).to_bytes(4, "little")
        path.write_bytes(newer)
    files = {each: each.read_bytes() for each in server.home.rglob("*.seg")}
    assert server.spawn().wait(20) == 1
    last = server.log().splitlines()[-1]
    assert file.split("/")[-1] in last
    known = ("version 2", "1") if file == "identity.json" else ("version 3", "1 to 2")
    assert "{}, this program reads {}: upgrade this server".format(*known) in last
    assert {each: each.read_bytes() for each in server.home.rglob("*.seg")} == files
    path.write_bytes(before)
    server.start()
    client = await server.connect()
    await client.commit_end(1, 1)
    assert values_of((await client.fetch(0, known_end_offset=1))[1]) == [b"a"]
    client.close()


async def test_one_process_per_directory_and_port(server: ServerProcess, tmp_path: Path) -> None:
    """A locked directory, a busy port and another server's directory are said in one line, exit code 1."""
    again = ServerProcess(server.home)
    again.home.parent.mkdir(exist_ok=True)
    assert stat.S_IMODE(server.home.stat().st_mode) == 0o700
    process = again.spawn()
    assert process.wait(20) == 1
    assert "another process uses the data directory" in server.log()
    busy = ServerProcess(tmp_path / "rs2", name="rs2", arguments=["--data-listen", server.endpoint["data_address"]])
    assert busy.spawn().wait(20) == 1
    assert "cannot listen on" in busy.log()
    assert "Traceback" not in server.log() + busy.log()


async def test_disk_failure_ends_the_process(tmp_path: Path) -> None:
    """When a flush fails the process answers nothing more and exits 1 with one line."""
    server = ServerProcess(tmp_path / "rs1", wrapper=["strace", "-f", "-qq", "-e", "trace=fdatasync", "-o", "/dev/null",
                                                      "-e", "inject=fdatasync:error=EIO:when=40+"])  # fmt: skip
    try:
        server.start()
    except (AssertionError, FileNotFoundError, OSError):
        server.close()
        pytest.skip("strace cannot inject faults here")
    client = await server.connect()
    acks = client.listen()
    for number in range(100):
        client.append(batch(number, [b"x"]))
        await until(lambda n=number: acks.durable_offset > n or acks.errors)
        if acks.errors:
            break
    assert server.process is not None
    assert server.process.wait(10) == 1
    assert "the write-ahead log failed" in server.log()
    assert acks.durable_offset < 100
    assert acks.errors == [client.connection.closed], "the append is answered neither with an ack nor with an error"
    client.close()


async def test_full_log_refuses_appends_only(tmp_path: Path) -> None:
    """At its capacity the server answers STORAGE_FULL to appends, and goes on reading, fencing and sealing."""
    server = ServerProcess(tmp_path / "rs1", arguments=["--capacity-bytes", str(48 << 20)])
    try:
        server.start()
        client = await server.connect()
        acks = client.listen()
        number = 0
        while not acks.errors:
            client.append(batch(number, [b"x" * 500_000]))
            number += 1
            await until(lambda n=number: acks.durable_offset == n or acks.errors)
        assert isinstance(acks.errors[0], StorageFull)
        assert 80 < acks.durable_offset < 101
        client.confirm(acks.durable_offset)
        _, payload = await client.fetch(acks.durable_offset - 1, wait_ms_max=5_000)
        assert payload
        assert (await client.seal(4)).durable_offset == acks.durable_offset
        assert (await client.commit_end(4, acks.durable_offset)).complete
        client.close()
        assert "Traceback" not in server.log()
    finally:
        server.close()


async def test_burst_over_many_segments_is_never_refused(server: ServerProcess) -> None:
    """Four connections push data faster than segments are made: they are slowed down, not refused."""
    clients = [await server.connect() for _ in range(4)]
    logs = [client.listen(stream_id=number) for number, client in enumerate(clients, 1)]
    for base in range(20):
        for number, client in enumerate(clients, 1):
            client.append(batch(base, [b"x" * 1_000_000], stream_id=number), stream_id=number)
    await until(lambda: all(log.durable_offset == 20 for log in logs), within_s=30)
    assert not any(log.errors for log in logs)
    for client in clients:
        client.close()


async def test_control_plane(server: ServerProcess) -> None:
    """Status, replicas by page, health and reflection over gRPC."""
    client = await server.connect()
    acks = [client.listen(range_index=index) for index in range(3)]
    for index in range(3):
        client.append(batch(0, [b"a"], range_index=index), range_index=index)
    await until(lambda: all(log.durable_offset == 1 for log in acks))
    async with grpc.aio.insecure_channel(server.endpoint["control_address"]) as channel:
        stub = RangeServerStub(channel)  # type: ignore[no-untyped-call]
        status = await stub.GetStatus(range_server_pb2.GetStatusRequest(), timeout=5)
        assert (status.server, status.replica_count, status.connection_count) == ("rs1", 3, 1)
        assert status.flush_count > 0
        page = await stub.ListReplicas(range_server_pb2.ListReplicasRequest(page_size=2), timeout=5)
        rest = await stub.ListReplicas(
            range_server_pb2.ListReplicasRequest(page_size=2, page_token=page.next_page_token), timeout=5
        )
        assert [one.range_index for one in (*page.replicas, *rest.replicas)] == [0, 1, 2]
        assert not rest.next_page_token
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
    client.close()


async def test_waiting_for_a_placement_driver_ends_with_sigterm(tmp_path: Path) -> None:
    """Without any placement driver answering nothing is served yet, and SIGTERM still ends the process cleanly."""
    server = ServerProcess(tmp_path / "rs1", arguments=["--pd", "127.0.0.1:9"])
    try:
        server.spawn()
        await until(lambda: "not registered yet" in server.log(), within_s=20)
        assert not server.endpoint_file.exists()
        assert server.stop() == 0
        assert "Traceback" not in server.log()
    finally:
        server.close()


async def test_sigterm_during_appends_is_clean(server: ServerProcess) -> None:
    """SIGTERM under load: exit code 0, no traceback, and what was acked is there."""
    client = await server.connect()
    acks = client.listen()
    for number in range(500):
        client.append(batch(number, [b"x" * 1000]))
    await until(lambda: acks.durable_offset > 0)
    assert server.signal(signal.SIGTERM) == 0
    assert "Traceback" not in server.log()
    eventually(lambda: not server.endpoint_file.exists())
    server.start()
    again = await server.connect()
    assert (await again.seal(2)).durable_offset >= acks.durable_offset
    again.close()
    client.close()
