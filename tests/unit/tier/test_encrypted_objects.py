"""Encrypted objects: the same rows come out, nothing of them is in clear, damage is corruption, a missing key has a name."""

from __future__ import annotations

import gc
import os
import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core.batch import encode_batch, encode_headers
from rangelog_core.errors import Corruption, EncryptionKeyMissing
from rangelog_core.object_keys import object_key
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2
from rangelog_tier import open_object_store
from rangelog_tier.encryption_keys import KeyDirectory
from rangelog_tier.object_cipher import ObjectCipher, cipher_of, is_encrypted, key_id_of
from rangelog_tier.object_store import ObjectStore
from rangelog_tier.parquet import write_object
from rangelog_tier.repacking import Repack, write_repacked
from rangelog_tier.restore.describing import describe

SECRETS = (b"the-value-nobody-reads", b"the-key-nobody-reads", b"the-header-nobody-reads", b"the-stream-nobody-reads")


class Tier:
    """A tier with a directory of keys."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys = KeyDirectory(str(directory / "keys"))
        self.keys.make_key("k1")
        self.url = f"file://{directory / 'tier'}"
        self.store = self.opened(create=True)

    def opened(self, keys: KeyDirectory | None = None, *, create: bool = False) -> ObjectStore:
        """The tier, by a program that has just started."""
        return open_object_store(self.url, create=create, keys=keys or self.keys)

    def write(self, start: int, end: int, *, object_id: int = 1, clear: bool = False) -> common_pb2.Object:
        """Write and store one object; return what the placement driver knows of it."""
        key = object_key(1, 0, start, end, object_id)
        path = self.directory / "object"
        batches = [batch_of(first, min(first + 10, end)) for first in range(start, end, 10)]
        written = write_object(
            path, iter(batches), stream_id=1, stream_name="the-stream-nobody-reads", range_index=0, epoch=2,
            start_offset=start, end_offset=end, object_id=object_id, cipher=None if clear else cipher_of(self.store),
        )  # fmt: skip
        assert written.encryption_key_id == ("" if clear else self.keys.current())
        self.store.put_if_absent(key, path)
        return common_pb2.Object(
            object_id=object_id, stream_id=1, epoch=2, start_offset=start, end_offset=end, key=key,
            size_bytes=written.size_bytes, digest=written.digest, row_groups=written.row_groups,
            footer_size_bytes=written.footer_size_bytes, footer_crc=written.footer_crc,
        )  # fmt: skip

    def path_of(self, described: common_pb2.Object) -> Path:
        """Where an object lies."""
        return self.directory / "tier" / described.key


def batch_of(start: int, end: int) -> bytes:
    """Records whose every part can be looked for."""
    offsets = range(start, end)
    return encode_batch(
        stream_id=1, range_index=0, epoch=2, base_offset=start, timestamps_ms=[1_000 + each for each in offsets],
        values=[SECRETS[0] + b" %d" % each for each in offsets], keys=[SECRETS[1]] * len(offsets),
        headers=[encode_headers({"h": SECRETS[2]})] * len(offsets),
    )  # fmt: skip


def wide_batch(start: int) -> bytes:
    """A hundred records that do not compress, of 5 MB."""
    return encode_batch(
        stream_id=1, range_index=0, epoch=2, base_offset=start, timestamps_ms=[1] * 100,
        values=[os.urandom(50_000) + SECRETS[0]] * 100,
    )  # fmt: skip


def read(store: ObjectStore, described: common_pb2.Object, start: int = 0, end: int = 1 << 40) -> list[Record]:
    """The records of an object."""
    return [each for table in read_object(store, described, start, end) for each in records_from_arrow(table)]


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """A tier with one key."""
    return Tier(tmp_path)


def test_round_trip_and_nothing_in_clear(tier: Tier) -> None:
    """By ranges of bytes, as each reader reads; neither rows nor names are in the object."""
    described = tier.write(100, 160)
    found = read(tier.opened(), described, 115, 145)
    assert [each.offset for each in found] == list(range(115, 145))
    assert (
        found[0].value == SECRETS[0] + b" 115" and found[0].key == SECRETS[1] and found[0].headers == {"h": SECRETS[2]}
    )
    data = tier.path_of(described).read_bytes()
    assert not [each for each in SECRETS if each in data] and is_encrypted(data)
    clear = tier.path_of(tier.write(200, 260, object_id=2, clear=True)).read_bytes()
    assert len([each for each in SECRETS if each in clear]) > 1, "these would have been found"


def test_objects_in_clear_are_read_with_keys_too(tier: Tier) -> None:
    """Those from before encryption was turned on."""
    assert len(read(tier.opened(), tier.write(0, 30, clear=True))) == 30


def test_every_damage_is_found(tier: Tier) -> None:
    """A bit of any byte (wrapped key, footer, nonces, pages, tags) or a cut: Corruption, never other records."""
    described = tier.write(100, 130)
    path = tier.path_of(described)
    good = path.read_bytes()
    store = tier.opened()
    chance = random.Random(1)
    for position in range(4, len(good), 3):  # nobody looks at the leading magic
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << chance.randrange(8)]) + good[position + 1 :])
        with pytest.raises(Corruption):
            read(store, described)
    for length in range(0, len(good), 97):
        path.write_bytes(good[:length])
        with pytest.raises(Corruption):
            read(store, described)
    path.write_bytes(good)
    assert len(read(store, described)) == 30


def test_damage_is_found_without_checksums_of_ours(tier: Tier) -> None:
    """The tags of AES-GCM protect by themselves: whoever can also change our checksums changes nothing unseen."""
    described = tier.write(100, 130)
    path = tier.path_of(described)
    good = path.read_bytes()
    cipher = cipher_of(tier.opened())
    assert cipher is not None
    reference = pq.read_table(path, decryption_properties=cipher.for_reading())
    unseen = []
    for position in range(4, len(good) - 8, 5):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        try:
            found = pq.ParquetFile(path, decryption_properties=ObjectCipher(tier.keys).for_reading()).read()
        except Exception:  # whatever Parquet says
            continue
        if not found.equals(reference):
            unseen.append(position)
    assert not unseen


def test_a_row_group_of_another_object_is_refused(tier: Tier) -> None:
    """Also with the data key of a process that wrote both, and by Parquet alone: each file has an identity of its own."""
    found: dict[int, common_pb2.Object] = {}
    for object_id in range(1, 100):  # a page's checksum has one byte more or less: there are few sizes
        other = tier.write(100, 130, object_id=object_id)
        second = tier.path_of(other).read_bytes()
        body = len(second) - other.footer_size_bytes
        one = found.setdefault(body, other)
        if one is not other:
            break
    else:
        raise AssertionError("no two objects are of one size")
    first = tier.path_of(one).read_bytes()
    tier.path_of(one).write_bytes(second[:body] + first[body:])
    with pytest.raises(Corruption):
        read(tier.opened(), one)
    with pytest.raises(Exception):  # noqa: B017
        pq.read_table(tier.path_of(one), decryption_properties=ObjectCipher(tier.keys).for_reading())


def test_missing_keys_have_a_name(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys, without this key, with another key under its id: one error, which names it; and it is not damage."""
    described = tier.write(0, 30)
    monkeypatch.delenv("RANGELOG_ENCRYPTION_KEYS_DIR", raising=False)
    with pytest.raises(EncryptionKeyMissing, match=f"object {described.key} is encrypted with key 'k1'"):
        read(open_object_store(tier.url), described)
    other = KeyDirectory(str(tier.directory / "other"))
    other.make_key("k2")
    with pytest.raises(EncryptionKeyMissing, match="'k1'"):
        read(tier.opened(other), described)
    other.make_key("k1")
    with pytest.raises(EncryptionKeyMissing, match=r"'k1' in .* is not the key that was used"):
        read(tier.opened(other), described)
    monkeypatch.setenv("RANGELOG_ENCRYPTION_KEYS_DIR", tier.keys.path)
    assert len(read(open_object_store(tier.url), described)) == 30


