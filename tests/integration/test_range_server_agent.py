"""A real range server under a placement driver that the test plays: registration, heartbeats, directives, lost data."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rangelog._read.arrow_chunk import read_object
from rangelog_core.batch import decode_records
from rangelog_core.batch_extension import encode_extension
from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import PreconditionFailed, RangelogError
from rangelog_core.object_keys import object_key
from rangelog_core.rights import RIGHTS_FORMAT
from rangelog_proto.v1 import common_pb2, data_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer, add_PlacementDriverServicer_to_server
from rangelog_server.formats import FORMATS
from rangelog_server.testing import RawClient, ServerProcess, batch
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_tier import open_object_store
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


class PlayedDriver(PlacementDriverServicer):
    """Accepts registrations, keeps reports, hands out the directives that the test puts in."""

    def __init__(self) -> None:
        self.server = GrpcServer()
        self.address = ""
        self.tier_url = ""
        self.refuse: Callable[[pb.RegisterServerRequest], RangelogError | None] = lambda request: None
        self.registered: dict[str, pb.RegisterServerRequest] = {}
        self.reports: dict[str, dict[tuple[int, int], pb.ReplicaReport]] = {}
        self.directives: dict[str, list[pb.Directive]] = {}
        self.tasks: dict[str, pb.TaskReport] = {}
        self.ranges: list[common_pb2.Range] = []
        self.objects: dict[int, common_pb2.Object] = {}
        self.log_ends: dict[str, int] = {}
        add_PlacementDriverServicer_to_server(self, self.server.server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        port = await self.server.start("127.0.0.1:0", ("rangelog.v1.PlacementDriver",))
        self.address = f"127.0.0.1:{port}"

    async def RegisterServer(self, request: pb.RegisterServerRequest, context: Any) -> pb.RegisterServerResponse:
        error = self.refuse(request)
        if error is not None:
            raise error
        self.registered[request.server] = request
        self.reports[request.server] = {}
        return pb.RegisterServerResponse(cluster_id="test", heartbeat_interval_ms=50, tier_url=self.tier_url)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        reports = self.reports[request.server]
        for report in request.replicas:
            if report.state == pb.REPLICA_STATE_UNSPECIFIED:
                reports.pop((report.stream_id, report.range_index), None)
            else:
                reports[report.stream_id, report.range_index] = report
        for task in request.tasks:
            self.tasks[task.task_id] = task
        assert request.wall_ms > 0
        assert request.log_end >= self.log_ends.get(request.server, 0) or request.sequence % (1 << 32) == 1
        self.log_ends[request.server] = request.log_end
        return pb.HeartbeatResponse(directives=self.directives.get(request.server, []))

    async def ListServers(self, request: pb.ListServersRequest, context: Any) -> pb.ListServersResponse:
        servers = [common_pb2.Server(name=one.server, incarnation=one.incarnation) for one in self.registered.values()]
        return pb.ListServersResponse(servers=servers)

    async def ListStreams(self, request: pb.ListStreamsRequest, context: Any) -> pb.ListStreamsResponse:
        return pb.ListStreamsResponse(streams=[common_pb2.Stream(stream_id=1, name="s")])

    async def ListRanges(self, request: pb.ListRangesRequest, context: Any) -> pb.ListRangesResponse:
        return pb.ListRangesResponse(ranges=self.ranges)

    async def PrepareObject(self, request: pb.PrepareObjectRequest, context: Any) -> pb.PrepareObjectResponse:
        number = len(self.objects) + 1
        place = (request.stream_id, request.range_index, request.start_offset, request.end_offset)
        prepared = common_pb2.Object(
            object_id=number,
            stream_id=request.stream_id,
            range_index=request.range_index,
            start_offset=request.start_offset,
            end_offset=request.end_offset,
            key=object_key(*place, number),
        )
        self.objects[number] = prepared
        return pb.PrepareObjectResponse(object=prepared)

    async def CommitObject(self, request: pb.CommitObjectRequest, context: Any) -> pb.CommitObjectResponse:
        found = self.objects[request.object_id]
        found.size_bytes, found.digest = request.size_bytes, request.digest
        found.footer_size_bytes, found.footer_crc = request.footer_size_bytes, request.footer_crc
        found.state = common_pb2.OBJECT_STATE_COMMITTED
        return pb.CommitObjectResponse(object=found)

    def want(self, server: str, task_id: str, **action: Any) -> None:
        """Hand out a directive from now on."""
        stream_id, range_index = action.pop("key", (1, 0))
        directive = pb.Directive(task_id=task_id, stream_id=stream_id, range_index=range_index, **action)
        self.directives.setdefault(server, []).append(directive)

    def state(self, server: str, key: tuple[int, int] = (1, 0)) -> int:
        """Return what a server reports of a replica; 0: nothing."""
        report = self.reports.get(server, {}).get(key)
        return report.state if report is not None else 0

    def done(self, task_id: str) -> bool:
        """Whether a task was reported done."""
        return task_id in self.tasks and self.tasks[task_id].done


@pytest.fixture
async def driver() -> AsyncIterator[PlayedDriver]:
    """The played placement driver."""
    played = PlayedDriver()
    await played.start()
    yield played
    await played.server.stop(0)


Start = Callable[..., Awaitable[ServerProcess]]


@pytest.fixture
async def start(driver: PlayedDriver, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts range servers that know the driver; `start("rs1")`."""
    processes: list[ServerProcess] = []

    async def start_one(name: str = "rs1") -> ServerProcess:
        process = ServerProcess(tmp_path / name, name=name, arguments=["--pd", driver.address])
        processes.append(process)
        await asyncio.to_thread(process.start)
        return process

    yield start_one
    for process in processes:
        process.close()


