"""Encryption of segments: the header that has a segment's key, the cipher of its entries, and the keys of a log.

    header, version 2, at 0 and once more at 4096; entries begin at 8192:
    magic 8 · version u32 · segment size u32 · sequence u64 · extension bytes u32 · crc32c u32 (of these, as in version 1)
    · size of the key's id u16 · size of the wrapped key u16 · id · wrapped key · nonce 12 · data key and tag 48
    · crc32c u32 (of all before it, from the log's salt)

What holds: each segment has a random data key, which a key of this process encrypts, which the provider's key wraps: so the
provider is asked at a start and at a new key, never for an entry. The nonce of an entry is its position in the segment and
a cipher encrypts at rising positions only, once each. A cipher that was read from a header does not encrypt entries at all:
what is recovered is never appended to. A sidecar has a random nonce with another last word. No message holds a key.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import google_crc32c

from rangelog_core.errors import Corruption, EncryptionKeyMissing, RangelogError
from rangelog_server.wal.entry import (
    ENCRYPTED_SEGMENT_VERSION,
    SEGMENT_HEADER_BYTES,
    pack_segment_head,
    segment_version,
)
from rangelog_tier.encryption_keys import aes_gcm

if TYPE_CHECKING:
    from rangelog_tier.encryption_keys import KeyProvider

HEADER_COPY_BYTES = 4096
"""Of each of the two copies of the header: damage to one block takes no key away."""
ENCRYPTED_START_BYTES = 2 * HEADER_COPY_BYTES
"""Where the entries of an encrypted segment begin."""
_SIZES = struct.Struct("<HH")
_CRC = struct.Struct("<I")
_NONCE = struct.Struct("<QI")
_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
_SEALED_BYTES = _NONCE_BYTES + _KEY_BYTES + _TAG_BYTES
_SIDECAR_NONCES = 1
_NEVER = 1 << 62
Random = Callable[[int], bytes]


class PositionUsedTwice(OSError):
    """A position was to be encrypted twice under one key: a mistake of this program, which ends it as a failed disk does."""


class SegmentCipher:
    """Encrypts and decrypts what one segment has, under its data key. `next_position`: the first that may be encrypted."""

    __slots__ = ("_aead", "_next_position", "_random", "_refused", "key_id")

    def __init__(self, data_key: bytes, key_id: str, random: Random, *, next_position: int) -> None:
        from cryptography.exceptions import InvalidTag

        self._aead: Any = aes_gcm(data_key)
        self._refused = InvalidTag
        self._random = random
        self._next_position = next_position
        self.key_id = key_id
        """Of the provider's key."""

    def encrypt(self, position: int, data: bytes, bound: bytes) -> bytes:
        """Return an entry's body, encrypted with its tag. Raises PositionUsedTwice."""
        if position < self._next_position:
            raise PositionUsedTwice(
                errno.EIO, f"position {position} of a segment was encrypted already, or before a start"
            )
        self._next_position = position + len(data) + _TAG_BYTES
        return bytes(self._aead.encrypt(_NONCE.pack(position, 0), data, bound))

    def decrypt(self, position: int, body: bytes | memoryview, bound: bytes) -> bytes:
        """Return what was encrypted at a position with the same bound bytes. Raises Corruption."""
        try:
            return bytes(self._aead.decrypt(_NONCE.pack(position, 0), body, bound))
        except self._refused:
            raise Corruption("an encrypted entry was changed, or moved from its place") from None

    def encrypt_sidecar(self, data: bytes, bound: bytes) -> bytes:
        """Return a sidecar, encrypted: its nonce, then the rest."""
        nonce: bytes = self._random(8) + _CRC.pack(_SIDECAR_NONCES)
        sealed: bytes = self._aead.encrypt(nonce, data, bound)
        return nonce + sealed

    def decrypt_sidecar(self, data: bytes, bound: bytes) -> bytes | None:
        """Return a sidecar; None where it was changed."""
        nonce = data[:_NONCE_BYTES]
        if len(nonce) < _NONCE_BYTES or nonce[8:] != _CRC.pack(_SIDECAR_NONCES):
            return None
        try:
            return bytes(self._aead.decrypt(nonce, data[_NONCE_BYTES:], bound))
        except self._refused:
            return None


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """The key in the header of a segment. `wrapped`: the process's key, as the provider's key wraps it."""

    head: bytes
    key_id: str
    wrapped: bytes
    sealed: bytes


def pack_key_header(
    salt: int, sequence: int, segment_bytes: int, key_id: str, wrapped: bytes, seal: Callable[[bytes], bytes]
) -> bytes:
    """Return both copies of a header; `seal(head)` returns the encrypted data key. Raises Corruption: a key too long."""
    named = key_id.encode()
    size = _SIZES.size + len(named) + len(wrapped) + _SEALED_BYTES
    if SEGMENT_HEADER_BYTES + size + _CRC.size > HEADER_COPY_BYTES:
        raise Corruption(f"the header of a segment has no room for what encryption key {key_id[:100]!r} wraps")
    head = pack_segment_head(sequence, segment_bytes, ENCRYPTED_SEGMENT_VERSION, size)
    whole: bytes = head + _SIZES.pack(len(named), len(wrapped)) + named + wrapped + seal(head)
    whole += _CRC.pack(google_crc32c.extend(salt, whole))
    padded: bytes = whole.ljust(HEADER_COPY_BYTES, b"\0")
    return padded * 2


