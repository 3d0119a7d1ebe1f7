"""The calls on tables whose bytes count in quotas: rows that are put, and rows that are returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rangelog_core.quotas import Measure
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC
from rangelog_server_common.quotas.guard import ByteCall, Resource


def _table(request: Any) -> Resource:
    return int(RESOURCE_KIND_TOPIC), request.topic_id


BYTE_CALLS: Mapping[str, ByteCall] = {
    "/rangelog.v1.Tables/Apply": ByteCall(Measure.APPEND, _table),
    "/rangelog.v1.Tables/Get": ByteCall(Measure.READ, _table),
    "/rangelog.v1.Tables/Scan": ByteCall(Measure.READ, _table),
    "/rangelog.v1.Tables/Watch": ByteCall(Measure.READ, _table),
}
