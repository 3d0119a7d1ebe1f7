"""A store over an encrypted log: nothing on the disk is in clear, what was changed is not served, keys come and go."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import pytest

from rangelog_core.errors import Corruption, EncryptionKeyMissing, RangelogError, StorageFull, UnsupportedVersion
from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.encryption import ENCRYPTED_START_BYTES, LogKeys
from rangelog_server.wal.entry import (
    CLEAR_SEGMENT_VERSION,
    ENCRYPTED_VERSION,
    ENTRY_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Kind,
    parse_header,
    segment_version,
)
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk
from tests.support.log_keys import MemoryKeys, NonceWatch, encrypted_keys
from tests.support.small_log import append, content, drop, end

SALT = 3
SEGMENT_BYTES = 24 * 1024
SECRET = b"what-nobody-is-to-read"
FIRST = "wal-0000000000000001.seg"


def open_store(
    disk: LogDisk, keys: LogKeys | None, segment_bytes: int = SEGMENT_BYTES, capacity_bytes: int = 0
) -> Store:
    """Recover from a disk."""
    wal = Wal(Path("/log"), SALT, io=disk, segment_bytes=segment_bytes, keys=keys, capacity_bytes=capacity_bytes)
    store = Store(wal, cache_bytes=0)
    store.open()
    return store


def restarted(store: Store, disk: LogDisk, keys: LogKeys | None) -> Store:
    """Start again; everything is as it was, and nothing in doubt."""
    before = {key: content(store, key) for key in store.replicas}
    again = open_store(disk, keys)
    assert not again.problems
    assert {key: content(again, key) for key in again.replicas} == before
    again.space.validate()
    return again


def clear_reader(provider: MemoryKeys) -> LogKeys:
    """The keys of a server that was switched off again."""
    return LogKeys(provider, SALT, encrypt=False)


def on_disk(disk: LogDisk) -> bytes:
    """Every file."""
    return b"".join(bytes(disk.content(name)) for name in disk.list(Path("/log")))


def test_nothing_of_a_record_is_on_the_disk() -> None:
    """In segments, sidecars and what was freed; entries of frames with several batches, moved ones and metadata too."""
    disk, provider = LogDisk(), MemoryKeys()
    store = open_store(disk, encrypted_keys(SALT, provider))
    append_frame(store, (1, 0), 3)
    for number in range(60):
        append(store, (2, 0), SECRET * 20)
        if number % 20 == 0:
            append(store, (1, 0), SECRET)
    hosted = store.replicas[1, 0]
    store.quarantine(hosted, SECRET.decode())
    plan = make_plan(store.replicas[2, 0], 0, 4)
    store.space.move(store.replicas[2, 0], plan, read_batches(store.wal, plan))
    store.wal.kick()
    names = disk.list(Path("/log"))
    assert any(name.endswith(".idx") for name in names) and len(names) > 4
    assert SECRET not in on_disk(disk) and b"RLB1" not in on_disk(disk)
    disk.settle()
    again = open_store(disk, encrypted_keys(SALT, provider))
    assert again.replicas[1, 0].core.problem == SECRET.decode()
    assert content(again, (2, 0)) == content(store, (2, 0))


def append_frame(store: Store, key: tuple[int, int], count: int) -> list[bytes]:
    """Append so many batches at once."""
    from types import SimpleNamespace

    from rangelog_core.batch import batch_crc, check_batch
    from rangelog_server.ranges.replica import NewBatch

    first = store.replicas[key].core.end_offset if key in store.replicas else 0
    made = [batch(first + n, [SECRET * (n + 1)], stream_id=key[0], range_index=key[1]) for n in range(count)]
    message = SimpleNamespace(stream_id=key[0], range_index=key[1], epoch=1, start_offset=0, confirm_offset=0,
                              recovery=False, memory=False)  # fmt: skip
    new = [NewBatch(check_batch(data), batch_crc(data), data) for data in made]
    store.append(None, 0, message, new, b"".join(made))
    store.wal.kick()
    return made


def test_a_frame_of_several_batches_over_the_end_of_a_segment() -> None:
    """Each batch is read alone and with the others, before and after starts, moved as well; the counters fit."""
    disk, provider = LogDisk(), MemoryKeys()
    store = open_store(disk, encrypted_keys(SALT, provider))
    true: list[bytes] = []
    for _ in range(40):
        true += append_frame(store, (1, 0), 9)
    for sequence in (2, 3):
        hosted = store.replicas[1, 0]
        assert content(store, (1, 0)) == true
        for number, data in enumerate(true):
            assert read_batches(store.wal, make_plan(hosted, number, number + 1)) == [data]
        store.space.validate()
        first, last = hosted.batches_in(sequence)[0]
        last = min(last, first + 25)  # what fits where room is left
        plan = make_plan(hosted, first, last)
        assert store.space.move(hosted, plan, read_batches(store.wal, plan))
        store.wal.kick()
        store.space.validate()
        assert content(store, (1, 0)) == true
        store = restarted(store, disk, encrypted_keys(SALT, provider))


def sealed_again(content: bytearray, position: int) -> None:
    """Make both sums of an entry right for what is there now."""
    length = int.from_bytes(content[position + 8 : position + 12], "little")
    body = bytes(content[position + ENTRY_HEADER_BYTES : position + ENTRY_HEADER_BYTES + length])
    content[position + 44 : position + 48] = google_crc32c.value(body).to_bytes(4, "little")
    head = bytes(content[position : position + 48])
    content[position + 48 : position + 52] = google_crc32c.extend(SALT, head).to_bytes(4, "little")


def small_segment(provider: MemoryKeys) -> tuple[LogDisk, list[tuple[int, int]]]:
    """A segment with a few entries, and where they are."""
    disk = LogDisk()
    store = open_store(disk, encrypted_keys(SALT, provider))
    for number in range(3):
        append(store, (1, 0), b"one %d" % number, confirm_offset=number)
        append(store, (2, 0), b"two %d" % number)
    end(store, (2, 0))
    disk.settle()
    places: list[tuple[int, int]] = []
    data, position = bytes(disk.content(FIRST)), ENCRYPTED_START_BYTES
    while (header := parse_header(data, position, SALT, 1)) is not None and header.kind is not Kind.END:
        assert header.version == ENCRYPTED_VERSION
        places.append((position, header.length))
        position += ENTRY_HEADER_BYTES + header.length
    assert len(places) == 9
    return disk, places


def judged(disk: LogDisk, provider: MemoryKeys, true: dict[tuple[int, int], list[bytes]], what: str) -> bool:
    """Whether a start on a changed disk notices; whatever it serves is true, and what it calls sound is whole."""
    try:
        store = open_store(disk, encrypted_keys(SALT, provider))
    except RangelogError:
        return True
    noticed = bool(store.problems) or store.server.doubt_unknown
    for key, batches in true.items():
        hosted = store.replicas.get(key)
        if hosted is None:
            assert noticed, what
            continue
        if hosted.core.trust is DiskTrust.QUARANTINED:
            noticed = True
            continue
        for number in range(hosted.core.batch_count):
            try:
                assert read_batches(store.wal, make_plan(hosted, number, number + 1)) == [batches[number]], what
            except Corruption:
                noticed = True
        if hosted.core.trust is DiskTrust.SOUND and hosted.core.sealed_end_offset is None:
            assert hosted.core.batch_count == len(batches) or noticed, what
            assert hosted.core.confirm_offset <= 2, what
    return noticed


def test_no_byte_is_changed_unnoticed_with_right_sums() -> None:
    """Each byte of each entry, two ways, with both of its sums made right again: noticed, and nothing wrong is served."""
    provider = MemoryKeys()
    disk, places = small_segment(provider)
    store = open_store(disk.copy(), encrypted_keys(SALT, provider))
    true = {key: content(store, key) for key in store.replicas}
    for position, length in places:
        for at in range(ENTRY_HEADER_BYTES + length):
            if 44 <= at < 52:  # the sums themselves
                continue
            for mask in (0x01, 0x87):
                changed = disk.copy()
                changed.content(FIRST)[position + at] ^= mask
                if at not in range(8, 12):
                    sealed_again(changed.content(FIRST), position)
                changed.settle()
                assert judged(changed, provider, true, f"byte {at} of the entry at {position}, {mask:#x}"), (
                    position,
                    at,
                )


def test_entries_that_change_places_are_not_served() -> None:
    """Two of one size, whole; then each with the other's place in its header, and right sums."""
    provider = MemoryKeys()
    disk, places = small_segment(provider)
    true = {key: content(open_store(disk.copy(), encrypted_keys(SALT, provider)), key) for key in ((1, 0), (2, 0))}
    sizes = [(one, other) for one in places for other in places if one[1] == other[1] and one[0] < other[0]]
    assert len(sizes) > 5
    for (one, length), (other, _) in sizes:
        for renamed in (False, True):
            changed = disk.copy()
            data = changed.content(FIRST)
            size = ENTRY_HEADER_BYTES + length
            first, second = bytes(data[one : one + size]), bytes(data[other : other + size])
            data[one : one + size], data[other : other + size] = second, first
            if renamed:
                for position in (one, other):
                    data[position + 16 : position + 24] = (1 << 32 | position).to_bytes(8, "little")
                    data[position + 12 : position + 16] = bytes(4)
                    sealed_again(data, position)
            changed.settle()
            assert judged(changed, provider, true, f"{one} and {other}, {renamed}")


