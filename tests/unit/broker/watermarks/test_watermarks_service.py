"""From producers' notes to a reader's window, over real journals in memory: a split, a takeover, closed producers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from rangelog import StreamConfig, TimeWindow, Watermark
from rangelog._produce.time_notes import TimeNotes
from rangelog._read.proof import ProvedEnd
from rangelog._topics.messages import shard_info
from rangelog._topics.time_windows import TimeWindows
from rangelog._topics.watches import TopicShards
from rangelog._topics.watermark_calls import WatermarkCalls
from rangelog_broker.journal.journal import Journal
from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_broker.watermarks.service import WatermarksService
from rangelog_core.errors import (
    InvalidArgument,
    NotOwner,
    OffsetOutOfRange,
    RangelogError,
    StreamNotFound,
    TopicNotFound,
    Unavailable,
)
from rangelog_core.limits import OFFSET_MAX
from rangelog_core.net.owner_calls import OwnedKey, journal_of_topic
from rangelog_proto.v1 import watermark_service_pb2 as pb
from tests.support.group_cluster import GroupCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

HOUR_S = 3_600.0


class Host:
    """One coordinator journal and its service; `take` makes another owner of it. Computations are asked for by tests."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.topic = cluster.topics.create("default/flights")
        self.journals: list[Journal[WatermarkCoordinator]] = []
        self.end: ProvedEnd | RangelogError = ProvedEnd(1 << 20, exact=True)
        """Of every current shard."""
        self.looks = 0
        self.service = WatermarksService(self, cluster.topics, self._find_end, interval_s=HOUR_S, expiry_s=HOUR_S)
        self.calls = WatermarkCalls(self)

    def find(self, number: int) -> Journal[WatermarkCoordinator]:
        """See WatermarkJournals."""
        if number != journal_of_topic(self.topic.topic_id)[1]:
            raise NotOwner("another broker's")
        return self.journals[-1]

    async def _find_end(self, name: str) -> ProvedEnd:
        """In place of the replicas, which take a while to say what was so at first."""
        self.looks += 1
        end = self.end
        await asyncio.sleep(0.01)
        if isinstance(end, RangelogError):
            raise end
        return end

    async def take(self) -> None:
        """Become the owner anew."""
        self.journals.append(await Journal.open(self.cluster.client, "coordinator", WatermarkCoordinator))

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[Any]]],
        request: object,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> Any:
        """As OwnerCalls, twice, since each call may be repeated."""
        assert repeatable
        await method(self)(request)
        return await method(self)(request)

    def __getattr__(self, name: str) -> Callable[[Any], Awaitable[Any]]:
        handler = getattr(self.service, name)
        return lambda request: handler(request, None)

    async def compute(self) -> Sequence[Watermark]:
        """Compute what is due; return all watermarks."""
        await self.service.owner_of(journal_of_topic(self.topic.topic_id)[1]).compute_due()
        return await self.calls.list(self.topic.topic_id, 0, None, 5.0)

    def windows(self) -> TimeWindows:
        """A reader's windows."""

        async def shard_map() -> TopicShards:
            for each in self.topic.shards:
                each.key_range.low = bytes(16)
            shards = MappingProxyType({each.shard_id: shard_info(each) for each in self.topic.shards})
            return TopicShards(self.topic.topic_id, self.topic.map_version, shards)

        async def list_after(number: int) -> Sequence[Watermark]:
            return await self.calls.list(self.topic.topic_id, number, None, 5.0)

        return TimeWindows(list_after, shard_map)


