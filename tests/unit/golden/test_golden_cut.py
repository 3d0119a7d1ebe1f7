"""The text form of a cut, which outlives the program that wrote it in users' checkpoints: as it was in version 1."""

from __future__ import annotations

from rangelog import Cut

GOLDEN = '{"cut":1,"topic_id":18446744073709551615,"offsets":{"0":9223372036854775807,"3":0,"10":250}}'


def test_the_text_of_a_cut_stays_as_it_is() -> None:
    """Written and read, to the byte."""
    cut = Cut((1 << 64) - 1, {10: 250, 0: (1 << 63) - 1, 3: 0})
    assert cut.to_json() == GOLDEN
    assert Cut.from_json(GOLDEN) == cut
