"""Keys of simulated logs: in every fifth run servers encrypt, most starts of them, and the key is changed now and then.

All encryptions of a run are watched: a nonce that is used twice under one key, for other bytes, is a violation. What is drawn
here is drawn apart, so that it changes no other choice of a seed.
"""

from __future__ import annotations

from random import Random

from rangelog_server.wal.encryption import LogKeys
from tests.support.log_keys import MemoryKeys, encrypted_keys

EVERY, WHICH = 5, 2
CLEAR_SHARE = 0.2
ROTATED_SHARE = 0.2


class VirtualLogKeys:
    """The keys of one server's logs, over all its starts and disks."""

    def __init__(self, seed: int, name: str) -> None:
        self._chance = Random(f"log keys of {name} in {seed}")
        self._provider = MemoryKeys()
        self.used = seed % EVERY == WHICH

    def of_a_start(self, salt: int) -> LogKeys:
        """Return the keys of the next start: with a later current key at times, at times only to read."""
        if not self.used:
            return LogKeys(None, salt, encrypt=False)
        if self._chance.random() < ROTATED_SHARE:
            self.rotate()
        if self._chance.random() < CLEAR_SHARE:
            return LogKeys(self._provider, salt, encrypt=False, random=self._chance.randbytes)
        return encrypted_keys(salt, self._provider, self._chance)

    def rotate(self) -> None:
        """Another key is current."""
        self._provider.ids.append(f"k{len(self._provider.ids) + 1}")
