"""The gRPC services of a broker: those of the kinds of machines, over the journals and shards that it owns."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from rangelog_broker.hosting.journals import KindJournals, OwnedJournals
from rangelog_broker.kind import KindContext
from rangelog_broker.kinds import KINDS
from rangelog_server_common.grpc_server import GrpcServer

SERVICES = tuple(name for kind in KINDS for name in (kind.service, *kind.more_services))


def add_services(stack: AsyncExitStack, control: GrpcServer, journals: OwnedJournals, context: KindContext) -> None:
    """Add all services to a server that is not started yet; `stack` closes them."""
    of_coordinators: list[Any] = []
    for kind in KINDS:
        service = kind.open(KindJournals(journals, kind), context)
        stack.callback(service.close)
        kind.add(service, control.server)
        if kind.number:
            of_coordinators.append(service)

    def opened(number: int) -> None:
        for service in of_coordinators:
            service.owner_of(number)

    journals.on_coordinator = opened
