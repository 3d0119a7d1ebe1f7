"""Watermarks, as a kind of machine on coordinator journals."""

from __future__ import annotations

from rangelog_broker.kind import Journals, KindCall, KindContext, MachineKind, on_topic
from rangelog_broker.watermarks.machine import WatermarkCoordinator
from rangelog_broker.watermarks.service import WatermarksService
from rangelog_core.rights import Verb
from rangelog_proto.v1.watermark_service_pb2_grpc import add_WatermarksServicer_to_server


def _open(journals: Journals, context: KindContext) -> WatermarksService:
    return WatermarksService(
        journals,
        context.topics,
        context.client.internal.proved_end,
        interval_s=context.settings.watermark_interval_s,
        expiry_s=context.settings.watermark_expiry_s,
    )


WATERMARKS = MachineKind(
    number=3,
    service="rangelog.v1.Watermarks",
    make=lambda number: WatermarkCoordinator(),
    open=_open,
    add=add_WatermarksServicer_to_server,
    calls={
        "NoteTime": KindCall(on_topic(Verb.APPEND)),
        "EndTimeNotes": KindCall(on_topic(Verb.APPEND)),
        "ListWatermarks": KindCall(on_topic(Verb.READ)),
    },
)
