"""Clients of a FakeTopic, with short pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rangelog._client import Client
from rangelog._produce.producer import TopicProducer
from rangelog._produce.shard_link import Pace
from tests.support.fake_brokers import FakeTopic, FakeTopicPd

PACE = Pace(pause_min_s=0.002, pause_max_s=0.05, tick_s=0.02, closed_s=0.2)


class ProducerClient:
    """A production client whose producers have short pauses."""

    def __init__(self, topic: FakeTopic) -> None:
        self.pd = FakeTopicPd(topic)
        self.client = Client("fake:1", token=None, tls=None, tier_url=None, pd=self.pd)

    def producer(self, name: str = "t", **options: Any) -> TopicProducer:
        """As Client.producer."""
        made = self.client.producer(name, **options)
        made._access = made._access._replace(pace=PACE)
        return made


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[FakeTopic], ProducerClient]]:
    """`connect(topic)` makes a client, which is closed after the test."""
    made: list[ProducerClient] = []

    def connect(topic: FakeTopic) -> ProducerClient:
        made.append(ProducerClient(topic))
        return made[-1]

    yield connect
    for each in made:
        await each.client.close()