class Sender:
    """A producer's part of notes."""

    def __init__(self, host: Host, producer_id: int) -> None:
        self.topic_id = host.topic.topic_id
        self.settled = asyncio.Event()
        self.settled.set()
        self.notes = TimeNotes(host.calls, producer_id, 0, self._settled, interval_s=0.0)

    async def _settled(self) -> None:
        await self.settled.wait()

    async def note(self, time_ms: int) -> None:
        """Note a time, and wait until it is delivered."""
        self.notes.note(self.topic_id, time_ms)
        await self.delivered()

    async def delivered(self) -> None:
        """Wait until nothing is left to deliver."""
        await until(lambda: self.notes._work is None, "the note is delivered")


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """A topic of one shard."""
    async with GroupCluster() as cluster:
        await cluster.client.create_stream("coordinator", StreamConfig(range_size_bytes_max=1 << 20))
        made = Host(cluster)
        await made.take()
        yield made
        made.service.close()
        for journal in made.journals:
            await journal.close()


async def test_readers_get_the_window_of_notes_over_a_split_and_a_takeover(host: Host) -> None:
    """Notes on an ended shard and on its successors make cuts that readers compare with theirs; a new owner has all."""
    one, other = Sender(host, 1), Sender(host, 2)
    one.notes.acked(0, 5)
    await one.note(100)
    other.notes.acked(0, 9)
    await other.note(300)
    assert [(each.lower_ms, each.upper_ms, dict(each.cut.offsets)) for each in await host.compute()] == [
        (100, 300, {0: 9})
    ]
    host.cluster.topics.scale(host.topic, {0: 12}, 2)
    await host.take()
    other.notes.acked(2, 4)
    await other.note(500)
    await one.note(450)
    marks = await host.compute()
    assert [(each.number, each.lower_ms, each.upper_ms, dict(each.cut.offsets)) for each in marks] == [
        (1, 100, 300, {0: 9}),
        (2, 450, 500, {1: 0, 2: 4}),
    ]
    windows = host.windows()
    for position, window in (
        ({0: 8}, TimeWindow(None, 300)),
        ({0: 9}, TimeWindow(100, 300)),
        ({0: 12}, TimeWindow(100, 500)),
        ({1: 0, 2: 4}, TimeWindow(450, 500)),
        ({1: 1, 2: 3}, TimeWindow(100, None)),
        ({1: 1, 2: 4}, TimeWindow(450, None)),
    ):
        assert await windows.at(position, is_cut=True) == window
    assert await windows.at({2: 4}, is_cut=False) == TimeWindow(450, 500)
    assert await windows.at({}, is_cut=False) == TimeWindow(None, None)


