"""Repacking: the same rows and headers in fewer objects, by a plan that touches no byte too often."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core import repack_choice
from rangelog_core.batch import with_extension
from rangelog_core.batch_extension import CRITICAL_TAG_MAX, encode_extension
from rangelog_core.errors import Corruption, ObjectNotFound, PreconditionFailed, Unavailable
from rangelog_core.object_keys import object_key
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_tier import repacking
from rangelog_tier.file_store import FileStore
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.parquet import write_object
from rangelog_tier.repacking import (
    CLUSTER_VERSION_MIN,
    PARTS,
    Repack,
    Repacker,
    check_cluster,
    plan_repacks,
    write_repacked,
)
from tests.support.made_batches import make_batches
from tests.support.pd_calls import CallsByName

SPANS = ((100, 140), (140, 141), (141, 190), (190, 240))


class FakePd(CallsByName):
    """Answers as the placement driver does when nothing is wrong, and notes what it was asked."""

    def __init__(self, prepared: common_pb2.Object) -> None:
        self.prepared = prepared
        self.asked: list[Any] = []

    async def prepare_repack(self, request: Any, timeout_s: float) -> pd_pb2.PrepareRepackResponse:
        """Give the key."""
        self.asked.append(request)
        return pd_pb2.PrepareRepackResponse(object=self.prepared)

    async def commit_repack(self, request: Any, timeout_s: float) -> pd_pb2.CommitRepackResponse:
        """Take the object."""
        self.asked.append(request)
        made = common_pb2.Object()
        made.CopyFrom(self.prepared)
        made.size_bytes, made.digest = request.size_bytes, request.digest
        made.footer_size_bytes, made.footer_crc = request.footer_size_bytes, request.footer_crc
        made.row_groups.extend(request.row_groups)
        return pd_pb2.CommitRepackResponse(object=made)


class Made:
    """Objects of four ranges in a store, and what is to become of them."""

    def __init__(self, directory: Path, *, extended: bool = False) -> None:
        self.directory = directory
        self.store = FileStore(directory / "store")
        batches, self.records = make_batches(140, 10)
        if extended:
            batches = [
                with_extension(each, encode_extension({CRITICAL_TAG_MAX + 1: b"%d" % number}))
                for number, each in enumerate(batches)
            ]
        self.objects = [self._object(number, batches, *span) for number, span in enumerate(SPANS)]
        self.work = Repack(1, "s", self.objects, "0/3/100,1/4/140,2/5/141,3/6/190")
        prepared = common_pb2.Object(
            object_id=50, stream_id=1, range_index=3, epoch=6, start_offset=100, end_offset=240,
            key=object_key(1, 3, 100, 240, 50), server="p", replaces=[each.object_id for each in self.objects],
        )  # fmt: skip
        self.pd = FakePd(prepared)

    def _object(self, number: int, batches: list[bytes], start: int, end: int) -> common_pb2.Object:
        path = self.directory / "object"
        written = write_object(
            path,
            [each for each, first in zip(batches, range(100, 240, 10)) if first < end and first + 10 > start],
            stream_id=1, stream_name="s", range_index=number, epoch=3 + number, start_offset=start, end_offset=end,
            object_id=number + 1,
        )  # fmt: skip
        key = object_key(1, number, start, end, number + 1)
        self.store.put_if_absent(key, path)
        return common_pb2.Object(
            object_id=number + 1, stream_id=1, range_index=number, epoch=3 + number, start_offset=start, end_offset=end,
            key=key, size_bytes=written.size_bytes, digest=written.digest, row_groups=written.row_groups,
            footer_size_bytes=written.footer_size_bytes, footer_crc=written.footer_crc,
        )  # fmt: skip

    def repack(self) -> common_pb2.Object:
        """Carry it out."""
        return asyncio.run(Repacker(self.pd, self.store, self.directory, tier_url="file:///tier").repack(self.work))  # type: ignore[arg-type]

    def read(self, described: common_pb2.Object, start: int, end: int) -> list[Record]:
        """Records of an object."""
        return [each for table in read_object(self.store, described, start, end) for each in records_from_arrow(table)]


@pytest.mark.parametrize("rows_max", [131_072, 60, 1])
def test_the_rows_are_those_of_the_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int) -> None:
    """All of them in order, whole or from the middle, however row groups are joined; the file tells which ranges it has."""
    monkeypatch.setattr(repacking, "ROW_GROUP_ROWS_MAX", rows_max)
    made = Made(tmp_path)
    described = made.repack()
    assert made.read(described, 100, 240) == made.records
    assert made.read(described, 133, 201) == made.records[33:101]
    assert len(described.row_groups) == {131_072: 1, 60: 3, 1: 4}[rows_max]
    told = pq.read_schema(tmp_path / "store" / described.key).metadata
    assert told[PARTS.encode()] == b"0/3/100,1/4/140,2/5/141,3/6/190"
    assert [type(each).__name__ for each in made.pd.asked] == [
        "PrepareRepackRequest", "PrepareRepackRequest", "CommitRepackRequest"
    ]  # fmt: skip
    assert list(made.pd.asked[0].object_ids) == [1, 2, 3, 4]
    assert len({each.packer for each in made.pd.asked}) == 1
    assert not list(tmp_path.glob("*.parquet")), "the file is gone"


def test_the_headers_of_batches_stay_with_their_rows(tmp_path: Path) -> None:
    """Those with an extension: of producers, transactions and the like."""
    made = Made(tmp_path, extended=True)

    def headers(described: common_pb2.Object) -> list[tuple[int, dict[int, bytes]]]:
        reader = ObjectReader(made.store, described)
        groups = reader.row_groups(described.start_offset, described.end_offset)
        return [(header.base_offset, fields) for group in groups for header, fields in reader.batch_headers(group)]

    before = [each for described in made.objects for each in headers(described)]
    assert len(before) > 10
    assert headers(made.repack()) == before


@pytest.mark.parametrize("start", [100, 104, 110, 139, 140, 141, 145, 150, 239])
def test_trimmed_rows_are_left_out(tmp_path: Path, start: int) -> None:
    """From anywhere: within a batch, whose header goes with its first row that stays; at borders of batches and objects."""
    made = Made(tmp_path, extended=True)
    made.pd.prepared.start_offset = start
    made.pd.prepared.key = object_key(1, 3, start, 240, 50)
    described = made.repack()
    assert made.read(described, start, 240) == made.records[start - 100 :]
    reader = ObjectReader(made.store, described)
    groups = reader.row_groups(start, 240)
    found = [(each.base_offset, fields) for group in groups for each, fields in reader.batch_headers(group)]
    first = start // 10 * 10
    assert sorted({base for base, _ in found}) == list(range(first, 240, 10))
    assert all(fields == {CRITICAL_TAG_MAX + 1: b"%d" % ((base - 100) // 10)} for base, fields in found)


def test_a_server_says_who_it_is_and_what_it_spoiled(tmp_path: Path) -> None:
    """A key with other bytes is given up: the next try asks for another one."""
    made = Made(tmp_path)
    made.store.put_if_absent(made.pd.prepared.key, b"other bytes")
    packer = Repacker(made.pd, made.store, made.directory, tier_url="file:///tier", name="rs1", incarnation=9)  # type: ignore[arg-type]
    with pytest.raises(Corruption, match="differs"):
        asyncio.run(packer.repack(made.work))
    assert packer.spoiled_object_id == made.pd.prepared.object_id
    first = made.pd.asked[0]
    assert (first.packer, first.incarnation, first.drops_trimmed, first.spoiled_object_id) == ("rs1", 9, True, 0)
    again = Repacker(
        made.pd,
        made.store,
        made.directory,
        tier_url="file:///tier",
        name="rs1",
        incarnation=9,
        spoiled_object_id=packer.spoiled_object_id,
    )  # type: ignore[arg-type]
    with pytest.raises(Corruption):
        asyncio.run(again.repack(made.work))
    assert made.pd.asked[-1].spoiled_object_id == made.pd.prepared.object_id


def test_damage_is_not_carried_over(tmp_path: Path) -> None:
    """A damaged or missing object ends the repack before anything is stored; so does a store that keeps something else."""
    made = Made(tmp_path)
    path = tmp_path / "store" / made.objects[2].key
    good = path.read_bytes()
    path.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(Corruption):
        made.repack()
    path.unlink()
    with pytest.raises(ObjectNotFound):
        made.repack()
    path.write_bytes(good)
    made.store.put_if_absent(made.pd.prepared.key, b"something else")
    with pytest.raises(Corruption, match="differs"):
        made.repack()
    assert not any(isinstance(each, pd_pb2.CommitRepackRequest) for each in made.pd.asked)
    assert not list(tmp_path.glob("*.parquet")), "the file is gone"


def test_a_lost_race_raises(tmp_path: Path) -> None:
    """What the placement driver refuses is refused."""
    made = Made(tmp_path)

    async def refuse(request: Any, timeout_s: float) -> Any:
        raise PreconditionFailed("object 2 is not live any more")

    made.pd.commit_repack = refuse  # type: ignore[method-assign]
    with pytest.raises(PreconditionFailed, match="not live"):
        made.repack()


def test_a_cluster_that_is_not_upgraded_is_said_to_be_so() -> None:
    """At once, with what to do: its placement drivers would refuse each repack until the timeout."""

    class Versioned(CallsByName):
        version = 4

        async def describe_cluster(self, request: Any, timeout_s: float) -> pd_pb2.DescribeClusterResponse:
            return pd_pb2.DescribeClusterResponse(cluster_version=self.version)

    with pytest.raises(Unavailable, match=r"from cluster version 5 on, and this cluster is at 4: upgrade all"):
        asyncio.run(check_cluster(Versioned()))  # type: ignore[arg-type]
    Versioned.version = CLUSTER_VERSION_MIN
    asyncio.run(check_cluster(Versioned()))  # type: ignore[arg-type]


def test_a_slow_step_gets_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it lasts: an object of the largest size from a slow store takes longer than one deadline."""
    made = Made(tmp_path)
    again = threading.Event()
    prepare = made.pd.prepare_repack

    async def noting(request: Any, timeout_s: float) -> pd_pb2.PrepareRepackResponse:
        if sum(isinstance(each, pd_pb2.PrepareRepackRequest) for each in made.pd.asked) >= 3:
            again.set()
        return await prepare(request, timeout_s)

    def slow(*given: Any) -> Any:
        assert again.wait(30)
        return write_repacked(*given)

    made.pd.prepare_repack = noting  # type: ignore[method-assign]
    monkeypatch.setattr(repacking, "EXTEND_S", 0.01)
    monkeypatch.setattr(repacking, "write_repacked", slow)
    assert made.read(made.repack(), 100, 240) == made.records
    assert [type(each).__name__ for each in made.pd.asked][-1] == "CommitRepackRequest"


