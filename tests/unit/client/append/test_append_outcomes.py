"""What a writer says of appends that were not acked: unknown where they were sent, certain where they were not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from rangelog._append.writer import _BATCHES_IN_FLIGHT, Writer
from rangelog.protocol.append_effects import Probe, SealRange
from rangelog_core.errors import (
    AppendTimeout,
    InvalidArgument,
    RangelogError,
    RecordTooLarge,
    StorageFull,
    StreamNotFound,
    WriterClosed,
    WriterFenced,
)
from rangelog_core.ids import ReplicaId
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.noting_connections import SERVERS, NotingConnections, opened_writer
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


class Told:
    """In place of Metadata: says whether the stream is still there."""

    def __init__(self, *, deleted: bool) -> None:
        self.deleted = deleted

    async def ranges(self, *_: Any, **__: Any) -> Any:
        """As Metadata."""
        if self.deleted:
            raise StreamNotFound("it was deleted")
        return None, []


async def writer_with_appends(*, deleted: bool = False) -> tuple[Writer, list[asyncio.Future[Any]], NotingConnections]:
    """Some appends are in flight, one gathers behind them and was not sent."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    assert writer._runner is not None
    writer._runner._host.metadata = cast(Any, Told(deleted=deleted))
    futures = []
    for number in range(_BATCHES_IN_FLIGHT + 1):
        futures.append(writer.submit(b"%d" % number))
        await asyncio.sleep(0)
    assert len(connections.of["a"].appended) == _BATCHES_IN_FLIGHT
    return writer, futures, connections


def words(futures: list[asyncio.Future[Any]]) -> list[tuple[type[BaseException], bool]]:
    """What each append was told: the error, and whether its outcome is unknown."""
    errors = [future.exception() for future in futures]
    assert all(isinstance(error, RangelogError) for error in errors)
    return [(type(error), error.outcome_unknown) for error in errors if isinstance(error, RangelogError)]


async def test_a_closed_writer_tells_sent_from_unsent() -> None:
    """What went out may be in the log; what gathered behind it is certainly not."""
    writer, futures, _ = await writer_with_appends()
    await writer.close(flush=False)
    assert words(futures) == [(WriterClosed, True)] * _BATCHES_IN_FLIGHT + [(WriterClosed, False)]


async def test_a_fenced_writer_tells_sent_from_unsent() -> None:
    """The same when another writer took the stream; a flush, which stands for all, does not know."""
    writer, futures, connections = await writer_with_appends()
    flushing = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    listener = connections.of["a"].listener
    assert listener is not None
    listener.append_refused(WriterFenced("epoch 2", epoch=2))
    await until(lambda: all(future.done() for future in futures))
    assert words(futures) == [(WriterFenced, True)] * _BATCHES_IN_FLIGHT + [(WriterFenced, False)]
    for flush in (flushing, writer.flush()):
        with pytest.raises(WriterFenced) as told:
            await flush
        assert told.value.outcome_unknown
    with pytest.raises(WriterFenced) as refused:
        writer.append_nowait(b"later")
    assert not refused.value.outcome_unknown
    await writer.close(flush=False)


async def test_leaving_a_writer_tells_of_appends_that_nobody_waits_for() -> None:
    """Another writer took the stream: what was appended without a future is lost, and the end of the block says so, once."""
    for told in (False, True):
        connections = NotingConnections()
        writer = await opened_writer(connections)
        assert writer._runner is not None
        writer._runner._host.metadata = cast(Any, Told(deleted=False))
        writer.append_nowait(b"sent")
        await asyncio.sleep(0)
        listener = connections.of["a"].listener
        assert listener is not None
        listener.append_refused(WriterFenced("epoch 2", epoch=2))
        await until(lambda writer=writer: writer._pending.untold is not None)  # type: ignore[misc]
        if told:
            with pytest.raises(WriterFenced):
                writer.append_nowait(b"refused")
            await writer.close()
            continue
        with pytest.raises(WriterFenced) as ended:
            await writer.close()
        assert ended.value.outcome_unknown
        await writer.close()


async def test_leaving_a_writer_whose_appends_were_told_is_quiet() -> None:
    """Every append had a future, and each was told: there is nothing more to say."""
    writer, futures, connections = await writer_with_appends()
    listener = connections.of["a"].listener
    assert listener is not None
    listener.append_refused(WriterFenced("epoch 2", epoch=2))
    await until(lambda: all(future.done() for future in futures))
    await writer.close()


async def test_a_writer_of_a_deleted_stream_is_told_so() -> None:
    """Range servers fence it; the placement driver knows why, and to open it again would not help."""
    writer, futures, connections = await writer_with_appends(deleted=True)
    listener = connections.of["a"].listener
    assert listener is not None
    listener.append_refused(WriterFenced("was dropped", epoch=2))
    await until(lambda: all(future.done() for future in futures))
    assert words(futures) == [(StreamNotFound, True)] * _BATCHES_IN_FLIGHT + [(StreamNotFound, False)]
    with pytest.raises(StreamNotFound):
        writer.append_nowait(b"later")
    await writer.close(flush=False)


