"""The blocking forms of `client.topics`, and of a topic's producer and reader, for `rangelog.sync`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self

from rangelog._append.serializing import Serializers
from rangelog._consume.reader import TopicReader as AsyncTopicReader
from rangelog._consume.records import TopicChunk, TopicRecord
from rangelog._loop_thread import LoopThread
from rangelog._metadata import CALL_TIMEOUT_S
from rangelog._produce.producer import TopicProducer as AsyncTopicProducer
from rangelog._produce.waiters import ProducerAck
from rangelog._sync_submit import submit_when_there_is_room
from rangelog._topics import topics as asynchronous
from rangelog._topics.cut import Cut
from rangelog._topics.time_windows import TimeWindow
from rangelog._topics.values import ShardInfo, TopicConfig, TopicConfigChange, TopicInfo, Watermark
from rangelog_core.key_ranges import KeyRange
from rangelog_core.record import AppendRecord, BytesLike


class TopicProducer:
    """The blocking producer of a topic: make it with `client.producer(name)`, use it with `with`, on any threads."""

    def __init__(self, loop: LoopThread, producer: AsyncTopicProducer) -> None:
        self._loop = loop
        self._producer = producer

    def __enter__(self) -> Self:
        self._loop.run(self._producer.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._loop.forked and kind is not None:
            return  # as Writer
        self._close(flush=kind is None)

    def send(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> ProducerAck:
        """Send one record and wait for its ack. Arguments and errors are those of `rangelog.TopicProducer.send`."""
        sending = self._producer.send(value, key=key, headers=headers, timestamp=timestamp, shard=shard)
        return self._loop.run(sending)

    def submit(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> concurrent.futures.Future[ProducerAck]:
        """Send one record; return a future of its ack. Blocks only while `inflight_bytes_max` bytes are not acked.

        The future is as that of `Writer.submit`. Arguments and errors are those of `rangelog.TopicProducer.submit`.
        """
        producer = self._producer

        def send() -> asyncio.Future[ProducerAck]:
            return producer.submit(value, key=key, headers=headers, timestamp=timestamp, shard=shard)

        return submit_when_there_is_room(self._loop, producer.ready, send)

    def send_nowait(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """Send one record without waiting for its ack, and without a future. As `rangelog.TopicProducer.send_nowait`."""

        async def send() -> None:
            self._producer.send_nowait(value, key=key, headers=headers, timestamp=timestamp, shard=shard)

        self._loop.run(send())

    def send_batch(self, records: Iterable[BytesLike | AppendRecord], *, shard: int | None = None) -> list[ProducerAck]:
        """Send records in order and return one ack per record, once all are acked. Errors as `send`."""
        return self._loop.run(self._producer.send_batch(list(records), shard=shard))

    def flush(self) -> None:
        """Wait until all records are acked. Raises the errors of `rangelog.TopicProducer.flush`."""
        self._loop.run(self._producer.flush())

    def ready(self) -> None:
        """Wait until there is room to send. Raises as `rangelog.TopicProducer.ready`."""
        self._loop.run(self._producer.ready())

    def note_time(self, time: datetime | int) -> None:
        """Promise that every record that is sent from now on has this event time or a later one. As the asynchronous one."""
        self._loop.run(self._note_time(time))

    async def _note_time(self, time: datetime | int) -> None:
        self._producer.note_time(time)

    def close(self) -> None:
        """Flush and close; idempotent. Raises the errors of `flush`, after closing."""
        self._close(flush=True)

    def _close(self, *, flush: bool) -> None:
        if not self._producer.closed:
            self._loop.run(self._producer.close(flush=flush))


class SerializingProducer(TopicProducer):
    """The blocking producer of any keys and values; make it with `client.producer(name, value_serializer=…)`.

    The functions run on the calling thread. Methods are those of `TopicProducer`, errors also those of
    `rangelog.SerializingProducer`.
    """

    def __init__(self, loop: LoopThread, producer: AsyncTopicProducer, serializers: Serializers) -> None:
        super().__init__(loop, producer)
        self._make = serializers

    def send(self, value: Any, *, key: Any = None, **options: Any) -> ProducerAck:
        """See TopicProducer."""
        return super().send(self._make.value(value), key=self._make.key(key), **options)

    def submit(self, value: Any, *, key: Any = None, **options: Any) -> concurrent.futures.Future[ProducerAck]:
        """See TopicProducer."""
        return super().submit(self._make.value(value), key=self._make.key(key), **options)

    def send_nowait(self, value: Any, *, key: Any = None, **options: Any) -> None:
        """See TopicProducer."""
        super().send_nowait(self._make.value(value), key=self._make.key(key), **options)

    def send_batch(self, records: Iterable[Any], *, shard: int | None = None) -> list[ProducerAck]:
        """See TopicProducer."""
        return super().send_batch([self._make.record(record) for record in records], shard=shard)


class Topics:
    """The topics of a cluster: `client.topics`. Arguments, results and errors are those of `rangelog.Topics`."""

    def __init__(self, loop: LoopThread, topics: asynchronous.Topics) -> None:
        self._loop = loop
        self._topics = topics

    def create_namespace(self, name: str, *, exist_ok: bool = False) -> None:
        """Create a namespace; with `exist_ok` it may exist already. Raises NamespaceExists, OutcomeUnknown."""
        self._loop.run(self._topics.create_namespace(name, exist_ok=exist_ok))

    def delete_namespace(self, name: str) -> None:
        """Delete an empty namespace. Raises NamespaceNotFound, PreconditionFailed, OutcomeUnknown."""
        self._loop.run(self._topics.delete_namespace(name))

    def namespaces(self, prefix: str = "", *, after: str = "") -> Iterator[str]:
        """Yield the names of the namespaces that start with `prefix` and come after `after`, in order."""
        return self._loop.iterate(self._topics.namespaces(prefix, after=after))

    def create(
        self,
        name: str,
        config: TopicConfig = asynchronous.DEFAULT_TOPIC_CONFIG,
        *,
        shards: int | Sequence[KeyRange] = 1,
        tags: Mapping[str, str] = asynchronous.NO_TAGS,
        exist_ok: bool = False,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> TopicInfo:
        """Create a topic, as the asynchronous one. Raises TopicExists, NamespaceNotFound, KeyRangeGap, KeyRangeOverlap,
        OutcomeUnknown."""
        return self._loop.run(
            self._topics.create(name, config, shards=shards, tags=tags, exist_ok=exist_ok, timeout_s=timeout_s)
        )

    def describe(self, name: str) -> TopicInfo:
        """Return the current state of a topic. Raises TopicNotFound, Unavailable."""
        return self._loop.run(self._topics.describe(name), reads=True)

    def list(
        self,
        *,
        namespace: str = "",
        prefix: str = "",
        tags: Mapping[str, str] = asynchronous.NO_TAGS,
        after: str = "",
        include_tables: bool = False,
    ) -> Iterator[TopicInfo]:
        """Yield topics, by namespace and name; with `include_tables` tables, too."""
        listed = self._topics.list(
            namespace=namespace, prefix=prefix, tags=tags, after=after, include_tables=include_tables
        )
        return self._loop.iterate(listed)

    def update(
        self,
        name: str,
        change: TopicConfigChange | None = None,
        *,
        set_tags: Mapping[str, str] = asynchronous.NO_TAGS,
        remove_tags: Sequence[str] = (),
        expected_version: int | None = None,
    ) -> TopicInfo:
        """Change configuration and tags. Raises TopicNotFound, TopicStateForbids, PreconditionFailed, OutcomeUnknown."""
        return self._loop.run(
            self._topics.update(
                name, change, set_tags=set_tags, remove_tags=remove_tags, expected_version=expected_version
            )
        )

    def seal(self, name: str, *, expected_version: int | None = None) -> TopicInfo:
        """Start to seal a topic. Raises TopicNotFound, TopicStateForbids, PreconditionFailed, OutcomeUnknown."""
        return self._loop.run(self._topics.seal(name, expected_version=expected_version))

    def delete(self, name: str, *, force: bool = False, expected_version: int | None = None) -> None:
        """Delete a sealed topic; with `force`, any. Raises TopicNotFound, TopicStateForbids, PreconditionFailed."""
        self._loop.run(self._topics.delete(name, force=force, expected_version=expected_version))

    def truncate(self, name: str, cut: Cut) -> TopicInfo:
        """Remove all records before a cut. Raises TopicNotFound, TopicStateForbids, InvalidArgument, OffsetOutOfRange."""
        return self._loop.run(self._topics.truncate(name, cut))

    def shards(self, name: str, *, include_ended: bool = False) -> Sequence[ShardInfo]:
        """Return the current shards in order of keys; or all, in order of id. Raises TopicNotFound, Unavailable."""
        return self._loop.run(self._topics.shards(name, include_ended=include_ended), reads=True)

    def cut(self, name: str, place: Literal["head", "tail"] | datetime) -> Cut:
        """Return a cut at "head", "tail" or a time. Raises TopicNotFound, InvalidArgument, Unavailable."""
        return self._loop.run(self._topics.cut(name, place), reads=True)

    def watermarks(self, name: str, *, since: datetime | None = None) -> Iterator[Watermark]:
        """Yield the watermarks of a topic that are kept, in order. Raises TopicNotFound, TopicKindForbids, Unavailable."""
        return self._loop.iterate(self._topics.watermarks(name, since=since))

    def scale(
        self,
        name: str,
        parents: Sequence[int],
        key_ranges: int | Sequence[KeyRange],
        *,
        timeout_s: float = asynchronous.SCALE_TIMEOUT_S,
    ) -> Sequence[ShardInfo]:
        """Replace some shards by others, and wait until that is committed. Raises as `rangelog.Topics.scale`."""
        return self._loop.run(self._topics.scale(name, parents, key_ranges, timeout_s=timeout_s))

    def cancel_scale(self, name: str) -> TopicInfo:
        """Drop the plan of the scale that is not committed yet. Raises TopicNotFound, TopicStateForbids."""
        return self._loop.run(self._topics.cancel_scale(name))


class TopicReader:
    """An iterator of the records of a topic. Make it with `client.topic_reader(...)`; iterate once.

    Records, chunks, positions and errors are those of `rangelog.TopicReader`.
    """

    def __init__(
        self,
        loop: LoopThread,
        reader: AsyncTopicReader,
        deserialize: Callable[[TopicRecord], TopicRecord] | None = None,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._deserialize = deserialize  # on the calling thread

    def __iter__(self) -> Iterator[TopicRecord]:
        for chunk in self._loop.iterate(self._reader.parts()):
            for record in chunk.records:
                self._reader.note(chunk.shard_id, record.offset + 1)
                made = TopicRecord(chunk.shard_id, *record)
                yield made if self._deserialize is None else self._deserialize(made)

    def chunks(self) -> Iterator[TopicChunk]:
        """Yield chunks of consecutive records of one shard, at a much lower cost per record than one by one."""
        return self._loop.iterate(self._reader.chunks())

    def position(self) -> Cut:
        """Return where the reader is: a cut behind all records that were yielded and before all others."""
        return self._loop.run(self._position())

    def time_window(self) -> TimeWindow:
        """Return the window of event times at the reader's position. Raises InvalidArgument, TopicNotFound, Unavailable."""
        return self._loop.run(self._reader.time_window(), reads=True)

    async def _position(self) -> Cut:
        return self._reader.position()
