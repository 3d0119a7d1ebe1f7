"""A producer whose records are made by the program's own functions.

What holds: a function runs before anything of its record, or of its list, is sent; what it raises comes to the caller as it
is, and leaves the producer as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rangelog._append.serializing import Serializers
from rangelog._produce.producer import TopicProducer
from rangelog._produce.waiters import ProducerAck


class SerializingProducer:
    """A producer of any keys and values. Make it with `client.producer(name, value_serializer=…)`, and use `async with`.

    Its methods are those of `TopicProducer`; an exception of a serializer comes out of them, and nothing is sent then. A
    record's shard follows from the bytes that the key became.

    Example:
        ```python
        async with client.producer("shop/orders", key_serializer=str.encode, value_serializer=to_json) as producer:
            await producer.send({"item": "coffee"}, key="table 7")
        ```
    """

    def __init__(self, producer: TopicProducer, serializers: Serializers) -> None:
        self.producer = producer
        """The producer underneath, which takes bytes."""
        self.serializers = serializers

    async def __aenter__(self) -> SerializingProducer:
        await self.producer.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.producer.close(flush=kind is None)

    async def open(self) -> None:
        """See TopicProducer."""
        await self.producer.open()

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """See TopicProducer."""
        await self.producer.close(flush=flush, timeout_s=timeout_s)

    async def send(
        self, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, shard: int | None = None, timeout_s: float | None = None,
    ) -> ProducerAck:  # fmt: skip
        """See TopicProducer."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        return await self.producer.send(
            made, key=made_key, headers=headers, timestamp=timestamp, shard=shard, timeout_s=timeout_s
        )

    def submit(
        self, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, shard: int | None = None,
    ) -> asyncio.Future[ProducerAck]:  # fmt: skip
        """See TopicProducer."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        return self.producer.submit(made, key=made_key, headers=headers, timestamp=timestamp, shard=shard)

    def send_nowait(
        self, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, shard: int | None = None,
    ) -> None:  # fmt: skip
        """See TopicProducer."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        self.producer.send_nowait(made, key=made_key, headers=headers, timestamp=timestamp, shard=shard)

    async def send_batch(
        self, records: Iterable[Any], *, shard: int | None = None, timeout_s: float | None = None
    ) -> list[ProducerAck]:
        """See TopicProducer: `records` are values, or AppendRecords of values and keys. All are made before one is sent."""
        made = [self.serializers.record(record) for record in records]
        return await self.producer.send_batch(made, shard=shard, timeout_s=timeout_s)

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See TopicProducer."""
        await self.producer.flush(timeout_s=timeout_s)

    async def ready(self, *, timeout_s: float | None = None) -> None:
        """See TopicProducer."""
        await self.producer.ready(timeout_s=timeout_s)

    def note_time(self, time: datetime | int) -> None:
        """See TopicProducer."""
        self.producer.note_time(time)

    @property
    def closed(self) -> bool:
        """See TopicProducer."""
        return self.producer.closed

    @property
    def topic_id(self) -> int:
        """See TopicProducer."""
        return self.producer.topic_id

    @property
    def shards(self) -> Sequence[int]:
        """See TopicProducer."""
        return self.producer.shards
