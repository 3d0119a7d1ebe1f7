"""A member that dies at any call to its disk, by a kill or by a power cut, recovers everything it acknowledged.

A whole member works on a disk in memory. Before each call that changes the disk, the disks are made that a crash there could
leave (`tests/fakes/crashes.py`). Each is opened and compared. `tests/crash_points` cuts the Raft files alone, in every order
of what Raft does to them; here the member's own threads and timers call them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from random import Random

from rangelog_pd.consensus.network.messages import KIND_COMMAND
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from tests.crash_points.journal_workload import Member
from tests.fakes.crashes import crashed
from tests.fakes.directory import Directory
from tests.fakes.disk import CREATE, FLUSH, FLUSH_NAMES, RENAME, WRITE, Step
from tests.fakes.faces import RaftDisk
from tests.support.tape import Tape
from tests.support.waiting import until

COMMANDS = 90
SNAPSHOT_ENTRIES = 20


class WatchedDisk(RaftDisk):
    """Notes what a crash could leave before each change. The member's threads change it one after the other."""

    def __init__(self, acked: list[bytes]) -> None:
        super().__init__()
        self.acked = acked
        self.left: list[tuple[str, Directory, int]] = []
        """What happened, the disk then, and how many commands were acknowledged before it."""
        self.steps: Counter[str] = Counter()
        self.before = self.note
        self._chance = Random(1)
        self._lock = threading.Lock()

    def note(self, step: Step | None) -> None:
        """Crash here."""
        acked = len(self.acked)
        call = step.call if step is not None else "the end"
        self.steps[call] += 1
        for kind, directory in crashed(self.directory, step, self._chance, 1):
            self.left.append((f"{kind} at {call}", directory, acked))

    def create(self, path: Path) -> int:
        with self._lock:
            return super().create(path)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._lock:
            return super().pwrite(fd, data, position)

    def truncate(self, fd: int, length: int) -> None:
        with self._lock:
            super().truncate(fd, length)

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            super().fdatasync(fd)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            super().rename(source, target)

    def sync_directory(self, directory: Path) -> None:
        with self._lock:
            super().sync_directory(directory)


def recovered(directory: Directory) -> list[bytes]:
    """What a member that starts on this disk will have applied: the snapshot and the journal behind it."""
    member = Member(RaftDisk(directory))
    for command, index, _ in member.log.journal.entries:
        if index > member.snapshot_index and command[0] == KIND_COMMAND:
            member.applied.apply(index, command[1:])
    return member.applied.commands


async def test_every_crash_point_recovers_what_was_acknowledged(tmp_path: Path) -> None:
    """Over several snapshots and compactions, no disk lacks an acknowledged command or fails to open."""
    acked: list[bytes] = []
    proposed = [b"command %d" % number for number in range(COMMANDS)]
    disk = WatchedDisk(acked)
    consensus = PySyncObjConsensus(
        "a", {"a": "127.0.0.1:0"}, tmp_path, Tape(), secret="", snapshot_entries=SNAPSHOT_ENTRIES, files=disk
    )
    await consensus.start()
    async with asyncio.timeout(120):
        await until(consensus.is_leader)
        for command in proposed:
            await consensus.propose(command, timeout_s=60)
            acked.append(command)
    await consensus.close()
    disk.note(None)
    assert {CREATE, WRITE, FLUSH, RENAME, FLUSH_NAMES} <= disk.steps.keys()
    assert "snapshot" in disk.names
    for what, directory, count in disk.left:
        found = recovered(directory)
        assert found[:count] == proposed[:count], f"{what}: {count - len(found)} acknowledged commands are lost"
        assert found == proposed[: len(found)], f"{what}: something else came back"
