"""Positions and errors of the reader for an event loop: of events that were handed out one by one, and of batches."""

from __future__ import annotations

from pathlib import Path

import pytest

import rangelog
from rangelog.errors import Corruption
from rangelog_files.event_store import EventStore
from tests.unit.files.memory_files import MemoryFiles, Written, place


def written(directory: Path, *, damaged: bool = False) -> int:
    """Two writers with two files each, of five blocks of three events; returns how many events there are."""
    files = MemoryFiles()
    for prefix in "ab":
        for sequence in range(2):
            file = Written(files, place(prefix, sequence))
            for number in range(5):
                names = [b"%s%d%d%d" % (prefix.encode(), sequence, number, each) for each in range(3)]
                file.block(1_000 * sequence + 10 * number, *names)
            file.end()
    if damaged:
        files.data[place("b", 1).data_path][-40] ^= 1
    for name, data in files.data.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return 60


def opened(directory: Path) -> EventStore:
    """The stream `who`."""
    return rangelog.open_files(f"{directory.as_uri()}/who")


@pytest.mark.parametrize("follow", [False, True])
async def test_r20_a_position_between_two_events_is_exact(tmp_path: Path, follow: bool) -> None:
    """After each event a later reader goes on at the next one: none is missing, and none comes twice."""
    count = written(tmp_path)
    async with opened(tmp_path) as store:
        everything = [record.value async for record in store.reader()]
        assert len(everything) == len(set(everything)) == count
        reader = store.reader(follow=follow)
        assert reader.position() == []
        taken = []
        async for record in reader:
            taken.append(record.value)
            rest = [each.value async for each in store.reader(start=reader.position())]
            assert sorted(taken + rest) == sorted(everything)
            if len(taken) == count:
                break


async def test_r20_a_position_of_batches_is_behind_the_last_one(tmp_path: Path) -> None:
    """Nothing of it comes again."""
    written(tmp_path)
    async with opened(tmp_path) as store:
        reader = store.reader()
        batches = reader.batches()
        first = await anext(batches)
        assert len(first) > 3
        rest = [each.value async for each in store.reader(start=reader.position())]
        assert len({each.value for each in first} | set(rest)) == len(first) + len(rest) == 60


async def test_an_error_comes_behind_the_events_that_were_read_before_it(tmp_path: Path) -> None:
    """The blocks of both writers up to the damage, then the error, each time."""
    written(tmp_path, damaged=True)
    found = []
    async with opened(tmp_path) as store:
        batches = store.reader().batches()
        with pytest.raises(Corruption):
            while True:
                found += [each.value for each in await anext(batches)]
        assert len(found) >= 30 + 2 * 12 and len(found) == len(set(found))