def test_new_objects_use_the_newest_key_at_once(tier: Tier) -> None:
    """Earlier ones need their own until they are written anew."""
    first = tier.write(0, 30)
    tier.keys.make_key("k2")
    second = tier.write(30, 60, object_id=2)
    data = [tier.path_of(each).read_bytes()[-each.footer_size_bytes :] for each in (first, second)]
    assert [key_id_of(each) for each in data] == ["k1", "k2"]
    (Path(tier.keys.path) / "k1.key").unlink()
    store = tier.opened()
    assert len(read(store, second)) == 30
    with pytest.raises(EncryptionKeyMissing, match="'k1'"):
        read(store, first)


def test_a_half_copied_key_stops_uploads_and_not_reads(tier: Tier) -> None:
    """What is written waits for it: an earlier key is not used in silence."""
    described = tier.write(0, 30)
    (Path(tier.keys.path) / "k2.key").write_bytes(bytes(7))
    (Path(tier.keys.path) / "k2.key").chmod(0o600)
    with pytest.raises(EncryptionKeyMissing, match="'k2'"):
        tier.write(30, 60, object_id=2)
    assert len(read(tier.opened(), described)) == 30


def test_a_repack_encrypts_with_the_newest_key(tier: Tier) -> None:
    """Whatever was read: one object of an earlier key, one in clear."""
    objects = [tier.write(0, 30), tier.write(30, 60, object_id=2, clear=True)]
    tier.keys.make_key("k2")
    prepared = common_pb2.Object(object_id=9, stream_id=1, epoch=2, start_offset=0, end_offset=60)
    path = tier.directory / "repacked"
    written = write_repacked(path, tier.opened(), Repack(1, "s", objects, "0/2/0"), prepared)
    data = path.read_bytes()
    assert written.encryption_key_id == "k2" == key_id_of(data[-written.footer_size_bytes :])
    assert not [each for each in SECRETS if each in data]


