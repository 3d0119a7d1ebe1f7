"""An answer of an object store that says of itself that it is incomplete: it is neither all that there is, nor damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rangelog_core.errors import Unavailable
from rangelog_tier import ObjectStore, open_object_store, s3_store
from rangelog_tier.object_store import ObjectTooShort
from tests.corruption.lying_s3 import LyingS3
from tests.corruption.s3_faults import impatient

DATA = bytes(range(100))


@pytest.fixture
def s3() -> Iterator[LyingS3]:
    """An S3 with a few objects, whose clients do not wait long."""
    with impatient(), LyingS3(1) as server:
        for key in "abcd":
            server.objects[f"t/{key}"] = DATA
        yield server


def _filled(store: ObjectStore, start: int, length: int) -> bytes:
    target = bytearray(length)
    store.read_into("a", start, memoryview(target), lambda: False)
    return bytes(target)


SPANS: list[Callable[[ObjectStore, int, int], bytes]] = [lambda store, *span: store.get_range("a", *span), _filled]


@pytest.mark.parametrize("fault", ["no token", "same token", "cut short"])
def test_a_listing_that_has_more_and_does_not_say_where_is_no_listing(s3: LyingS3, fault: str) -> None:
    """A scrub or a restore would take what it lacks for missing objects."""
    store = open_object_store(s3.url)
    assert [each.key for each in store.list("")] == ["a", "b", "c", "d"]
    s3.choose = lambda verb, key: fault if not key else ""
    with pytest.raises(Unavailable):
        list(store.list(""))


def test_a_page_with_a_token_has_a_next_one(s3: LyingS3) -> None:
    """Where the server leaves out whether there is more, its token says so."""
    s3.choose = lambda verb, key: "only a token"
    assert [each.key for each in open_object_store(s3.url).list("")] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("read", SPANS)
@pytest.mark.parametrize("fault", ["span cut", "range ignored", "other span", "shortened", "cut short"])
def test_another_span_than_was_asked_for_is_no_damage(
    s3: LyingS3, fault: str, read: Callable[[ObjectStore, int, int], bytes]
) -> None:
    """Its length says that the object is whole: only an object without these bytes is too short, which is taken for damage."""
    store = open_object_store(s3.url)
    assert read(store, 10, 80) == DATA[10:90]
    with pytest.raises(ObjectTooShort):
        read(store, 90, 11)
    with pytest.raises(ObjectTooShort):
        read(store, 100, 1)
    s3.choose = lambda verb, key: fault
    with pytest.raises(Unavailable):
        read(store, 10, 80)


@pytest.mark.parametrize("read", SPANS)
def test_the_whole_object_is_the_span_of_all_of_it(s3: LyingS3, read: Callable[[ObjectStore, int, int], bytes]) -> None:
    """A server without ranges answers that one rightly."""
    s3.choose = lambda verb, key: "range ignored"
    assert read(open_object_store(s3.url), 0, len(DATA)) == DATA


@pytest.mark.parametrize("fault", ["partial", "cut short"])
def test_a_part_of_an_object_is_not_the_object(s3: LyingS3, fault: str) -> None:
    """A manifest or a snapshot would be taken for damaged."""
    store = open_object_store(s3.url)
    s3.choose = lambda verb, key: fault
    for read in (store.get, store.get_with_etag):
        with pytest.raises(Unavailable):
            read("a")


def test_an_upload_in_parts_that_failed_inside_is_not_there(
    s3: LyingS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last request is answered by 200 before the store has joined the parts; what the body says counts."""
    monkeypatch.setattr(s3_store, "PART_BYTES", 40)
    (tmp_path / "object").write_bytes(DATA)
    s3.choose = lambda verb, key: "failed inside" if verb == "POST" else ""
    with pytest.raises(Unavailable):
        open_object_store(s3.url).put_if_absent("large", tmp_path / "object")
    assert "t/large" not in s3.objects


def test_a_directory_that_cannot_be_read_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of another owner in a directory as tier: what is in it is not missing."""
    store = open_object_store(f"file://{tmp_path}", create=True)
    for key in ("streams/1/a", "streams/2/b"):
        store.put_if_absent(key, DATA)
    scandir = os.scandir

    def denied(path: str) -> object:
        if str(path).endswith("streams/2"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    assert [each.key for each in store.list("streams/")] == ["streams/1/a", "streams/2/b"]
    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(Unavailable, match="Permission denied"):
        list(store.list("streams/"))
