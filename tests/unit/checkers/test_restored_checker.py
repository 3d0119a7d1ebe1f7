"""The checker of restored streams in the chaos run sees each kind of damage in what was sound."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.chaos_moved_tier import problems_of

ACKED = {0: b"w:0", 1: b"w:1", 3: b"w:3", 4: b"w:4"}
SENT = [b"w:%d" % n for n in range(6)]


@pytest.mark.parametrize(
    ("found", "lost_from", "said"),
    [
        (SENT[:4], [4], []),
        (SENT[:3], [1, 3], []),
        (SENT[:5], [], []),
        (SENT[:2], [2], ["s is restored up to 2; up to 3 it was in the tier"]),
        (SENT[:4], [], ["records of s were acked behind 4, and are not listed as lost from there on: []"]),
        ([b"w:0", b"w:5", b"w:2"], [3], ["1 records of s are others than were acked, such as at 1"]),
        ([b"w:0", b"w:1", b"damaged"], [3], ["nobody sent 1 records of s, such as that at 2"]),
    ],
)
def test_damage_is_seen(found: Sequence[bytes], lost_from: Sequence[int], said: list[str]) -> None:
    """Too little, not told of, another record than was acked, one of nobody."""
    assert problems_of("s", ACKED, SENT, found, 3, lost_from) == said