async def test_a_step_of_the_owners_wall_clock_silences_nobody(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that notes seldom holds the lower time for its whole expiry time; that passes as it always does."""
    slow, fast = Sender(host, 1), Sender(host, 2)
    await slow.note(100)
    await fast.note(300)
    assert [each.lower_ms for each in await host.compute()] == [100]
    wall_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(2 * HOUR_S * 1e9))
    await fast.note(900)
    assert [each.lower_ms for each in await host.compute()] == [100, 100]
    await asyncio.sleep(HOUR_S - 60)
    await fast.note(1_000)
    await asyncio.sleep(61)
    assert (await host.compute())[-1].lower_ms == 1_000


async def test_a_note_waits_until_earlier_records_have_an_outcome(host: Host) -> None:
    """A record that was sent before the note and is acked later lies before the position of the note."""
    sender = Sender(host, 1)
    sender.settled.clear()
    sender.notes.note(host.topic.topic_id, 100)
    await asyncio.sleep(0)
    assert await host.compute() == []
    sender.notes.acked(0, 7)
    sender.settled.set()
    await sender.delivered()
    assert [dict(each.cut.offsets) for each in await host.compute()] == [{0: 7}]


async def test_a_closed_producer_is_gone_at_once_and_one_in_doubt_is_not(host: Host) -> None:
    """Closing with all outcomes known removes a producer; with records in doubt it holds the watermark until it expires."""
    slow, doubtful, fast = Sender(host, 1), Sender(host, 2), Sender(host, 3)
    await slow.note(100)
    await doubtful.note(200)
    await fast.note(900)
    assert [each.lower_ms for each in await host.compute()] == [100]
    await slow.notes.close(all_settled=True)
    await doubtful.notes.close(all_settled=False)
    assert [each.lower_ms for each in await host.compute()] == [100, 200]


async def test_bad_calls_are_refused(host: Host) -> None:
    """A topic that is not there, a note without a number, a page that is too large; the owner goes on."""
    host.cluster.topics.topics.clear()
    sender = Sender(host, 1)
    await sender.note(100)
    with pytest.raises(TopicNotFound):
        sender.notes.note(host.topic.topic_id, 200)
    with pytest.raises(InvalidArgument):
        await host.service.NoteTime(pb.NoteTimeRequest(topic_id=1), None)
    with pytest.raises(InvalidArgument):
        await host.service.EndTimeNotes(pb.EndTimeNotesRequest(topic_id=1), None)
    with pytest.raises(InvalidArgument):
        await host.service.ListWatermarks(pb.ListWatermarksRequest(topic_id=1, page_size=1_001), None)


# ---- positions that no record has reached


def _noted(host: Host, offset: int, shard_id: int = 0, number: int = 1) -> Awaitable[Any]:
    request = pb.NoteTimeRequest(topic_id=host.topic.topic_id)
    request.note.producer_id, request.note.number, request.note.time_ms = 7, number, 100
    request.note.positions.add(shard_id=shard_id, offset=offset)
    return host.service.NoteTime(request, None)


async def test_a_note_beyond_the_end_of_a_current_shard_is_refused(host: Host) -> None:
    """It would put the topic's cut behind all records, for good: no reader would have a later time again."""
    host.end = ProvedEnd(9, exact=True)
    for offset in (OFFSET_MAX, 10):
        with pytest.raises(OffsetOutOfRange) as caught:
            await _noted(host, offset)
        assert caught.value.offset == 9
    assert await host.compute() == []
    honest = Sender(host, 1)
    honest.notes.acked(0, 9)
    await honest.note(300)
    marks = await host.compute()
    assert [(each.lower_ms, dict(each.cut.offsets)) for each in marks] == [(300, {0: 9})]
    assert await host.windows().at({0: 9}, is_cut=True) == TimeWindow(300, 300)


async def test_a_note_waits_where_nobody_can_say_how_far_its_shard_reaches(host: Host) -> None:
    """An end that is not exact may lie below what was acked: it refuses nothing for good."""
    for host.end in (ProvedEnd(4, exact=False), Unavailable("no replica answers")):
        with pytest.raises(Unavailable):
            await _noted(host, 5)
    host.end = ProvedEnd(5, exact=False)
    await _noted(host, 5)


async def test_the_end_of_a_shard_is_asked_for_once_for_many_notes(host: Host) -> None:
    """Those that wait share an answer, and what an answer has covered is asked for no more."""
    host.end = ProvedEnd(100, exact=True)
    await asyncio.gather(*(_noted(host, 50 + each, number=1 + each) for each in range(20)))
    await _noted(host, 100, number=30)
    assert host.looks <= 2
    with pytest.raises(OffsetOutOfRange):
        await asyncio.gather(*(_noted(host, 101 + each, number=40 + each) for each in range(20)))


async def test_an_answer_that_was_asked_for_before_a_note_came_does_not_refuse_it(host: Host) -> None:
    """The records may have been acked since."""
    host.end = ProvedEnd(9, exact=True)
    earlier = asyncio.ensure_future(_noted(host, 9))
    await until(lambda: host.looks == 1, "the replicas are asked")
    assert not earlier.done()
    host.end = ProvedEnd(12, exact=True)
    await asyncio.gather(earlier, _noted(host, 12, number=2))
    assert host.looks == 2


async def test_the_end_of_a_shard_that_was_trimmed_away_is_that_of_the_shard_map(host: Host) -> None:
    """Its stream is gone; the shard has ended since the map was read."""
    host.end = ProvedEnd(5, exact=True)
    await _noted(host, 5)
    host.cluster.topics.scale(host.topic, {0: 12}, 2)
    host.end = StreamNotFound("it is trimmed")
    await _noted(host, 12, number=2)
    with pytest.raises(OffsetOutOfRange):
        await _noted(host, 13, number=3)
