"""Row keys of tables: one for each pair of family and key, in the order of both."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core import table_keys
from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_core.limits import TABLE_KEY_BYTES_MAX
from rangelog_core.table_keys import key_prefix, prefix_end, row_key, split_row_key, table_position

BYTES = st.lists(st.sampled_from([0, 1, 2, 97, 254, 255]), min_size=1, max_size=5).map(bytes)
PAIRS = st.tuples(st.none() | BYTES, BYTES)


@given(PAIRS, PAIRS)
def test_pairs_and_row_keys_are_one_to_one_and_in_one_order(
    one: tuple[bytes | None, bytes], other: tuple[bytes | None, bytes]
) -> None:
    """Rows without a family first, then by family, then by key; a family's rows are those with its prefix."""
    first, second = row_key(one[1], one[0]), row_key(other[1], other[0])
    assert split_row_key(first) == (one[1], one[0])
    assert (first < second) == (
        (one[0] is not None, one[0] or b"", one[1]) < (other[0] is not None, other[0] or b"", other[1])
    )
    assert second.startswith(key_prefix(one[0])) == (one[0] == other[0])


@given(BYTES, BYTES)
def test_the_end_of_a_prefix_is_behind_all_that_has_it(prefix: bytes, key: bytes) -> None:
    """And before all else that is behind it."""
    end = prefix_end(prefix)
    assert (key.startswith(prefix)) == (key >= prefix and (end is None or key < end))


@given(st.binary(max_size=8))
def test_what_is_no_row_key_is_corruption(data: bytes) -> None:
    """Whatever is taken is what its parts make."""
    try:
        key, family = split_row_key(data)
    except Corruption:
        return
    assert row_key(key, family) == data


@pytest.mark.parametrize(("key", "family"), [(b"", None), (b"k", b""), (b"k" * TABLE_KEY_BYTES_MAX, None)])
def test_bad_keys_are_refused(key: bytes, family: bytes | None) -> None:
    """An empty one, and one that is too long as it is stored."""
    with pytest.raises(InvalidArgument):
        row_key(key, family)


def test_all_keys_of_a_family_have_one_position() -> None:
    """That of the family."""
    assert table_position(b"a", b"f") == table_position(b"b", b"f") == table_position(b"f")
    assert table_position(b"a") != table_position(b"b")


def test_the_examples_give_what_they_show() -> None:
    """As they are printed."""
    results = doctest.testmod(table_keys)
    assert results.attempted and not results.failed
