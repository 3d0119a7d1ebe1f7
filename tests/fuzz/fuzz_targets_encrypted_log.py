"""A range server's disk with an encrypted log: no byte that was changed comes out as a record, whatever checksums say.

The inputs' checksums are made to fit by whoever has the salt and not the key. What is read must be what was appended.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from random import Random

import google_crc32c

from rangelog_core.errors import Corruption, EncryptionKeyMissing
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.ranges.store import Store
from rangelog_server.wal.encryption import (
    ENCRYPTED_START_BYTES,
    HEADER_COPY_BYTES,
    LogKeys,
    WrappedKey,
    pack_key_header,
    unpack_key_header,
)
from rangelog_server.wal.entry import SEGMENT_HEADER_BYTES, pack_segment_header
from rangelog_server.wal.scan import scan_segment
from tests.fakes.faces import LogDisk
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import fields_changed
from tests.fuzz.fuzz_targets_log import (
    SALT,
    SEGMENT_NAME,
    SEQUENCE,
    append,
    change_entry,
    change_payload,
    check_store,
    open_store,
    recover_twice,
    repair_segment,
    swap_entries,
)
from tests.support.log_keys import MemoryKeys, encrypted_keys

SEGMENT_BYTES = 3 * ENCRYPTED_START_BYTES // 2
_HEADER_FIELDS = ((8, 4), (12, 4), (16, 8), (24, 4), (28, 4), (32, 2), (34, 2), (36, 2), (40, 4), (60, 8), (100, 4))


def keys() -> LogKeys:
    """The same keys at each start; other random bytes, as after any start."""
    return encrypted_keys(SALT, MemoryKeys(), Random(5))


@cache
def _made() -> tuple[tuple[bytes, ...], frozenset[bytes]]:
    """Segments with every kind of entry, and the batches that were appended."""
    empty, disk = LogDisk(), LogDisk()
    open_store(empty, keys(), SEGMENT_BYTES)
    store = open_store(disk, keys(), SEGMENT_BYTES)
    appended = {append(store, (stream_id, 0), base) for base in (0, 2) for stream_id in (1, 2, 3)}
    store.seal(2, 0, 7, 0, lambda hosted: None)
    store.commit_end(3, 0, 0, 4, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    full = disk.copy()
    hosted = store.replicas[1, 0]
    store.space.move(hosted, make_plan(hosted, 0, 2), read_batches(store.wal, make_plan(hosted, 0, 2)))
    store.drop(3, 0, lambda: None)
    store.wal.kick()
    appended.add(append(open_store(LogDisk()), (77, 0), 0))  # by `recover_twice`
    return tuple(bytes(each.content(SEGMENT_NAME)) for each in (empty, full, disk)), frozenset(appended)


def segment_seeds() -> Sequence[bytes]:
    """The segments."""
    return _made()[0]


def change_header(data: bytes, random: Random) -> bytes:
    """Other numbers in one or both copies of the header."""
    starts = random.choice(((0,), (HEADER_COPY_BYTES,), (0, HEADER_COPY_BYTES)))
    for start in starts:
        data = fields_changed(data, random, _HEADER_FIELDS, start)
    return data


def in_clear(data: bytes, random: Random) -> bytes:
    """The header of a segment in clear in place of a copy."""
    head = pack_segment_header(SEQUENCE, SEGMENT_BYTES)
    start = random.choice((0, 0, HEADER_COPY_BYTES))
    return data[:start] + head + data[start + len(head) :]


def repair(data: bytes, random: Random) -> bytes:
    """Make the checksums of the copies of the header, and those of the entries, fit."""
    fixed = bytearray(data)
    for start in (0, HEADER_COPY_BYTES):
        if start + SEGMENT_HEADER_BYTES > len(fixed) or random.random() < 0.2:
            continue
        struct.pack_into("<I", fixed, start + 28, google_crc32c.value(bytes(fixed[start : start + 28])))
        (size,) = struct.unpack_from("<I", fixed, start + 24)
        end = start + SEGMENT_HEADER_BYTES + size
        if size < HEADER_COPY_BYTES and end + 4 <= len(fixed):
            struct.pack_into("<I", fixed, end, google_crc32c.extend(SALT, bytes(fixed[start:end])))
    return repair_segment(bytes(fixed), random)


def check_records(store: Store) -> None:
    """Replicas are whole, and every batch that is read was appended, bit for bit."""
    check_store(store)
    for hosted in store.replicas.values():
        if hosted.core.trust is DiskTrust.QUARANTINED:
            continue
        for number in range(hosted.core.batch_count):
            try:
                found = read_batches(store.wal, make_plan(hosted, number, number + 1))
            except Corruption:
                continue
            assert bytes(found[0]) in _made()[1], "a batch that nobody appended"


def run_segment(data: bytes) -> bool:
    """Scan without the key and recover with it."""
    scan_segment(data, SEQUENCE, SALT, ENCRYPTED_START_BYTES)
    store = recover_twice(lambda disk: open_store(disk, keys(), SEGMENT_BYTES), data, SEGMENT_BYTES, check_records)
    return not store.problems


# ---- the header alone


@cache
def header_seeds() -> tuple[bytes, ...]:
    """One copy of a header with a short, a long and an unknown key's id, and one of a segment in clear."""

    def seal(head: bytes) -> bytes:
        return bytes(60)

    made = [keys().new_segment(SEQUENCE, SEGMENT_BYTES)[0]]
    made += [pack_key_header(SALT, SEQUENCE, SEGMENT_BYTES, key_id, bytes(48), seal) for key_id in ("k9", "k" * 3_000)]
    return (*(each[:HEADER_COPY_BYTES].rstrip(b"\0") for each in made), pack_segment_header(SEQUENCE, SEGMENT_BYTES))


def repair_header(data: bytes, random: Random) -> bytes:
    """As `repair`, for one copy."""
    return repair(data.ljust(HEADER_COPY_BYTES, b"\0"), random)[:HEADER_COPY_BYTES]


def run_header(data: bytes) -> bool:
    """A header that is believed is of this log and has a key; one with an unknown key is no damage."""
    found = unpack_key_header(data, SALT)
    assert found is None or isinstance(found, WrappedKey)
    try:
        cipher = keys().open_segment([data], SEQUENCE)
    except EncryptionKeyMissing as missing:
        assert "\n" not in missing.message, missing.message
        raise
    return cipher is not None


TARGETS = (
    Target(
        "encrypted-segment", segment_seeds, run_segment, repair,
        (change_header, change_entry, change_payload, swap_entries, in_clear),
        plain_share=0.15, ci_inputs=37, peak_bytes_max=8 * MIB,
    ),
    Target("segment-key-header", header_seeds, run_header, repair_header, (change_header,)),
)  # fmt: skip