async def append(client: RawClient, count: int, key: tuple[int, int] = (1, 0), size: int = 100) -> None:
    """Append batches of ten records each and wait for the acks."""
    acks = client.listen(*key)
    for number in range(count):
        values = [b"%d" % (number * 10 + i) * size for i in range(10)]
        client.append(batch(number * 10, values, stream_id=key[0], range_index=key[1]),
                      stream_id=key[0], range_index=key[1])  # fmt: skip
    await until(lambda: acks.durable_offset == count * 10)


def sealed_at(end_offset: int) -> pb.SealReplica:
    """The directive that tells the end."""
    return pb.SealReplica(epoch=1, start_offset=0, end_offset=end_offset)


async def test_a_registration_reports_formats(driver: PlayedDriver, start: Start) -> None:
    """The placement driver learns which versions of wire and files a server reads, and that it asks for rights."""
    await start()
    reported = {each.format: (each.lowest, each.highest) for each in driver.registered["rs1"].formats}
    assert reported == FORMATS | {RIGHTS_FORMAT: (1, 1)}


async def test_seal_and_drop_directives(driver: PlayedDriver, start: Start) -> None:
    """The end arrives as a directive, the report says SEALED; then the replica is dropped and not made again."""
    server = await start()
    client = await server.connect()
    await append(client, 3)
    await until(lambda: driver.state("rs1") == pb.REPLICA_STATE_OPEN)
    driver.want("rs1", "seal", seal_replica=sealed_at(30))
    await until(lambda: driver.done("seal") and driver.state("rs1") == pb.REPLICA_STATE_SEALED)
    driver.directives["rs1"].clear()
    driver.want("rs1", "drop", drop_replica=pb.DropReplica(reason="test"))
    await until(lambda: driver.done("drop") and (1, 0) not in driver.reports["rs1"])
    acks = client.listen()
    client.append(batch(0, [b"late"]))
    await until(lambda: acks.errors)
    assert acks.errors[0].code == "FENCED"
    client.close()
    server.kill()
    await asyncio.to_thread(server.start)
    await until(lambda: driver.registered["rs1"].boot == 2)
    assert (1, 0) not in driver.reports["rs1"]


async def test_copy_from_a_peer(driver: PlayedDriver, start: Start) -> None:
    """A server without the range copies it whole from the one that has it, and serves the same bytes."""
    first, second = await start("rs1"), await start("rs2")
    client = await first.connect()
    await append(client, 200, size=400)
    await client.commit_end(1, 2000)
    whole = b""
    source = common_pb2.Replica(
        server="rs1", incarnation=first.endpoint["incarnation"], data_address=first.endpoint["data_address"]
    )
    copy = pb.CopyReplica(epoch=1, start_offset=0, end_offset=2000, sources=[source])
    driver.want("rs2", "copy", copy_replica=copy)
    await until(lambda: driver.done("copy") and driver.state("rs2") == pb.REPLICA_STATE_SEALED)
    other = await second.connect()
    for connection in (client, other):
        position, found = 0, b""
        while position < 2000:
            _, payload = await connection.fetch(position)
            found += payload
            position = decode_records(split_batches(payload)[-1])[-1].offset + 1
        whole = whole or found
        assert found == whole
    client.close()
    other.close()


