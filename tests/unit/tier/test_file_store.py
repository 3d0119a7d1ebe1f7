"""The directory store: whole objects, once; typed errors."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rangelog.errors import ConfigInvalid, InvalidArgument, ObjectNotFound, PreconditionFailed
from rangelog.tier import open_object_store
from rangelog.tier.object_store import probe


def test_put_get_list_delete(tmp_path: Path) -> None:
    """The verbs do what they say."""
    store = open_object_store(f"file://{tmp_path}/store")
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