def test_an_entry_in_clear_among_encrypted_ones_is_damage() -> None:
    """Somebody who knows the salt writes a whole batch of their own in place of one, with right sums: the start says so."""
    provider = MemoryKeys()
    disk, places = small_segment(provider)
    forged = batch(1, [b"f" * 21], stream_id=1)  # as long as an encrypted one of five bytes
    tried = 0
    for position, length in places:
        if length != len(forged):
            continue
        changed = disk.copy()
        room = changed.content(FIRST)
        room[position + 5] = 1
        room[position + ENTRY_HEADER_BYTES : position + ENTRY_HEADER_BYTES + length] = forged
        sealed_again(room, position)
        changed.settle()
        tried += 1
        assert open_store(changed, encrypted_keys(SALT, provider)).problems, f"an entry in clear at {position}"
    assert tried == 6


def test_an_entry_does_not_become_the_end_of_the_log() -> None:
    """Its kind changed to END or NEXT, with right sums: it is damage, and what is behind it is not forgotten."""
    provider = MemoryKeys()
    disk, places = small_segment(provider)
    for position, _ in places:
        for kind in (Kind.END, Kind.NEXT):
            changed = disk.copy()
            changed.content(FIRST)[position + 4] = kind
            sealed_again(changed.content(FIRST), position)
            changed.settle()
            assert open_store(changed, encrypted_keys(SALT, provider)).problems, f"{kind} at {position}"


