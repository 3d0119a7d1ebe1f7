"""The garbage collector of a server."""

from __future__ import annotations

import gc

import pytest

from rangelog_server_common.garbage import collector_off


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_afterwards_as_it_was(is_on: bool) -> None:
    """Who runs with it off, as the simulator does, has it off still; an error changes nothing."""
    before = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), collector_off():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()
