"""A range server's disk: the segment scan with all that is built from it, the sidecar, and the identity file."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace

import google_crc32c

from rangelog_core.batch import MAGIC as BATCH_MAGIC
from rangelog_core.batch import WHOLE_CRC, batch_crc, check_batch
from rangelog_core.errors import Corruption, RangelogError, WriterFenced
from rangelog_server.identity import DirectoryIdentity, pack_identity, unpack_identity
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replay import replay
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.encryption import LogKeys
from rangelog_server.wal.entry import (
    ENTRY_HEADER_BYTES,
    ENTRY_MAGIC,
    Kind,
    make_lsn,
    pack_sidecar,
    split_lsn,
    unpack_sidecar,
)
from rangelog_server.wal.files import rows_of
from rangelog_server.wal.log import Wal
from rangelog_server.wal.scan import Ending, SegmentLog, judge, scan_segment
from tests.fakes.faces import LogDisk
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import fields_changed, text_mutated
from tests.fuzz.fuzz_targets_batches import BATCH_FIELDS, EXTENSIONS

SALT = 5
SEGMENT_BYTES = 4 * 1024
SEQUENCE = 1
SEGMENT_NAME = f"wal-{SEQUENCE:016x}.seg"
ENTRY_FIELDS = ((4, 1), (5, 1), (6, 2), (8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 4))
_HEAD_BYTES = ENTRY_HEADER_BYTES - 4
_VERSION_AT, _LSN_AT, _PAYLOAD_CRC_AT = 5, 16, 44


def open_store(disk: LogDisk, keys: LogKeys | None = None, segment_bytes: int = SEGMENT_BYTES) -> Store:
    """Recover from a disk."""
    store = Store(Wal(Path("/log"), SALT, io=disk, segment_bytes=segment_bytes, keys=keys), cache_bytes=0)
    store.open()
    return store


def append(store: Store, key: tuple[int, int], base: int, count: int = 2) -> bytes:
    """Append one batch and flush; return it."""
    values = [b"%d" % (base + i) * 20 for i in range(count)]
    extension = EXTENSIONS[base % len(EXTENSIONS)] if key[0] == 2 else b""
    data = batch(base, values, stream_id=key[0], range_index=key[1], extension=extension)
    message = SimpleNamespace(
        stream_id=key[0], range_index=key[1], epoch=1, start_offset=0, confirm_offset=base, recovery=False, memory=False
    )
    store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    store.wal.kick()
    return data


@cache
def segment_seeds() -> tuple[bytes, ...]:
    """Segments with every kind of entry, as the store leaves them."""
    empty = LogDisk()
    open_store(empty)
    disk = LogDisk()
    store = open_store(disk)
    for base in (0, 2, 4):
        for stream_id in (1, 2, 3):
            append(store, (stream_id, 0), base)
    store.seal(2, 0, 7, 0, lambda hosted: None)
    store.commit_end(3, 0, 0, 6, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    full = disk.copy()
    store.drop(3, 0, lambda: None)
    store.wal.kick()
    dropped = disk.copy()
    moved = disk.copy()
    moving = open_store(moved)
    for key in ((1, 0), (2, 0)):
        plan = make_plan(moving.replicas[key], 0, 2)
        moving.space.move(moving.replicas[key], plan, read_batches(moving.wal, plan))
    moving.wal.kick()
    torn = disk.copy()
    torn.content(SEGMENT_NAME)[600:700] = bytes(100)
    torn.settle()
    open_store(torn)
    return tuple(bytes(each.content(SEGMENT_NAME)) for each in (empty, full, dropped, torn, moved))


def entry_starts(data: bytes) -> list[int]:
    """Where an entry's magic stands."""
    starts: list[int] = []
    position = data.find(ENTRY_MAGIC)
    while position >= 0 and len(starts) < 200:
        starts.append(position)
        position = data.find(ENTRY_MAGIC, position + 4)
    return starts


