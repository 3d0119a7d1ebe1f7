"""Several stores as one: each object where its key says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_core.errors import ConfigInvalid, ObjectNotFound, Unavailable
from rangelog_core.object_keys import MANIFESTS, STREAMS, manifest_key, object_key
from rangelog_tier import ObjectStore, open_object_store
from rangelog_tier.object_store import probe
from rangelog_tier.opening import object_location, store_location

OLD, NEW = object_key(1, 0, 0, 10, 9), object_key(1, 1, 10, 20, 10)
MANIFEST = manifest_key(1, "s")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Two directories, of which the first has an object and a manifest."""
    first = open_object_store(f"file://{tmp_path}/a", create=True)
    first.put_if_absent(OLD, b"old")
    first.put_if_absent(MANIFEST, b"{}")
    first.put_if_absent(NEW, b"what does not belong here")
    return f"file://{tmp_path}/a 10=file://{tmp_path}/b"


@pytest.fixture
def both(url: str) -> ObjectStore:
    """The two as one."""
    return open_object_store(url, create=True)


def test_objects_are_where_their_keys_say(both: ObjectStore, tmp_path: Path) -> None:
    """The earlier one stays where it is, the later one goes to the new store; both are listed, in order, and deleted."""
    probe(both)
    both.put_if_absent(NEW, b"new!")
    assert (tmp_path / "b" / NEW).read_bytes() == b"new!"
    for key, data in ((OLD, b"old"), (NEW, b"new!")):
        assert (
            both.get(key) == data and both.get_range(key, 0, 3) == data[:3] and both.head(key).size_bytes == len(data)
        )
        target = bytearray(3)
        both.read_into(key, 0, memoryview(target), lambda: False)
        assert bytes(target) == data[:3]
    for prefix in (STREAMS, "", "streams/1/", "stre"):
        assert [each.key for each in both.list(prefix)] == [OLD, NEW]
    both.delete(OLD)
    assert not (tmp_path / "a" / OLD).exists()
    with pytest.raises(ObjectNotFound):
        both.get(OLD)
    both.close()


def test_a_manifest_is_in_the_last_store_only(both: ObjectStore, tmp_path: Path) -> None:
    """The former one would go on telling programs of a state that is past."""
    assert list(both.list(MANIFESTS)) == []
    both.put_if_absent(MANIFEST, b"{1}")
    assert not (tmp_path / "a" / MANIFEST).exists() and (tmp_path / "b" / MANIFEST).exists()
    data, etag = both.get_with_etag(MANIFEST)
    both.replace(MANIFEST, data + b".", etag)
    assert both.get(MANIFEST) == b"{1}." and [each.key for each in both.list(MANIFESTS)] == [MANIFEST]


def test_a_former_store_that_is_away_troubles_who_reads_from_it(url: str, tmp_path: Path) -> None:
    """Uploads and manifests go on; nothing of it is taken for missing; it is not made anew."""
    (tmp_path / "a").rename(tmp_path / "away")
    both = open_object_store(url, create=True)
    both.put_if_absent(NEW, b"new")
    both.put_if_absent(MANIFEST, b"{}")
    assert both.get(NEW) == b"new"
    for call in (lambda: both.get(OLD), lambda: list(both.list(STREAMS))):
        with pytest.raises(Unavailable, match="no directory"):
            call()
    assert not (tmp_path / "a").exists()


def test_a_reader_makes_no_store(url: str, tmp_path: Path) -> None:
    """Neither the former nor the new one."""
    with pytest.raises(Unavailable):
        open_object_store(url).get(NEW)
    assert not (tmp_path / "b").exists()


def test_where_other_programs_find_an_object() -> None:
    """By its key; a bad store is told when the tier is opened, not later."""
    url = "file:///a 10=s3://bbb/p?region=x"
    assert object_location(url, OLD) == f"/a/{OLD}" and object_location(url, NEW) == f"s3://bbb/p/{NEW}"
    assert store_location(url) == "s3://bbb/p" and store_location("file:///a 10=file:///b c") == "/b c"
    with pytest.raises(ConfigInvalid):
        open_object_store("file:///a 10=ftp:x")
