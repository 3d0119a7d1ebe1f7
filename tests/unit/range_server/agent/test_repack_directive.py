"""A range server carries out a repack: what it asks, what it stores, what it commits, and how it goes on after a failure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core.errors import Corruption, PreconditionFailed, Unavailable
from rangelog_core.object_keys import object_key
from rangelog_proto.v1 import common_pb2, tier_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives.repack import ObjectPacker
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.tier.upload import Uploader
from rangelog_tier.file_store import FileStore
from rangelog_tier.parquet import write_object
from tests.corruption.s3_faults import sealed_store
from tests.support.made_batches import make_batches
from tests.support.pd_calls import CallsByName

COMMITTED = common_pb2.OBJECT_STATE_COMMITTED
DIRECTIVE = pb.Directive(
    task_id="repack", stream_id=1, range_index=1, repack_objects=pb.RepackObjects(stream_name="s", object_ids=[1, 2])
)


class Driver(CallsByName):
    """The placement driver's part: two ranges of ten records, one object each, trimmed to offset 4."""

    def __init__(self, store: FileStore, directory: Path) -> None:
        batches, self.records = make_batches(20, 10, 0)
        self.objects = {}
        for number, batch in enumerate(batches):
            place = {"stream_id": 1, "range_index": number, "start_offset": 10 * number, "end_offset": 10 * number + 10}
            path = directory / str(number)
            written = write_object(path, [batch], stream_name="s", epoch=2, object_id=number + 1, **place)
            found = common_pb2.Object(
                **place, object_id=number + 1, key=object_key(1, number, 10 * number, 10 * number + 10, number + 1),
                state=COMMITTED, size_bytes=written.size_bytes,
                footer_size_bytes=written.footer_size_bytes, footer_crc=written.footer_crc,
            )  # fmt: skip
            store.put_if_absent(found.key, path)
            self.objects[found.object_id] = found
        self.next_id, self.tier_id = 7, 0
        self.prepares: list[pb.PrepareRepackRequest] = []
        self.commits: list[pb.CommitRepackRequest] = []

    async def find_objects(self, request: Any, timeout_s: float) -> tier_pb2.FindObjectsResponse:
        """Of the service Tier: FindObjects."""
        found = [self.objects[each] for each in request.object_ids if each in self.objects]
        return tier_pb2.FindObjectsResponse(objects=found)

    async def list_ranges(self, request: pb.ListRangesRequest, timeout_s: float) -> pb.ListRangesResponse:
        """A page of one range each; an empty one among them, and one behind."""
        ends = [(0, 0, 10), (3, 10, 10), (4, 10, 20), (5, 20, 30)]
        ranges = [
            common_pb2.Range(index=index, epoch=2, start_offset=start, end_offset=end)
            for index, start, end in ends
            if index >= request.from_index and end > request.from_offset
        ]
        return pb.ListRangesResponse(ranges=ranges[:1], more=len(ranges) > 1)

    async def prepare_repack(self, request: pb.PrepareRepackRequest, timeout_s: float) -> pb.PrepareRepackResponse:
        """The same key again, unless that is spoiled."""
        self.prepares.append(request)
        if request.spoiled_object_id == self.next_id:
            self.next_id += 1
        prepared = common_pb2.Object(
            object_id=self.next_id, stream_id=1, range_index=4, epoch=2, start_offset=4, end_offset=20,
            key=object_key(1, 4, 4, 20, self.next_id), tier_id=self.tier_id,
        )  # fmt: skip
        return pb.PrepareRepackResponse(object=prepared)

    async def commit_repack(self, request: pb.CommitRepackRequest, timeout_s: float) -> pb.CommitRepackResponse:
        """Take it."""
        self.commits.append(request)
        return pb.CommitRepackResponse(object=common_pb2.Object(object_id=request.object_id))


