"""A member that dies at any system call, by a kill or by a power cut, recovers everything it acknowledged.

The calls that change files are watched while a member works; after each one two pictures of its directory are taken: all
that was written (a killed process), and only what was flushed, with names that were flushed (a power cut; what was
written and not flushed is there, torn in the middle, or not at all). Each picture is opened and compared.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from rangelog_pd.consensus.network.messages import KIND_COMMAND
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.snapshots import Snapshots
from tests.support.tape import Tape

COMMANDS = 90
SNAPSHOT_ENTRIES = 20


class Disk:
    """Watches the calls that change files below one directory."""

    def __init__(self, directory: Path, acked: list[bytes]) -> None:
        self.directory = directory
        self.acked = acked
        self.pictures: list[tuple[str, dict[str, bytes], int]] = []
        self._flushed: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._lock = threading.RLock()
        self._real = {name: getattr(os, name) for name in ("pwrite", "fsync", "fdatasync", "ftruncate", "rename")}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Stand between the member and `os`."""
        for name in self._real:
            patch.setattr(os, name, self._watching(name))

    def _watching(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            with self._lock:
                acked = len(self.acked)
                result = self._real[name](*arguments)
                if name in ("fsync", "fdatasync"):
                    self._note_flush(arguments[0])
                self._take_pictures(name, acked)
                return result

        return call

    def _note_flush(self, fd: int) -> None:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            self._names = {path.name: path.stat().st_ino for path in self._files()}
        else:
            self._flushed[info.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def _take_pictures(self, name: str, acked: int) -> None:
        written = {path.name: path.read_bytes() for path in self._files()}
        self.pictures.append((f"killed after {name}", written, acked))
        by_inode = {path.stat().st_ino: written[path.name] for path in self._files()}
        flushed = {file: self._flushed.get(inode, b"") for file, inode in self._names.items()}
        self.pictures.append((f"power cut after {name}", flushed, acked))
        inode = self._names.get("journal")
        if inode is not None and len(by_inode.get(inode, b"")) > len(flushed["journal"]):
            tail = by_inode[inode][len(flushed["journal"]) :]
            for torn in (tail[: len(tail) // 2], bytes(len(tail) // 2) + tail[len(tail) // 2 :]):
                self.pictures.append((f"torn by {name}", flushed | {"journal": flushed["journal"] + torn}, acked))

    def _files(self) -> list[Path]:
        raft = self.directory / "raft"
        return [path for path in raft.iterdir() if path.is_file()] if raft.exists() else []


def recovered(directory: Path) -> list[bytes]:
    """What a member that starts in this directory will have applied: the snapshot and the journal behind it."""
    tape = Tape()
    snapshots = Snapshots(directory / "snapshot", tape, threading.Lock())
    snapshot = snapshots.loaded
    if snapshot is not None:
        snapshots.deserialize()
    raft_log = RaftLog(directory, "a", snapshot)
    applied = snapshot.last.log_index if snapshot else 0
    for command, index, _ in raft_log.journal.entries:
        if index > applied and command[0] == KIND_COMMAND:
            tape.apply(index, command[1:])
    raft_log.journal.close()
    return tape.commands


async def test_every_crash_point_recovers_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several snapshots and compactions, no picture lacks an acknowledged command or fails to open."""
    acked: list[bytes] = []
    proposed = [b"command %d" % number for number in range(COMMANDS)]
    disk = Disk(tmp_path / "member", acked)
    with monkeypatch.context() as patch:
        disk.install(patch)
        consensus = PySyncObjConsensus(
            "a", {"a": "127.0.0.1:0"}, disk.directory, Tape(), secret="", snapshot_entries=SNAPSHOT_ENTRIES
        )
        await consensus.start()
        async with asyncio.timeout(30):
            while not consensus.is_leader():
                await asyncio.sleep(0.01)
            for command in proposed:
                await consensus.propose(command, timeout_s=10)
                acked.append(command)
        await consensus.close()
    kinds = {kind for kind, _, _ in disk.pictures}
    assert {"killed after rename", "power cut after rename", "torn by pwrite"} <= kinds
    image = tmp_path / "image"
    image.mkdir()
    for kind, files, count in disk.pictures:
        for old in image.iterdir():
            old.unlink()
        for name, data in files.items():
            (image / name).write_bytes(data)
        found = recovered(image)
        assert found[:count] == proposed[:count], f"{kind}: {count - len(found)} acknowledged commands are lost"
        assert found == proposed[: len(found)], f"{kind}: something else came back"
    assert (disk.directory / "raft" / "snapshot").exists()