def test_no_file_in_clear_while_it_is_written(tier: Tier) -> None:
    """Neither at the object's own path nor at one beside it: a server that is killed leaves nothing readable."""
    seen: set[str] = set()

    def batches(*, looked: bool) -> Iterator[bytes]:
        for first in range(0, 2_000, 100):
            for path in tier.directory.rglob("*") if looked else ():
                if path.is_file() and path.suffix != ".key":
                    seen.add(path.name)
                    assert SECRETS[0] not in path.read_bytes()
            yield wide_batch(first)

    path = tier.directory / "big"
    written = write_object(
        path, batches(looked=True), stream_id=1, stream_name="s", range_index=0, epoch=2, start_offset=0, end_offset=2_000,
        cipher=cipher_of(tier.store),
    )  # fmt: skip
    assert "big" in seen and len(written.row_groups) > 2
    assert SECRETS[0] not in path.read_bytes()
    clear = write_object(path, batches(looked=False), stream_id=1, stream_name="s", range_index=0, epoch=2, start_offset=0,
                         end_offset=1_000)  # fmt: skip
    assert clear.size_bytes and SECRETS[0] in path.read_bytes(), "the values do not compress: they would be found"


def test_a_restore_reads_them(tier: Tier) -> None:
    """An object tells what a commit has told, to who has the key."""
    described = tier.write(100, 160)
    found = describe(tier.opened(), described.key, described.size_bytes, whole=True)
    assert found.stream == "the-stream-nobody-reads"
    assert (found.found.digest, found.found.start_offset) == (described.digest, 100)
    assert list(found.found.row_groups) == list(described.row_groups)
    assert found.found.encryption_key_id == "k1"
    with pytest.raises(EncryptionKeyMissing, match="'k1'"):  # a restore ends with it, and passes nothing over
        describe(open_object_store(tier.url), described.key, described.size_bytes, whole=True)


def test_the_provider_is_asked_once(tier: Tier) -> None:
    """In ten minutes, per process and key: a key service with a price for each call is not asked for each object."""
    asked: list[str] = []

    class Counting:
        def current(self) -> str:
            return "k1"

        def wrap(self, key_id: str, data_key: bytes) -> bytes:
            asked.append("wrap")
            return tier.keys.wrap(key_id, data_key)

        def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
            asked.append("unwrap")
            return tier.keys.unwrap(key_id, wrapped)

    tier.store = open_object_store(tier.url, keys=Counting())
    objects = [tier.write(each, each + 10, object_id=each + 1) for each in range(0, 50, 10)]
    keys = Counting()
    reader = open_object_store(tier.url, keys=keys)
    for each in objects:
        read(reader, each)
        earlier, reader = reader, open_object_store(tier.url, keys=keys)  # as the check of the tier does
        assert cipher_of(earlier) is cipher_of(reader)
    assert asked == ["wrap", "unwrap"]


def test_threads_share_a_store(tier: Tier) -> None:
    """Readers of one client read on several threads."""
    objects = [tier.write(each, each + 10, object_id=each + 1) for each in range(0, 80, 10)]
    store, found = tier.opened(), []

    def work() -> None:
        found.extend(len(read(store, each)) for each in objects)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert found == [10] * 32


def test_a_closed_store_leaves_no_cipher(tier: Tier) -> None:
    """Keys are not kept longer than their store."""
    cipher = cipher_of(tier.store)
    assert cipher is not None and cipher is cipher_of(tier.opened())
    gone = weakref.ref(cipher)
    tier.store = None  # type: ignore[assignment]
    del cipher
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("footer", [b"", b"PARE", b'{"keyMaterialType"', b'{"keyMaterialType":"PKMT1","masterKeyID":7}',
                                    b'{"keyMaterialType":' + b"[" * 50_000, b'{"keyMaterialType":"\xff"}PARE'])  # fmt: skip
def test_a_footer_that_names_no_key(footer: bytes) -> None:
    """Whatever bytes are there."""
    assert key_id_of(footer) == ""