async def test_upload_and_delete(driver: PlayedDriver, start: Start, tmp_path: Path) -> None:
    """A sealed range is uploaded as Parquet that reads back record for record; tombstones are removed from the store."""
    driver.tier_url = f"file://{tmp_path}/tier"
    server = await start()
    client = await server.connect()
    await append(client, 50)
    await client.commit_end(1, 500)
    upload = pb.UploadRange(epoch=1, start_offset=0, end_offset=500, stream_name="s")
    driver.want("rs1", "upload", upload_range=upload)
    await until(lambda: driver.done("upload"))
    driver.directives["rs1"].clear()
    described = driver.objects[1]
    assert described.state == common_pb2.OBJECT_STATE_COMMITTED
    objects = open_object_store(driver.tier_url)
    tables = list(read_object(objects, described, 0, 500))
    values = [value for table in tables for value in table.column("value").to_pylist()]
    assert values == [b"%d" % number * 100 for number in range(500)]
    assert not list((server.home / "tmp").iterdir())

    driver.want("rs1", "delete", key=(0, 0), delete_objects=pb.DeleteObjects(keys=[described.key], object_ids=[1]))
    await until(lambda: driver.done("delete"))
    assert not list(objects.list("streams/"))
    client.close()


async def test_what_a_server_does_not_know_stays_hot(driver: PlayedDriver, start: Start, tmp_path: Path) -> None:
    """A batch with an unknown critical field is not tiered, and not taken for damage: the task says whom to upgrade."""
    driver.tier_url = f"file://{tmp_path}/tier"
    server = await start()
    client = await server.connect()
    acks = client.listen()
    data = batch(0, [b"v"], extension=encode_extension({9: b""}))
    client.append(data)
    await until(lambda: acks.durable_offset == 1)
    await client.commit_end(1, 1)
    driver.want("rs1", "upload", upload_range=pb.UploadRange(epoch=1, start_offset=0, end_offset=1, stream_name="s"))
    await until(lambda: "upload" in driver.tasks and "upgrade this program" in driver.tasks["upload"].error)
    assert not driver.tasks["upload"].done
    assert driver.reports["rs1"][1, 0].state == pb.REPLICA_STATE_SEALED
    assert (await client.fetch(0))[1] == data
    assert not list(open_object_store(driver.tier_url).list("streams/"))
    client.close()


async def test_failed_uploads_are_reported_and_tried_again(driver: PlayedDriver, start: Start, tmp_path: Path) -> None:
    """A tier that cannot be used is told in the task's error; local copies stay; it goes on once the tier is there."""
    (tmp_path / "tier").write_text("not a directory")
    driver.tier_url = f"file://{tmp_path}/tier"
    server = await start()
    client = await server.connect()
    await append(client, 5)
    await client.commit_end(1, 50)
    upload = pb.UploadRange(epoch=1, start_offset=0, end_offset=50, stream_name="s")
    driver.want("rs1", "upload", upload_range=upload)
    await until(lambda: "upload" in driver.tasks and driver.tasks["upload"].error)
    assert not driver.tasks["upload"].done
    _, payload = await client.fetch(0)
    assert payload
    (tmp_path / "tier").unlink()
    await until(lambda: driver.done("upload"), within_s=30)
    assert "Traceback" not in server.log()
    client.close()


async def test_rolled_back_directory_comes_back_as_a_new_incarnation(
    driver: PlayedDriver, start: Start, tmp_path: Path
) -> None:
    """An older copy of the data directory is refused: the server sets it aside and answers for nothing of it."""
    server = await start()
    client = await server.connect()
    await append(client, 2)
    client.close()
    assert server.stop() == 0
    shutil.copytree(server.home, tmp_path / "older")
    first = driver.registered["rs1"]
    await asyncio.to_thread(server.start)
    old = driver.registered["rs1"]
    assert 0 < first.process_id != old.process_id > 0, "drawn at each start"
    assert server.stop() == 0
    shutil.rmtree(server.home)
    (tmp_path / "older").rename(server.home)

    def refuse(request: pb.RegisterServerRequest) -> RangelogError | None:
        rolled_back = request.incarnation == old.incarnation and request.boot <= old.boot
        return PreconditionFailed("rolled back") if rolled_back else None

    driver.refuse = refuse
    await asyncio.to_thread(server.start)
    assert driver.registered["rs1"].incarnation != old.incarnation
    assert list(server.home.glob("set-aside-*"))
    client = await server.connect()
    answer = await client.seal(9)
    assert answer.durable_offset == 0  # of the new incarnation, which is in no replica set
    client.close()


