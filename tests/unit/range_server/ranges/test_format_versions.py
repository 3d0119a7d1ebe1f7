"""What a newer program wrote into a data directory is refused by name and version, and left as it is; damage is damage."""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import google_crc32c
import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import ConfigInvalid, Corruption, UnsupportedVersion
from rangelog_server.identity import DataDirectory, pack_identity, unpack_identity
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.state import ServerState, pack_state, unpack_state
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.entry import (
    ENTRY_HEADER_BYTES,
    ENTRY_VERSIONS,
    SEGMENT_HEADER_BYTES,
    SEGMENT_VERSIONS,
    VERSION,
    Kind,
    parse_header,
)
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk

SALT = 5
FIRST = "wal-0000000000000001.seg"
NEWER = ENTRY_VERSIONS.highest + 1


def open_store(disk: LogDisk) -> Store:
    """Recover from a disk."""
    store = Store(Wal(Path("/log"), SALT, io=disk, segment_bytes=4096), cache_bytes=0)
    store.open()
    return store


def append(store: Store, *batches: bytes) -> None:
    """Append and flush."""
    message = SimpleNamespace(
        stream_id=1, range_index=0, epoch=1, start_offset=0, confirm_offset=0, recovery=False, memory=False
    )
    new = [NewBatch(check_batch(data), batch_crc(data), data) for data in batches]
    store.append(None, 0, message, new, b"".join(batches))
    store.wal.kick()


def written(count: int = 3) -> LogDisk:
    """A log with appends of one batch and of two, metadata of a replica and of the server."""
    disk = LogDisk()
    store = open_store(disk)
    for base in range(0, 4 * count, 4):
        append(store, batch(base, [b"a" * 60, b"b"]))
        append(store, batch(base + 2, [b"c"]), batch(base + 3, [b"d"]))
    store.unknown_ranges_settled()
    store.write_server()
    store.wal.kick()
    store.wal.close()
    disk.settle()
    return disk


def entries_of(disk: LogDisk, name: str = FIRST) -> list[int]:
    """Return where the entries of a segment stand, its END or NEXT included."""
    content, sequence = bytes(disk.content(name)), int(name[4:-4], 16)
    positions = [SEGMENT_HEADER_BYTES]
    while True:
        header = parse_header(content, positions[-1], SALT, sequence)
        assert header is not None
        if header.kind in (Kind.END, Kind.NEXT):
            return positions
        positions.append(positions[-1] + ENTRY_HEADER_BYTES + header.length)


def reseal(content: bytearray, position: int) -> None:
    """Make an entry's header sum fit, as a newer program would have."""
    head = bytes(content[position : position + ENTRY_HEADER_BYTES - 4])
    struct.pack_into("<I", content, position + len(head), google_crc32c.extend(SALT, head))


def refused(disk: LogDisk, *texts: str) -> None:
    """Opening is refused in these words, and changes no file."""
    disk.settle()
    before = {name: bytes(disk.content(name)) for name in disk.list(Path("/log"))}
    with pytest.raises(UnsupportedVersion) as error:
        open_store(disk)
    for text in (*texts, "upgrade this "):
        assert text in error.value.message
    assert {name: bytes(disk.content(name)) for name in disk.list(Path("/log"))} == before


def test_an_entry_of_a_newer_version_is_refused_wherever_it_stands() -> None:
    """Each entry in turn, the END among them: the error names file, version and what is read; nothing is changed."""
    positions = entries_of(written())
    assert len(positions) > 6
    for position in positions:
        disk = written()
        disk.content(FIRST)[position + 5] = NEWER
        reseal(disk.content(FIRST), position)
        refused(disk, FIRST, f"the entry at {position} is of version {NEWER}, this program reads 1 to 3")


def test_an_entry_of_an_unknown_kind_is_refused() -> None:
    """A kind that this program does not know is a newer program's, not damage."""
    disk = written()
    position = entries_of(disk)[2]
    disk.content(FIRST)[position + 4] = 200
    reseal(disk.content(FIRST), position)
    refused(disk, FIRST, "kind 200")


def test_a_damaged_version_or_kind_is_damage() -> None:
    """The same bytes without a sum that fits are damage, which recovery handles as ever."""
    for at in (4, 5):
        disk = written()
        position = entries_of(disk)[2]
        disk.content(FIRST)[position + at] = 200
        store = open_store(disk)
        assert store.problems
        assert store.replicas[1, 0].core.trust is not DiskTrust.SOUND


def test_a_version_that_never_was_is_damage() -> None:
    """Entries count versions from 1."""
    disk = written()
    position = entries_of(disk)[2]
    disk.content(FIRST)[position + 5] = 0
    reseal(disk.content(FIRST), position)
    assert open_store(disk).problems


def test_a_segment_of_a_newer_version_is_refused() -> None:
    """By its header alone, whatever follows it; a damaged header is passed over, for nothing in it is needed."""
    disk = written()
    header = disk.content(FIRST)
    struct.pack_into("<I", header, 8, SEGMENT_VERSIONS.highest + 1)
    damaged = disk.copy()
    struct.pack_into(
        "<I", header, SEGMENT_HEADER_BYTES - 4, google_crc32c.value(bytes(header[: SEGMENT_HEADER_BYTES - 4]))
    )
    refused(disk, FIRST, "the segment is of version 3, this program reads 1 to 2")
    assert not open_store(damaged).problems


def test_a_header_that_the_disk_refuses_does_not_stop_a_start() -> None:
    """A bad sector at the start of a full segment costs nothing until its batches are read."""
    disk = written(60)
    fresh = open_store(disk.copy())
    disk.refuse_reads(FIRST, 0, 1, errno.EIO)
    store = open_store(disk)
    assert not store.problems
    assert store.replicas[1, 0].core.end_offset == fresh.replicas[1, 0].core.end_offset


