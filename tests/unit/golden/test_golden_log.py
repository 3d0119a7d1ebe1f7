"""The bytes of a range server's data directory stay as they were: a segment, its sidecar, an identity."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from rangelog_core.batch import check_batch, decode_records, extension_of
from rangelog_core.batch_extension import Producer, Tag, encode_producer
from rangelog_server.identity import DirectoryIdentity, unpack_identity
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.store import Store
from rangelog_server.wal.entry import Kind, unpack_sidecar
from rangelog_server.wal.log import Wal
from rangelog_server.wal.scan import Ending, scan_segment
from tests.fakes.faces import LogDisk

HERE = Path(__file__).parent
LOG: dict[str, str] = json.loads((HERE / "log.json").read_text())
SALT = 5
SEGMENT = bytes.fromhex(LOG["segment"])


def test_a_stored_log_opens_to_what_it_was() -> None:
    """Batches, a fence, a drop and the server's state are recovered from stored bytes."""
    disk = LogDisk()
    name = "wal-0000000000000001.seg"
    disk.create(Path(name), 4096)
    disk.content(name)[: len(SEGMENT)] = SEGMENT
    disk.settle()
    store = Store(Wal(Path("log"), SALT, io=disk, segment_bytes=4096), cache_bytes=0)
    assert store.open(started_before=True).problems == []
    (hosted,) = store.replicas.values()
    assert (hosted.key, hosted.core.epoch, hosted.core.fenced) == ((1, 0), 7, True)
    batches = read_batches(store.wal, make_plan(hosted, 0, 3))
    assert [(record.offset, record.value) for data in batches for record in decode_records(data)] == [
        (offset, b"value") for offset in range(3)
    ]
    producer = {Tag.PRODUCER: encode_producer(Producer(21, 22, 1))}
    assert [extension_of(data, check_batch(data)) for data in batches] == [{}, producer, producer]
    assert set(store.tombstones) == {(2, 0)}
    assert (store.floors[2].index, store.floors[2].epoch) == (0, 1)
    assert (store.server.live, store.server.noted, store.server.doubt_unknown) == ([1], [9], False)


def test_a_stored_sidecar_holds_what_its_segment_holds() -> None:
    """Row for row, and where the segment ends."""
    found = scan_segment(SEGMENT, 1, SALT)
    assert found.ending is Ending.END
    assert {entry.kind for entry in found.entries} == set(Kind) - {Kind.END, Kind.NEXT}
    assert unpack_sidecar(SALT, 1, bytes.fromhex(LOG["sidecar"])) == (found.end, found.entries)


def test_a_stored_identity_is_read() -> None:
    """All its fields."""
    assert unpack_identity(bytes.fromhex(LOG["identity"])) == DirectoryIdentity("rs1", 2**63 + 5, 3, SALT)


def test_the_same_bytes_are_written() -> None:
    """A change of these needs a new version, and a stored log of the one before."""
    tool = Path(__file__).resolve().parents[3] / "tools" / "make_golden.py"
    spec = importlib.util.spec_from_file_location("make_golden_log", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.log() == LOG
