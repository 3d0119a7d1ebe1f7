"""Keys that encrypt data keys: the interface, the keys of a directory, and which keys a program has.

What holds: each object has a data key of its own, which is kept beside the data, wrapped by one of these keys; the id of that
key stands next to it in clear. A key that is not here, or is another one than the id had, is
EncryptionKeyMissing, which names the id; a wrapped key that was changed is Corruption. No message holds a key.

    directory = KeyDirectory("/etc/rangelog/keys")
    wrapped = directory.wrap(directory.current(), data_key)
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rangelog_core.errors import ConfigInvalid, Corruption, EncryptionKeyMissing, InvalidArgument, MissingExtra
from rangelog_core.key_files import is_open_to_others

KEYS_DIR_ENV, KMS_KEY_ENV = "RANGELOG_ENCRYPTION_KEYS_DIR", "RANGELOG_ENCRYPTION_KMS_KEY_ID"
KEY_BYTES = 32
SUFFIX, CURRENT = ".key", "current"
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_CURRENT_BYTES_MAX = 1024
_CHECK_BYTES, _NONCE_BYTES, _TAG_BYTES = 8, 12, 16
_CHECK_OF = b"rangelog: which key is this?"
_WRAPPED_BYTES_MAX = _CHECK_BYTES + _NONCE_BYTES + 4096 + _TAG_BYTES


@runtime_checkable
class KeyProvider(Protocol):
    """Wraps and unwraps data keys. Blocking; for several threads. Hashable, and equal to one with the same keys."""

    def current(self) -> str:
        """Return the id of the key that wraps new data keys. Raises EncryptionKeyMissing, Unavailable."""

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        """Return a data key encrypted by the key of this id. Raises EncryptionKeyMissing, AccessDenied, Unavailable."""

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the data key. Raises EncryptionKeyMissing, Corruption, AccessDenied, Unavailable."""


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """The keys in the files `ID.key` of a directory, 32 bytes each, which only their owner may read (of root's, a
    program's group as well). Needs cryptography.

    The file `current` has the id of the current key, so that a key can be copied to all programs before one uses it. Without
    that file the id that sorts last is current: begin ids with a date. The files are read at each use, so keys come and go
    without a restart.

    Example:
        ```python
        client = await rangelog.connect("10.0.0.1:7100", encryption_keys=rangelog.KeyDirectory("/etc/rangelog/keys"))
        ```
    """

    path: str

    def key_ids(self) -> list[str]:
        """Return the ids of all keys, in order. Raises EncryptionKeyMissing."""
        try:
            names = os.listdir(self.path)
        except OSError as error:
            raise EncryptionKeyMissing(
                f"the directory of keys cannot be read: {error.strerror}: {self.path}"
            ) from error
        ids = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted(each for each in ids if _KEY_ID.fullmatch(each))

    def current(self) -> str:
        """See KeyProvider."""
        if (chosen := self._chosen()) is not None:
            return chosen
        ids = self.key_ids()
        if not ids:
            raise EncryptionKeyMissing(f"no encryption key is in {self.path}: `pdctl encryption new-key` makes one")
        return ids[-1]

    def _chosen(self) -> str | None:
        """Return the id that the file `current` has, None without that file. Raises EncryptionKeyMissing: it has none."""
        path = Path(self.path) / CURRENT
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                text = file.read(_CURRENT_BYTES_MAX).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EncryptionKeyMissing(
                f"the name of the current key cannot be read: {error.strerror}: {path}"
            ) from error
        if not _KEY_ID.fullmatch(text):
            raise EncryptionKeyMissing(f"{path} does not name a key: `pdctl encryption rotate` writes it")
        return text

    def make_current(self, key_id: str) -> None:
        """Wrap new data keys by the key of this id. Raises EncryptionKeyMissing: no key has this id; InvalidArgument."""
        self._key(key_id)
        path = Path(self.path) / CURRENT
        hidden = path.with_name(f".{CURRENT}.{os.getpid()}")
        try:
            with hidden.open("w", encoding="utf-8") as file:
                file.write(f"{key_id}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, path)
        except OSError as error:
            raise InvalidArgument(f"the current key cannot be changed: {error.strerror}: {path}") from error

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        """See KeyProvider: eight bytes that identify the key, a random nonce, the encrypted key with its tag."""
        key = self._key(key_id)
        nonce = os.urandom(_NONCE_BYTES)
        return _check(key) + nonce + bytes(aes_gcm(key).encrypt(nonce, data_key, key_id.encode()))

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """See KeyProvider."""
        if not _CHECK_BYTES + _NONCE_BYTES + _TAG_BYTES < len(wrapped) <= _WRAPPED_BYTES_MAX:
            raise Corruption(f"a data key that encryption key {key_id!r} wraps has {len(wrapped)} bytes")
        key = self._key(key_id)
        cipher = aes_gcm(key)
        from cryptography.exceptions import InvalidTag

        rest = wrapped[_CHECK_BYTES:]
        if not hmac.compare_digest(_check(key), wrapped[:_CHECK_BYTES]):
            raise EncryptionKeyMissing(
                f"encryption key {key_id!r} in {self.path} is not the key that was used under this id: bring that one back"
            )
        try:
            return bytes(cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], key_id.encode()))
        except InvalidTag:
            raise Corruption(f"a data key that encryption key {key_id!r} wraps was changed") from None

    def _key(self, key_id: str) -> bytes:
        if not _KEY_ID.fullmatch(key_id):
            raise EncryptionKeyMissing(f"encryption key {key_id[:200]!r} is not one of a directory of keys")
        path = Path(self.path) / f"{key_id}{SUFFIX}"
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                told = os.fstat(file.fileno())
                data = file.read(KEY_BYTES + 1) if stat.S_ISREG(told.st_mode) else b""
        except OSError as error:
            raise EncryptionKeyMissing(f"encryption key {key_id!r} cannot be read: {error.strerror}: {path}") from error
        if is_open_to_others(told):
            raise EncryptionKeyMissing(f"encryption key {key_id!r} is open to other users: chmod 600 {path}")
        if len(data) != KEY_BYTES:
            raise EncryptionKeyMissing(f"encryption key {key_id!r} is not a file of {KEY_BYTES} bytes: {path}")
        return data

    def make_key(self, key_id: str) -> Path:
        """Make a random key; the directory, too, where it is missing. Raises InvalidArgument: the id is bad, or taken."""
        if not _KEY_ID.fullmatch(key_id):
            raise InvalidArgument(
                "the id of a key is up to 128 letters, digits, '.', '_' and '-', a letter or digit first"
            )
        path = Path(self.path) / f"{key_id}{SUFFIX}"
        hidden = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            Path(self.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(hidden, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                try:
                    file.write(os.urandom(KEY_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
                    os.link(hidden, path)  # never over another key: its objects could not be read any more
                finally:
                    hidden.unlink()
        except FileExistsError:
            raise InvalidArgument(f"a key {key_id!r} is there already: {path}") from None
        except OSError as error:
            raise InvalidArgument(f"the key cannot be written: {error.strerror}: {path}") from error
        return path


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a pipe does not stop anybody


def _check(key: bytes) -> bytes:
    return hmac.digest(key, _CHECK_OF, hashlib.sha256)[:_CHECK_BYTES]


def aes_gcm(key: bytes) -> Any:
    """Return the cipher of a key of 32 bytes, of the library cryptography. Raises MissingExtra."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra("encryption keys need cryptography: pip install 'rangelog[tier]'") from error
    return AESGCM(key)


def key_provider(keys_dir: str | None, kms_key_id: str | None) -> KeyProvider | None:
    """Return the keys that two settings name, None where neither is given. Raises ConfigInvalid where both are.

    Example:
        >>> key_provider("/etc/rangelog/keys", None)
        KeyDirectory(path='/etc/rangelog/keys')
    """
    if keys_dir and kms_key_id:
        raise ConfigInvalid("encryption keys are in a directory or in the key service: give one of the two settings")
    if kms_key_id:
        from rangelog_tier.kms_keys import KmsKeys

        return KmsKeys(kms_key_id)
    return KeyDirectory(keys_dir) if keys_dir else None


def keys_of(store: object) -> KeyProvider | None:
    """Return the keys that an object store was opened with, None where it has none."""
    found: KeyProvider | None = getattr(store, "encryption_keys", None)
    return found


def keys_of_environment(env: Mapping[str, str] | None = None) -> KeyProvider | None:
    """Return what RANGELOG_ENCRYPTION_KEYS_DIR or RANGELOG_ENCRYPTION_KMS_KEY_ID names, None where neither is set.

    Raises ConfigInvalid where both are.
    """
    env = os.environ if env is None else env
    return key_provider(env.get(KEYS_DIR_ENV), env.get(KMS_KEY_ENV))