def test_scrubs_and_reads_find_what_was_changed_while_it_runs() -> None:
    """A tag that does not fit is Corruption, as a sum that does not fit: the replica is quarantined."""
    provider = MemoryKeys()
    disk, places = small_segment(provider)
    store = open_store(disk, encrypted_keys(SALT, provider))
    position, length = places[-2]
    disk.content(FIRST)[position + ENTRY_HEADER_BYTES + length - 1] ^= 1
    hosted = store.replicas[2, 0]
    plan = make_plan(hosted, 0, hosted.core.batch_count)
    with pytest.raises(Corruption, match="range 2/0 at offset") as found:
        read_batches(store.wal, plan, from_disk=True)
    assert not store.read_failed(hosted, found.value, 1.0, plan)
    assert hosted.core.trust is DiskTrust.QUARANTINED


def test_a_start_without_the_key_changes_nothing() -> None:
    """It is refused by the file's and the key's name, before anything is written; with the key again all is there."""
    provider = MemoryKeys()
    disk, _ = small_segment(provider)
    before = {name: bytes(disk.content(name)) for name in disk.list(Path("/log"))}
    for keys in (None, LogKeys(None, SALT, encrypt=False), encrypted_keys(SALT, MemoryKeys(["k2"]))):
        with pytest.raises(EncryptionKeyMissing, match=r"wal-0000000000000001.seg: .*'k1'"):
            open_store(disk, keys)
        assert {name: bytes(disk.content(name)) for name in disk.list(Path("/log"))} == before
    assert not open_store(disk, encrypted_keys(SALT, provider)).problems