def test_what_was_given_up_meanwhile_is_not_committed(tmp_path: Path) -> None:
    """The placement driver then answers with another key: the one that was written to is a tombstone."""
    made = Made(tmp_path)
    prepare = made.pd.prepare_repack

    async def another(request: Any, timeout_s: float) -> pd_pb2.PrepareRepackResponse:
        found = await prepare(request, timeout_s)
        made.pd.prepared.object_id += 1
        return found

    made.pd.prepare_repack = another  # type: ignore[method-assign]
    with pytest.raises(PreconditionFailed, match="longer than its deadline"):
        made.repack()
    assert not any(isinstance(each, pd_pb2.CommitRepackRequest) for each in made.pd.asked)
    assert not list(tmp_path.glob("*.parquet")), "the file is gone"


# ---- plans


class Listing:
    """Ranges and objects by their sizes, one object each, ten records each; an open range behind them."""

    def __init__(self, *sizes: int | list[int]) -> None:
        self.stream = common_pb2.Stream(stream_id=1, name="s")
        self.ranges: list[common_pb2.Range] = []
        self.objects: list[common_pb2.Object] = []
        self.next_id = 1
        position = 0
        for index, size in enumerate(sizes):
            start = position
            for part in size if isinstance(size, list) else [size]:
                self.add(index, position, position + 10, part)
                position += 10
            self.ranges.append(_sealed(index, start, position))
        self.ranges.append(common_pb2.Range(index=len(sizes), start_offset=position, state=common_pb2.RANGE_STATE_OPEN))

    def add(self, index: int, start: int, end: int, size: int) -> None:
        """A committed object."""
        self.objects.append(
            common_pb2.Object(
                object_id=self.next_id, range_index=index, start_offset=start, end_offset=end, size_bytes=size
            )
        )
        self.next_id += 1

    def plan(self, target: int) -> list[list[int]]:
        """Sizes that are repacked together."""
        plans = plan_repacks(self.stream, self.ranges, self.objects, target)
        return [[each.size_bytes for each in plan.objects] for plan in plans]

    def do(self, target: int) -> int:
        """Carry a plan out; returns the bytes that were rewritten."""
        written = 0
        for plan in plan_repacks(self.stream, self.ranges, self.objects, target):
            first, last = plan.objects[0], plan.objects[-1]
            gone = {each.object_id for each in plan.objects}
            self.objects = [each for each in self.objects if each.object_id not in gone]
            self.add(last.range_index, first.start_offset, last.end_offset, plan.size_bytes)
            self.objects.sort(key=lambda each: each.start_offset)
            written += plan.size_bytes
        return written


