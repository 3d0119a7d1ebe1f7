"""The gRPC services of a broker, over the journals and shards that it owns."""

from __future__ import annotations

from contextlib import AsyncExitStack

from rangelog import Client
from rangelog_broker.groups.service import SERVICE_NAME as GROUPS_SERVICE_NAME
from rangelog_broker.groups.service import GroupsService
from rangelog_broker.hosting.journals import (
    HostedGroupJournals,
    HostedTableJournals,
    HostedTransactionJournals,
    HostedWatermarkJournals,
    OwnedJournals,
)
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.settings import BrokerSettings
from rangelog_broker.tables.service import SERVICE_NAME as TABLES_SERVICE_NAME
from rangelog_broker.tables.service import TablesService
from rangelog_broker.topic_rights import TopicRights
from rangelog_broker.transactions.service import (
    SHARDS_SERVICE_NAME,
    TRANSACTIONS_SERVICE_NAME,
    ShardsService,
    TransactionsService,
)
from rangelog_broker.watermarks.service import SERVICE_NAME as WATERMARKS_SERVICE_NAME
from rangelog_broker.watermarks.service import WatermarksService
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1.group_service_pb2_grpc import add_GroupsServicer_to_server
from rangelog_proto.v1.table_service_pb2_grpc import add_TablesServicer_to_server
from rangelog_proto.v1.transaction_service_pb2_grpc import (
    add_ShardsServicer_to_server,
    add_TransactionsServicer_to_server,
)
from rangelog_proto.v1.watermark_service_pb2_grpc import add_WatermarksServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.rights.guard import RightsGuard

SERVICES = (
    GROUPS_SERVICE_NAME,
    TABLES_SERVICE_NAME,
    TRANSACTIONS_SERVICE_NAME,
    SHARDS_SERVICE_NAME,
    WATERMARKS_SERVICE_NAME,
)


def add_services(
    stack: AsyncExitStack,
    control: GrpcServer,
    settings: BrokerSettings,
    client: Client,
    calls: OwnerCalls,
    topics: PdClient,
    journals: OwnedJournals,
    owned: OwnedShards,
    rights: RightsGuard,
) -> None:
    """Add all services to a server that is not started yet; `stack` closes them."""
    told = TopicRights(rights, topics)
    groups = GroupsService(HostedGroupJournals(journals), topics, calls, told)
    transactions = TransactionsService(HostedTransactionJournals(journals), calls, topics, owned, told)
    watermarks = WatermarksService(
        HostedWatermarkJournals(journals),
        topics,
        client.internal.proved_end,
        interval_s=settings.watermark_interval_s,
        expiry_s=settings.watermark_expiry_s,
    )
    for service in (groups, transactions, watermarks):
        stack.callback(service.close)

    def opened(number: int) -> None:
        for service in (groups, transactions, watermarks):
            service.owner_of(number)

    journals.on_coordinator = opened
    server = control.server
    add_GroupsServicer_to_server(groups, server)  # type: ignore[no-untyped-call]
    add_TablesServicer_to_server(TablesService(HostedTableJournals(journals)), server)  # type: ignore[no-untyped-call]
    add_TransactionsServicer_to_server(transactions, server)  # type: ignore[no-untyped-call]
    add_ShardsServicer_to_server(ShardsService(owned), server)  # type: ignore[no-untyped-call]
    add_WatermarksServicer_to_server(watermarks, server)  # type: ignore[no-untyped-call]
