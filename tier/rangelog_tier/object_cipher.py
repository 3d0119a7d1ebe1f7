"""Encryption of tiered objects: Parquet Modular Encryption, with keys of a KeyProvider.

What holds: every module of an encrypted object, its footer included, is encrypted and authenticated by AES-256-GCM with a data
key of its own, so no column, statistic or metadata of it is in clear. In clear is, ahead of the footer, the data key as it is
wrapped: by a key that the objects of one process share for ten minutes, and this one by the provider's key, whose id is named.
So the provider is asked once in ten minutes per process, and programs with Parquet's key tools (parquet-java, pyarrow) read
the object with the same keys.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import weakref
from datetime import timedelta
from typing import Any

import pyarrow.parquet.encryption as pe

from rangelog_core.errors import Corruption, EncryptionKeyMissing, MissingExtra
from rangelog_tier.encryption_keys import KeyProvider, keys_of
from rangelog_tier.object_store import ObjectStore

ENCRYPTED_MAGIC = b"PARE"
"""The first and last bytes of a Parquet file whose footer is encrypted."""
CACHE_LIFETIME = timedelta(minutes=10)
"""So long a process uses an unwrapped key without asking the provider again: also one that was taken away."""
_MATERIAL = b'{"keyMaterialType"'
_MATERIAL_BYTES_MAX = 64 * 1024


class _Kms(pe.KmsClient):  # type: ignore[misc]
    """The interface that Parquet's key tools call."""

    def __init__(self, keys: KeyProvider) -> None:
        super().__init__()
        self._keys = keys

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(self._keys.wrap(master_key_identifier, key_bytes)).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        try:
            wrapped = base64.b64decode(wrapped_key, validate=True)
        except (binascii.Error, ValueError):
            raise Corruption(f"a data key that encryption key {master_key_identifier!r} wraps was changed") from None
        return self._keys.unwrap(master_key_identifier, wrapped)


class ObjectCipher:
    """Gives Parquet's writers and readers the keys of a provider. Safe to use from several threads."""

    def __init__(self, keys: KeyProvider) -> None:
        self.keys = keys
        self._factory = pe.CryptoFactory(lambda _connection: _Kms(keys))
        self._connection = pe.KmsConnectionConfig()

    def for_writing(self) -> tuple[str, Any]:
        """Return the id of the current key, and the properties of a new file. Raises EncryptionKeyMissing, Unavailable."""
        key_id = self.keys.current()
        try:
            configured = pe.EncryptionConfiguration(
                key_id,
                uniform_encryption=True,
                encryption_algorithm="AES_GCM_V1",
                plaintext_footer=False,
                double_wrapping=True,
                cache_lifetime=CACHE_LIFETIME,
                internal_key_material=True,
                data_key_length_bits=256,
            )
        except TypeError as error:
            raise MissingExtra("encrypted objects need a later pyarrow: pip install -U 'rangelog[tier]'") from error
        return key_id, self._factory.file_encryption_properties(self._connection, configured)

    def check_key(self) -> None:
        """Do nothing if a file can be encrypted now. Raises EncryptionKeyMissing, AccessDenied, Unavailable."""
        self.for_writing()

    def for_reading(self) -> Any:
        """Return the properties to open a file with."""
        configured = pe.DecryptionConfiguration(cache_lifetime=CACHE_LIFETIME)
        return self._factory.file_decryption_properties(self._connection, configured)


_ciphers: weakref.WeakKeyDictionary[ObjectStore, ObjectCipher] = weakref.WeakKeyDictionary()
_of_keys: weakref.WeakValueDictionary[KeyProvider, ObjectCipher] = weakref.WeakValueDictionary()
_ciphers_lock = threading.Lock()


def cipher_of(store: ObjectStore) -> ObjectCipher | None:
    """Return the cipher of a store's objects, by the keys that it was opened with; None: it was opened without keys.

    Stores with the same keys share it, so a tier that is opened again and again (its check does) asks for no key again.
    """
    keys = keys_of(store)
    if keys is None:
        return None
    with _ciphers_lock:
        found = _ciphers.get(store)
        if found is None:
            found = _of_keys.get(keys)
            if found is None:
                found = _of_keys[keys] = ObjectCipher(keys)
            _ciphers[store] = found
        return found


def is_encrypted(footer: bytes | memoryview) -> bool:
    """Whether these last bytes of a file are those of an encrypted one."""
    return bytes(footer[-len(ENCRYPTED_MAGIC) :]) == ENCRYPTED_MAGIC


def key_id_of(footer: bytes) -> str:
    """Return the id of the key that an encrypted footer names, "" where it names none."""
    head = footer[:_MATERIAL_BYTES_MAX]
    start = head.find(_MATERIAL)
    if start < 0:
        return ""
    text = head[start:].decode("utf-8", "replace")
    try:
        told, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return ""
    found = told.get("masterKeyID", "")
    return found if isinstance(found, str) else ""


def properties_to_read(cipher: ObjectCipher | None, footer: bytes, what: str) -> Any:
    """Return the properties to open a file with this footer; None for one in clear. Raises EncryptionKeyMissing."""
    if not is_encrypted(footer):
        return None
    if cipher is None:
        raise EncryptionKeyMissing(
            f"{what} is encrypted with key {key_id_of(footer)!r}, and this program has no keys: pass encryption_keys=…, or set "
            "RANGELOG_ENCRYPTION_KEYS_DIR or RANGELOG_ENCRYPTION_KMS_KEY_ID"
        )
    return cipher.for_reading()