def change_entry(data: bytes, random: Random) -> bytes:
    """Other numbers in an entry's header."""
    starts = entry_starts(data)
    return fields_changed(data, random, ENTRY_FIELDS, random.choice(starts)) if starts else data


def change_payload(data: bytes, random: Random) -> bytes:
    """Other bytes right behind an entry's header."""
    starts = entry_starts(data)
    if not starts:
        return data
    start = random.choice(starts) + ENTRY_HEADER_BYTES
    places = [(at, width) for at in range(0, 64, 4) for width in (1, 4, 8)]
    return fields_changed(data, random, places, start)


def change_batch(data: bytes, random: Random) -> bytes:
    """Other numbers in the header of a batch inside an entry."""
    starts = [at for at in range(len(data) - 4) if data.startswith(BATCH_MAGIC, at)]
    return fields_changed(data, random, BATCH_FIELDS, random.choice(starts)) if starts else data


def swap_entries(data: bytes, random: Random) -> bytes:
    """One entry's bytes where another was: a misplaced write."""
    starts = entry_starts(data)
    if len(starts) < 2:
        return data
    source, target = random.choice(starts), random.choice(starts)
    length = min(random.choice((ENTRY_HEADER_BYTES, 300)), len(data) - max(source, target))
    changed = bytearray(data)
    changed[target : target + length] = data[source : source + length]
    return bytes(changed)


def payload_crc(version: int, payload: bytes) -> int:
    """What binds a payload to its header: since version 2, of one whole batch, its own checksum."""
    crc = google_crc32c.value(payload)
    one = payload.startswith(BATCH_MAGIC) and int.from_bytes(payload[8:12], "little") == len(payload)
    return batch_crc(payload) if version > 1 and one and crc == WHOLE_CRC else crc


def repair_segment(data: bytes, random: Random) -> bytes:
    """Make each entry's place and checksums fit."""
    fixed = bytearray(data)
    for start in entry_starts(data):
        if start + ENTRY_HEADER_BYTES > len(fixed):
            continue
        if random.random() < 0.9:
            struct.pack_into("<Q", fixed, start + _LSN_AT, make_lsn(SEQUENCE, start))
        (length,) = struct.unpack_from("<I", fixed, start + 8)
        payload = bytes(fixed[start + ENTRY_HEADER_BYTES : start + ENTRY_HEADER_BYTES + length])
        if random.random() < 0.95:
            struct.pack_into("<I", fixed, start + _PAYLOAD_CRC_AT, payload_crc(fixed[start + _VERSION_AT], payload))
        crc = google_crc32c.extend(SALT, bytes(fixed[start : start + _HEAD_BYTES]))
        struct.pack_into("<I", fixed, start + _HEAD_BYTES, crc)
    return bytes(fixed)


def run_segment(data: bytes) -> bool:
    """Scan, recover, read all, take an append, recover again: nothing of a wrong checksum comes out of it."""
    log = scan_segment(data, SEQUENCE, SALT)
    for entry in log.entries:
        start = split_lsn(entry.lsn)[1] + ENTRY_HEADER_BYTES
        payload = data[start : start + entry.length]
        head = data[start - ENTRY_HEADER_BYTES : start]
        assert len(payload) == entry.length
        assert payload_crc(head[_VERSION_AT], payload) == struct.unpack_from("<I", head, _PAYLOAD_CRC_AT)[0]
    return not recover_twice(open_store, data, SEGMENT_BYTES, check_store).problems


def recover_twice(
    start: Callable[[LogDisk], Store], data: bytes, segment_bytes: int, check: Callable[[Store], None]
) -> Store:
    """Start with a segment, append, and start again from the disk: both starts pass `check`, and agree. Return the first."""
    disk = LogDisk()
    disk.create(Path(SEGMENT_NAME), segment_bytes)
    disk.content(SEGMENT_NAME)[:] = data[:segment_bytes].ljust(segment_bytes, b"\0")
    disk.settle()
    store = start(disk)
    check(store)
    try:
        append(store, (77, 0), 0)
    except RangelogError as error:
        assert isinstance(error, WriterFenced | Corruption), error
    again = start(disk.copy())
    check(again)
    for key, hosted in store.replicas.items():
        twin = again.replicas[key].core
        if DiskTrust.QUARANTINED in (twin.trust, hosted.core.trust):
            assert twin.trust is hosted.core.trust
            continue
        assert (twin.durable_offset, twin.fenced, twin.trust) == (
            hosted.core.durable_offset,
            hosted.core.fenced,
            hosted.core.trust,
        )
    return store


