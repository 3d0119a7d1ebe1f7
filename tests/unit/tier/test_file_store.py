"""The directory store: whole objects, once; typed errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rangelog_core.errors import (
    ConfigInvalid,
    InvalidArgument,
    MissingExtra,
    ObjectNotFound,
    PreconditionFailed,
    RangelogError,
    StorageFull,
    Unavailable,
)
from rangelog_core.object_keys import object_key, range_prefix, stream_prefix
from rangelog_tier import open_object_store
from rangelog_tier.file_store import FileStore
from rangelog_tier.object_store import check_key, probe


def test_put_get_list_delete(tmp_path: Path) -> None:
    """The verbs do what they say."""
    store = open_object_store(f"file://{tmp_path}/store", create=True)
    probe(store)
    store.put_if_absent("a/b", b"hello")
    source = tmp_path / "file"
    source.write_bytes(b"from a file")
    store.put_if_absent("a/c", source)
    assert store.get("a/b") == b"hello"
    assert store.get_range("a/b", 1, 3) == b"ell"
    assert store.head("a/c").size_bytes == 11
    assert [info.key for info in store.list("a/")] == ["a/b", "a/c"]
    store.delete("a/b")
    store.delete("a/b")
    with pytest.raises(ObjectNotFound):
        store.get("a/b")
    with pytest.raises(InvalidArgument):
        store.get_range("a/c", 5, 100)


def test_one_winner(tmp_path: Path) -> None:
    """Of many that put one key at once, one wins, and its bytes stay."""
    store = open_object_store(f"file://{tmp_path}")
    won: list[int] = []

    def put(number: int) -> None:
        try:
            store.put_if_absent("key", b"%d" % number)
            won.append(number)
        except PreconditionFailed:
            pass

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("key") == b"%d" % won[0]


def test_replace_has_one_winner(tmp_path: Path) -> None:
    """Of many that replace the same content, one wins; who names another content, or none that is there, is refused."""
    store = open_object_store(f"file://{tmp_path}")
    store.put_if_absent("a/key", b"first")
    data, etag = store.get_with_etag("a/key")
    assert data == b"first" and etag == store.head("a/key").etag
    won: list[int] = []

    def replace(number: int) -> None:
        try:
            store.replace("a/key", b"%d" % number, etag)
            won.append(number)
        except PreconditionFailed:
            pass

    threads = [threading.Thread(target=replace, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and store.get("a/key") == b"%d" % won[0]
    store.replace("a/key", b"third", store.get_with_etag("a/key")[1])
    assert store.get("a/key") == b"third" and [info.key for info in store.list("a/")] == ["a/key"]
    store.delete("a/key")
    for gone in (etag, ""):
        with pytest.raises(PreconditionFailed):
            store.replace("a/key", b"late", gone)
    with pytest.raises(ObjectNotFound):
        store.get_with_etag("a/key")


@pytest.mark.parametrize("key", ["", "/a", "a/../b", "..", "a//b", "a\n", "x" * 2000])
def test_bad_keys(tmp_path: Path, key: str) -> None:
    """A key cannot leave the store."""
    with pytest.raises(InvalidArgument):
        open_object_store(f"file://{tmp_path}").put_if_absent(key, b"")


@pytest.mark.parametrize("url", ["", "ftp://x", "file://host/dir", "file:relative", "s3://", "s3://b/p?endpont=x"])
def test_bad_urls(url: str) -> None:
    """A bad URL is said in one line."""
    with pytest.raises(ConfigInvalid):
        open_object_store(url)


def test_keys_sort_as_their_spans() -> None:
    """Object keys are valid, start with their range's and stream's prefixes, and sort by range and offset."""
    spans = [(9, 0, 5, 1), (9, 5, 1000, 2), (9, 1000, 2**63, 30), (10, 0, 1, 4), (100, 0, 1, 5)]
    keys = [object_key(7, index, start, end, number) for index, start, end, number in spans]
    assert keys == sorted(keys)
    assert all(check_key(key).startswith(range_prefix(7, span[0])) for key, span in zip(keys, spans, strict=True))
    assert range_prefix(7, 9).startswith(stream_prefix(7))
    assert object_key(7, 3, 1000, 2000, 42) == (
        "streams/7/ranges/00000003/00000000000000001000-00000000000000002000-42.parquet"
    )


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """A half-written object of a process that was killed is neither listed nor kept for ever; a young one is left alone."""
    store = open_object_store(f"file://{tmp_path}", create=True)
    old, young = tmp_path / ".aside" / "old", tmp_path / ".aside" / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 100_000, time.time() - 100_000))
    assert list(store.list("")) == []
    open_object_store(f"file://{tmp_path}", create=True)
    assert not old.exists()
    assert young.exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A path below a file is one line that names it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="file/store") as caught:
        open_object_store(f"file://{tmp_path}/file/store", create=True)
    assert "\n" not in caught.value.message


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room is StorageFull, and nothing of the object is left."""
    store = open_object_store(f"file://{tmp_path}")

    def no_room(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_room)
        with pytest.raises(StorageFull):
            store.put_if_absent("key", b"hello")
    assert list(store.list("")) == []
    assert list((tmp_path / ".aside").iterdir()) == []
    store.put_if_absent("key", b"hello")


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    """A probe finds out a store that overwrites, and cleans up behind itself."""

    class Overwriting(FileStore):
        def put_if_absent(self, key: str, source: bytes | Path) -> None:
            self.delete(key)
            super().put_if_absent(key, source)

    store = Overwriting(tmp_path)
    with pytest.raises(ConfigInvalid, match="If-None-Match"):
        probe(store)
    assert list(store.list("")) == []


def test_without_boto3_an_s3_tier_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The light client names the extra it lacks."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "rangelog_tier.s3_store", raising=False)
    with pytest.raises(MissingExtra, match="rangelog\\[tier\\]"):
        open_object_store("s3://bucket")


def test_importing_the_tier_loads_neither_boto3_nor_arrow() -> None:
    """Who only needs keys or a directory store does not wait for large libraries."""
    code = (
        "import sys, rangelog, rangelog_tier, rangelog_core.object_keys, rangelog_tier.file_store;"
        "sys.exit(' '.join(name for name in ('boto3', 'pyarrow', 'pyspark') if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "url", ["s3://b?endpoint=x&endpoint=y", "s3://bucket?secret=hunter2", "s3://user:hunter2", "file:///d?create=true"]
)
def test_urls_hold_no_more_than_they_should(url: str) -> None:
    """What a tier URL has no use for is refused, and a value that may be a secret is not repeated."""
    with pytest.raises(RangelogError) as caught:
        open_object_store(url)
    assert isinstance(caught.value, ConfigInvalid)
    assert "hunter2" not in caught.value.message
