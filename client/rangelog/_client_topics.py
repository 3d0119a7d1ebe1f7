"""What a client does with topics: producers, readers, groups, tables, and the administration of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, overload

from rangelog._append.serializing import Serializers
from rangelog._arguments import checked_arguments
from rangelog._consume.deserializing import shard_deserializer
from rangelog._consume.group import GroupMember
from rangelog._consume.group_calls import GroupCalls
from rangelog._consume.group_records import GroupListener
from rangelog._consume.group_shards import GroupShards
from rangelog._consume.groups import Groups
from rangelog._consume.reader import TopicReader
from rangelog._consume.shard_feed import ShardReader
from rangelog._metadata import Metadata
from rangelog._produce.owner_lookup import OwnerLookup
from rangelog._produce.producer import TopicProducer
from rangelog._produce.serializing import SerializingProducer
from rangelog._produce.submitter import TopicSubmitter
from rangelog._produce.wire import StageWire
from rangelog._read.cold import ColdReader, ColdStores
from rangelog._read.reader import Reader, Start
from rangelog._read.stream_watches import StreamWatches
from rangelog._table.table import Table
from rangelog._table.tables import Tables
from rangelog._topics.cut import Cut
from rangelog._topics.topics import Topics
from rangelog._topics.watches import TopicWatches
from rangelog._topics.watermark_calls import WatermarkCalls
from rangelog._transact.serializing import SerializingTransactional
from rangelog._transact.transactional import Transactional
from rangelog._transact.transactions import Transactions
from rangelog_core.ids import shard_stream_name
from rangelog_core.limits import INFLIGHT_BYTES_MAX
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token
from rangelog_core.record import moment_before


@checked_arguments
class TopicOperations:
    """The part of `Client` above streams; its methods are described there."""

    _pd: PdClient
    _metadata: Metadata
    _connections: DataConnections
    _cold_stores: ColdStores
    _watches: StreamWatches
    _producer_class: Callable[..., TopicProducer] = TopicProducer

    def _open_topics(self, *, token: Token | None, tls: TlsConfig | None) -> None:
        """Make what the methods share. Called once what is declared above is there."""
        self._topic_watches = TopicWatches(self._metadata)
        self._owners = OwnerLookup(self._pd, self._connections)
        self._producers: dict[TopicProducer, None] = {}
        self._owner_calls = self._new_owner_calls(token, tls)
        self._programs: dict[Transactional, None] = {}
        self._transactions = Transactions(self._owner_calls)
        self._topics = Topics(self._metadata, self._connections, self.shard_reader, self._owner_calls)
        self._tables = Tables(self._pd, self._owner_calls)
        self._group_calls = GroupCalls(self._owner_calls)
        self._group_shards = GroupShards(self._pd, self._metadata, self._connections, self._group_reader)
        self._groups = Groups(self._group_calls, self._group_shards)

    def _new_owner_calls(self, token: Token | None, tls: TlsConfig | None) -> OwnerCalls:
        return OwnerCalls(self._pd, token=token, tls=tls)

    async def _close_topics(self) -> None:
        for producer in list(self._producers):
            await producer.close(flush=False)
        for program in list(self._programs):
            await program.leave()
        self._owners.close()
        await self._tables.close()
        await self._owner_calls.close()
        self._topic_watches.close()

    # ---- topics

    @property
    def topics(self) -> Topics:
        """The administration of topics."""
        return self._topics

    def topic_reader(
        self,
        topic: str,
        *,
        start: str | Cut | datetime | timedelta = "earliest",
        end: Cut | None = None,
        follow: bool = False,
        read_preference: str = "hot_first",
        timeout_s: float = 30.0,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> TopicReader:
        """Return a reader of a topic: an asynchronous iterator of the records of all its shards.

        Args:
            topic: The topic's name.
            start: "earliest", "latest", a Cut, or a datetime: in each shard the first record at or after that time; a
                timedelta: so long ago by this program's clock. A start other than a Cut moves behind what is trimmed before the
                first record of a shard is handed out.
            end: Stop at this cut; None: no such bound.
            follow: Wait for new records, in new shards too. Otherwise the reader ends at the records that are acked when it
                starts.
            read_preference: "hot_first", "cold_first", "hot_only" or "cold_only".
            timeout_s: How long to retry while no copy of a shard can be read, in seconds.
            key_deserializer: Function of bytes; its result is the record's `key`, if it has one. `chunks` stay as they are.
                The record of which it raises counts as handed out.
            value_deserializer: The same for `value`.

        Raises:
            InvalidArgument: An argument is not valid. The reader itself raises the errors of `TopicReader.chunks`.
        """
        if isinstance(start, timedelta):
            start = moment_before(self._metadata.clock_ms(), start)
        return TopicReader(
            self._topics,
            self._topic_watches,
            self.shard_reader,
            topic,
            start=start,
            end=end,
            follow=follow,
            read_preference=read_preference,
            timeout_s=timeout_s,
            deserialize=shard_deserializer(key_deserializer, value_deserializer),
        )

    def shard_reader(
        self,
        topic_id: int,
        shard_id: int,
        *,
        stream_id: int = 0,
        start: Start = "earliest",
        end: int | None = None,
        follow: bool = False,
        read_preference: str = "hot_first",
        timeout_s: float = 30.0,
        resolved: bool = False,
    ) -> Reader:
        """Return a reader of one shard's stream. `resolved`: see SpanReader. For the package's own use."""
        return Reader(
            self._metadata,
            self._connections,
            ColdReader(self._metadata, self._cold_stores),
            self._watches,
            shard_stream_name(topic_id, shard_id),
            start=start,
            end=end,
            follow=follow,
            read_preference=read_preference,
            timeout_s=timeout_s,
            resolved=resolved,
            stream_id=stream_id,
        )

    @property
    def topic_watches(self) -> TopicWatches:
        """The watches of topics. For the package's own use."""
        return self._topic_watches

    @overload
    def producer(
        self, topic: str, *, producer_id: int | None = ..., producer_epoch: int = ..., append_timeout_s: float = ...,
        open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: None = ..., value_serializer: None = ...,
    ) -> TopicProducer: ...  # fmt: skip

    @overload
    def producer(
        self, topic: str, *, producer_id: int | None = ..., producer_epoch: int = ..., append_timeout_s: float = ...,
        open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: Callable[[Any], bytes] | None = ..., value_serializer: Callable[[Any], bytes],
    ) -> SerializingProducer: ...  # fmt: skip

    @overload
    def producer(
        self, topic: str, *, producer_id: int | None = ..., producer_epoch: int = ..., append_timeout_s: float = ...,
        open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: Callable[[Any], bytes], value_serializer: None = ...,
    ) -> SerializingProducer: ...  # fmt: skip

    def producer(
        self,
        topic: str,
        *,
        producer_id: int | None = None,
        producer_epoch: int = 0,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
    ) -> TopicProducer | SerializingProducer:
        """Return a producer of a topic, to be used with `async with`. Any number of them may send to one topic.

        Args:
            topic: "namespace/name", or the name of a topic in the namespace "default".
            producer_id: The same in each instance of one logical producer, 0 to 2^63 - 1; None: an id of its own.
            producer_epoch: Higher in each later instance, 0 to 2^32 - 1. Once a record of a later instance is in a shard,
                earlier instances are fenced there. Of no meaning without an id.
            append_timeout_s: Default limit of a send, flush or wait in seconds.
            open_timeout_s: Limit of the opening in seconds.
            inflight_bytes_max: Bytes that may be sent and not acked before `ready` waits.
            key_serializer: Function that makes bytes of whatever the program sends as a key.
            value_serializer: The same for values.

        Raises:
            InvalidArgument: The name or a number is not valid.

        Example:
            ```python
            async with client.producer("shop/orders") as producer:
                ack = await producer.send(b"…", key=b"UA")
            ```
        """
        makes = key_serializer is not None or value_serializer is not None
        serializers = Serializers(key_serializer, value_serializer)
        producer = self._producer_class(
            self._pd,
            self._owners,
            self._connections.appends,
            topic,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
            watermarks=WatermarkCalls(self._owner_calls),
        )
        self._producers[producer] = None
        producer.on_closed = self._producers.pop
        return SerializingProducer(producer, serializers) if makes else producer

    def submitter(self, topic: str) -> TopicSubmitter:
        """Return what submits records to a topic under a name: for brokers. For the package's own use."""
        return TopicSubmitter(self._pd, self._owners, self._connections.appends, topic)

    # ---- transactions

    @property
    def transactions(self) -> Transactions:
        """The administration of transactions."""
        return self._transactions

    @overload
    def transactional(
        self, transactional_id: str, *, timeout_s: float = ..., key_serializer: None = ..., value_serializer: None = ...
    ) -> Transactional: ...

    @overload
    def transactional(
        self, transactional_id: str, *, timeout_s: float = ...,
        key_serializer: Callable[[Any], bytes] | None = ..., value_serializer: Callable[[Any], bytes],
    ) -> SerializingTransactional: ...  # fmt: skip

    @overload
    def transactional(
        self, transactional_id: str, *, timeout_s: float = ...,
        key_serializer: Callable[[Any], bytes], value_serializer: None = ...,
    ) -> SerializingTransactional: ...  # fmt: skip

    def transactional(
        self,
        transactional_id: str,
        *,
        timeout_s: float = 60.0,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
    ) -> Transactional | SerializingTransactional:
        """Return an instance of a transactional id, to be used with `async with`: it makes transactions, one after the other.

        Args:
            transactional_id: The same in each instance of one logical program: a later instance ends the earlier one.
            timeout_s: A transaction is aborted when its program was silent for so long: 1 ms to 24 h, in seconds.
            key_serializer: Function that makes bytes of whatever the program sends as a key, to any topic.
            value_serializer: The same for values.

        Raises:
            InvalidArgument: The id is not a valid name, or the time-out is out of range.

        Example:
            ```python
            async with client.transactional("billing-1") as program, program.transaction() as transaction:
                await transaction.send("shop/orders", b"…", key=b"UA")
            ```
        """
        program: Transactional
        if key_serializer is None and value_serializer is None:
            program = Transactional(self._owner_calls, self._staging_producer, transactional_id, timeout_s=timeout_s)
        else:
            program = SerializingTransactional(
                self._owner_calls, self._staging_producer, transactional_id,
                Serializers(key_serializer, value_serializer), timeout_s=timeout_s,
            )  # fmt: skip
        program.on_opened = self._opened
        program.on_closed = lambda closed: self._programs.pop(closed, None)
        return program

    def _opened(self, program: Transactional) -> None:
        self._programs[program] = None

    def _staging_producer(self, topic: str, *, producer_id: int, producer_epoch: int, wire: StageWire) -> TopicProducer:
        return self._producer_class(
            self._pd,
            self._owners,
            self._connections.appends,
            topic,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            append_timeout_s=30.0,
            open_timeout_s=30.0,
            wire=wire,
        )

    # ---- groups

    @property
    def groups(self) -> Groups:
        """The administration of consumer groups."""
        return self._groups

    def group(
        self,
        group: str,
        *topics: str,
        member_id: str | None = None,
        start: str | datetime | Cut = "earliest",
        session_s: float = 10.0,
        auto_commit_s: float | None = None,
        checkpoint_every_s: float | None = None,
        skip_trimmed: bool = False,
        listener: GroupListener | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> GroupMember:
        """Return a member of a consumer group, to be used with `async with`: it shares the topics' shards with all others.

        Args:
            group: The group's name. The group is created with its first member.
            topics: The topics' names: the group reads them from now on, and so do all its members.
            member_id: An id that no other member has; None: a new one. Who joins under an id ends its earlier instance.
            start: Where to begin in topics that the group has not read before: "earliest", "latest", a datetime, or a Cut.
            session_s: The member loses its shards after so many seconds of silence.
            auto_commit_s: Commit what is processed at this interval, on giving shards back, and on close; None: only `commit`
                commits. A record is processed when the next one is asked for.
            checkpoint_every_s: Ask for a checkpoint of the whole group at this interval; None: never.
            skip_trimmed: Go on where a shard begins now, if records behind the committed position were trimmed. Otherwise the
                iterator raises OffsetTrimmed.
            listener: Is called between records, when shards come and go and at checkpoints.
            key_deserializer: Function of bytes; its result is the record's `key`, if it has one. `chunks` stay as they are.
                The record of which it raises counts as handed out.
            value_deserializer: The same for `value`.

        Raises:
            InvalidArgument: An argument is not valid.
        """
        return GroupMember(
            self._group_calls,
            self._group_shards,
            group,
            topics,
            member_id=member_id,
            start=start,
            session_s=session_s,
            auto_commit_s=auto_commit_s,
            checkpoint_every_s=checkpoint_every_s,
            skip_trimmed=skip_trimmed,
            listener=listener,
            deserialize=shard_deserializer(key_deserializer, value_deserializer),
            time_windows=self._topics._time_windows,
        )

    def _group_reader(
        self, stream: str, *, start: Start = "earliest", end: int | None = None, follow: bool = False
    ) -> Reader:
        return ShardReader(
            self._metadata,
            self._connections,
            ColdReader(self._metadata, self._cold_stores),
            self._watches,
            stream,
            start=start,
            end=end,
            follow=follow,
            read_preference="hot_first",
            timeout_s=30.0,
        )

    # ---- tables

    @property
    def tables(self) -> Tables:
        """The administration of tables."""
        return self._tables

    def table(self, name: str) -> Table:
        """Return a table, whose rows are read and changed with it. Nothing is asked for before its first use.

        Args:
            name: "namespace/name"; a bare name is in the namespace "default".

        Raises:
            InvalidArgument: The name is not valid. The table's methods raise TopicNotFound where there is none.
        """
        return self._tables.table(name)
