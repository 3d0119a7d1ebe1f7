"""Keys of encrypted logs for tests: a provider in memory, counted, and a look at every nonce that was ever used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from rangelog_core.errors import Corruption, EncryptionKeyMissing
from rangelog_server.wal import encryption
from rangelog_server.wal.encryption import LogKeys
from rangelog_tier.encryption_keys import aes_gcm


@dataclass(eq=False)
class MemoryKeys:
    """A KeyProvider; `ids`: the keys it has, the last one current. `refuse`: raised by all that it is asked."""

    ids: list[str] = field(default_factory=lambda: ["k1"])
    asked: int = 0
    refuse: Exception | None = None

    def current(self) -> str:
        """See KeyProvider."""
        self._ask()
        return self.ids[-1]

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        """See KeyProvider."""
        self._ask()
        return bytes(self._cipher(key_id).encrypt(bytes(12), data_key, key_id.encode()))

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """See KeyProvider."""
        from cryptography.exceptions import InvalidTag

        self._ask()
        try:
            return bytes(self._cipher(key_id).decrypt(bytes(12), wrapped, key_id.encode()))
        except InvalidTag:
            raise Corruption("a wrapped key was changed") from None

    def _ask(self) -> None:
        self.asked += 1
        if self.refuse is not None:
            raise self.refuse

    def _cipher(self, key_id: str) -> Any:
        if key_id not in self.ids:
            raise EncryptionKeyMissing(f"encryption key {key_id!r} is not here")
        return aes_gcm(key_id.encode().ljust(32, b"."))


def encrypted_keys(salt: int, keys: MemoryKeys | None = None, chance: Random | None = None) -> LogKeys:
    """The keys of a log that is encrypted; `chance`: where its random bytes come from, None: from the system."""
    random: Callable[[int], bytes] = os.urandom if chance is None else chance.randbytes
    return LogKeys(keys or MemoryKeys(), salt, encrypt=True, random=random)


class WatchedAead:
    """AES-GCM of one key, which notes what each nonce was used for."""

    def __init__(self, key: bytes, watch: NonceWatch) -> None:
        self._key, self._watch, self._aead = key, watch, aes_gcm(key)

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        """See AESGCM."""
        self._watch.note(self._key, nonce, hash((data, bound)))
        return bytes(self._aead.encrypt(nonce, data, bound))

    def decrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        """See AESGCM."""
        return bytes(self._aead.decrypt(nonce, data, bound))


class NonceWatch:
    """Sees all encryptions of logs, of all starts and of all disks that a crash may leave: no nonce twice under one key.

    Sees what is encrypted rather than what is written: bytes that were on their way to a disk may be on it.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[bytes, bytes], int] = {}
        self.encrypted = 0
        self.problems: list[str] = []

    def note(self, key: bytes, nonce: bytes, what: int) -> None:
        """Note an encryption."""
        self.encrypted += 1
        if self._seen.setdefault((key, nonce), what) != what:
            position, apart = int.from_bytes(nonce[:8], "little"), int.from_bytes(nonce[8:], "little")
            self.problems.append(f"nonce {position}/{apart} was used twice under one key, for other bytes")

    @contextmanager
    def watching(self) -> Iterator[NonceWatch]:
        """Watch all logs that are opened meanwhile."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encryption, "aes_gcm", lambda key: WatchedAead(key, self))
            yield self
