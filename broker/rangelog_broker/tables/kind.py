"""Tables, as a kind of machine: each partition has a journal of its own."""

from __future__ import annotations

from rangelog_broker.kind import KindCall, MachineKind, on_topic
from rangelog_broker.tables.machine import TablePartition
from rangelog_broker.tables.service import TablesService
from rangelog_core.quotas import Measure
from rangelog_core.rights import Verb
from rangelog_proto.v1.table_service_pb2_grpc import add_TablesServicer_to_server

_READS = KindCall(on_topic(Verb.READ), Measure.READ)

TABLES = MachineKind(
    number=0,
    service="rangelog.v1.Tables",
    make=lambda number: TablePartition(),
    open=lambda journals, context: TablesService(journals),
    add=add_TablesServicer_to_server,
    calls={
        "OpenSession": KindCall(on_topic(Verb.APPEND)),
        "Apply": KindCall(on_topic(Verb.APPEND), Measure.APPEND),
        "Get": _READS,
        "Scan": _READS,
        "Watch": _READS,
    },
)
