"""Cases of the repack model: as it is, and each wrong choice with what it breaks."""

from __future__ import annotations

from tests.model.case import Case
from tests.model.repack_model import Repacking
from tests.model.search import Result, explore


def _repack(name: str, why: str, instance: Repacking, expect: str = "", *, large: bool = False) -> Case:
    def search() -> Result:
        return explore(instance.initial(), instance.successors, instance.invariant, instance.goal, name=name)

    return Case("repack", name, why, instance, search, expect, large)


def _wrong(name: str, why: str, expect: str, **more: bool) -> Case:
    return _repack(name, why, Repacking(name, **more), expect)  # type: ignore[arg-type]


REPACK = [
    _repack(
        "under-a-reader",
        "one packer, while a reader has listed objects, the stream is trimmed and the store spoils",
        Repacking(packers=1, keys=1, spoils=True, trims=True, reader=True),
    ),
    _repack("two-at-once", "two packers, which stand still and are given up", Repacking()),
    _repack("two-and-trims", "the same, while the stream is trimmed", Repacking(trims=True), large=True),
    _repack(
        "repacked-again",
        "one packer, twice, while a reader has listed objects, the stream is trimmed and the store spoils",
        Repacking(packers=1, spoils=True, trims=True, reader=True),
        large=True,
    ),
    _wrong("unverified", "the packer does not read its object back", "COMMITTED-WRONG", spoils=True),
    _wrong("replace-what-is-gone", "a commit replaces what still counts, and ignores the rest", "RECORD-TWICE"),
    _wrong("keep-the-replaced", "a commit leaves the others as they are", "RECORD-TWICE"),
    _wrong("keep-with-the-first-range", "the object is kept with its first range", "RECORD-LOST", trims=True),
    _wrong("collect-under-the-packer", "a tombstone is forgotten while its packer may still put", "GARBAGE-FOR-EVER"),
    _wrong("list-once", "a reader stays with the objects that it has listed", "READER-STUCK", reader=True),
]
