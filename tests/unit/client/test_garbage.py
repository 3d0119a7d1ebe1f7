"""The garbage collector's thresholds in a program with many streams."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import rangelog
from rangelog._garbage import MANY_WRITERS, PYTHONS_OWN, RAISED, spare_many_writers


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """As they were, afterwards."""
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*before)


async def test_the_hundredth_writer_raises_them() -> None:
    """Few writers change nothing in the program they are in."""
    gc.set_threshold(*PYTHONS_OWN[0])
    async with await rangelog.connect("127.0.0.1:1") as client:
        for number in range(MANY_WRITERS - 1):
            client.writer(f"s{number}")
        assert gc.get_threshold() == PYTHONS_OWN[0]
        client.writer("another")
        assert gc.get_threshold() == RAISED


@pytest.mark.parametrize("own", [(1_000, 15, 15), (50_000, 20, 100), (0, 10, 10)])
def test_what_the_program_set_stays(own: tuple[int, int, int]) -> None:
    """It may know better, and 0 means that it wants no collections."""
    gc.set_threshold(*own)
    spare_many_writers()
    assert gc.get_threshold() == own


def test_a_collector_that_is_off_stays_as_it_is() -> None:
    """Nothing is changed behind the back of a program that collects by itself."""
    gc.set_threshold(*PYTHONS_OWN[0])
    gc.disable()
    spare_many_writers()
    assert gc.get_threshold() == PYTHONS_OWN[0] and not gc.isenabled()
