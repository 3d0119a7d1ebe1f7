"""A sink's driver that dies at each of its steps: the next one appends each record once, whatever its tasks returned."""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import AsyncIterator, Coroutine, Generator, Sequence
from typing import Any
from unittest import mock

import pytest

from rangelog import Client, StreamConfig, TopicConfig
from rangelog._append.writer import Writer
from rangelog._sink import topic_target
from rangelog._sink.committer import SinkCommitter, to_stream, to_topic
from rangelog._sink.decision import mark_extension
from rangelog._sink.staging import Output, TaskStaging
from rangelog._sink.target import StreamTarget
from rangelog.errors import OffsetTrimmed, StreamNotFound, TopicNotFound, WriterFenced
from rangelog.testing import FakeCluster
from rangelog_core.batch import encode_batch

STEPS_MAX = 2_000
ATTEMPTS = itertools.count(1)
KINDS = ["stream", "topic"]


class Died(BaseException):
    """The driver's process is gone."""


def output(*batches: Sequence[str]) -> Output:
    """A task's, with these batches of values, each record's key its value."""
    attempt = next(ATTEMPTS)
    encoded = [
        encode_batch(
            stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[1] * len(values),
            values=[each.encode() for each in values], keys=[each.encode() for each in values],
            extension=mark_extension(attempt, number),
        )
        for number, values in enumerate(batches)
    ]  # fmt: skip
    return Output(attempt, sum(map(len, batches)), tuple(encoded))


async def staged(client: Client, stream: str, *batches: Sequence[str]) -> Output:
    """As `output`, in a staging stream."""
    made = output(*batches)
    staging = TaskStaging(client, stream, made.attempt)
    try:
        await staging.add(made.batches)
        return await staging.finish(made.records)
    finally:
        await staging.close()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """With one broker."""
    with FakeCluster(brokers=1) as running:
        yield running


async def target(client: Client, kind: str, name: str) -> int:
    """Make it; return its id."""
    if kind == "stream":
        return (await client.create_stream(name, StreamConfig())).stream_id
    return (await client.topics.create(name, TopicConfig())).topic_id


def committer(client: Client, kind: str, name: str, target_id: int) -> SinkCommitter:
    """A driver's."""
    return (to_stream if kind == "stream" else to_topic)(client, name, target_id, f"of-{name}")


async def values(client: Client, kind: str, name: str, count: int) -> list[str]:
    """What is there, of which `count` are to be."""
    if kind == "stream":
        return [record.value.decode() async for record in client.reader(name)]
    found: list[str] = []
    async for record in client.topic_reader(name, follow=True):
        found.append(record.value.decode())
        if len(found) == count:
            break
    rest = [record.value.decode() async for record in client.topic_reader(name)]
    return rest if len(rest) > count else found


@types.coroutine
def until(work: Coroutine[Any, Any, object], steps: int) -> Generator[Any, Any, bool]:
    """Run some of the steps of a coroutine; return whether it ended before."""
    failed: BaseException | None = None
    for step in itertools.count():
        try:
            yielded = work.send(None) if failed is None else work.throw(failed)
        except StopIteration:
            return True
        if step == steps:
            try:
                work.throw(Died())
            except Died:
                return False
            raise AssertionError("a dying driver went on")
        try:
            failed = yield yielded  # a task sends None, or throws what it waited for
        except BaseException as error:
            failed = error
    raise AssertionError


async def nothing(_: SinkCommitter) -> None:
    """What a process does that is killed."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_driver_that_dies_at_any_step(cluster: FakeCluster, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two of its waits: in the decision, between two batches or transactions, before the note, in the trims."""
    monkeypatch.setattr(topic_target, "CHUNK_BYTES", 300)
    wanted = ["a", "b", "c", "d", "e", "f", "g"]
    for step in range(STEPS_MAX):
        name = f"{kind}{step}"
        async with cluster.client() as first, cluster.client() as second:
            target_id = await target(first, kind, name)
            dying = committer(first, kind, name, target_id)
            tasks = [output("a"), await staged(first, f"of-{name}-1", ["b", "c"], "d"), output("e")]
            with mock.patch.object(SinkCommitter, "_leave", nothing):
                ended = await until(dying.commit(0, tasks), step)
            following = committer(second, kind, name, target_id)
            again = [await staged(second, f"of-{name}-1", "a"), output(["b"], ["c", "d"]), output("e")]
            assert await following.commit(0, again, timeout_s=20) in (True, False)
            assert await following.commit(0, again) is False
            assert await following.commit(1, [output("f"), output("g")]) is True
            found = await values(second, kind, name, len(wanted))
            assert found == wanted, f"after step {step}"
            await following.close()
        if ended:
            assert step > 10
            return
    raise AssertionError("the commit does not end")