def test_switched_on_and_off_and_on_again() -> None:
    """What was in clear stays readable beside what is encrypted, and the other way round; no start is in doubt."""
    disk, provider = LogDisk(), MemoryKeys()
    store = open_store(disk, None)
    with NonceWatch().watching() as watch:
        for turn in range(6):
            for _ in range(20):
                append(store, (1, 0), b"%d" % turn * 300)
            if turn % 2 == 0:
                assert b"%d" % turn * 300 in on_disk(disk)
            else:
                assert b"%d" % turn * 300 not in on_disk(disk)
            for _ in range(2):
                keys = encrypted_keys(SALT, provider) if turn % 2 == 0 else clear_reader(provider)
                store = restarted(store, disk, keys)
    assert watch.encrypted > 60 and not watch.problems


def test_a_log_does_not_seem_to_be_an_older_one_after_a_switch() -> None:
    """Its end, as placement drivers are told, does not go back: else they take the directory for one that was rolled back."""
    disk, provider = LogDisk(), MemoryKeys()
    told = [0]
    for turn in range(12):
        keys = encrypted_keys(SALT, provider) if turn % 3 else clear_reader(provider)
        store = open_store(disk, keys)
        told.append(store.wal.reported_end)
        assert told[-1] >= told[-2], "a start without a write"
        if turn % 4 == 3:
            append(store, (1, 0), b"x" * 200)
            told.append(store.wal.reported_end)
            assert told[-1] > told[-2]
        disk.settle()


def test_an_older_copy_of_a_disk_tells_that_it_is_one() -> None:
    """The segment that its start begins does not make its log longer than the one that is known."""
    disk, provider = LogDisk(), MemoryKeys()
    store = open_store(disk, encrypted_keys(SALT, provider))
    for base in range(3):
        append(store, (1, 0), b"x" * 200) if base else append(store, (1, 0), b"first")
        disk.settle()
        copy = disk.copy()
        append(store, (1, 0), b"y" * 200)
        known = store.wal.reported_end
        assert open_store(copy, encrypted_keys(SALT, provider)).wal.reported_end < known


def test_a_segment_of_an_earlier_start_is_never_written_to() -> None:
    """Not the last one with entries, not those that were prepared: each start begins with a key of its own."""
    disk, provider = LogDisk(), MemoryKeys()
    store = open_store(disk, encrypted_keys(SALT, provider))
    headers: set[bytes] = set()
    with NonceWatch().watching() as watch:
        for _ in range(5):
            append(store, (1, 0), b"x" * 500)
            path = store.wal.files.path(store.wal.current_sequence).name
            headers.add(bytes(disk.content(path)[:4096]))
            store = restarted(store, disk, encrypted_keys(SALT, provider))
            store = restarted(store, disk, encrypted_keys(SALT, provider))  # nothing was written to it
    assert len(headers) == 5 and not watch.problems


