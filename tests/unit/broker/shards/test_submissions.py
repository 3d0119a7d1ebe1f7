"""Submissions: each record is in the log once, over retries, owners, splits and merges, for ten minutes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog.errors import Corruption, NotOwner, Overloaded, PreconditionFailed, UnsupportedVersion
from rangelog_broker.shards import finished, shard_snapshots, submission_window
from rangelog_broker.shards.finished import FinishedShards, PlacementRows
from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import Found, Standing
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.state import ShardState
from rangelog_broker.shards.submission_window import MARK_INTERVAL_MS, WINDOW_MS, PlacedRun, SubmissionWindow
from rangelog_core.batch_extension import Producer, Submission
from rangelog_core.versions import LEVEL_SUBMISSIONS
from rangelog_proto.v1 import topic_pb2
from tests.support.memory_broker import MemoryBroker
from tests.support.owner_cluster import OwnerCluster, Replies, owner_cluster
from tests.support.waiting import until

NAME, OTHER = b"n" * 16, b"o" * 16

RUNS = (
    st.sets(st.integers(0, 12), min_size=1)
    .map(sorted)
    .map(lambda numbers: tuple((a, b - a) for a, b in _spans(numbers)))
)


def _spans(numbers: list[int]) -> list[tuple[int, int]]:
    """The runs of rising numbers as [start, end)."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number:
            spans[-1] = spans[-1][0], number + 1
        else:
            spans.append((number, number + 1))
    return spans


def _numbers(runs: tuple[tuple[int, int], ...]) -> list[int]:
    return [each for first, count in runs for each in range(first, first + count)]


def _places(runs: list[PlacedRun]) -> dict[int, tuple[int, int]]:
    return {run.first + at: (run.shard_id, run.offset + at) for run in runs for at in range(run.records)}


# ---- the window and the owner, without I/O


@given(st.lists(st.tuples(st.sampled_from([NAME, OTHER]), RUNS, st.booleans()), max_size=15))
def test_an_owner_appends_each_record_once(offered: list[tuple[bytes, tuple[tuple[int, int], ...], bool]]) -> None:
    """Against a table of single records: a batch is appended if none of its records is there or in flight."""
    owner = ShardOwner(ShardState.first(), 0, shard_id=3)
    known: dict[tuple[bytes, int], int] = {}
    for name, runs, acked in offered:
        numbers = _numbers(runs)
        there = {each: known[name, each] for each in numbers if (name, each) in known}
        found = owner.offer(Submission(name, 7, runs), len(numbers))
        if not there:
            assert isinstance(found, Found) and found.standing is Standing.NEXT
            known |= {(name, number): found.offset + at for at, number in enumerate(numbers)}
        elif isinstance(found, InFlight):
            assert any(offset >= owner.confirm_offset for offset in there.values())
            assert all(offset < found.end_offset for offset in there.values())
        else:
            assert isinstance(found, list)
            assert _places(found) == {number: (3, offset) for number, offset in there.items()}
        if acked:
            owner.confirmed(owner.next_offset)
    owner.confirmed(owner.next_offset)
    assert owner.next_offset == len(known)
    twin = ShardState.restore(owner.state.snapshot()).submissions
    for name in (NAME, OTHER):
        found_all = owner.state.submissions.find(Submission(name, 7, ((0, 13),)))
        assert _places(found_all) == {number: (3, at) for (each, number), at in known.items() if each == name}
        assert twin.find(Submission(name, 7, ((0, 13),))) == found_all
    assert len(twin) == len(owner.state.submissions)


def test_the_same_name_with_another_content_is_refused() -> None:
    """Acked or in flight."""
    owner = ShardOwner(ShardState.first(), 0)
    owner.offer(Submission(NAME, 1, ((0, 1),)), 1)
    for _ in range(2):
        with pytest.raises(PreconditionFailed):
            owner.offer(Submission(NAME, 2, ((5, 1),)), 1)
        owner.confirmed(1)
    assert owner.next_offset == 1