def unpack_key_header(data: bytes, salt: int) -> WrappedKey | None:
    """Return what one copy of a header has; None where it is damaged, or of a segment in clear."""
    if segment_version(data) != ENCRYPTED_SEGMENT_VERSION:
        return None
    size = int.from_bytes(data[24:28], "little")
    end, begin = SEGMENT_HEADER_BYTES + size, SEGMENT_HEADER_BYTES + _SIZES.size
    if size < _SIZES.size or end + _CRC.size > min(len(data), HEADER_COPY_BYTES):
        return None
    if google_crc32c.extend(salt, data[:end]) != _CRC.unpack_from(data, end)[0]:
        return None
    id_size, wrapped_size = _SIZES.unpack_from(data, SEGMENT_HEADER_BYTES)
    if begin + id_size + wrapped_size + _SEALED_BYTES != end:
        return None
    sealed = begin + id_size + wrapped_size
    key_id = data[begin : begin + id_size].decode("utf-8", "replace")
    return WrappedKey(data[:SEGMENT_HEADER_BYTES], key_id, data[begin + id_size : sealed], data[sealed:end])


class LogKeys:
    """The keys of one log. Blocking: for a start, and for the thread that prepares segments.

    `keys` None: the server has none, so encrypted segments are refused. `encrypt`: new segments are encrypted. `random`: what
    returns so many random bytes.
    """

    def __init__(self, keys: KeyProvider | None, salt: int, *, encrypt: bool, random: Random = os.urandom) -> None:
        self._keys = keys
        self._random = random
        self._salt = salt
        self.encrypt = encrypt and keys is not None
        self.problem = ""
        """Why the current key could not be asked for: an earlier one goes on being used."""
        self._known: dict[tuple[str, bytes], Any] = {}
        self._current: tuple[str, bytes, Any] | None = None

    @property
    def key_id(self) -> str:
        """The id of the key of new segments, as it was asked for last; "": they are in clear."""
        return self._current[0] if self._current is not None and self.encrypt else ""

    def refresh(self) -> None:
        """Ask whether another key is current; a failure is noted in `problem`, and changes nothing."""
        with suppress(RangelogError):
            self._turn_to_current()

    def new_segment(self, sequence: int, segment_bytes: int) -> tuple[bytes, SegmentCipher]:
        """Return header and cipher of a new segment. Raises EncryptionKeyMissing, AccessDenied, Unavailable: at a start."""
        key_id, wrapped, process_key = self._turn_to_current()
        data_key = self._random(_KEY_BYTES)

        def seal(head: bytes) -> bytes:
            nonce = self._random(_NONCE_BYTES)
            sealed: bytes = process_key.encrypt(nonce, data_key, self._bound(head))
            return nonce + sealed

        header = pack_key_header(self._salt, sequence, segment_bytes, key_id, wrapped, seal)
        return header, SegmentCipher(data_key, key_id, self._random, next_position=ENCRYPTED_START_BYTES)

    def open_segment(self, copies: list[bytes], sequence: int) -> SegmentCipher | None:
        """Return the cipher that reads a segment with these copies of its header; None: it is in clear, or all are damaged.

        Raises EncryptionKeyMissing, AccessDenied, Unavailable: what the segment has cannot be known.
        """
        refused: RangelogError | None = None
        for data in copies:
            found = unpack_key_header(data, self._salt)
            if found is None or int.from_bytes(found.head[16:24], "little") != sequence:
                continue
            try:
                return self._open(found)
            except Corruption:
                continue
            except RangelogError as error:
                refused = error
        if refused is not None:
            raise refused
        return None

    def _open(self, found: WrappedKey) -> SegmentCipher:
        known = self._known.get((found.key_id, found.wrapped))
        if known is None:
            if self._keys is None:
                raise EncryptionKeyMissing(
                    f"it is encrypted with key {found.key_id!r}, and this server has no keys: set log_keys_dir, "
                    "encryption_keys_dir or encryption_kms_key_id as before"
                )
            process_key = self._keys.unwrap(found.key_id, found.wrapped)
            if len(process_key) != _KEY_BYTES:
                raise Corruption("a wrapped key of another size")
            known = self._known[found.key_id, found.wrapped] = aes_gcm(process_key)
        from cryptography.exceptions import InvalidTag

        try:
            nonce, rest = found.sealed[:_NONCE_BYTES], found.sealed[_NONCE_BYTES:]
            data_key = bytes(known.decrypt(nonce, rest, self._bound(found.head)))
        except InvalidTag:
            raise Corruption("the data key of a segment was changed") from None
        return SegmentCipher(data_key, found.key_id, self._random, next_position=_NEVER)

    def _bound(self, head: bytes) -> bytes:
        return self._salt.to_bytes(4, "little") + head

    def _turn_to_current(self) -> tuple[str, bytes, Any]:
        """Return (id, wrapped, cipher) of this process's key, a new one where the provider's current key is another."""
        if self._keys is None:
            raise EncryptionKeyMissing("the log is to be encrypted, and this server has no keys")
        try:
            key_id = self._keys.current()
            if self._current is None or self._current[0] != key_id:
                process_key = self._random(_KEY_BYTES)
                self._current = (key_id, self._keys.wrap(key_id, process_key), aes_gcm(process_key))
            self.problem = ""
        except RangelogError as error:
            if self._current is None:
                raise
            self.problem = error.message
        return self._current
