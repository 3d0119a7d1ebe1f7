"""The stores of a tier as one text, and which of them has an object."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.object_keys import manifest_key, object_key
from rangelog_core.tier_stores import (
    STORES_MAX,
    TierStore,
    check_url,
    parse_tier,
    store_of_key,
    store_of_object,
    tier_text,
    was_changed,
)

URLS = st.sampled_from(["file:///a", "file:///b dir/1=x", "s3://bucket/p?region=x&endpoint=http://127.0.0.1:1"])


@given(st.lists(st.tuples(st.integers(1, 1 << 40), URLS), max_size=5), URLS)
def test_a_text_is_what_it_was_made_of(later: list[tuple[int, str]], first: str) -> None:
    """For every list of stores; one URL alone is its own text."""
    rising = sorted(dict(later).items())
    stores = (TierStore(0, first), *(TierStore(number, url) for number, url in rising))
    assert parse_tier(tier_text(stores)) == stores
    assert tier_text(stores[:1]) == first
    assert was_changed(tier_text(stores)) == (len(stores) > 1)


def test_an_object_is_in_the_store_of_its_time() -> None:
    """By its id, which its key has; the border belongs to the later store, and what is no object to the last one."""
    stores = parse_tier("file:///a 10=file:///b 20=file:///c")
    for object_id, url in ((1, "a"), (9, "a"), (10, "b"), (19, "b"), (20, "c"), (1 << 60, "c")):
        assert store_of_object(stores, object_id).url == f"file:///{url}"
        assert store_of_key(stores, object_key(1, 0, 0, 5, object_id)).url == f"file:///{url}"
    for key in (manifest_key(1, "s"), "probe/x", "streams/1/notes.txt"):
        assert store_of_key(stores, key).url == "file:///c"
    moved = parse_tier("50=file:///d")
    assert store_of_object(moved, 3).url == "file:///d" and was_changed("50=file:///d")


@pytest.mark.parametrize(
    "text", ["file:///a 5=file:///b 5=file:///c", "5=file:///a 4=file:///b", "file:///a 0=file:///b",
             f"file:///a {(1 << 63)}=file:///b", " ".join(f"{n}=file:///a" for n in range(1, STORES_MAX + 2))]
)  # fmt: skip
def test_bad_texts(text: str) -> None:
    """Numbers rise, are ids, and are not too many."""
    with pytest.raises(ConfigInvalid):
        parse_tier(text)


@pytest.mark.parametrize("url", ["", "file:///a b", "s3://b\n", "x" * 2_000, "5=file:///a"])
def test_urls_that_no_store_may_have(url: str) -> None:
    """What could not be told from the rest of the text."""
    with pytest.raises(InvalidArgument):
        check_url(url)
