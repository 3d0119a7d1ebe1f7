"""Names of streams: those that users give, and those behind shards, which are only read."""

from __future__ import annotations

import pytest

from rangelog_core.errors import InvalidArgument
from rangelog_core.ids import check_name, check_readable_name, is_internal_name, shard_stream_name


def test_the_stream_behind_a_shard_is_read_and_never_created() -> None:
    """The largest ids, too; other internal names are nobody's."""
    largest = (1 << 64) - 1
    for name in (shard_stream_name(1, 0), shard_stream_name(largest, largest)):
        assert check_readable_name(name) == name and is_internal_name(name)
        with pytest.raises(InvalidArgument):
            check_name("stream", name)
    assert check_readable_name("flights") == "flights"


@pytest.mark.parametrize(
    "name",
    ["", "_x", "_topic-1", "_topic-1-shard-", "_topic--1-shard-0", "_topic-1-shard-0\n", "_topic-²-shard-0", "a/b"],
)
def test_other_names_are_not_read(name: str) -> None:
    """They are refused before any call."""
    with pytest.raises(InvalidArgument):
        check_readable_name(name)
