"""An object store in memory: keys are never overwritten, answers get lost, bytes come out wrong, services are unavailable."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random

from rangelog_core.errors import Corruption, ObjectNotFound, PreconditionFailed, Unavailable
from rangelog_core.manifest import parse_manifest
from rangelog_core.object_keys import MANIFESTS
from rangelog_tier.object_store import ObjectInfo, ObjectTooShort, check_key
from tests.simulation.virtual_time import WALL_S

SPOILING_SEEDS = 0.2
SPOILING = 0.3
"""In this share of the seeds, this share of the uploads is stored wrong as long as there are faults."""


class VirtualObjects:
    """See rangelog_tier.ObjectStore. `trouble`: how often something goes wrong.

    `spoiling`: how often an upload is stored wrong although all else is well. Uploads are few and times of trouble are
    short, so the two seldom meet. It has chance of its own: a seed without it runs as if there were no such fault.
    """

    def __init__(self, chance: Random, seed: int) -> None:
        self.chance = chance
        self.objects: dict[str, bytes] = {}
        self._stored_ms: dict[str, int] = {}
        self.trouble = 0.0
        self._spoiling_chance = Random(f"objects stored wrong in seed {seed}")
        self.spoiling = SPOILING if self._spoiling_chance.random() < SPOILING_SEEDS else 0.0
        self._doomed: dict[str, None] | None = {}
        self.counts: Counter[str] = Counter()
        self.broken = ""
        """What is wrong with a manifest that was stored."""

    def end_trouble(self) -> None:
        """The bad time is over."""
        self.trouble = 0.0

    def end_faults(self) -> None:
        """Nothing goes wrong any more."""
        self.trouble = self.spoiling = 0.0
        self._doomed = None

    def doom(self, key: str) -> None:
        """As long as there are faults: what is stored under this key is stored wrong."""
        if self._doomed is not None:
            self._doomed[key] = None

    def _maybe_unavailable(self) -> None:
        if self.chance.random() < self.trouble:
            self.counts["object store unavailable"] += 1
            raise Unavailable("503")

    def put_if_absent(self, key: str, source: bytes | Path) -> None:
        """Store under a new key."""
        self._maybe_unavailable()
        data = source if isinstance(source, bytes) else source.read_bytes()
        if check_key(key) in self.objects:
            self.counts["object key taken"] += 1
            raise PreconditionFailed(f"object {key} exists already")
        told_wrong = self.chance.random() < self.trouble
        if (
            told_wrong and data and key.startswith("streams/")
        ):  # a manifest is not read back: the next commit replaces it
            self.counts["object stored wrong"] += 1
            data = _wrong(data, self.chance)
        elif (self._doomed and key in self._doomed) or (
            self.spoiling and key.startswith("streams/") and self._spoiling_chance.random() < self.spoiling
        ):
            self.counts["object stored wrong"] += 1
            data = _wrong(data, self._spoiling_chance)
        self._store(key, data)

    def plant(self, key: str, data: bytes) -> None:
        """Store an object, as somebody who is not judged."""
        self.objects[key] = data
        self._stored_ms[key] = int((WALL_S + asyncio.get_running_loop().time()) * 1_000)

    def remove(self, key: str) -> None:
        """Remove an object, likewise."""
        self.objects.pop(key, None)

    def _store(self, key: str, data: bytes) -> None:
        self.plant(key, data)
        if key.startswith(MANIFESTS):
            self._look_at_manifest(key, data)
        if self.chance.random() < self.trouble:
            self.counts["object stored, answer lost"] += 1
            raise Unavailable("no answer")

    def _look_at_manifest(self, key: str, data: bytes) -> None:
        """No two objects that it names have the same records, at any time."""
        with suppress(Corruption):  # stored wrong
            for before, after in pairwise(parse_manifest(data, key).objects):
                if after.start_offset < before.end_offset:
                    self.broken = f"{key} names {before.key} and {after.key}, which have the same records"

    def get(self, key: str) -> bytes:
        """The whole object."""
        return self.get_range(key, 0, self.head(key).size_bytes)

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """The whole object, and the checksum of what was read."""
        self._maybe_unavailable()
        data = self._object(key)
        return data, hashlib.sha256(data).hexdigest()

    def replace(self, key: str, data: bytes, etag: str) -> None:
        """Overwrite what still has this checksum."""
        self._maybe_unavailable()
        if hashlib.sha256(self.objects.get(check_key(key), b"")).hexdigest() != etag:
            self.counts["object changed meanwhile"] += 1
            raise PreconditionFailed(f"object {key} was changed meanwhile")
        self._store(key, data)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of it."""
        self._maybe_unavailable()
        data = self._object(key)
        if start + length > len(data):
            raise ObjectTooShort(f"object {key} is shorter")
        found = data[start : start + length]
        if found and self.chance.random() < self.trouble / 4:
            self.counts["object read wrong"] += 1
            found = _wrong(found, self.chance)
        return found

    def read_into(self, key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        """The same, into memory."""
        found = self.get_range(key, start, len(target))
        target[: len(found)] = found
        if len(found) < len(target):
            raise ObjectTooShort(f"object {key} came too short")
        return 0.0

    def head(self, key: str) -> ObjectInfo:
        """Its size."""
        self._maybe_unavailable()
        return ObjectInfo(key, len(self._object(key)), "")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All under a prefix."""
        self._maybe_unavailable()
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield ObjectInfo(key, len(self.objects[key]), "", self._stored_ms.get(key, 0))

    def delete(self, key: str) -> None:
        """Remove."""
        self._maybe_unavailable()
        if self.objects.pop(key, None) is not None and not key.startswith("probe"):
            self.counts["object deleted"] += 1

    def close(self) -> None:
        """Others have it open as well."""

    def _object(self, key: str) -> bytes:
        found = self.objects.get(check_key(key))
        if found is None:
            raise ObjectNotFound(f"there is no object {key}")
        return found


def _wrong(data: bytes, chance: Random) -> bytes:
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))] + bytes(0)
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ chance.randrange(1, 256)]) + data[place + 1 :]
