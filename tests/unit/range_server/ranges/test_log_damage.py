"""Damage to the log: whatever byte is flipped and wherever it is cut, nothing wrong is served and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace

import google_crc32c
import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import Corruption, RangelogError, WriterFenced
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch, SealOutcome
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, Kind, parse_header
from rangelog_server.wal.log import Wal
from rangelog_server.wal.scan import SegmentLog, scan_segment
from tests.fakes.faces import LogDisk

SEGMENT_BYTES = 4 * 1024
SALT = 5
OPEN, FENCED, SEALED = (1, 0), (2, 0), (3, 0)


def open_store(disk: LogDisk, segment_bytes: int = SEGMENT_BYTES) -> Store:
    """Recover from a disk."""
    store = Store(Wal(Path("/log"), SALT, io=disk, segment_bytes=segment_bytes), cache_bytes=0)
    store.open()
    return store


def append(store: Store, key: tuple[int, int], *batches: bytes, epoch: int = 1) -> None:
    """Append and flush."""
    message = SimpleNamespace(
        stream_id=key[0],
        range_index=key[1],
        epoch=epoch,
        start_offset=0,
        confirm_offset=0,
        recovery=False,
        memory=False,
    )
    new = [NewBatch(check_batch(data), batch_crc(data), data) for data in batches]
    store.append(None, 0, message, new, b"".join(batches))
    store.wal.kick()


def some(key: tuple[int, int], base: int, count: int = 2, size: int = 40) -> bytes:
    """Return one batch."""
    return batch(base, [b"%d" % (base + i) * size for i in range(count)], stream_id=key[0], range_index=key[1])


def fill(store: Store) -> dict[tuple[int, int], list[bytes]]:
    """Write an open, a fenced and a sealed range; return what each holds."""
    written: dict[tuple[int, int], list[bytes]] = {key: [] for key in (OPEN, FENCED, SEALED)}
    for base in (0, 2, 4):
        for key, batches in written.items():
            batches.append(some(key, base))
            append(store, key, batches[-1])
    store.seal(*FENCED, 7, 0, lambda hosted: None)
    store.wal.kick()
    store.commit_end(*SEALED, 0, 6, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    return written


def check_truthful(disk: LogDisk, written: dict[tuple[int, int], list[bytes]]) -> list[str]:
    """Open a damaged log: what it serves is right, and what is missing is in doubt. Return what it reports."""
    store = open_store(disk)
    for key, batches in written.items():
        hosted = store.replicas.get(key)
        if hosted is None:
            with pytest.raises(Corruption):
                append(store, key, some(key, 0))
            assert store.server.doubt_unknown
            continue
        core = hosted.core
        core.validate()
        try:
            found = read_batches(store.wal, make_plan(hosted, 0, core.batch_count))
        except Corruption:
            found = None
        if found is not None:
            assert found == batches[: core.batch_count]
        if core.trust is DiskTrust.SOUND:
            assert core.batch_count == len(batches)
            assert core.fenced == (key != OPEN)
            assert core.sealed_end_offset == (6 if key == SEALED else None)
        else:
            assert store.problems
            assert core.seal_answer().outcome is not SealOutcome.FENCED
            with pytest.raises((Corruption, WriterFenced, RangelogError)):
                append(store, key, some(key, core.end_offset))
    return store.problems


def test_every_flipped_byte_is_noticed() -> None:
    """Each byte of a small log flipped in turn: served bytes are right, replicas that lost something say so."""
    disk = LogDisk()
    written = fill(open_store(disk))
    end = SEGMENT_BYTES
    data = bytes(disk.content("wal-0000000000000001.seg"))
    end = len(data.rstrip(b"\0"))
    noticed = 0
    for position in range(32, end):
        damaged = disk.copy()
        damaged.content("wal-0000000000000001.seg")[position] ^= 0x41
        noticed += bool(check_truthful(damaged, written))
    assert noticed == end - 32


def test_every_cut_is_noticed() -> None:
    """A log whose last bytes are zero from each position on: the same."""
    disk = LogDisk()
    written = fill(open_store(disk))
    content = bytes(disk.content("wal-0000000000000001.seg"))
    end = len(content.rstrip(b"\0"))
    for position in range(32, end):
        damaged = disk.copy()
        damaged.content("wal-0000000000000001.seg")[position:] = bytes(len(content) - position)
        assert check_truthful(damaged, written)


def test_damage_in_recycled_segments(seeds: Sequence[int] = range(150)) -> None:
    """The same by random flips in a log of many segments with stale bytes of earlier uses behind the end."""
    disk = LogDisk()
    store = open_store(disk)
    for number in range(6):
        key = (50 + number, 0)
        for base in range(0, 12, 2):
            append(store, key, some(key, base, size=120))
        store.commit_end(*key, 0, 12, 1, lambda hosted: None, by_placement_driver=True)
        store.drop(*key, lambda: None)
        store.wal.kick()
        store.reclaim()
    written = fill(store)
    names = [name for name in disk.list(Path("/log")) if name.startswith("wal-")]
    for name in names:
        if name.endswith(".idx"):
            disk.unlink(Path(name))
    names = [name for name in names if name.endswith(".seg")]
    for seed in seeds:
        random = Random(seed)
        damaged = disk.copy()
        content = damaged.content(random.choice(names))
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        check_truthful(damaged, written)


def test_flipped_bytes_under_a_sidecar_are_caught_when_read() -> None:
    """Full segments are believed from their sidecar at start; a flip in one is caught by the read, never served."""
    disk = LogDisk()
    store = open_store(disk)
    batches = [some(OPEN, base, size=120) for base in range(0, 80, 2)]
    for data in batches:
        append(store, OPEN, data)
    name = "wal-0000000000000001.seg"
    assert "wal-0000000000000001.idx" in disk.list(Path("/log"))
    for position in range(100, SEGMENT_BYTES - 200, 37):
        damaged = disk.copy()
        damaged.content(name)[position] ^= 0x10
        again = open_store(damaged)
        hosted = again.replicas[OPEN]
        assert hosted.core.batch_count == len(batches)
        caught = 0
        for number, data in enumerate(batches):
            try:
                assert read_batches(again.wal, make_plan(hosted, number, number + 1)) == [data]
            except Corruption:
                caught += 1
        assert caught <= 1


def scanned(disk: LogDisk, sequence: int = 1) -> SegmentLog:
    """What the bytes of a segment say by themselves."""
    return scan_segment(bytes(disk.content(f"wal-{sequence:016x}.seg")), sequence, SALT)


def swap(disk: LogDisk, first: bytes, second: bytes) -> None:
    """Exchange two stretches of equal length in the first segment."""
    content = disk.content("wal-0000000000000001.seg")
    at, other = bytes(content).index(first), bytes(content).index(second)
    content[at : at + len(first)], content[other : other + len(second)] = second, first


def test_a_batch_under_the_header_of_another_is_damage() -> None:
    """Two valid batches of equal length exchanged, of one range or of two: the scan itself finds both, and nothing else."""
    for key in (OPEN, FENCED):
        disk = LogDisk()
        store = open_store(disk)
        batches = [some(OPEN, 0), some(key, 2 if key == OPEN else 0), some(SEALED, 0)]
        for data, of in zip(batches, (OPEN, key, SEALED), strict=True):
            append(store, of, data)
        sound = scanned(disk)
        assert not sound.damages
        swap(disk, batches[0], batches[1])
        log = scanned(disk)
        assert [damage.range_id for damage in log.damages] == [OPEN, key]
        assert [entry for entry in sound.entries if entry not in log.entries] == [
            entry for entry in sound.entries if entry.digest[:64] in {data[:64] for data in batches[:2]}
        ]
        assert open_store(disk).replicas[OPEN].core.trust is DiskTrust.QUARANTINED


def test_entries_of_the_first_version_are_read() -> None:
    """Their headers hold the payload's own crc32c, the same for all single batches; damage to them is found as it was."""
    disk = LogDisk()
    store = open_store(disk)
    batches = [some(OPEN, base) for base in (0, 2, 4)]
    append(store, OPEN, batches[0])
    append(store, OPEN, *batches[1:])
    content = disk.content("wal-0000000000000001.seg")
    position = SEGMENT_HEADER_BYTES
    while (header := parse_header(bytes(content), position, SALT, 1)) is not None:
        start = position + ENTRY_HEADER_BYTES
        payload = bytes(content[start : start + header.length])
        head = bytearray(content[position : start - 4])
        head[5] = 1
        head[-4:] = google_crc32c.value(payload).to_bytes(4, "little")
        content[position:start] = head + google_crc32c.extend(SALT, bytes(head)).to_bytes(4, "little")
        position = start + header.length
    log = scanned(disk)
    assert not log.damages and [entry.kind for entry in log.entries].count(Kind.BATCHES) == 2
    again = open_store(disk)
    assert not again.problems
    assert read_batches(again.wal, make_plan(again.replicas[OPEN], 0, 3)) == batches
    content[bytes(content).index(batches[0]) + 70] ^= 1
    assert [damage.range_id for damage in scanned(disk).damages] == [OPEN]


