"""The calls on the owner of one partition, wherever it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from rangelog_core.errors import ShardEnded, TopicNotFound
from rangelog_core.net.owner_calls import OwnedKey
from rangelog_proto.v1 import table_service_pb2 as pb
from rangelog_proto.v1.table_service_pb2_grpc import TablesStub

_Response = TypeVar("_Response")


class CallsOfOwners(Protocol):
    """What OwnerCalls does."""

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[_Response]]],
        request: object,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> _Response:
        """Call the owner of a shard."""


class PartitionCalls:
    """Typed calls. All raise Unavailable, RequestTimeout, TopicNotFound (the table was deleted), or the owner's refusal."""

    def __init__(self, owners: CallsOfOwners, table_id: int, partition: int) -> None:
        self.table_id = table_id
        self.partition = partition
        self._owners = owners

    async def open_session(self, timeout_s: float) -> int:
        """Open a session."""
        response = await self._call(lambda stub: stub.OpenSession, pb.OpenTableSessionRequest(), timeout_s)
        return int(response.session)

    async def get(self, request: pb.GetRowsRequest, timeout_s: float) -> pb.GetRowsResponse:
        """Read the rows of keys."""
        return await self._call(lambda stub: stub.Get, request, timeout_s)

    async def apply(
        self, request: pb.ApplyTableRequest, timeout_s: float, on_try: Callable[[], object]
    ) -> pb.ApplyTableResponse:
        """Apply commands. `on_try`: called before each try, all of which may arrive."""

        def method(stub: Any) -> Any:
            on_try()
            return stub.Apply

        return await self._call(method, request, timeout_s)

    async def scan(self, request: pb.ScanTableRequest, timeout_s: float) -> pb.ScanTableResponse:
        """Read a page of rows."""
        return await self._call(lambda stub: stub.Scan, request, timeout_s)

    async def watch(self, request: pb.WatchTableRequest, timeout_s: float) -> pb.WatchTableResponse:
        """Read changes, or wait for one."""
        return await self._call(lambda stub: stub.Watch, request, timeout_s)

    async def _call(
        self, method: Callable[[Any], Callable[..., Awaitable[_Response]]], request: Any, timeout_s: float
    ) -> _Response:
        request.topic_id, request.shard_id = self.table_id, self.partition
        key = self.table_id, self.partition
        try:
            return await self._owners.call(key, TablesStub, method, request, timeout_s=timeout_s, repeatable=True)
        except ShardEnded as error:  # the partitions of a table end with it
            raise TopicNotFound("the table was deleted", outcome_unknown=error.outcome_unknown) from None
