"""A file encrypted as a whole, for what is in the tier beside objects: a placement driver's snapshots name all streams.

What holds: each file has a data key of its own, wrapped by a key of a KeyProvider, whose id stands in clear at the begin.
Pieces of 1 MiB are encrypted and authenticated one by one by AES-256-GCM, with their number and whether they are the last: what
is cut, swapped, added or changed is Corruption. A missing key is EncryptionKeyMissing, as everywhere.

File: magic 8, size of the key's id u16, size of the wrapped key u16, both; then the pieces, each with its tag of 16 bytes.
Little endian. A piece's nonce is its number (u64) and 1 for the last one (u32), its associated data all before the pieces.
"""

from __future__ import annotations

import io
import os
import struct
from typing import TYPE_CHECKING, BinaryIO

from rangelog_core.errors import Corruption, EncryptionKeyMissing
from rangelog_core.limits import MIB
from rangelog_tier.encryption_keys import aes_gcm

if TYPE_CHECKING:
    from rangelog_tier.encryption_keys import KeyProvider

MAGIC = b"RLENCRY1"
PIECE_BYTES = MIB
_START = struct.Struct("<8sHH")
_NONCE = struct.Struct("<QI")
_TAG_BYTES = 16
_DATA_KEY_BYTES = 32


def encrypt_file(source: BinaryIO, target: BinaryIO, keys: KeyProvider) -> int:
    """Write what `source` has from its position on to `target`, encrypted by the current key; return the size.

    Raises EncryptionKeyMissing, AccessDenied, Unavailable: there is no key to encrypt with; MissingExtra.
    """
    data_key = os.urandom(_DATA_KEY_BYTES)
    key_id = keys.current()
    wrapped = keys.wrap(key_id, data_key)
    named = key_id.encode()
    head = _START.pack(MAGIC, len(named), len(wrapped)) + named + wrapped
    target.write(head)
    cipher, size, number = aes_gcm(data_key), len(head), 0
    piece = source.read(PIECE_BYTES)
    while True:
        following = source.read(PIECE_BYTES) if piece else b""
        size += target.write(cipher.encrypt(_NONCE.pack(number, not following), piece, head))
        if not following:
            return size
        piece, number = following, number + 1


def decrypt(data: bytes, keys: KeyProvider | None, *, source: str) -> bytes:
    """Return what was encrypted; `data` that is no encrypted file is returned as it is. `source`: its name, for errors.

    Raises EncryptionKeyMissing, Corruption, AccessDenied, Unavailable.

    Example:
        >>> decrypt(b"in clear", None, source="a file")
        b'in clear'
    """
    if not data.startswith(MAGIC):
        return data
    if len(data) < _START.size:
        raise Corruption(f"{source}: the begin of an encrypted file is cut")
    _, id_size, wrapped_size = _START.unpack_from(data)
    body = _START.size + id_size + wrapped_size
    key_id = data[_START.size : _START.size + id_size].decode("utf-8", "replace")
    if body > len(data):
        raise Corruption(f"{source}: the begin of an encrypted file is cut")
    if keys is None:
        raise EncryptionKeyMissing(
            f"{source} is encrypted with key {key_id!r}, and this program has no keys: set RANGELOG_ENCRYPTION_KEYS_DIR or "
            "RANGELOG_ENCRYPTION_KMS_KEY_ID"
        )
    data_key = keys.unwrap(key_id, data[_START.size + id_size : body])
    if len(data_key) != _DATA_KEY_BYTES:
        raise Corruption(f"{source}: its data key has {len(data_key)} bytes")
    return _pieces(data, body, data_key, source)


def _pieces(data: bytes, body: int, data_key: bytes, source: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    cipher, head, whole = aes_gcm(data_key), data[:body], io.BytesIO()
    step = PIECE_BYTES + _TAG_BYTES
    for number, begin in enumerate(range(body, max(len(data), body + 1), step)):
        last = begin + step >= len(data)
        try:
            whole.write(cipher.decrypt(_NONCE.pack(number, last), data[begin : begin + step], head))
        except InvalidTag:
            raise Corruption(f"{source}: it was changed or cut after it was encrypted") from None
    return whole.getvalue()
