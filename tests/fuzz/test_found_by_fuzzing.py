"""What fuzzing found in the decoders, each once: bytes that ended in an untyped error or in a wrong value."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from random import Random

import google_crc32c
import grpc
import pytest

from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_core.batch import check_batch, encode_batch
from rangelog_core.errors import Corruption, InvalidArgument, ProtocolViolation
from rangelog_core.frame import Opcode
from rangelog_core.limits import OFFSET_MAX
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_pd.consensus.files import snapshot_file
from rangelog_pd.consensus.files.journal import INDEX_MAX, JournalEntry, RaftJournal
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network import messages
from rangelog_pd.handlers.objects import ROW_GROUPS_MAX, _coarser
from rangelog_proto.v1 import common_pb2, watermark_pb2
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer, add_PlacementDriverServicer_to_server
from rangelog_server.control import _parse_token
from rangelog_server.identity import DataDirectory, DirectoryIdentity, pack_identity, unpack_identity
from rangelog_server.ranges.state import ServerState, unpack_epoch, unpack_tombstone
from rangelog_server.testing import batch
from rangelog_server.wal.entry import Kind, make_lsn, pack_header, unpack_sidecar
from rangelog_server.wal.scan import scan_segment
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_tier.arrow import batch_to_arrow
from tests.fuzz.fuzz_targets_data_plane import HELLO, request, run_requests
from tests.fuzz.fuzz_targets_log import SALT, SEQUENCE, repair_sidecar, sidecar_seeds
from tests.fuzz.fuzz_targets_raft import PATH, holding, journal_seeds, repair_journal, repair_snapshot
from tests.fuzz.fuzz_targets_tier import written
from tests.support.forked import run_script
from tests.support.journal_machines import restored

RUN = Path(__file__).with_name("run.py")
BEYOND = (OFFSET_MAX, (1 << 64) - 1)


def beyond(base_offset: int) -> bytes:
    """A batch of one record that ends beyond the last offset."""
    place = {"stream_id": 1, "range_index": 0, "epoch": 1, "timestamps_ms": [0], "values": [b"x"]}
    return encode_batch(**place, base_offset=base_offset)  # type: ignore[arg-type]


@pytest.mark.parametrize("base_offset", BEYOND)
def test_a_batch_beyond_the_last_offset_is_refused(base_offset: int) -> None:
    """Offsets are unsigned on the wire and signed in Arrow: OverflowError before."""
    for open_it in (check_batch, batch_to_arrow):
        with pytest.raises(ProtocolViolation, match="exceeds the highest possible offset"):
            open_it(beyond(base_offset))


@pytest.mark.parametrize("base_offset", BEYOND)
def test_an_append_beyond_the_last_offset_leaves_the_replica_whole(base_offset: int) -> None:
    """The replica took its start, then overflowed at its end: it stayed half changed, and answered INTERNAL."""
    append = request(
        Opcode.APPEND, 2, beyond(base_offset), stream_id=1, range_index=0, epoch=1, start_offset=base_offset
    )
    again = request(Opcode.APPEND, 3, batch(0, [b"x"]), stream_id=1, range_index=0, epoch=1)
    assert run_requests(HELLO + append + again)


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 17])
def test_short_metadata_of_the_log_is_corruption(payload: bytes) -> None:
    """A tombstone or a floor of another length: struct.error before."""
    with pytest.raises(Corruption):
        unpack_tombstone(payload)
    with pytest.raises(Corruption):
        unpack_epoch(payload)


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b'{"a": 1}', b'{"live": ["x"]}', b"\xff", b"[" * 100_000, b'{"live": 3}']
)
def test_a_damaged_server_state_is_corruption(payload: bytes) -> None:
    """JSONDecodeError, UnicodeDecodeError, TypeError or RecursionError before."""
    with pytest.raises(Corruption):
        ServerState.unpack(payload)


def test_an_entry_without_a_batch_is_damage() -> None:
    """It named a range and held nothing of it: the range could not be built (IndexError) and the server not start."""
    header = pack_header(SALT, Kind.BATCHES, make_lsn(SEQUENCE, 32), 0, 1, 0, 0, b"")
    log = scan_segment(bytes(32) + header + bytes(200), SEQUENCE, SALT)
    assert not log.entries
    assert log.damages[0].range_id == (1, 0)


def test_a_sidecar_that_does_not_make_sense_is_scanned_instead() -> None:
    """An unknown kind, a row cut short and batches without heads: KeyError, struct.error, IndexError before."""
    whole = sidecar_seeds()[1]
    assert unpack_sidecar(SALT, SEQUENCE, whole) is not None
    rows = len(whole) - 32
    for spoiled in (whole[:28] + b"\x63" + whole[29:], whole[: 28 + rows // 2] + b"xxxx"):
        assert unpack_sidecar(SALT, SEQUENCE, repair_sidecar(spoiled, Random(1))) is None


def test_every_flipped_byte_of_an_identity_is_found(tmp_path: Path) -> None:
    """A flipped digit made another server of the directory, or all of its log unreadable, without a word."""
    identity = DirectoryIdentity("rs1", 1 << 62, 3, 77)
    whole = pack_identity(identity)
    assert unpack_identity(whole) == identity
    for at in range(len(whole)):
        for bit in range(8):
            spoiled = whole[:at] + bytes((whole[at] ^ 1 << bit,)) + whole[at + 1 :]
            with pytest.raises(Corruption):
                unpack_identity(spoiled)
                pytest.fail(f"{spoiled!r} was believed")
    early = {"name": "rs1", "incarnation": 5, "boot": 1, "salt": 7}
    assert unpack_identity(json.dumps(early).encode()) == DirectoryIdentity(**early)
    directory = DataDirectory(tmp_path)
    directory.boot("rs1")
    directory.close()
    assert b'"crc"' in (tmp_path / "identity.json").read_bytes()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"3", b'{"name": 1, "incarnation": 2, "boot": 3, "salt": 4}'])
def test_an_identity_of_other_kinds_is_corruption(content: bytes) -> None:
    """RecursionError and AttributeError before, or a name that is a number."""
    with pytest.raises(Corruption):
        unpack_identity(content)


def test_a_journal_with_an_impossible_index_is_damaged() -> None:
    """An index of 2^64 - 1 was believed; the next append raised struct.error."""
    data = bytearray(journal_seeds()[0])
    data += struct.pack("<IIQQQ", 1, 0, (1 << 64) - 1, 1, 0) + b"\0"
    with pytest.raises(Corruption):
        RaftJournal(PATH, files=holding(repair_journal(bytes(data), Random(1))), must_hold=1)


@pytest.mark.parametrize(
    ("previous", "last"),
    [
        (JournalEntry(b"\1", 0, 0), JournalEntry(b"\0", 1, 1)),
        (JournalEntry(b"\1", 8, 5), JournalEntry(b"\0", 9, 4)),
        (JournalEntry(b"\1", INDEX_MAX, 5), JournalEntry(b"\0", INDEX_MAX + 1, 5)),
    ],
)
def test_a_snapshot_that_no_log_goes_on_from_is_corruption(previous: JournalEntry, last: JournalEntry) -> None:
    """Aligning the journal to it raised struct.error, or wrote what the next start cut off as damage."""
    data = b"".join(snapshot_file.encode(Snapshot(previous, last, b"")))
    with pytest.raises(Corruption):
        snapshot_file.decode(repair_snapshot(data, Random(1)), source="a test")


def test_entries_beyond_the_last_index_are_refused() -> None:
    """The journal would not find them again."""
    message = messages.Append(3, 7, 7, 2, (JournalEntry(b"\0", 8, 2),))
    assert messages.decode(messages.encode(message)) == message
    with pytest.raises(ProtocolViolation, match="last index"):
        messages.decode(messages.encode(replace(message, previous_index=INDEX_MAX)))


def test_the_crc_of_an_identity_is_crc32c() -> None:
    """So that other tools can check it."""
    fields = json.loads(pack_identity(DirectoryIdentity("rs1", 2, 3, 4)))
    crc = fields.pop("crc")
    assert crc == google_crc32c.value(json.dumps(fields, sort_keys=True).encode())


@pytest.mark.parametrize("service", ["rangelog.v1.PlacementDriver/ListStreams", "grpc.health.v1.Health/Check"])
async def test_bytes_that_are_no_message_are_the_callers_mistake(service: str) -> None:
    """gRPC parsed requests before us: the caller got INTERNAL, and the server's log a stack trace."""
    server = GrpcServer()
    add_PlacementDriverServicer_to_server(PlacementDriverServicer(), server.server)  # type: ignore[no-untyped-call]
    port = await server.start("127.0.0.1:0", ())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{service}")(b"\x0a\xff", timeout=10)
    await server.stop(0)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(from_rpc_error(caught.value, "it"), ProtocolViolation)


