"""How two sides agree on a version of the data plane, and the error when they cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import ProtocolViolation, UnsupportedVersion
from rangelog_core.versions import VersionRange, agreed, announced

RANGES = st.tuples(st.integers(1, 9), st.integers(0, 9)).map(lambda pair: VersionRange(pair[0], pair[0] + pair[1]))


@given(RANGES, RANGES)
def test_the_highest_common_version_or_none(client: VersionRange, server: VersionRange) -> None:
    """Any two ranges: the highest number in both, or an error that names both and the side that is behind."""
    common = set(range(client.lowest, client.highest + 1)) & set(range(server.lowest, server.highest + 1))
    if common:
        assert agreed(client, server) == max(common)
        return
    with pytest.raises(UnsupportedVersion) as refused:
        agreed(client, server)
    behind = "client" if client.highest < server.lowest else "range server"
    assert f"the client supports {client}, the range server {server}: upgrade the {behind}" in refused.value.message


@pytest.mark.parametrize(("lowest", "highest"), [(0, 0), (2, 1), (-1, 3), (1, 0)])
def test_an_announcement_that_is_no_range(lowest: int, highest: int) -> None:
    """No version, or a lowest above the highest, breaks the protocol."""
    with pytest.raises(ProtocolViolation):
        announced(lowest, highest)


def test_a_single_version_is_the_only_one() -> None:
    """A peer that leaves out its lowest version supports its highest and no other."""
    assert announced(0, 3) == VersionRange(3, 3)
    assert announced(2, 3) == VersionRange(2, 3)
    assert (str(VersionRange(1, 1)), str(VersionRange(1, 3))) == ("1", "1 to 3")
