"""The blocking writer, producer and transactions of any keys and values, for `rangelog.sync`.

Invariant: the functions run on the calling thread, before anything of their record, or of their list, is handed to the loop.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from typing import Any

from rangelog._append import serializing as of_streams
from rangelog._append.many_records import check_iterable
from rangelog._append.serializing import Serializers
from rangelog._loop_thread import LoopThread
from rangelog._produce import serializing as of_topics
from rangelog._produce.waiters import ProducerAck
from rangelog._sync_topics import TopicProducer
from rangelog._sync_transactions import Transaction, Transactional
from rangelog._sync_writer import Writer
from rangelog._transact import serializing as of_transactions
from rangelog._transact import transaction, transactional
from rangelog_core.record import Ack


class SerializingWriter(Writer):
    """The blocking writer of any keys and values; make it with `client.writer(name, value_serializer=…)`.

    The functions run on the calling thread. Methods are those of `Writer`, errors also those of `rangelog.SerializingWriter`.
    """

    def __init__(self, loop: LoopThread, of: of_streams.SerializingWriter) -> None:
        super().__init__(loop, of.writer)
        self._make = of.serializers

    def append(self, value: Any, *, key: Any = None, **options: Any) -> Ack:
        """See Writer."""
        return super().append(self._make.value(value), key=self._make.key(key), **options)

    def submit(self, value: Any, *, key: Any = None, **options: Any) -> concurrent.futures.Future[Ack]:
        """See Writer."""
        return super().submit(self._make.value(value), key=self._make.key(key), **options)

    def append_nowait(self, value: Any, *, key: Any = None, **options: Any) -> int:
        """See Writer."""
        return super().append_nowait(self._make.value(value), key=self._make.key(key), **options)

    def append_batch(self, records: Iterable[Any], **options: Any) -> list[Ack]:
        """See Writer."""
        return super().append_batch([self._make.record(record) for record in records], **options)

    def append_all(self, records: Iterable[Any], *, timeout_s: float | None = None) -> int:
        """See Writer."""
        check_iterable(records)
        return super().append_all(map(self._make.record, records), timeout_s=timeout_s)


class SerializingProducer(TopicProducer):
    """The blocking producer of any keys and values; make it with `client.producer(name, value_serializer=…)`.

    The functions run on the calling thread. Methods are those of `TopicProducer`, errors also those of
    `rangelog.SerializingProducer`.
    """

    def __init__(self, loop: LoopThread, of: of_topics.SerializingProducer) -> None:
        super().__init__(loop, of.producer)
        self._make = of.serializers

    def send(self, value: Any, *, key: Any = None, **options: Any) -> ProducerAck:
        """See TopicProducer."""
        return super().send(self._make.value(value), key=self._make.key(key), **options)

    def submit(self, value: Any, *, key: Any = None, **options: Any) -> concurrent.futures.Future[ProducerAck]:
        """See TopicProducer."""
        return super().submit(self._make.value(value), key=self._make.key(key), **options)

    def send_nowait(self, value: Any, *, key: Any = None, **options: Any) -> None:
        """See TopicProducer."""
        super().send_nowait(self._make.value(value), key=self._make.key(key), **options)

    def send_batch(self, records: Iterable[Any], **options: Any) -> list[ProducerAck]:
        """See TopicProducer."""
        return super().send_batch([self._make.record(record) for record in records], **options)


class SerializingTransaction(Transaction):
    """The blocking transaction of any keys and values. The functions run on the calling thread."""

    def __init__(self, loop: LoopThread, of: transaction.Transaction, serializers: Serializers) -> None:
        super().__init__(loop, of)
        self._make = serializers

    def send(self, topic: str, value: Any, *, key: Any = None, **options: Any) -> None:
        """See Transaction."""
        super().send(topic, self._make.value(value), key=self._make.key(key), **options)

    def submit(self, topic: str, value: Any, *, key: Any = None, **options: Any) -> None:
        """See Transaction."""
        super().submit(topic, self._make.value(value), key=self._make.key(key), **options)


class SerializingTransactional(Transactional):
    """The blocking instance of an id with serializers; make it with `client.transactional(id, value_serializer=…)`."""

    def __init__(self, loop: LoopThread, of: of_transactions.SerializingTransactional) -> None:
        super().__init__(loop, of)
        self._make = of.serializers

    def transaction(self) -> SerializingTransaction:
        """See Transactional."""
        return SerializingTransaction(self._loop, transactional.Transactional.transaction(self._of), self._make)
