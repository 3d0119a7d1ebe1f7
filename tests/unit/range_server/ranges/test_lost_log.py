"""A data directory that has lost its log, or the end of it, is never taken for one that never had more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import Corruption
from rangelog_server.identity import DataDirectory
from rangelog_server.ranges.replica import DiskTrust, NewBatch, SealOutcome
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk

SEGMENT_BYTES = 4096


def open_store(disk: LogDisk, *, started_before: bool = True) -> Store:
    """Recover from a disk."""
    store = Store(Wal(Path("/log"), 3, io=disk, segment_bytes=SEGMENT_BYTES), cache_bytes=0)
    store.open(started_before=started_before)
    return store


def append(store: Store, base: int, *, stream_id: int = 1) -> None:
    """Append one record and flush."""
    data = batch(base, [b"x" * 300], stream_id=stream_id)
    message = SimpleNamespace(
        stream_id=stream_id, range_index=0, epoch=1, start_offset=0, confirm_offset=0, recovery=False, memory=False
    )
    store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    store.wal.kick()


def test_a_log_without_its_last_segments_is_in_doubt() -> None:
    """A full segment says that the log goes on: when nothing follows it, what followed is lost."""
    disk = LogDisk()
    store = open_store(disk, started_before=False)
    for base in range(30):
        append(store, base)
    last = store.wal.current_sequence
    assert last >= 3
    for sequence in range(last, last + 4):
        if f"wal-{sequence:016x}.seg" in disk.names:
            disk.unlink(Path(f"wal-{sequence:016x}.seg"))
    for _ in range(2):
        again = open_store(disk)
        core = again.replicas[1, 0].core
        assert core.durable_offset < 30
        assert core.trust is DiskTrust.DOUBTFUL
        assert again.server.doubt_unknown


def test_a_directory_without_its_log_is_in_doubt() -> None:
    """The identity is there and not one segment: ranges that were here are not "empty" and not "new"."""
    disk = LogDisk()
    append(open_store(disk, started_before=False), 0)
    empty = LogDisk()
    for _ in range(2):
        store = open_store(empty)
        assert store.problems or store.server.doubt_unknown
        with pytest.raises(Corruption):
            append(store, 0)
        store.seal(2, 0, 3, 0, lambda hosted: None)
        store.wal.kick()
        assert store.replicas[2, 0].core.seal_answer().outcome is SealOutcome.DOUBTFUL
    store.unknown_ranges_settled()
    append(store, 0, stream_id=5)
    assert not open_store(empty).server.doubt_unknown


def test_a_first_start_is_in_no_doubt() -> None:
    """An empty directory is new, and stays so over restarts."""
    disk = LogDisk()
    assert not open_store(disk, started_before=False).problems
    store = open_store(disk)
    assert not store.problems
    assert not store.server.doubt_unknown


@pytest.mark.parametrize("cut", range(4))
def test_setting_a_log_aside_never_leaves_its_identity_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Killed at any step, the next start has the old identity with the old log, or a new identity."""

    class Killed(BaseException):
        pass

    directory = DataDirectory(tmp_path / "data")
    identity = directory.boot("rs1")
    (directory.log_directory / "wal-0000000000000001.seg").write_bytes(b"old")
    calls = 0

    def counting(real: object) -> object:
        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            if calls == cut:
                raise Killed
            calls += 1
            return real(*arguments, **options)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", counting(Path.rename))
        patch.setattr(Path, "unlink", counting(Path.unlink))
        patch.setattr(directory._io, "sync_directory", counting(directory._io.sync_directory), raising=False)
        try:
            directory.set_aside(identity)
        except Killed:
            pass
    directory.close()
    again = DataDirectory(tmp_path / "data")
    found = again.boot("rs1")
    kept = (again.log_directory / "wal-0000000000000001.seg").exists()
    assert kept == (found.incarnation == identity.incarnation)
    again.close()