def test_damaged_or_missing_sidecar_is_rebuilt() -> None:
    """A sidecar that is damaged or gone costs a scan, nothing else, and is there again after it."""
    disk = LogDisk()
    store = open_store(disk)
    batches = [some(OPEN, base, size=120) for base in range(0, 80, 2)]
    for data in batches:
        append(store, OPEN, data)
    sidecar = "wal-0000000000000001.idx"
    for change in (
        lambda copy: copy.unlink(Path(sidecar)),
        lambda copy: copy.content(sidecar).__setitem__(70, copy.content(sidecar)[70] ^ 1),
    ):
        copy = disk.copy()
        change(copy)
        again = open_store(copy)
        assert not again.problems
        hosted = again.replicas[OPEN]
        assert read_batches(again.wal, make_plan(hosted, 0, len(batches))) == batches
        assert bytes(copy.content(sidecar)) == bytes(disk.content(sidecar))


def test_missing_segment_is_doubt() -> None:
    """A segment file that is gone puts every open replica in doubt."""
    disk = LogDisk()
    store = open_store(disk)
    for base in range(0, 120, 2):
        append(store, OPEN, some(OPEN, base, size=120))
    append(store, FENCED, some(FENCED, 0))
    disk.unlink(Path("wal-0000000000000002.seg"))
    again = open_store(disk)
    assert again.problems
    assert again.replicas[OPEN].core.trust is DiskTrust.QUARANTINED
    assert again.replicas[FENCED].core.trust is DiskTrust.SOUND or again.server.doubt_unknown


