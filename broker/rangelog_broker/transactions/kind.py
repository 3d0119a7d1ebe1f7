"""Transactions, as a kind of machine on coordinator journals; with them the orders to owners of shards."""

from __future__ import annotations

from typing import Any

from rangelog_broker.kind import Journals, KindCall, KindContext, MachineKind, Need, Needs
from rangelog_broker.transactions.coordinator import TransactionCoordinator
from rangelog_broker.transactions.service import ShardsService, TransactionsService
from rangelog_core.net.owner_calls import JOURNALS
from rangelog_core.rights import ANY, Verb
from rangelog_proto.v1 import rights_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import (
    add_ShardsServicer_to_server,
    add_TransactionsServicer_to_server,
)


def _all_or_one(verbs: Verb) -> Needs:
    """Of one transactional id, or of all where none is named."""
    return lambda request: [(verbs, pb.RESOURCE_KIND_TRANSACTION, request.transactional_id or "*", 0)]


def _named(request: Any) -> list[Need]:
    name = request.name.transactional_id if hasattr(request, "name") else request.transactional_id
    return [(Verb.APPEND, pb.RESOURCE_KIND_TRANSACTION, name, 0)]


def _open(journals: Journals, context: KindContext) -> TransactionsService:
    return TransactionsService(journals, context.calls, context.topics, context.shards, context.rights)


def _add(service: TransactionsService, server: Any) -> None:
    add_TransactionsServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    assert service.shards is not None
    add_ShardsServicer_to_server(ShardsService(service.shards), server)  # type: ignore[no-untyped-call]


_OF_ONE = KindCall(_named)

TRANSACTIONS = MachineKind(
    number=2,
    service="rangelog.v1.Transactions",
    make=lambda number: TransactionCoordinator(1 + number, JOURNALS),
    open=_open,
    add=_add,
    calls={
        "OpenTransactionSession": KindCall(_all_or_one(Verb.APPEND)),
        "InitTransactions": _OF_ONE,
        "BeginTransaction": _OF_ONE,
        "PingTransaction": _OF_ONE,
        "CommitTransaction": _OF_ONE,
        "AbortTransaction": _OF_ONE,
        "DescribeTransaction": _OF_ONE,
        "ListTransactions": KindCall(_all_or_one(ANY)),
    },
    more_services=("rangelog.v1.Shards",),
)