async def test_a_name_that_is_alive_elsewhere_waits(driver: PlayedDriver, start: Start) -> None:
    """A refusal that is not about this incarnation sets nothing aside: the server waits until it is accepted."""
    refusals: list[int] = []

    def refuse(request: pb.RegisterServerRequest) -> RangelogError | None:
        refusals.append(request.incarnation)
        return PreconditionFailed("another one is alive") if len(refusals) < 2 else None

    driver.refuse = refuse
    server = await start()
    assert len(set(refusals)) == 1
    assert not list(server.home.glob("set-aside-*"))


async def test_quarantined_replica_is_reported_and_repaired(driver: PlayedDriver, start: Start) -> None:
    """A flipped byte under a sealed range: the read says CORRUPTION, the report QUARANTINED; a copy makes it whole."""
    first, second = await start("rs1"), await start("rs2")
    for server in (first, second):
        client = await server.connect()
        await append(client, 20, size=2000)
        await client.commit_end(1, 200)
        client.close()
    assert first.stop() == 0
    log = first.home / "wal" / "wal-0000000000000001.seg"
    with log.open("r+b") as file:
        file.seek(150_000)
        byte = file.read(1)
        file.seek(150_000)
        file.write(bytes((byte[0] ^ 1,)))
    await asyncio.to_thread(first.start)
    client = await first.connect()
    await until(lambda: driver.state("rs1") == pb.REPLICA_STATE_QUARANTINED)
    with pytest.raises(RangelogError) as caught:
        await client.fetch(0)
    assert caught.value.code == "CORRUPTION"
    source = common_pb2.Replica(
        server="rs2", incarnation=second.endpoint["incarnation"], data_address=second.endpoint["data_address"]
    )
    copy = pb.CopyReplica(epoch=1, start_offset=0, end_offset=200, sources=[source])
    driver.want("rs1", "copy", copy_replica=copy)
    await until(lambda: driver.state("rs1") == pb.REPLICA_STATE_SEALED)
    _, payload = await client.fetch(0)
    assert payload
    client.close()


async def test_ranges_lost_in_a_damaged_tail_are_in_doubt(driver: PlayedDriver, start: Start) -> None:
    """A damaged tail: ranges the driver lists for this server and that it does not know are taken up in doubt."""
    server = await start()
    client = await server.connect()
    await append(client, 3)
    client.close()
    incarnation = server.endpoint["incarnation"]
    server.kill()
    log = server.home / "wal" / "wal-0000000000000001.seg"
    content = bytearray(log.read_bytes())
    end = len(bytes(content).rstrip(b"\0"))
    content[end - 70] ^= 1
    log.write_bytes(content)
    replica = common_pb2.Replica(server="rs1", incarnation=incarnation)
    driver.ranges = [
        common_pb2.Range(stream_id=1, index=index, epoch=1, start_offset=0, replicas=[replica]) for index in (0, 4)
    ]
    await asyncio.to_thread(server.start)
    await until(lambda: driver.state("rs1", (1, 4)) == pb.REPLICA_STATE_OPEN)
    assert driver.reports["rs1"][1, 4].problem
    client = await server.connect()
    for index in (0, 4):
        answer = await client.seal(5, range_index=index)
        assert answer.outcome == data_pb2.SEAL_OUTCOME_DOUBTFUL
    fresh = await client.seal(5, range_index=7)
    assert fresh.outcome == data_pb2.SEAL_OUTCOME_FENCED
    client.close()


async def test_serving_goes_on_without_a_driver(driver: PlayedDriver, start: Start) -> None:
    """When no placement driver answers any more, appends and reads go on."""
    server = await start()
    await driver.server.stop(0)
    client = await server.connect()
    await append(client, 3)
    await append(client, 5, key=(2, 0))
    client.close()
    await until(lambda: "a heartbeat failed" in server.log())
    assert server.stop() == 0
    assert "Traceback" not in server.log()