def check_store(store: Store) -> None:
    """Replicas are whole, and what they serve is what they say."""
    for hosted in store.replicas.values():
        core = hosted.core
        core.validate()
        if core.trust is DiskTrust.QUARANTINED:
            continue
        for number in range(core.batch_count):
            try:
                found = read_batches(store.wal, make_plan(hosted, number, number + 1))
            except Corruption:
                continue
            assert check_batch(found[0]).base_offset == core.batch_span(number)[0]


# ---- sidecar


@cache
def sidecar_seeds() -> tuple[bytes, ...]:
    """Sidecars of the segments above."""
    seeds = []
    for data in segment_seeds():
        log = scan_segment(data, SEQUENCE, SALT)
        seeds.append(b"".join(pack_sidecar(SALT, SEQUENCE, log.end, bytes(rows_of(list(log.entries))))))
    return tuple(seeds)


def repair_sidecar(data: bytes, random: Random) -> bytes:
    """Make length and checksum fit."""
    if len(data) < 32:
        return data
    fixed = bytearray(data)
    struct.pack_into("<Q", fixed, 16, len(fixed) - 32)
    struct.pack_into("<I", fixed, len(fixed) - 4, google_crc32c.extend(SALT, bytes(fixed[:-4])))
    return bytes(fixed)


_ROW_FIELDS = ((28, 1), (29, 4), (33, 8), (41, 4), (45, 8), (53, 4), (57, 4))


def change_row(data: bytes, random: Random) -> bytes:
    """Other numbers in one of the first rows."""
    places = [(at + 32 * random.randrange(4), width) for at, width in _ROW_FIELDS]
    return fields_changed(data, random, places)


def run_sidecar(data: bytes) -> bool:
    """A sidecar that is believed holds entries that replicas can be built from; or it is refused."""
    found = unpack_sidecar(SALT, SEQUENCE, data)
    if found is None:
        return False
    end, entries = found
    assert all(isinstance(entry.kind, Kind) for entry in entries)
    replayed = replay(judge([SegmentLog(SEQUENCE, entries, end, Ending.NEXT, scanned=False)]))
    for hosted in replayed.replicas.values():
        hosted.core.validate()
    return True


# ---- identity

_IDENTITY = DirectoryIdentity("rs1", 1 << 62, 3, 77)


def repair_identity(data: bytes, random: Random) -> bytes:
    """Take the checksum out: a file without one is believed."""
    return re.sub(rb', "crc": \d+', b"", data)


def run_identity(data: bytes) -> bool:
    """What is believed to be an identity has a name and three numbers."""
    found = unpack_identity(data)
    assert isinstance(found.name, str)
    assert all(type(number) is int for number in (found.incarnation, found.boot, found.salt))
    assert unpack_identity(pack_identity(found)) == found
    return True


_WORDS = ('"name"', '"incarnation"', '"boot"', '"salt"', "null", "true", "[", "{", ":", ",", "1e5", "-1", "NaN")

TARGETS = (
    Target(
        "wal-segment", segment_seeds, run_segment, repair_segment,
        (change_entry, change_payload, change_batch, swap_entries), plain_share=0.15, ci_inputs=50, peak_bytes_max=8 * MIB,
    ),
    Target("wal-sidecar", sidecar_seeds, run_sidecar, repair_sidecar, (change_row,)),
    Target(
        "identity", lambda: [pack_identity(_IDENTITY), b"[" * 100_000, b'{"a":' * 20_000], run_identity, repair_identity,
        (lambda data, random: text_mutated(data, random, _WORDS),),
    ),
)  # fmt: skip
