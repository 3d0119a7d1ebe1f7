"""Every file of a range server's log damaged: what is served is true, and what is missing is in doubt, or made good.

The log has several segments, sidecars and a recycled file; in it are open, fenced, sealed and dropped replicas. After each
damage the production start-up runs and every replica is judged: its batches are the true ones or Corruption, and one that
calls itself sound has all that it ever acked, its fence and its end.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.batch_extension import encode_extension
from rangelog_core.errors import Corruption, RangelogError
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.encryption import ENCRYPTED_START_BYTES
from rangelog_server.wal.log import Wal
from tests.corruption.damage_tally import Damages, Thoroughness
from tests.fakes.faces import LogDisk
from tests.support.eager_compaction import EagerCompaction, compact, submit_moves
from tests.support.log_keys import MemoryKeys, encrypted_keys

SEGMENT_BYTES = 4096
SALT = 9
BATCHES = 10
OPEN, FENCED, SEALED, LAST_SEALED, DROPPED = (1, 0), (2, 0), (3, 0), (3, 1), (4, 0)
KEYS = (OPEN, FENCED, SEALED, LAST_SEALED, DROPPED)
REPAIR_EVERY = 5

Key = tuple[int, int]


def make_store(disk: LogDisk, provider: MemoryKeys | None) -> Store:
    """Return a store of a disk, not opened; `provider`: of the keys of an encrypted log."""
    if provider is None:
        return Store(Wal(Path("/log"), SALT, io=disk, segment_bytes=SEGMENT_BYTES), cache_bytes=0)
    keys, size = encrypted_keys(SALT, provider), SEGMENT_BYTES + ENCRYPTED_START_BYTES
    return Store(Wal(Path("/log"), SALT, io=disk, segment_bytes=size, keys=keys), cache_bytes=0)


class LogDamage:
    """See the module."""

    def __init__(self, seed: int, *, sidecars: bool, encrypted: bool = False) -> None:
        self._provider = MemoryKeys() if encrypted else None
        self.tally = Damages()
        self._chance = Random(seed)
        self._disk = LogDisk()
        self._true: dict[Key, list[bytes]] = {key: [] for key in KEYS}
        self._write()
        if not sidecars:  # every segment is scanned
            for name in [each for each in self._disk.names if each.endswith(".idx")]:
                self._disk.unlink(Path(name))
        self._disk.settle()
        self._tried = 0

    def _write(self) -> None:
        store = make_store(self._disk, self._provider)
        store.open()
        self._churn(store)
        for number in range(BATCHES):
            for key in KEYS:
                self._append(store, key, number, self._true[key])
            if number == BATCHES // 2:
                store.seal(*FENCED, 4, 0, lambda hosted: None)
                self._end(store, SEALED)
                self._end(store, DROPPED)
                store.drop(*DROPPED, lambda: None)
                store.wal.kick()
        self._end(store, LAST_SEALED)
        store.reclaim()
        store.wal.kick()
        self._move_on(store)

    def _move_on(self, store: Store) -> None:
        """So that some batches lie where they were moved, their first places gone, and some lie in both."""
        assert compact(store)
        assert submit_moves(store, EagerCompaction(store.space), 1.0)
        store.wal.kick()

    def _churn(self, store: Store) -> None:
        """So that there are recycled segments with the bytes of an earlier use."""
        for number in range(12):
            self._append(store, (90, 0), number, [])
        self._end(store, (90, 0))
        store.drop(90, 0, lambda: None)
        store.wal.kick()
        store.reclaim()

    def _append(self, store: Store, key: Key, base: int, true: list[bytes]) -> None:
        values = [self._chance.randbytes(self._chance.randrange(20, 400))]
        extension = encode_extension({0x8001: b"who", 0xFFFF: bytes(20)} if base % 2 else {})
        data = batch(base, values, stream_id=key[0], range_index=key[1], extension=extension)
        message = SimpleNamespace(stream_id=key[0], range_index=key[1], epoch=1, start_offset=0, confirm_offset=0,
                                  recovery=False, memory=False)  # fmt: skip
        try:
            store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
        except RangelogError:  # of ranges that are fenced or sealed by then
            return
        true.append(data)
        store.wal.kick()

    def _end(self, store: Store, key: Key) -> None:
        store.commit_end(*key, 0, store.replicas[key].core.end_offset, 1, lambda hosted: None, by_placement_driver=True)
        store.wal.kick()

    # ---- damage

    def run(self, how: Thoroughness) -> Damages:
        """Every file: flipped, cut, removed, emptied, swapped."""
        names = sorted(self._disk.names)
        for name in names:
            content = bytes(self._disk.content(name))
            used = len(content.rstrip(b"\0")) + 64
            for position, mask in how.flips(min(used, len(content)), self._chance):
                self.tally.flips += 1
                changed = bytearray(content)
                changed[position] ^= mask
                self._try({name: changed}, f"{name}: bit {mask:#04x} of byte {position} flipped")
            for length in how.cuts(len(content), self._chance):
                self.tally.cuts += 1
                self._try({name: bytearray(content[:length])}, f"{name}: cut at {length}")
            for what, changed in (("removed", None), ("full of zeros", bytearray(len(content)))):
                self.tally.others += 1
                self._try({name: changed}, f"{name}: {what}")
        segments = [name for name in names if name.endswith(".seg")]
        for one, other in pairwise(segments):
            self.tally.others += 1
            swapped = {one: self._disk.content(other)[:], other: self._disk.content(one)[:]}
            self._try(swapped, f"{one} and {other} swapped")
        return self.tally

    def _try(self, changes: dict[str, bytearray | None], what: str) -> None:
        if self.tally.full:
            return
        disk = self._disk.copy()
        for name, content in changes.items():
            if content is None:
                disk.unlink(Path(name))
            else:
                disk.names[name].now = content
        disk.settle()
        self._tried += 1
        try:
            store = self._open(disk)
            noticed = self._judge(store, what)
            if not store.problems and self._tried % REPAIR_EVERY == 0:
                self._judge(self._open(disk.copy()), f"{what}, at the second start")
        except RangelogError:
            self.tally.outcomes["detected: it does not start"] += 1
            return
        except (OSError, ValueError, KeyError, IndexError, AssertionError) as error:
            self.tally.problems.append(f"{what}: {type(error).__name__}: {error}")
            return
        if store.problems:
            self.tally.outcomes["detected at the start"] += 1
        elif noticed:
            self.tally.outcomes["detected when read"] += 1
        else:
            self.tally.outcomes["harmless"] += 1
        if self._tried % REPAIR_EVERY == 0 or len(changes) > 1:
            self._repair(store, what)

    def _open(self, disk: LogDisk) -> Store:
        """Recover with the production start-up code."""
        store = make_store(disk, self._provider)
        store.open(started_before=True)
        return store

    def _judge(self, store: Store, what: str) -> bool:
        """Whether a read found damage."""
        noticed = False
        for key in KEYS:
            hosted = store.replicas.get(key)
            if hosted is None:
                if key != DROPPED and not store.server.doubt_unknown:
                    self.tally.problems.append(f"{what}: range {key} is gone and nobody is told")
                continue
            hosted.core.validate()
            here = self._read(store, hosted, what)
            noticed = noticed or here
            said = "" if here or key == DROPPED else self._silent_loss(hosted, key)
            if said:
                self.tally.problems.append(f"{what}: range {key} is sound and {said}")
        return noticed

    def _read(self, store: Store, hosted: HostedReplica, what: str) -> bool:
        noticed = False
        if hosted.core.trust is DiskTrust.QUARANTINED:
            return True
        for number in range(hosted.core.batch_count):
            try:
                (found,) = read_batches(store.wal, make_plan(hosted, number, number + 1))
            except Corruption:
                noticed = True
                continue
            if found != self._true[hosted.key][number]:
                self.tally.served_wrong += 1
                self.tally.problems.append(f"{what}: wrong bytes of range {hosted.key} were served")
        return noticed

    def _silent_loss(self, hosted: HostedReplica, key: Key) -> str:
        core, count = hosted.core, len(self._true[key])
        ended = key in (SEALED, LAST_SEALED)
        if core.trust is not DiskTrust.SOUND:
            return ""
        if ended and core.sealed_end_offset is None:
            return "has lost its end"
        if ended and core.sealed_end_offset != count:
            return "has another end"
        if key == FENCED and (not core.fenced or core.epoch != 4):
            return "has lost its fence"
        if not ended and core.batch_count < count:
            return "has lost batches"
        return ""  # one that is sealed and short says so: it is incomplete

    def _repair(self, store: Store, what: str) -> None:
        """As the placement driver has it done: damaged replicas of sealed ranges are dropped and copied from a peer."""
        for key in (SEALED, LAST_SEALED):
            hosted, true = store.replicas.get(key), self._true[key]
            if hosted is not None and self._whole(store, hosted):
                continue
            if hosted is not None:
                store.drop(*key, lambda: None)
            store.commit_end(*key, 0, len(true), 1, lambda hosted: None, by_placement_driver=True)
            store.wal.kick()
            hosted = store.replicas[key]
            missing = [NewBatch(check_batch(data), batch_crc(data), data) for data in true]
            store.repair(hosted, missing, lambda: None)
            store.wal.kick()
            if self._whole(store, hosted):
                self.tally.repaired += 1
            else:
                self.tally.problems.append(f"{what}: range {key} cannot be repaired: {hosted.core.problem}")

    def _whole(self, store: Store, hosted: HostedReplica) -> bool:
        if not hosted.core.complete:
            return False
        try:
            return read_batches(store.wal, make_plan(hosted, 0, hosted.core.batch_count)) == self._true[hosted.key]
        except Corruption:
            return False