def _sealed(index: int, start: int, end: int) -> common_pb2.Range:
    return common_pb2.Range(
        index=index, start_offset=start, end_offset=end, tiered_end_offset=end, state=common_pb2.RANGE_STATE_SEALED
    )


def test_small_neighbours_are_joined_up_to_the_target() -> None:
    """Large ones are left alone, and divide runs; one alone is left alone."""
    assert Listing(10, 10, 10, 10).plan(100) == [[10, 10, 10, 10]]
    assert Listing(10, 10, 60, 10, 20, 10, 10).plan(100) == [[10, 10], [10, 20, 10, 10]]
    assert Listing(40, 30, 20, 30, 35, 35).plan(100) == [[40, 30, 20], [30, 35, 35]]
    assert Listing(10, 60, 10).plan(100) == []
    assert Listing().plan(100) == []


def test_objects_of_a_range_are_joined_together_or_not_at_all() -> None:
    """The placement driver takes whole ranges only."""
    assert Listing([10, 10], [10, 10]).plan(100) == [[10, 10, 10, 10]]
    assert Listing([10, 10]).plan(100) == [[10, 10]]
    assert Listing([30, 30], 10, 10).plan(100) == [[10, 10]]
    listing = Listing(10, 10, [10, 10])
    listing.ranges[2].tiered_end_offset = 30
    assert listing.plan(100) == [[10, 10]], "a range that is not wholly in the tier"
    listing.objects.pop()
    listing.ranges[2].end_offset = 50
    assert listing.plan(100) == [[10, 10]]