def test_the_window_is_ten_minutes_at_least() -> None:
    """By the clock of the owner, which notes the log's end every ten seconds."""
    window = SubmissionWindow()
    window.forget(0, 0)
    window.note(Submission(NAME, 1, ((0, 1),)), 0, 0)
    window.forget(WINDOW_MS - 1, 1)
    window.note(Submission(OTHER, 1, ((0, 1),)), 0, 1)
    for now_ms in range(WINDOW_MS, WINDOW_MS + MARK_INTERVAL_MS, 1_000):
        window.forget(now_ms, 2)
        assert window.find(Submission(NAME, 1, ((0, 1),))), now_ms
    window.forget(2 * WINDOW_MS - 1, 2)
    assert not window.find(Submission(NAME, 1, ((0, 1),)))
    assert window.find(Submission(OTHER, 1, ((0, 1),))), "it was noted after the end at 599,999 ms"
    window.forget(3 * WINDOW_MS - 1, 2)
    assert len(window) == 0


def test_a_clock_that_goes_back_forgets_later() -> None:
    """Never earlier."""
    window = SubmissionWindow()
    window.note(Submission(NAME, 1, ((0, 1),)), 0, 0)
    window.forget(10 * WINDOW_MS, 1)
    window.forget(5 * WINDOW_MS, 1)
    window.forget(6 * WINDOW_MS - 1, 1)
    assert len(window) == 1
    window.forget(6 * WINDOW_MS, 1)
    assert len(window) == 0


def test_a_full_window_takes_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its limit, and again once something is forgotten; what is there is found all the time."""
    monkeypatch.setattr(submission_window, "RUNS_MAX", 3)
    owner = ShardOwner(ShardState.first(), 0)
    window = owner.state.submissions
    window.forget(0, 0)
    for number in range(3):
        owner.offer(Submission(bytes([number]) * 16, 1, ((0, 1),)), 1)
    owner.confirmed(3)
    with pytest.raises(Overloaded):
        owner.offer(Submission(NAME, 1, ((0, 1),)), 1)
    assert isinstance(owner.offer(Submission(bytes(16), 1, ((0, 1),)), 1), list)
    window.forget(1, 3)
    window.forget(WINDOW_MS + MARK_INTERVAL_MS, 3)
    window.forget(2 * WINDOW_MS + MARK_INTERVAL_MS, 3)
    assert isinstance(owner.offer(Submission(NAME, 1, ((0, 1),)), 1), Found)


def test_an_answer_is_bounded() -> None:
    """A batch of one long run meets a submission of many short ones: it gets some of them, and asks again for others."""
    window = SubmissionWindow()
    for number in range(5_000):
        window.note(Submission(NAME, 1, ((2 * number, 1),)), 0, number)
    found = window.find(Submission(NAME, 1, ((0, 60_000),)))
    assert found == [PlacedRun(2 * number, 1, 0, number) for number in range(submission_window.RUNS_FOUND_MAX)]


@given(st.binary(max_size=200))
def test_a_damaged_snapshot_is_refused(data: bytes) -> None:
    """With a typed error, or it is another valid one."""
    for kind in (submission_window.ENTRIES, submission_window.MARKS):
        try:
            window = SubmissionWindow.restore([kind + data])
        except Corruption:
            continue
        assert len(window) <= len(data)


def test_full_windows_of_ended_shards_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states that are kept are bounded by what is in them, too; the last one stays."""
    monkeypatch.setattr(finished, "SUBMITTED_RUNS_MAX", 5)
    kept = FinishedShards(mock.Mock(), mock.Mock(), mock.Mock())
    for shard_id, runs in enumerate((2, 2, 0, 2, 9)):
        state = ShardState.first()
        for number in range(runs):
            state.submissions.note(Submission(bytes([number]) * 16, 1, ((0, 1),)), shard_id, number)
        kept.put((1, shard_id), state)
        assert list(kept._states) == [(1, each) for each in ([0], [0, 1], [0, 1, 2], [1, 2, 3], [4])[shard_id]]


# ---- owners of a shard


@dataclass
class Bench:
    """A topic, and owners of its shard in turn."""

    cluster: OwnerCluster
    topic_id: int
    replies: Replies = field(default_factory=Replies)
    owners: list[OwnedShard] = field(default_factory=list)

    async def open(self, *, version: int = LEVEL_SUBMISSIONS) -> OwnedShard:
        """Open the shard as another broker."""
        client = self.cluster.client()
        topics = client.metadata.pd
        ended = FinishedShards(client, topics, PlacementRows(topics))
        made = await OwnedShard.open(client, topics, ended, await self.cluster.shard(self.topic_id, 0))
        made.broker_version = lambda: version
        self.owners.append(made)
        return made


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """One topic of one shard."""
    async with owner_cluster() as cluster:
        made = Bench(cluster, await cluster.create_topic())
        yield made
        for owner in made.owners:
            await owner.close()


