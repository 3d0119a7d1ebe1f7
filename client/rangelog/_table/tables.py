"""The tables of a cluster: create, delete, list, describe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from rangelog._arguments import checked_arguments
from rangelog._metadata import CALL_TIMEOUT_S, new_request_id
from rangelog._table.partition_calls import CallsOfOwners
from rangelog._table.partitions import Partitions, check_exists, listed_shards
from rangelog._table.table import Table
from rangelog._table.values import TableInfo
from rangelog_core.errors import InvalidArgument, NamespaceExists, NamespaceNotFound, RangelogError, TopicNotFound
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_core.name_errors import no_table
from rangelog_core.net.pages import pages_by_token
from rangelog_core.net.pd_client import PdClient
from rangelog_core.stream_config import StreamConfig, config_message
from rangelog_core.topic_kinds import check_kind
from rangelog_core.topic_names import DEFAULT_NAMESPACE, TopicName, parse_topic_name
from rangelog_proto.v1 import topic_pb2 as pb

PARTITIONS_DEFAULT = 4
NO_TAGS: Mapping[str, str] = MappingProxyType({})


@checked_arguments
class Tables:
    """The tables of a cluster: `client.tables`.

    A table's name is "namespace/name"; a bare name is in the namespace "default", which is made when it is needed. Tables and
    topics share names.

    Every method may raise InvalidArgument, Unauthorized, Unavailable and RequestTimeout. Times are in seconds.

    Example:
        ```python
        await client.tables.create("counts", partitions=8)
        await client.table("counts").put(b"UA", b"1")
        ```
    """

    def __init__(self, pd: PdClient, owners: CallsOfOwners) -> None:
        self._topics = pd
        self._owners = owners
        self._partitions: dict[int, Partitions] = {}

    async def create(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        replicas: int = 3,
        acks: int | None = None,
        tags: Mapping[str, str] = NO_TAGS,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> TableInfo:
        """Create a table.

        Args:
            name: "namespace/name", or a bare name.
            partitions: The number of partitions, 1 to 1,000. It never changes. Each holds up to 1 GiB of rows, in the memory
                of its owner.
            replicas: Replicas of each range of a partition's log, 1 to 7.
            acks: Replicas that hold a change durably before it is acked. None: 2, or 1 with a single replica.
            tags: Tags, up to 50.
            timeout_s: Limit in seconds.

        Raises:
            TopicExists: A table or topic with this name exists.
            NamespaceNotFound: The namespace does not exist, and is not "default".
            OutcomeUnknown: The table may or may not have been created.
        """
        where = parse_topic_name(name)
        if type(partitions) is not int or not 1 <= partitions <= COMMAND_SHARDS_MAX:
            raise InvalidArgument(f"a table has 1 to {COMMAND_SHARDS_MAX} partitions, not {partitions!r}")
        stream, _ = config_message(StreamConfig(replicas=replicas, acks=acks, tiered=False))
        request = pb.CreateTopicRequest(
            request_id=new_request_id(),
            namespace=where.namespace,
            name=where.name,
            config=pb.TopicConfig(kind=pb.TOPIC_KIND_TABLE, stream=stream),
            tags=tags,
            shard_count=partitions,
        )
        try:
            created = await self._topics.call(request, pb.CreateTopicResponse, timeout_s=timeout_s)
        except NamespaceNotFound:
            if where.namespace != DEFAULT_NAMESPACE:
                raise
            make = pb.CreateNamespaceRequest(request_id=new_request_id(), name=DEFAULT_NAMESPACE)
            with suppress(NamespaceExists):
                await self._topics.call(make, pb.CreateNamespaceResponse, timeout_s=timeout_s)
            request.request_id = new_request_id()
            created = await self._topics.call(request, pb.CreateTopicResponse, timeout_s=timeout_s)
        return _info(created.topic)

    async def describe(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TableInfo:
        """Return a table. Raises TopicNotFound, TopicKindForbids: it is a topic of records."""
        return _info(await self._described(parse_topic_name(name), timeout_s))

    async def list(self, *, namespace: str = "", prefix: str = "", after: str = "") -> AsyncIterator[TableInfo]:
        """Yield tables by namespace and name.

        Args:
            namespace: Only tables in it; empty: all.
            prefix: Only tables whose names start with it; only together with a namespace.
            after: Only tables that come after this name: "namespace/name", or a bare one.
        """
        last = str(parse_topic_name(after)) if after else ""
        request = pb.ListTopicsRequest(namespace=namespace, prefix=prefix, page_token=last)
        async for page in pages_by_token(self._topics, request, pb.ListTopicsResponse, CALL_TIMEOUT_S):
            for topic in page.topics:
                if topic.config.kind == pb.TOPIC_KIND_TABLE:
                    yield _info(topic)

    async def delete(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete a table with all its rows.

        Raises:
            TopicNotFound: The table does not exist.
            TopicKindForbids: It is a topic of records.
            OutcomeUnknown: The table may or may not have been deleted.
        """
        topic = await self._described(parse_topic_name(name), timeout_s)
        request = pb.DeleteTopicRequest(
            request_id=new_request_id(), topic=pb.TopicReference(topic_id=topic.topic_id), force=True
        )
        await self._topics.call(request, pb.DeleteTopicResponse, timeout_s=timeout_s)

    def table(self, name: str) -> Table:
        """Return a table; see `Client.table`. For the package's own use."""
        parse_topic_name(name)
        return Table(name, self._find, self._explain)

    async def close(self) -> None:
        """End what is under way in all tables. Idempotent. For the package's own use."""
        for each in list(self._partitions.values()):
            await each.close()

    # ---- inside

    async def _described(self, name: TopicName, timeout_s: float) -> pb.Topic:
        reference = pb.TopicReference(namespace=name.namespace, name=name.name)
        try:
            response = await self._topics.call(
                pb.DescribeTopicRequest(topic=reference), pb.DescribeTopicResponse, timeout_s=timeout_s
            )
        except TopicNotFound:
            raise no_table(str(name)) from None
        return check_kind(response.topic, pb.TOPIC_KIND_TABLE)

    async def _find(self, name: str) -> Partitions:
        topic = await self._described(parse_topic_name(name), CALL_TIMEOUT_S)
        shards = await listed_shards(self._topics, topic.topic_id)
        found = self._partitions.get(topic.topic_id)
        if found is None:
            found = self._partitions[topic.topic_id] = Partitions(self._owners, topic.topic_id, shards)
        return found

    async def _explain(self, partitions: Partitions, error: RangelogError) -> None:
        try:
            await check_exists(self._topics, partitions.table_id, error)
        except TopicNotFound:
            self._partitions.pop(partitions.table_id, None)
            await partitions.close()
            raise


def _info(topic: pb.Topic) -> TableInfo:
    return TableInfo(
        name=str(TopicName(topic.namespace, topic.name)),
        table_id=topic.topic_id,
        partition_count=topic.current_shard_count,
        replicas=topic.config.stream.replicas,
        acks=topic.config.stream.acks,
        tags=MappingProxyType(dict(topic.tags)),
        version=topic.version,
        created_ms=topic.created_ms,
    )
