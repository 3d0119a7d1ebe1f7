"""Which shards a broker reports, and how their rates are measured."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog.errors import Unavailable
from rangelog_broker.hosting import owned as owned_module
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.hosting.registration import Registration
from rangelog_proto.v1 import broker_pb2, topic_pb2
from tests.support.pd_calls import CallsByName

pytestmark = pytest.mark.virtual


class Clock:
    """In place of the module `time`."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(owned_module, "time", made)
    return made


def topic(topic_id: int, kind: Any) -> topic_pb2.Topic:
    return topic_pb2.Topic(
        topic_id=topic_id,
        state=topic_pb2.TOPIC_STATE_ACTIVE,
        config=topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(kind=kind)),
    )


async def test_idle_shards_are_reported_only_where_a_policy_wants_their_rates(clock: Clock) -> None:
    """Averages belong to topics with a policy; other shards report what they take now, if anything."""
    shards: Any = OwnedShards(None, None, None, None)  # type: ignore[arg-type]
    shards.topic_changed(topic(1, topic_pb2.SCALING_KIND_FIXED))
    shards.topic_changed(topic(2, topic_pb2.SCALING_KIND_EVENTS))
    load = {key: SimpleNamespace(events=0, bytes=0) for key in ((1, 0), (1, 1), (2, 0))}
    shards._open.update({key: SimpleNamespace(load=each) for key, each in load.items()})
    load[1, 0].events, load[1, 0].bytes = 20, 2_000
    clock.now_s += 2
    loads = shards.loads()
    assert {key: (each.events_per_s, each.bytes_per_s) for key, each in loads.items()} == {
        (1, 0): (10, 1_008),
        (2, 0): (0, 0),
    }
    assert not loads[1, 0].events_averages and list(loads[2, 0].events_averages) == [0] * 4
    clock.now_s += 0.5
    assert shards.loads() is loads, "rates are of a second at least"
    shards.minute_s = 0.1
    load[2, 0].events = 50
    assert shards.loads()[2, 0].events_per_s == 100, "or of a minute of the averages, if that is less"
    assert not shards.loads()[2, 0].mature
    shards.topic_changed(topic(2, topic_pb2.SCALING_KIND_FIXED))
    clock.now_s += 4
    assert list(shards.loads()) == []


class Brokers(CallsByName):
    """The placement driver, as heartbeats see it."""

    def __init__(self) -> None:
        self.answers: list[broker_pb2.BrokerHeartbeatResponse | Exception] = []
        self.heard: list[tuple[list[int], bool]] = []
        self.done = asyncio.Event()

    async def broker_heartbeat(self, request: broker_pb2.BrokerHeartbeatRequest, *, timeout_s: float) -> Any:
        self.heard.append(([each.events_per_s for each in request.loads], request.complete))
        answer = self.answers.pop(0)
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Reported:
    """A broker whose only shard has a load that a heartbeat finds."""

    minute_s = 60.0

    def __init__(self, *events: int) -> None:
        self.events = list(events)
        self.asked: list[int] = []

    def loads(self) -> Any:
        return {(1, 0): broker_pb2.ShardLoad(topic_id=1, events_per_s=self.events.pop(0))}

    def covered(self) -> Any:
        return ()

    def cover(self, wanted: Any) -> None:
        self.asked.append(len(wanted))


async def test_a_heartbeat_contains_what_changed_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """All to begin with, after a lost one, and where the leader asks for it; what it wants covered is passed on."""
    brokers, reported = Brokers(), Reported(5, 5, 6, 7, 7, 7)
    fine, more = broker_pb2.BrokerHeartbeatResponse, broker_pb2.BrokerHeartbeatResponse(send_all=True)
    cover = fine(cover=[broker_pb2.ShardCover(topic_id=1)])
    brokers.answers = [fine(), cover, Unavailable("lost"), more, fine(), fine()]
    registration = Registration(brokers, broker_pb2.Broker(name="b", incarnation=1), reported)  # type: ignore[arg-type]
    monkeypatch.setattr(registration, "_interval_s", 0)
    running = asyncio.create_task(registration.run())
    await brokers.done.wait()
    running.cancel()
    assert brokers.heard == [([5], True), ([], False), ([6], False), ([7], True), ([7], True), ([], False)]
    assert reported.asked[:4] == [0, 1, 0, 0]