def test_a_full_log_starts() -> None:
    """At its capacity a server starts with one segment more, since it may not write to what it recovered."""
    disk, provider = LogDisk(), MemoryKeys()
    capacity = 3 * SEGMENT_BYTES
    store = open_store(disk, encrypted_keys(SALT, provider), capacity_bytes=capacity)
    with pytest.raises(RangelogError, match="no room in the log"):
        for _ in range(200):
            append(store, (1, 0), bytes(1000))
    before = content(store, (1, 0))
    for _ in range(3):
        store = open_store(disk, encrypted_keys(SALT, provider), capacity_bytes=capacity)
        assert not store.problems and content(store, (1, 0)) == before
    assert store.wal.used_bytes <= 4 * SEGMENT_BYTES


def test_a_damaged_header_takes_no_entry_away_while_its_copy_is_whole() -> None:
    """Both damaged: every entry is damaged by its range's name, as if each were; the server starts."""
    provider = MemoryKeys()
    disk, _ = small_segment(provider)
    one = disk.copy()
    one.content(FIRST)[:SEGMENT_HEADER_BYTES] = bytes(SEGMENT_HEADER_BYTES)
    one.settle()
    assert not open_store(one, encrypted_keys(SALT, provider)).problems
    both = disk.copy()
    both.content(FIRST)[:ENCRYPTED_START_BYTES] = bytes(ENCRYPTED_START_BYTES)
    both.settle()
    store = open_store(both, encrypted_keys(SALT, provider))
    assert store.problems and store.server.doubt_unknown


def test_a_program_of_before_refuses_an_encrypted_segment() -> None:
    """By the version behind the magic, whose sum is where it was: as release 0.x checks it."""
    disk, _ = small_segment(MemoryKeys())
    data = bytes(disk.content(FIRST)[:SEGMENT_HEADER_BYTES])
    assert data[:8] == b"RLSEG1\0\0" and int.from_bytes(data[8:12], "little") == 2
    assert google_crc32c.value(data[:28]) == int.from_bytes(data[28:32], "little")
    with pytest.raises(UnsupportedVersion, match="version 3, this program reads 1 to 2"):
        later = disk.copy()
        head = data[:8] + (3).to_bytes(4, "little") + data[12:28]
        later.content(FIRST)[:32] = head + google_crc32c.value(head).to_bytes(4, "little")
        open_store(later, encrypted_keys(SALT, MemoryKeys()))


def test_after_a_rotation_the_earlier_key_is_needed_no_more() -> None:
    """The log turns to a segment of the new key by itself, and compaction writes what is in others anew, in clear too."""
    disk, provider = LogDisk(), MemoryKeys(["k1"])
    store = open_store(disk, None)
    for _ in range(30):
        append(store, (1, 0), b"c" * 900)
    store = restarted(store, disk, encrypted_keys(SALT, provider))
    for _ in range(30):
        append(store, (2, 0), b"e" * 900)
    provider.ids.append("k2")
    store.wal.ask_key()
    for _ in range(3):
        store.turn_to_key()
    append(store, (3, 0), b"n")
    assert set(store.wal.keys_in_use()) == {"", "k1", "k2"}
    true = {key: content(store, key) for key in store.replicas}
    compaction, now_s = Compaction(store.space, 1 << 30), 0.0
    for _ in range(200):
        now_s += 100.0
        step = compaction.next(now_s)
        for part in step.parts if step else ():
            store.space.move(part.hosted, part.plan, read_batches(store.wal, part.plan))
        store.wal.kick()
        store.reclaim()
    assert set(store.wal.keys_in_use()) == {"k2"} and store.wal.stale_segments() == []
    assert {key: content(store, key) for key in store.replicas} == true
    provider.ids.remove("k1")
    restarted(store, disk, encrypted_keys(SALT, provider))


def test_a_key_turns_only_the_log_of_its_own_setting() -> None:
    """A log in clear asks for nothing, and has nothing stale."""
    store = open_store(LogDisk(), None)
    drop_all = store.wal.current_sequence
    store.wal.ask_key()
    store.turn_to_key()
    append(store, (1, 0), b"x")
    drop(store, (1, 0))
    assert store.wal.current_sequence == drop_all and store.wal.stale_segments() == []
    assert store.wal.keys_in_use() == {"": 1}