@pytest.mark.parametrize("kind", KINDS)
async def test_two_drivers_at_once(cluster: FakeCluster, kind: str) -> None:
    """They take the sink from each other, and each batch of work is appended by one of them."""
    async with cluster.client() as client, cluster.client() as other:
        target_id = await target(client, kind, "t")
        first, second = (committer(each, kind, "t", target_id) for each in (client, other))
        done = [
            await (first if number % 3 else second).commit(number // 2, [output([f"v{number // 2}"])])
            for number in range(12)
        ]
        assert done == [True, False] * 6
        assert await values(client, kind, "t", 6) == [f"v{number}" for number in range(6)]
        await first.close()
        await second.close()


async def test_what_the_former_driver_appends_until_the_fence_counts(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It carries its decision out while the next driver comes, up to the moment at which that one fences it."""
    decided, may_append, appended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    append, open_writer = StreamTarget.append, Writer.open
    async with cluster.client() as one, cluster.client() as other:

        async def append_late(self: StreamTarget, *args: Any) -> None:
            if self._client is one:
                decided.set()
                await may_append.wait()
            await append(self, *args)
            appended.set()

        async def open_late(self: Writer) -> None:
            if self.stream == "t" and decided.is_set() and not may_append.is_set():
                may_append.set()
                await appended.wait()
            await open_writer(self)

        monkeypatch.setattr(StreamTarget, "append", append_late)
        monkeypatch.setattr(Writer, "open", open_late)
        target_id = await target(one, "stream", "t")
        first, second = (committer(each, "stream", "t", target_id) for each in (one, other))
        committing = asyncio.create_task(first.commit(0, [output("a"), output("b")]))
        await decided.wait()
        assert await second.commit(0, [output("a"), output("b")]) is False, "it is decided already"
        await asyncio.gather(committing, return_exceptions=True)  # it is done, or fenced as it says so
        assert await values(other, "stream", "t", 2) == ["a", "b"]
        await first.close()
        await second.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_that_was_made_anew_is_not_written(cluster: FakeCluster, kind: str) -> None:
    """It is another one, of which the decisions say nothing."""
    async with cluster.client() as client:
        target_id = await target(client, kind, "t")
        driver = committer(client, kind, "t", target_id)
        await driver.commit(0, [output("a")])
        await driver.close()
        await (client.delete_stream("t") if kind == "stream" else client.topics.delete("t", force=True))
        with pytest.raises((StreamNotFound, TopicNotFound)):
            await driver.commit(1, [output("b")])
        await target(client, kind, "t")
        with pytest.raises((StreamNotFound, TopicNotFound), match="made anew"):
            await driver.commit(1, [output("b")])


async def test_a_trimmed_target_may_hide_what_was_appended(cluster: FakeCluster) -> None:
    """The next driver says so and appends nothing; what is left of the decision's batches is enough to go on."""
    async with cluster.client() as client:
        target_id = await target(client, "stream", "t")
        for trim_offset, hidden in ((1, False), (3, True)):
            name = f"of-{trim_offset}"
            async with client.writer("t") as writer:
                begin = writer.next_offset
            dying = to_stream(client, "t", target_id, name)
            with mock.patch.object(SinkCommitter, "_finish", side_effect=Died), pytest.raises(Died):
                await dying.commit(0, [output("a", "b"), output("c")])
            await client.seal_stream("t")
            await client.trim_stream("t", begin + trim_offset)
            following = to_stream(client, "t", target_id, name)
            if hidden:
                with pytest.raises(OffsetTrimmed, match="cannot be seen"):
                    await following.commit(0, [output("a", "b", "c")])
            else:
                assert await following.commit(0, [output("a", "b", "c")]) is False
            assert await client.end_offset("t") == begin + 3
            await following.close()


async def test_a_task_that_was_followed_by_another_attempt_stages_nothing_more(cluster: FakeCluster) -> None:
    """And a span that was handed over before stays as it is."""
    async with cluster.client() as client:
        done = await staged(client, "staging", "a")
        late = TaskStaging(client, "staging", 7)
        await late.add(output("b").batches)
        again = await staged(client, "staging", "c")
        await late.add(output("d").batches)
        with pytest.raises(WriterFenced):
            await late.finish(2)
        await late.close()
        target_id = await target(client, "stream", "t")
        driver = committer(client, "stream", "t", target_id)
        await driver.commit(0, [again, done])
        assert await values(client, "stream", "t", 2) == ["c", "a"]
        await driver.close()