async def test_a_batch_of_records_is_refused_whole_or_unknown() -> None:
    """One bad record among good ones: nothing is appended. A writer that ends in the middle: the outcome is unknown."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    with pytest.raises(RecordTooLarge) as refused:
        await writer.append_batch([b"good", b"x" * (RECORD_SIZE_BYTES_MAX + 1)])
    assert not refused.value.outcome_unknown
    with pytest.raises(InvalidArgument):
        await writer.append_batch([b"good", cast(Any, "text")])
    await asyncio.sleep(0)
    assert writer.next_offset == 0
    appending = asyncio.create_task(writer.append_batch([b"one", b"two"]))
    await until(lambda: bool(connections.of["a"].appended))
    await writer.close(flush=False)
    with pytest.raises(WriterClosed) as told:
        await appending
    assert told.value.outcome_unknown


async def test_no_room_in_time_is_certain() -> None:
    """An append that only ever waited for room was never made; one that was made and not acked may be."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    writer._pending.inflight_bytes_max = 1
    with pytest.raises(AppendTimeout) as made:
        await writer.append(b"sent", timeout_s=0.01)
    assert made.value.outcome_unknown
    with pytest.raises(AppendTimeout) as waited:
        await writer.append(b"never sent", timeout_s=0.01)
    assert not waited.value.outcome_unknown
    await writer.close(flush=False)


async def test_an_append_that_is_late_says_why_servers_took_none() -> None:
    """What each refused the last one with, over changes of ranges, until it acks one again."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    runner = writer._running()
    replica = next(iter(runner._links[0]._open))
    runner._refusals["z"] = "no room in the log: No space left on device"
    with pytest.raises(AppendTimeout, match=r": z: no room in the log: No space left on device; the writer retries"):
        await writer.append(b"sent", timeout_s=0.01)
    runner.refused(7, replica, StorageFull("no room in the log"))
    assert runner.problem.startswith(f"{replica.server}: no room in the log; z: no room")
    runner.acked(0, replica, 0)
    assert runner.problem.startswith("z: ")
    await writer.close(flush=False)


async def test_a_replica_that_asks_is_told_what_is_acked() -> None:
    """At once, and again each time it moves, until all that was sent when it asked is acked."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    a, b, _ = connections.of.values()
    for number in range(2):
        writer.append_nowait(b"%d" % number)
        await asyncio.sleep(0)
    assert writer._runner is not None
    writer._runner.confirm_wanted(0, writer._runner.core.opened.replicas[0])
    assert a.confirmed == [0]
    for each in (a, b):
        each.reply(1)
    assert a.confirmed == [0, 1]
    for each in (a, b):
        each.reply(2)
    assert a.confirmed == [0, 1, 2]
    assert writer._runner._asked == {}
    await writer.close()


class SameServers:
    """In place of PlacementCalls: the next range is always on the same three servers."""

    @asynccontextmanager
    async def turn(self, *, urgent: bool) -> AsyncIterator[bool]:
        """As PlacementCalls."""
        yield False

    async def probe(self, effect: Probe) -> bool:
        """As PlacementCalls."""
        return True

    async def addresses(self) -> dict[ReplicaId, str]:
        """As PlacementCalls."""
        return {}

    async def seal_and_create(self, stream_id: int, epoch: int, effect: SealRange) -> pd_pb2.SealRangeResponse:
        """As PlacementCalls."""
        replicas = [common_pb2.Replica(server=name, incarnation=1, data_address="h:1") for name in SERVERS]
        made = common_pb2.Range(
            stream_id=stream_id, index=effect.range_index + 1, epoch=epoch, start_offset=effect.end_offset, acks=2,
            replicas=replicas,
        )  # fmt: skip
        return pd_pb2.SealRangeResponse(range=common_pb2.Range(end_offset=effect.end_offset), next_range=made)


def refuse(connections: NotingConnections) -> None:
    """The disks of two servers are full."""
    for name in ("a", "b"):
        listener = connections.of[name].listener
        assert listener is not None
        listener.append_refused(StorageFull("no room in the log: No space left on device"))


async def test_appends_fail_at_once_where_no_server_has_room() -> None:
    """Those that wait, with the servers' names; later ones before anything is taken. After an ack the writer goes on."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    runner = writer._running()
    runner._host.calls = cast(Any, SameServers())
    runner._host.metadata = cast(Any, Told(deleted=False))
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(writer.append(b"%d" % number)) for number in range(2)]
    waiting.append(asyncio.create_task(writer.flush()))
    await until(lambda: len(runner.waits) == 3)
    began_s = asyncio.get_running_loop().time()
    refuse(connections)
    await until(lambda: runner.core.range_index == 1 and bool(connections.of["c"].listener))
    assert len(runner.waits) == 3, "other servers may have room"
    refuse(connections)
    for task in waiting:
        with pytest.raises(StorageFull, match=r"no room at a, b, .*a: no room in the log: No space left") as told:
            await task
        assert told.value.outcome_unknown and told.value.retriable
    assert asyncio.get_running_loop().time() < began_s + 0.1
    end = writer.next_offset
    for refused in (writer.append(b"x"), writer.append_batch([b"x"]), writer.append_all([b"x"])):
        with pytest.raises(StorageFull) as told:
            await refused
        assert not told.value.outcome_unknown
    assert writer.next_offset == end == 2
    with pytest.raises(StorageFull) as told:
        await writer.flush()
    assert told.value.outcome_unknown
    left = [each for batch in writer._inflight for each in batch._waiters or ()]  # type: ignore[attr-defined]
    assert left and all(each.done() for each in left), "an error that nobody waits for would be logged"
    await until(lambda: runner.core.range_index == 2)
    for name in ("a", "b"):
        connections.of[name].reply(2)
    assert writer.confirm_offset == 2
    appending = asyncio.create_task(writer.append(b"there is room"))
    await until(lambda: runner.core.next_offset == 3)
    for name in ("a", "b"):
        connections.of[name].reply(3)
    assert (await appending).offset == 2
    await writer.close()
