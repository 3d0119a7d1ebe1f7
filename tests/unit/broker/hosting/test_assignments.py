"""The watch of a broker's assignments: rows in any order and number, sessions that end, answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from rangelog.errors import Unavailable
from rangelog_broker.hosting.assignments import AssignmentWatch
from rangelog_proto.v1 import broker_pb2, pd_pb2, topic_pb2
from tests.support.pd_calls import CallsByName
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

ME, MINE = "b1", 5


def row(topic_id: int, shard_id: int, broker: str = ME, epoch: int = 1, incarnation: int = MINE) -> Any:
    """An assignment."""
    return broker_pb2.Assignment(
        topic_id=topic_id, shard_id=shard_id, broker=broker, incarnation=incarnation, owner_epoch=epoch
    )


def gone(topic_id: int, shard_id: int) -> Any:
    """The row of a shard that is assigned to nobody any more."""
    return broker_pb2.Assignment(topic_id=topic_id, shard_id=shard_id)


class Script(CallsByName):
    """A placement driver that answers what a test gives it, one answer for each call, and notes what it was asked."""

    def __init__(self) -> None:
        self.requests: list[pd_pb2.WatchRequest] = []
        self._answers: asyncio.Queue[pd_pb2.WatchResponse | Unavailable] = asyncio.Queue()
        self._sequence = 0

    def answer(
        self, *rows: Any, session: int = 1, more: bool = False, topics: Iterable[Any] = (), **fields: Any
    ) -> None:
        """The next answer."""
        self._sequence += 1
        self._answers.put_nowait(
            pd_pb2.WatchResponse(
                session=session, sequence=self._sequence, assignments=rows, more=more, topics=topics, **fields
            )
        )

    def fail(self) -> None:
        """The next call fails."""
        self._answers.put_nowait(Unavailable("no placement driver leads"))

    async def watch(self, request: pd_pb2.WatchRequest, *, timeout_s: float) -> pd_pb2.WatchResponse:
        """As PdClient."""
        self.requests.append(pd_pb2.WatchRequest.FromString(request.SerializeToString()))
        answer = await self._answers.get()
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    async def asked(self, count: int) -> pd_pb2.WatchRequest:
        """Wait for so many calls; return the last of them."""
        await until(lambda: len(self.requests) >= count)
        return self.requests[count - 1]


class Watched:
    """A watch with its events noted."""

    def __init__(self) -> None:
        self.script = Script()
        self.watch = AssignmentWatch(self.script, ME, MINE)  # type: ignore[arg-type]
        self.events: list[tuple[str, object]] = []
        note: Callable[[str], Callable[[Any], None]] = lambda kind: lambda what: self.events.append((kind, what))  # noqa: E731
        self.watch.on_assigned = note("+")
        self.watch.on_withdrawn = note("-")
        self.watch.on_topic = lambda topic: self.events.append(("topic", (topic.topic_id, topic.state)))
        self.watch.on_topic_gone = note("no topic")

    def take(self) -> list[tuple[str, object]]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    """One that runs."""
    made = Watched()
    task = asyncio.create_task(made.watch.run())
    yield made
    assert not task.done(), "it goes on whatever it is answered"
    task.cancel()


async def test_what_is_assigned_is_known_and_its_topics_are_watched(watched: Watched) -> None:
    """The session begins with the broker's name; each topic is asked for once, without its shards; journals have none."""
    script = watched.script
    assert (await script.asked(1)).begin_broker == ME
    script.answer(row(3, 0), row(3, 1), row(0, 7))
    second = await script.asked(2)
    assert [each.topic_id for each in second.begin_topics] == [3]
    assert (second.session, second.acked, second.wait_ms) == (1, 1, 0)
    assert watched.take() == [("+", (3, 0)), ("+", (3, 1)), ("+", (0, 7))]
    script.answer(topics=[topic_pb2.Topic(topic_id=3), topic_pb2.Topic(topic_id=9)])
    third = await script.asked(3)
    assert third.wait_ms > 0 and not third.begin_topics
    assert watched.take() == [("topic", (3, 0))], "a topic of which nothing is assigned is of no interest"


