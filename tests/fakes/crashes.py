"""What a crash at one call of a disk in memory may leave, the choices that find most and some that are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.fakes.directory import Directory
from tests.fakes.disk import WRITE, Step


def crashed(directory: Directory, step: Step | None, chance: Random, draws: int) -> Iterator[tuple[str, Directory]]:
    """Yield (kind, directory) for a crash before or in the middle of `step` (None: after the last one)."""
    yield "killed", directory.copy()
    under_way = directory
    if step is not None and step.call == WRITE:
        for kept in _borders(len(step.data), chance):
            part = directory.copy()
            part.names[step.name].write(step.position, step.data[:kept])
            yield "killed in a write", part
        under_way = directory.copy()
        if step.name in under_way.names:
            under_way.names[step.name].write(step.position, step.data)
    yield "nothing unflushed", directory.power_cut(_none, _none)
    if not under_way.changes and not any(file.pending for file in under_way.names.values()):
        return
    yield "all of it", under_way.power_cut(_all, _all)
    if under_way.changes:
        yield "names without bytes", under_way.power_cut(_none, _all)
        yield "bytes without names", under_way.power_cut(_all, _none)
    yield "first half of the sectors", under_way.power_cut(lambda n, of: 2 * n < of, _all)
    yield "second half of the sectors", under_way.power_cut(lambda n, of: 2 * n >= of, _all)
    yield "lengths without bytes", under_way.power_cut(_none, _all, whole_length=True)
    for _ in range(draws):
        share, names, ordered = chance.choice((0.2, 0.5, 0.8)), chance.random(), chance.random() < 0.5
        yield (
            "drawn sectors and names",
            under_way.power_cut(
                lambda n, of, share=share: chance.random() < share,
                lambda n, of, names=names, ordered=ordered: n < names * of if ordered else chance.random() < names,
                whole_length=chance.random() < 0.3,
            ),
        )


def _none(number: int, of: int) -> bool:
    return False


def _all(number: int, of: int) -> bool:
    return True


def _borders(length: int, chance: Random) -> list[int]:
    """Where a write may stop: in the middle, one byte short, and anywhere."""
    found = {length // 2, length - 1, chance.randrange(length) if length else 0}
    return sorted(each for each in found if 0 < each < length)