@pytest.mark.parametrize("token", ["²/1", "1/²", "٣/٣", "9" * 5_000 + "/1", "", "1"])
def test_a_page_token_of_other_digits_is_none(token: str) -> None:
    """`str.isdigit` holds of what `int` cannot read, and `int` reads no more than 4,300 digits: INTERNAL before."""
    assert _parse_token(token) == (-1, -1)
    assert _parse_token("7/3") == (7, 3)


def test_row_groups_of_too_many_records_are_refused() -> None:
    """Joined for the index, their counts ran over 32 bits: ValueError and INTERNAL before."""
    count = (1 << 32) - 1
    groups = [common_pb2.RowGroup(start_offset=at * count, count=count) for at in range(ROW_GROUPS_MAX + 1)]
    with pytest.raises(InvalidArgument, match="row groups"):
        _coarser(groups)


def test_a_footer_that_parquet_throws_at_does_not_end_the_process() -> None:
    """Asked where a column lies, the library threw in C++ through Python: the reader's process was aborted."""
    data = written()[0]
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at, value in ((59, 0x24), (60, 0x29)):
        spoiled = data[: start + at] + bytes((value,)) + data[start + at + 1 :]
        ended = run_script(RUN, ["--target", "tier-object", "--input", spoiled.hex()])
        assert ended.returncode in (0, 1), ended.stderr
        assert b"terminate called" not in ended.stderr
        assert ended.stdout.startswith(b"accepted") or b"Corruption" in ended.stderr


def test_watermarks_of_a_snapshot_that_no_count_reaches_are_refused() -> None:
    """The next watermark ran over 64 bits, and the next snapshot ended in ValueError."""
    piece = watermark_pb2.WatermarkTopicState(topic_id=1, next_number=(1 << 64) - 1).SerializeToString()
    with pytest.raises(Corruption, match="next number"):
        restored(WatermarkCoordinator(), [piece])