@pytest.mark.virtual
@pytest.mark.parametrize("snapshots", [False, True])
async def test_a_repeat_after_a_takeover_gets_the_first_places(bench: Bench, snapshots: bool) -> None:
    """From the log, or from a snapshot; what is new in it is said to be missing by its absence, and is taken alone."""
    with mock.patch.object(shard_snapshots, "SNAPSHOT_BATCHES", 2 if snapshots else 10_000):
        first = await bench.open()
        await bench.replies.produce(first, Producer(7, 0, 0))
        assert await bench.replies.submit(first, Submission(NAME, 1, ((0, 2), (4, 1)))) == [
            PlacedRun(0, 2, 0, 1),
            PlacedRun(4, 1, 0, 3),
        ]
        await until(lambda: first.covered_offset == 4 * snapshots)
        second = await bench.open()
        assert await bench.replies.submit(second, Submission(NAME, 1, ((1, 4),))) == [
            PlacedRun(1, 1, 0, 2),
            PlacedRun(4, 1, 0, 3),
        ]
        assert await bench.replies.submit(second, Submission(NAME, 1, ((2, 2),))) == [PlacedRun(2, 2, 0, 4)]
        with pytest.raises(PreconditionFailed):
            await bench.replies.submit(second, Submission(NAME, 2, ((0, 1),)))
        assert await bench.replies.produce(second, Producer(7, 0, 1)) == 6
    assert await bench.cluster.read(bench.topic_id, 0) == [b"0", b"0", b"1", b"4", b"2", b"3", b"1"]


@pytest.mark.virtual
async def test_a_deposed_owner_answers_no_new_submission(bench: Bench) -> None:
    """It finds out with its batch, whose outcome it does not know; the next owner takes it once."""
    first = await bench.open()
    second = await bench.open()
    with pytest.raises(NotOwner) as told:
        await bench.replies.submit(first, Submission(NAME, 1, ((0, 1),)))
    assert told.value.outcome_unknown
    assert await bench.replies.submit(second, Submission(NAME, 1, ((0, 1),))) == [PlacedRun(0, 1, 0, 0)]


@pytest.mark.virtual
async def test_no_submission_before_all_brokers_know_them(bench: Bench) -> None:
    """An earlier broker could not open the shard."""
    owner = await bench.open(version=LEVEL_SUBMISSIONS - 1)
    with pytest.raises(UnsupportedVersion):
        await bench.replies.submit(owner, Submission(NAME, 1, ((0, 1),)))
    assert await bench.cluster.read(bench.topic_id, 0) == []


@pytest.mark.virtual
async def test_a_repeat_is_found_over_a_split_and_a_merge() -> None:
    """Children begin with the windows of their parents, and say in which shard a record is."""
    async with owner_cluster() as cluster:
        broker = await MemoryBroker(cluster, "a").start()
        broker.owned.broker_version = lambda: LEVEL_SUBMISSIONS
        replies = Replies()
        topic_id = await cluster.create_topic()
        parent = await broker.opened(topic_id, 0)
        first = Submission(NAME, 1, ((0, 2),))
        assert await replies.submit(parent, first) == [PlacedRun(0, 2, 0, 0)]
        await cluster.start_scale(topic_id, [0], [0, 2, 4])
        await cluster.until_state(topic_id, topic_pb2.TOPIC_STATE_ACTIVE)
        low, high = [await broker.opened(topic_id, shard_id) for shard_id in (1, 2)]
        for child in (low, high):
            assert await replies.submit(child, first) == [PlacedRun(0, 2, 0, 0)]
        assert await replies.submit(high, Submission(NAME, 1, ((5, 1),))) == [PlacedRun(5, 1, 2, 0)]
        await cluster.start_scale(topic_id, [1, 2], [0, 4])
        await cluster.until_state(topic_id, topic_pb2.TOPIC_STATE_ACTIVE)
        merged = await broker.opened(topic_id, 3)
        assert await replies.submit(merged, Submission(NAME, 1, ((0, 6),))) == [
            PlacedRun(0, 2, 0, 0),
            PlacedRun(5, 1, 2, 0),
        ]
        assert len(merged.state.submissions) == 2, "what both children had from their parent counts once"
        assert (await cluster.shard(topic_id, 1)).end_offset == 0
        await broker.end()