def test_a_repack_has_a_bounded_number_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an idle stream are tiny, and the placement driver refuses too many."""
    monkeypatch.setattr(repack_choice, "REPACKED_RANGES_MAX", 3)
    listing = Listing(1, 1, 1, 1, 1, 1, 1)
    assert listing.plan(100) == [[1, 1, 1], [1, 1, 1]]
    listing.do(100)
    assert listing.plan(100) == [], "an object of three ranges is not joined to more"


def test_what_is_missing_divides_runs() -> None:
    """Objects that do not follow each other are not joined: something is wrong there, and is not made worse."""
    listing = Listing(10, 10, 10, 10, 10)
    del listing.objects[2]
    assert listing.plan(100) == [[10, 10], [10, 10]]


def test_a_large_object_is_not_rewritten_for_a_few_small_ones() -> None:
    """It would be again and again."""
    assert Listing(40, 1, 1).plan(100) == [[1, 1]]
    assert Listing(1, 40, 1).plan(100) == []
    assert Listing(40, 20, 20).plan(100) == [[40, 20, 20]]


def test_no_byte_is_rewritten_more_often_than_its_object_can_double() -> None:
    """Small objects come one after the other, and the job runs after each."""
    chance = random.Random(4)
    listing, total, written = Listing(), 0, 0
    listing.ranges.clear()
    for number in range(2_000):
        size = chance.randrange(1, 20)
        listing.ranges.append(_sealed(number, 10 * number, 10 * number + 10))
        listing.add(number, 10 * number, 10 * number + 10, size)
        total += size
        written += listing.do(1_024)
        assert [each.start_offset for each in listing.objects[1:]] == [each.end_offset for each in listing.objects[:-1]]
    assert written <= 10 * total, "log2(1,024)"
    assert len(listing.objects) <= total / 256 + 20
    assert pa.__version__
