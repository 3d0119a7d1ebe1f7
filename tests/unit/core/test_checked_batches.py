"""The one check of what a replica sent: only consecutive, whole batches of the range that was asked for pass."""

from __future__ import annotations

import pytest

from rangelog_core.checked_batches import check_batches
from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_server.testing import batch

FIRST, SECOND = batch(3, [b"a", b"b", b"c"]), batch(6, [b"d"])


def test_consecutive_batches_pass_and_name_their_end() -> None:
    """The first may start before the offset that was asked for, as long as it holds it."""
    checked = check_batches(FIRST + SECOND, stream_id=1, range_index=0, offset=4)
    assert [each.data for each in checked.batches] == [FIRST, SECOND]
    assert checked.end_offset == 7
    assert [each.data for each in checked.before(6)] == [FIRST]


def test_an_empty_payload_goes_on_where_it_was_asked() -> None:
    """No batches: the end is the offset itself."""
    checked = check_batches(b"", stream_id=1, range_index=0, offset=4)
    assert (list(checked.batches), checked.end_offset) == ([], 4)


@pytest.mark.parametrize(
    "payload",
    [
        SECOND,
        batch(0, [b"a"]),
        FIRST + FIRST,
        FIRST + batch(7, [b"d"]),
        batch(3, [b"a", b"b"], stream_id=2),
        batch(3, [b"a", b"b"], range_index=1),
        FIRST + batch(6, [b"d"], range_index=1),
        FIRST[:-1] + bytes([FIRST[-1] ^ 1]),
        FIRST + SECOND[:-1] + bytes([SECOND[-1] ^ 1]),
    ],
    ids=[
        "beyond",
        "below",
        "twice",
        "gap",
        "other-stream",
        "other-range",
        "other-range-later",
        "damaged",
        "damaged-later",
    ],
)
def test_what_does_not_fit_is_corruption(payload: bytes) -> None:
    """Batches elsewhere, with a gap, of another range, or damaged are refused as one."""
    with pytest.raises(Corruption):
        check_batches(payload, stream_id=1, range_index=0, offset=4)


@pytest.mark.parametrize("payload", [FIRST[:-1], b"x" * 200, FIRST + b"x"], ids=["cut", "noise", "noise-behind"])
def test_what_is_no_batch_is_a_violation(payload: bytes) -> None:
    """Bytes that are no batches at all are refused with the protocol's error."""
    with pytest.raises(ProtocolViolation):
        check_batches(payload, stream_id=1, range_index=0, offset=4)