async def test_repeated_rows_are_no_news(watched: Watched) -> None:
    """A row that is sent again changes nothing; one with a new owner epoch is an assignment again."""
    script = watched.script
    script.answer(row(3, 0))
    script.answer(row(3, 0), row(3, 0))
    script.answer(row(3, 0, epoch=2))
    await script.asked(4)
    assert watched.take() == [("+", (3, 0)), ("+", (3, 0))]
    assert watched.watch.assigned == {(3, 0): 2}


@pytest.mark.parametrize("taken", [row(3, 0, "b2"), row(3, 0, incarnation=MINE + 1), gone(3, 0)])
async def test_what_is_assigned_elsewhere_is_withdrawn(watched: Watched, taken: Any) -> None:
    """To another broker, to another incarnation of this name, to nobody."""
    script = watched.script
    script.answer(row(3, 0), topics=[topic_pb2.Topic(topic_id=3)])
    script.answer(taken, taken)
    third = await script.asked(3)
    assert watched.take() == [("+", (3, 0)), ("topic", (3, 0)), ("no topic", 3), ("-", (3, 0))]
    assert (list(third.begin_topics), list(third.end_topics)) == ([], [3])
    await watched.watch.wait_for_nothing()


async def test_rows_of_others_are_ignored(watched: Watched) -> None:
    """The watch of a topic sends the owners of all its shards."""
    watched.script.answer(row(3, 0, "b2"), gone(4, 4))
    await watched.script.asked(2)
    assert watched.take() == []


async def test_a_lost_session_withdraws_what_the_next_one_does_not_list(watched: Watched) -> None:
    """Nothing is withdrawn before the next session has listed everything, on as many pages as that takes."""
    script = watched.script
    script.answer(row(3, 0), row(3, 1), row(4, 0))
    await script.asked(2)
    watched.take()
    script.answer(session=0)
    again = await script.asked(3)
    assert (again.session, again.acked, again.begin_broker) == (0, 0, ME)
    assert sorted(each.topic_id for each in again.begin_topics) == [3, 4]
    script.answer(row(3, 1), session=2, more=True)
    await script.asked(4)
    assert watched.take() == []
    script.answer(row(4, 0), session=2)
    await script.asked(5)
    assert watched.take() == [("-", (3, 0))]
    assert set(watched.watch.assigned) == {(3, 1), (4, 0)}


async def test_failed_calls_keep_what_is_known(watched: Watched) -> None:
    """While nobody answers the broker goes on with what it has, and asks again."""
    script = watched.script
    script.answer(row(3, 0))
    await script.asked(2)
    for _ in range(3):
        script.fail()
    await script.asked(5)
    script.answer(row(3, 0), session=9)
    last = await script.asked(6)
    assert last.session == 9
    assert watched.take() == [("+", (3, 0))]


async def test_a_shard_that_comes_as_another_of_its_topic_goes_brings_the_topics_row_again(watched: Watched) -> None:
    """What was forgotten with the last shard of a topic is asked for again: its owner must know of a scale in progress."""
    script = watched.script
    script.answer(row(3, 0))
    await script.asked(2)
    script.answer(topics=[topic_pb2.Topic(topic_id=3, state=topic_pb2.TOPIC_STATE_SCALING)])
    await script.asked(3)
    watched.take()
    script.answer(row(3, 0, "b2"), row(3, 1))
    fourth = await script.asked(4)
    assert watched.take() == [("no topic", 3), ("-", (3, 0)), ("+", (3, 1))]
    assert [each.topic_id for each in fourth.begin_topics] == [3]
    assert not fourth.end_topics


async def test_wait_for_nothing_waits_for_the_last_one(watched: Watched) -> None:
    """It returns once the last assignment is withdrawn."""
    script = watched.script
    script.answer(row(3, 0), row(0, 1))
    await script.asked(2)
    waiting = asyncio.create_task(watched.watch.wait_for_nothing())
    script.answer(gone(3, 0))
    await script.asked(3)
    assert not waiting.done()
    script.answer(gone(0, 1))
    await waiting
