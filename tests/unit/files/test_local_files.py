"""R3: event files in a directory: what is listed and read, and that no link leads out of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rangelog_core.errors import InvalidArgument, StreamNotFound, Unavailable
from rangelog_files.block_filters import TimeFilter
from rangelog_files.event_reader import EventReader
from rangelog_files.layout import EventPath
from rangelog_files.local_files import LocalFiles
from rangelog_files.merging import MergingCore
from rangelog_files.readable_files import ObjectFiles, ReadableFiles
from rangelog_tier.file_store import FileStore
from tests.unit.files.memory_files import DAY_MS, MemoryFiles, Written, bodies, place


def written(root: Path, paths: list[EventPath]) -> list[bytes]:
    """Files with one event each."""
    memory = MemoryFiles()
    for path in paths:
        file = Written(memory, path, index_bytes=0)
        file.block(path.partition.start_s * 1_000, path.data_path.encode())
        file.end()
    for name, data in memory.data.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return [path.data_path.encode() for path in sorted(paths, key=lambda path: (path.partition, path.prefix))]


@pytest.fixture(params=["local", "objects"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> ReadableFiles:
    """A directory, as such and as an object store."""
    return LocalFiles(tmp_path) if request.param == "local" else ObjectFiles(FileStore(tmp_path))


PATHS = [place("a"), place("b"), place("a", 1), place("c", day=1), place("a", day=2)]


def test_r3_files_are_listed_by_their_times(files: ReadableFiles, tmp_path: Path) -> None:
    """What is not an event file of the generation is passed over."""
    written(tmp_path, [*PATHS, place("a", generation=2)])
    folder = tmp_path / place().folder
    for name in ("x.tmp", ".a.000000.dat", "a.1.dat", "LOCK"):
        (folder / name).touch()
    (folder / "d.000000.dat").mkdir()
    (tmp_path / "who/00001/notes").mkdir()
    assert sorted(files.list_files("who", 1)) == sorted(PATHS)
    assert files.list_files("who", 1, DAY_MS, 2 * DAY_MS) == [place("c", day=1)]
    assert files.list_files("who", 1, 9 * DAY_MS) == []


def test_r3_a_directory_is_read(files: ReadableFiles, tmp_path: Path) -> None:
    """All events, and one day of them."""
    expected = written(tmp_path, [place("a"), place("b"), place("c", day=1)])
    assert bodies(EventReader(files, MergingCore("who", 1))) == expected
    assert bodies(EventReader(files, MergingCore("who", 1, times=TimeFilter(from_ms=DAY_MS)))) == expected[2:]


def test_r3_bytes_of_a_file(files: ReadableFiles, tmp_path: Path) -> None:
    """From anywhere, at the end, behind it; and a file that does not exist."""
    written(tmp_path, [place()])
    whole = (tmp_path / place().data_path).read_bytes()
    name = place().data_path
    assert files.read_file(name, 0, 1 << 20) == whole
    assert files.read_file(name, 5, 7) == whole[5:12]
    assert files.read_file(name, len(whole), 7) == files.read_file(name, 10**12, 7) == b""
    assert files.read_file(place("z").data_path, 0, 7) is None
    assert files.read_file(place("z", day=5).data_path, 0, 7) is None
    assert files.read_file(place().index_path, 0, 2) == b"I1"


@pytest.mark.parametrize(
    "path",
    ["../../etc/passwd", "who/00001/0.86400/../../../x", "/etc/passwd", "who", "who/00001/0.86400/a\0.000000.dat"],
)
def test_a_path_that_leads_elsewhere_is_refused(files: ReadableFiles, path: str) -> None:
    """Before anything is opened."""
    with pytest.raises(InvalidArgument):
        files.read_file(path, 0, 1)


def test_a_missing_generation_is_no_empty_one(tmp_path: Path) -> None:
    """Nor is a missing stream."""
    written(tmp_path, [place()])
    local = LocalFiles(tmp_path)
    for stream, generation in (("who", 2), ("whom", 1)):
        with pytest.raises(StreamNotFound):
            local.list_files(stream, generation)
    with pytest.raises(InvalidArgument):
        local.list_files("..", 1)


@pytest.mark.parametrize("part", [1, 2, 3, 4])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, part: int) -> None:
    """Whether the link is the stream, the generation, the partition or the file; the secret outside is not read."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    written(root, [place("x", day=5), place("y")])
    written(outside, [place("a")])
    parts = place("a").data_path.split("/")
    link, target = root.joinpath(*parts[:part]), outside.joinpath(*parts[:part])
    if part < 4 and link.exists():
        link.rename(tmp_path / "aside")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    local = LocalFiles(root)
    with pytest.raises(InvalidArgument, match="symbolic link"):
        local.read_file(place("a").data_path, 0, 10)
    try:
        listed = local.list_files("who", 1)
    except InvalidArgument:
        listed = []
    assert place("a") not in listed


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer does not hold the reader up; a directory and a socket are no files."""
    folder = tmp_path / place().folder
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.000000.dat")
    (folder / "b.000000.dat").mkdir()
    local = LocalFiles(tmp_path)
    listening = socket.socket(socket.AF_UNIX)
    try:
        here = os.getcwd()
        os.chdir(folder)  # the path of a socket is short
        try:
            listening.bind("c.000000.dat")
        finally:
            os.chdir(here)
        assert local.list_files("who", 1) == []
        for prefix, error in (("a", InvalidArgument), ("b", InvalidArgument), ("c", Unavailable)):
            with pytest.raises(error):
                local.read_file(place(prefix).data_path, 0, 1)
    finally:
        listening.close()


def test_a_directory_that_may_not_be_read_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for an empty one."""
    written(tmp_path, [place()])

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rangelog_files.local_files.os.open", refuse)
    with pytest.raises(Unavailable, match="Permission denied"):
        LocalFiles(tmp_path).list_files("who", 1)


def test_a_reader_keeps_no_file_open(tmp_path: Path) -> None:
    """However much it reads, and whatever fails."""
    written(tmp_path, PATHS)
    local = LocalFiles(tmp_path)
    (tmp_path / place("l").data_path).symlink_to("/etc/passwd")
    before = len(os.listdir("/proc/self/fd"))
    assert len(bodies(EventReader(local, MergingCore("who", 1)))) == len(PATHS)
    for path in (place("l"), place("z"), place("z", day=7)):
        try:
            local.read_file(path.data_path, 0, 1)
        except InvalidArgument:
            assert path == place("l")
    assert len(os.listdir("/proc/self/fd")) == before