def test_doubt_survives_restarts_until_the_range_is_whole() -> None:
    """A replica in doubt stays so over restarts; told an end that it holds, it is sound again, and that stays too."""
    disk = LogDisk()
    written = fill(open_store(disk))
    content = disk.content("wal-0000000000000001.seg")
    end = len(bytes(content).rstrip(b"\0"))
    content[end - 60] ^= 1  # in the last entry
    for _ in range(3):
        store = open_store(disk)
        hosted = store.replicas[OPEN]
        assert hosted.core.trust is DiskTrust.DOUBTFUL
        assert hosted.core.durable_offset == 6
    store.commit_end(*OPEN, 0, 6, 9, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    assert hosted.core.complete
    again = open_store(disk)
    assert again.replicas[OPEN].core.trust is DiskTrust.SOUND
    assert not again.problems
    assert read_batches(again.wal, make_plan(again.replicas[OPEN], 0, 3)) == written[OPEN]


def test_a_clean_log_has_no_problems_however_often_it_is_opened() -> None:
    """Opening changes nothing that matters."""
    disk = LogDisk()
    written = fill(open_store(disk))
    for _ in range(4):
        assert check_truthful(disk, written) == []


def test_unknown_ranges_are_in_doubt_after_damage_until_settled() -> None:
    """After a damaged tail a range that is not known may have been known: no append, and a seal answers DOUBTFUL."""
    disk = LogDisk()
    fill(open_store(disk))
    content = disk.content("wal-0000000000000001.seg")
    content[len(bytes(content).rstrip(b"\0")) - 60] ^= 1
    store = open_store(disk)
    with pytest.raises(Corruption):
        append(store, (8, 0), some((8, 0), 0))
    answers: list[SealOutcome] = []
    store.seal(8, 1, 3, 0, lambda hosted: answers.append(hosted.core.seal_answer().outcome))
    store.wal.kick()
    assert answers == [SealOutcome.DOUBTFUL]
    store.unknown_ranges_settled()
    append(store, (8, 0), some((8, 0), 0))
    assert not open_store(disk).server.doubt_unknown