@pytest.mark.parametrize("capacity_segments", [0, 6])
def test_no_byte_in_clear_is_taken_over_into_an_encrypted_segment(capacity_segments: int) -> None:
    """Files of segments in clear are removed, also those that were free before the log was encrypted, at the capacity too."""
    disk, capacity_bytes = LogDisk(), capacity_segments * SEGMENT_BYTES
    store = open_store(disk, None, capacity_bytes=capacity_bytes)
    append(store, (1, 0), b"stays")
    for number in range(4):
        for _ in range(25):
            append(store, (2 + number, 0), SECRET * 40)
        drop(store, (2 + number, 0))
    store.reclaim()
    freed = [name for name in disk.list(Path("/log")) if name.startswith("free-")]
    assert freed and any(SECRET in disk.content(name) for name in freed)
    encrypted = open_store(disk, encrypted_keys(SALT), capacity_bytes=capacity_bytes)
    for _ in range(60):
        append(encrypted, (9, 0), b"harmless" * 100)
        files = [name for name in disk.list(Path("/log")) if not name.endswith(".idx")]
        assert not capacity_segments or len(files) <= capacity_segments + 1, files
    names = disk.list(Path("/log"))
    assert not any(name.startswith("free-") and SECRET in disk.content(name) for name in names)
    used = [bytes(disk.content(name)) for name in names if name.startswith("wal-")]
    assert not any(SECRET in data for data in used if segment_version(data) != CLEAR_SEGMENT_VERSION)


def test_a_log_at_its_capacity_does_not_grow_by_a_segment_with_each_start() -> None:
    """What a start leaves unused of the segment before it is given back; nothing is lost, and room comes back by itself."""
    disk, provider, capacity_bytes = LogDisk(), MemoryKeys(), 5 * SEGMENT_BYTES
    store = open_store(disk, encrypted_keys(SALT, provider), capacity_bytes=capacity_bytes)
    true: list[bytes] = []
    with pytest.raises(StorageFull):
        while True:
            true.append(append(store, (1, 0), b"x" * 2_000))
    for _ in range(12):
        store = open_store(disk, encrypted_keys(SALT, provider), capacity_bytes=capacity_bytes)
        true.append(append(store, (1, 0), b"one more"))
        assert not store.problems and content(store, (1, 0)) == true
        sizes = sum(len(disk.content(name)) for name in disk.list(Path("/log")) if name.endswith(".seg"))
        assert sizes == store.wal.used_bytes <= capacity_bytes + SEGMENT_BYTES + 12 * (ENCRYPTED_START_BYTES + 4096)
    drop(store, (1, 0))
    for number in range(40):
        append(store, (2 + number, 0), b"y" * 2_000)
        drop(store, (2 + number, 0))
        store.reclaim()
    assert store.wal.used_bytes <= capacity_bytes


def test_a_missing_key_leaves_free_files_as_they_are_too() -> None:
    """The start is refused before a file in clear is given up."""
    disk = LogDisk()
    store = open_store(disk, None)
    for _ in range(30):
        append(store, (1, 0), b"c" * 2_000)
    drop(store, (1, 0))
    store.reclaim()
    append(open_store(disk, encrypted_keys(SALT)), (2, 0), b"e")
    free = "free-00000000000000ff.seg"
    disk.names[free] = disk.copy().names[FIRST] if FIRST in disk.names else next(iter(disk.copy().names.values()))
    before = {name: bytes(disk.content(name)) for name in disk.list(Path("/log"))}
    with pytest.raises(EncryptionKeyMissing):
        open_store(disk, encrypted_keys(SALT, MemoryKeys(["other"])))
    assert {name: bytes(disk.content(name)) for name in disk.list(Path("/log"))} == before