def test_a_newer_entry_is_not_hidden_by_a_sidecar() -> None:
    """A full segment with an entry of a newer program, whose sidecar is of that program too: refused, both left."""
    disk = written(60)
    names = [name for name in disk.list(Path("/log")) if name.endswith(".idx")]
    assert len(names) > 3
    sidecar = disk.content("wal-0000000000000001.idx")
    sidecar[7] = NEWER
    sidecar[-4:] = google_crc32c.extend(SALT, bytes(sidecar[:-4])).to_bytes(4, "little")
    other = disk.copy()
    position = entries_of(disk)[1]
    disk.content(FIRST)[position + 5] = NEWER
    reseal(disk.content(FIRST), position)
    refused(disk, FIRST, f"version {NEWER}")
    assert not open_store(other).problems, "a sidecar alone is made anew"
    assert other.content("wal-0000000000000001.idx")[7] == VERSION, "as entries in clear"


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_of_a_newer_version_is_refused(number: int) -> None:
    """In an entry of one batch, and in one of several: the log is refused, the replica not quarantined."""
    disk = written()
    content = disk.content(FIRST)
    position = entries_of(disk)[number]
    start = position + ENTRY_HEADER_BYTES
    header = parse_header(bytes(content), position, SALT, 1)
    assert header is not None
    assert header.kind is Kind.BATCHES
    (first_length,) = struct.unpack_from("<I", content, start + 8)
    content[start + 4] = 2
    damaged = disk.copy()
    crc = google_crc32c.value(bytes(content[start : start + first_length - 4]))
    struct.pack_into("<I", content, start + first_length - 4, crc)
    one = first_length == header.length
    assert one == (number == 1)
    payload = bytes(content[start : start + header.length])
    struct.pack_into("<I", content, position + 44, crc if one else google_crc32c.value(payload))
    reseal(content, position)
    refused(disk, FIRST, "a record batch is of version 2")
    assert open_store(damaged).replicas[1, 0].core.trust is DiskTrust.QUARANTINED


def changed_payload(kind: Kind, change: Callable[[bytes], bytes]) -> LogDisk:
    """A log whose last entry of a kind has another payload of the same length."""
    disk = written()
    content = disk.content(FIRST)
    for position in entries_of(disk):
        header = parse_header(bytes(content), position, SALT, 1)
        if header is not None and header.kind is kind:
            found = header, position
    header, position = found
    start = position + ENTRY_HEADER_BYTES
    payload = change(bytes(content[start : start + header.length]))
    assert len(payload) == header.length
    content[start : start + header.length] = payload
    struct.pack_into("<I", content, position + 44, google_crc32c.value(payload))
    reseal(content, position)
    return disk


def test_metadata_of_a_newer_version_is_refused() -> None:
    """The state of a replica, and that of the server: refused with the segment they lie in."""
    refused(
        changed_payload(Kind.STATE, lambda old: b"\x02" + old[1:]), "segment 0000000000000001", "state", "version 2"
    )
    newer = changed_payload(Kind.SERVER, lambda old: old.replace(b'"version": 1', b'"version": 7'))
    refused(newer, "segment 0000000000000001", "version 7")


def test_server_state_of_before_versions_is_read() -> None:
    """Without a version it is of the first; a version that is no number is damage."""
    state = ServerState([1, 2], [3], True)
    fields = json.loads(state.pack())
    assert ServerState.unpack(state.pack()) == state
    del fields["version"]
    assert ServerState.unpack(json.dumps(fields).encode()) == state
    for wrong in ("1", None, 0, True):
        if wrong is not True:
            with pytest.raises(Corruption):
                ServerState.unpack(json.dumps(fields | {"version": wrong}).encode())
    with pytest.raises(Corruption):
        ServerState.unpack(b"[]")


def test_an_empty_or_early_replica_state_is_corruption() -> None:
    """A state that is cut short, or of version 0, is damage."""
    good = pack_state(open_store(written()).replicas[1, 0].core, 0)
    assert unpack_state(good).start_offset == 0
    for bad in (b"", b"\x01", b"\x00" + good[1:]):
        with pytest.raises(Corruption):
            unpack_state(bad)


def test_an_identity_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """The file stays as it is, no start is counted, and the log is not set aside."""
    directory = DataDirectory(tmp_path / "rs1")
    identity = directory.boot("rs1")
    (directory.log_directory / FIRST).write_bytes(b"records")
    file = directory.path / "identity.json"
    fields = json.loads(file.read_bytes())
    del fields["crc"]
    fields |= {"version": 2, "rack": "a"}
    whole = fields | {"crc": google_crc32c.value(json.dumps(fields, sort_keys=True).encode())}
    file.write_text(json.dumps(whole))
    with pytest.raises(
        UnsupportedVersion, match=r"identity.json is of version 2, this program reads 1: upgrade this server"
    ):
        directory.boot("rs1")
    assert json.loads(file.read_bytes()) == whole
    assert (directory.log_directory / FIRST).read_bytes() == b"records"
    file.write_text(json.dumps(whole | {"rack": "b"}))
    with pytest.raises(Corruption):
        directory.boot("rs1")
    early = {name: value for name, value in fields.items() if name not in ("version", "rack")}
    file.write_text(json.dumps(early))
    with pytest.raises(ConfigInvalid):
        directory.boot("rs2")
    assert directory.boot("rs1").boot == identity.boot + 1
    assert unpack_identity(pack_identity(identity)) == identity
    directory.close()
