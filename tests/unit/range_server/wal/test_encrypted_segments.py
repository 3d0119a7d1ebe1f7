"""A segment's cipher and header: each position once, each place its own, whole or refused."""

from __future__ import annotations

import pytest

from rangelog_core.errors import Corruption, EncryptionKeyMissing, Unavailable
from rangelog_server.wal.encryption import (
    ENCRYPTED_START_BYTES,
    HEADER_COPY_BYTES,
    LogKeys,
    PositionUsedTwice,
    SegmentCipher,
    pack_key_header,
    unpack_key_header,
)
from rangelog_server.wal.entry import segment_version
from tests.support.log_keys import MemoryKeys, encrypted_keys

SALT = 9
START = ENCRYPTED_START_BYTES


def copies(header: bytes) -> list[bytes]:
    """Both copies of a header."""
    return [header[:HEADER_COPY_BYTES], header[HEADER_COPY_BYTES:]]


def made(keys: LogKeys) -> tuple[bytes, SegmentCipher, SegmentCipher]:
    """A segment's header, what writes it, and what reads it after a start."""
    header, writes = keys.new_segment(4, 1 << 16)
    reads = keys.open_segment(copies(header), 4)
    assert reads is not None
    return header, writes, reads


def test_what_was_encrypted_is_read_at_its_place_alone() -> None:
    """With the same place and the same header; nothing of it is in what is written."""
    _, writes, reads = made(encrypted_keys(SALT))
    body = writes.encrypt(START, b"a secret" * 9, b"header")
    assert b"a secret" not in body and len(body) == 72 + 16
    assert reads.decrypt(START, body, b"header") == b"a secret" * 9
    for position, data, bound in (
        (START + 1, body, b"header"),
        (START, body, b"Header"),
        (START, body[:-1], b"header"),
    ):
        with pytest.raises(Corruption, match="changed, or moved"):
            reads.decrypt(position, data, bound)


def test_no_position_is_encrypted_twice() -> None:
    """Not the same one, not one within what was encrypted, not one before the first entry."""
    _, writes, _ = made(encrypted_keys(SALT))
    with pytest.raises(PositionUsedTwice):
        writes.encrypt(START - 1, b"x", b"")
    writes.encrypt(START, b"four", b"")
    for position in (START, START + 1, START + 19):
        with pytest.raises(PositionUsedTwice):
            writes.encrypt(position, b"four", b"")
    writes.encrypt(START + 20, b"", b"")


def test_what_was_recovered_encrypts_no_entry() -> None:
    """Whatever the position; a sidecar of it may be written, each time with another nonce."""
    _, _, reads = made(encrypted_keys(SALT))
    for position in (0, START, 1 << 32, 1 << 40):
        with pytest.raises(PositionUsedTwice):
            reads.encrypt(position, b"x", b"")
    one, other = reads.encrypt_sidecar(b"rows", b"of 4"), reads.encrypt_sidecar(b"rows", b"of 4")
    assert one[:12] != other[:12] and one[8:12] == b"\x01\0\0\0"
    assert reads.decrypt_sidecar(one, b"of 4") == reads.decrypt_sidecar(other, b"of 4") == b"rows"
    assert reads.decrypt_sidecar(one, b"of 5") is None and reads.decrypt_sidecar(one[:11], b"of 4") is None
    assert reads.decrypt_sidecar(one[:8] + bytes(4) + one[12:], b"of 4") is None, "a nonce of entries"


def test_each_segment_has_its_own_key() -> None:
    """The provider is asked for the first one, and then only which key is current."""
    provider = MemoryKeys()
    keys = encrypted_keys(SALT, provider)
    _, one, _ = made(keys)
    asked = provider.asked
    _, other, reads_other = made(keys)
    assert one.encrypt(START, b"same", b"") != (second := other.encrypt(START, b"same", b""))
    assert reads_other.decrypt(START, second, b"") == b"same"
    assert provider.asked == asked + 1
    again = encrypted_keys(SALT, provider)
    header, _, _ = made(again)
    asked = provider.asked
    for _ in range(5):
        assert again.open_segment(copies(header), 4) is not None
    assert provider.asked == asked


def test_every_byte_of_a_header_counts_and_the_copy_stands_in() -> None:
    """One copy damaged anywhere: the other is used. Both: the segment is damaged, which is no missing key."""
    keys = encrypted_keys(SALT)
    header, _, _ = made(keys)
    used = len(header[:HEADER_COPY_BYTES].rstrip(b"\0"))
    for position in range(used):
        changed = bytearray(header[:HEADER_COPY_BYTES])
        changed[position] ^= 0x41
        damaged = bytes(changed)
        assert unpack_key_header(damaged, SALT) is None
        assert keys.open_segment([damaged, header[HEADER_COPY_BYTES:]], 4) is not None
        assert keys.open_segment([header[:HEADER_COPY_BYTES], damaged], 4) is not None
        assert keys.open_segment([damaged, damaged], 4) is None
    assert keys.open_segment(copies(header), 5) is None, "of another segment"
    assert unpack_key_header(header, SALT + 1) is None, "of another log"
    assert segment_version(header) == 2


def test_a_key_that_is_missing_is_no_damage() -> None:
    """Without keys, without this key, with one that does not answer: an error that says so."""
    provider = MemoryKeys(["k7"])
    header, _, _ = made(encrypted_keys(SALT, provider))
    with pytest.raises(EncryptionKeyMissing, match="'k7', and this server has no keys: set log_keys_dir"):
        LogKeys(None, SALT, encrypt=False).open_segment(copies(header), 4)
    with pytest.raises(EncryptionKeyMissing, match="k7"):
        encrypted_keys(SALT, MemoryKeys(["k8"])).open_segment(copies(header), 4)
    provider.refuse = Unavailable("it does not answer")
    with pytest.raises(Unavailable):
        encrypted_keys(SALT, provider).open_segment(copies(header), 4)


def test_a_rotation_counts_for_the_next_segment_and_a_silent_provider_for_none() -> None:
    """An earlier key goes on being used while it cannot be known whether another is current, which is told."""
    provider = MemoryKeys(["k1"])
    keys = encrypted_keys(SALT, provider)
    assert keys.key_id == "" and made(keys)[1].key_id == "k1" == keys.key_id
    provider.ids.append("k2")
    assert made(keys)[1].key_id == "k2"
    provider.refuse = Unavailable("it does not answer")
    assert made(keys)[1].key_id == "k2" and keys.problem == "it does not answer"
    provider.refuse = None
    keys.refresh()
    assert not keys.problem


def test_a_first_start_needs_the_provider() -> None:
    """Nothing is written under a key that nobody wrapped."""
    provider = MemoryKeys(refuse=Unavailable("it does not answer"))
    with pytest.raises(Unavailable):
        encrypted_keys(SALT, provider).new_segment(1, 1 << 16)


def test_a_wrapped_key_that_does_not_fit_is_refused() -> None:
    """A header is one block."""
    pack_key_header(SALT, 1, 1 << 16, "k", bytes(3900), lambda head: bytes(60))
    with pytest.raises(Corruption, match="no room"):
        pack_key_header(SALT, 1, 1 << 16, "k", bytes(4000), lambda head: bytes(60))