class Server:
    """A packer of one server over a directory as tier."""

    def __init__(self, directory: Path) -> None:
        self.store = FileStore(directory / "tier")
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.driver = Driver(self.store, directory)
        pd: Any = self.driver
        identity = DirectoryIdentity("rs1", 9, 1, 3)
        self.uploader = Uploader(pd, identity, sealed_store(1, [b"x"]), self.temporary, f"file://{directory}/tier")
        self.packer = ObjectPacker(pd, identity, self.uploader, self.temporary)

    def read(self, object_id: int, commit: pb.CommitRepackRequest) -> list[Any]:
        """The records of an object that was committed."""
        described = common_pb2.Object(
            object_id=object_id, stream_id=1, range_index=4, start_offset=4, end_offset=20,
            key=object_key(1, 4, 4, 20, object_id), size_bytes=commit.size_bytes,
            footer_size_bytes=commit.footer_size_bytes, footer_crc=commit.footer_crc,
        )  # fmt: skip
        return [each for table in read_object(self.store, described, 0, 99) for each in records_from_arrow(table)]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """See Server."""
    made = Server(tmp_path)
    yield made
    await made.uploader.close()


async def test_one_object_takes_the_place_of_the_named_ones(server: Server) -> None:
    """Without the rows that were trimmed, with what it says of its ranges; nothing is left in the directory."""
    await server.packer.repack_objects(DIRECTIVE)
    (commit,) = server.driver.commits
    assert server.read(7, commit) == server.driver.records[4:]
    first = server.driver.prepares[0]
    assert (first.packer, first.incarnation, first.drops_trimmed, list(first.object_ids)) == ("rs1", 9, True, [1, 2])
    stored = server.store.get(object_key(1, 4, 4, 20, 7))
    assert b"0/2/0,4/2/10" in stored
    assert list(server.temporary.iterdir()) == []


async def test_what_does_not_count_any_more_is_not_repacked(server: Server) -> None:
    """Nobody is asked for a key."""
    server.driver.objects[2].state = common_pb2.OBJECT_STATE_DELETED
    with pytest.raises(PreconditionFailed, match="1 of the objects"):
        await server.packer.repack_objects(DIRECTIVE)
    del server.driver.objects[1], server.driver.objects[2]
    with pytest.raises(PreconditionFailed, match="2 of the objects"):
        await server.packer.repack_objects(DIRECTIVE)
    assert not server.driver.prepares


async def test_a_spoiled_key_is_given_up(server: Server) -> None:
    """The next attempt asks for another one, and ends there."""
    server.store.put_if_absent(object_key(1, 4, 4, 20, 7), b"other bytes")
    with pytest.raises(Corruption, match="differs"):
        await server.packer.repack_objects(DIRECTIVE)
    assert not server.driver.commits
    await server.packer.repack_objects(DIRECTIVE)
    assert [each.object_id for each in server.driver.commits] == [8]
    await server.packer.repack_objects(DIRECTIVE)
    assert server.driver.prepares[-1].spoiled_object_id == 0


async def test_damage_is_not_carried_over(server: Server) -> None:
    """An object that cannot be read stays where it is."""
    key = server.driver.objects[2].key
    data = server.store.get(key)
    server.store.delete(key)
    server.store.put_if_absent(key, bytes([*data[:40], data[40] ^ 1, *data[41:]]))
    with pytest.raises(Corruption):
        await server.packer.repack_objects(DIRECTIVE)
    assert not server.driver.commits and list(server.temporary.iterdir()) == []


async def test_nothing_is_stored_where_nobody_would_look(server: Server) -> None:
    """A tier that was changed is heard of first."""
    server.driver.tier_id = 5
    with pytest.raises(Unavailable, match="the tier was changed"):
        await server.packer.repack_objects(DIRECTIVE)
    assert not [each for each in server.store.list("streams/") if "-7" in each.key]


async def test_a_repack_waits_for_the_store_that_the_tier_got_meanwhile(server: Server, tmp_path: Path) -> None:
    """The tier changes between the look at it and the prepared key: the next try stores the object where readers look."""
    server.uploader.learned_url(f"file://{tmp_path}/tier")
    prepare = server.driver.prepare_repack

    async def changed(request: pb.PrepareRepackRequest, timeout_s: float) -> pb.PrepareRepackResponse:
        server.driver.tier_id = 5
        server.uploader.learned_url(f"file://{tmp_path}/tier 5=file://{tmp_path}/b")
        return await prepare(request, timeout_s)

    server.driver.prepare_repack = changed  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="the tier was changed"):
        await server.packer.repack_objects(DIRECTIVE)
    assert not server.driver.commits
    await server.packer.repack_objects(DIRECTIVE)
    key = object_key(1, 4, 4, 20, 7)
    assert (tmp_path / "b" / key).is_file() and not (tmp_path / "tier" / key).exists()
